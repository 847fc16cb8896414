#include "workers/datasets/rand_augment.hpp"

#include <cassert>
#include <cmath>

#include "workers/datasets/image_tones.hpp"

namespace syncopate {
namespace {

using enum ImageOperation;

bool is_tone_factor(ImageOperation operation) {
  return operation == brightness || operation == colour || operation == contrast || operation == sharpness;
}

double size_along(ImageOperation operation, const SampleShape& shape) {
  return static_cast<double>(operation == translate_x ? shape.width : shape.height);
}

// `share`: of the most.
double torchvision_amount(ImageOperation operation, double share, double sign, const SampleShape& shape) {
  constexpr double most_of_size = 150.0 / 331.0, most_slope = 0.3, most_degrees = 30, most_factor = 0.9;
  switch (operation) {
    case shear_x:
    case shear_y:
      return sign * most_slope * share;
    case translate_x:
    case translate_y:
      return std::trunc(sign * most_of_size * size_along(operation, shape) * share);
    case rotate:
      return sign * most_degrees * share;
    case posterize:
      return 8 - std::nearbyint(4 * share);
    case solarize:
      return 255 * (1 - share);
    default:
      return is_tone_factor(operation) ? 1 + sign * most_factor * share : 0;
  }
}

// `level`: of 10. What is an integer there is cut off.
double composer_amount(ImageOperation operation, double level, double sign, const SampleShape& shape) {
  const double share = level / 10;
  constexpr double most_slope = 0.3, most_degrees = 30;
  switch (operation) {
    case shear_x:
    case shear_y:
      return sign * most_slope * share;
    case translate_x:
    case translate_y:
      return sign * std::trunc(size_along(operation, shape) / 3 * share);
    case rotate:
      return sign * std::trunc(most_degrees * share);
    case posterize:
      return 4 - std::trunc(4 * share);
    case solarize:
      return 256 - std::trunc(256 * share);
    default:
      return 0;
  }
}

// As often from 1 up to the strength as from 1 down.
double composer_factor(ImageOperation operation, double strength, bool is_stronger, double draw) {
  const double end = is_stronger ? strength : 1 - 0.09 * strength;
  const double factor = 1 + (end - 1) * draw;
  return operation == brightness && factor > 1 ? 0.75 * factor : factor;
}

}  // namespace

void apply(ImageOperation operation, double amount, Resampling resampling, const ByteImage& image) {
  switch (operation) {
    case shear_x:
      return warp(image, Warp::shear_x(amount), resampling);
    case shear_y:
      return warp(image, Warp::shear_y(amount), resampling);
    case translate_x:
      return warp(image, Warp::translation(amount, 0), resampling);
    case translate_y:
      return warp(image, Warp::translation(0, amount), resampling);
    case rotate:
      return warp(image, Warp::rotation(amount, image.shape), resampling);
    case ImageOperation::brightness:
      return syncopate::brightness(image, amount);
    case ImageOperation::colour:
      return syncopate::colour(image, amount);
    case ImageOperation::contrast:
      return syncopate::contrast(image, amount);
    case ImageOperation::sharpness:
      return syncopate::sharpness(image, amount);
    case ImageOperation::posterize:
      return syncopate::posterize(image, static_cast<int>(amount));
    case ImageOperation::solarize:
      return syncopate::solarize(image, amount);
    case ImageOperation::autocontrast:
      return syncopate::autocontrast(image);
    case ImageOperation::equalize:
      return syncopate::equalize(image);
    case identity:
      return;
  }
}

DrawnOperation drawn_operation(const RandAugment& law, const SampleShape& shape,
                               std::span<const double, draws_of_operation> uniform) {
  const bool is_torchvision = law.form == RandAugment::Form::torchvision;
  const int choices = is_torchvision ? image_operations : image_operations - 1;  // the identity is the last
  const auto operation = static_cast<ImageOperation>(static_cast<int>(uniform[0] * choices));
  const double sign = uniform[1] < 0.5 ? 1 : -1;
  constexpr double steps = 30, weakest = 0.1;
  double amount = 0;
  if (is_torchvision)
    amount = torchvision_amount(operation, law.strength / steps, sign, shape);
  else if (is_tone_factor(operation))
    amount = composer_factor(operation, law.strength, uniform[3] < 0.5, uniform[2]);
  else
    amount = composer_amount(operation, weakest + (law.strength - weakest) * uniform[2], sign, shape);
  return {operation, amount};
}

}  // namespace syncopate
