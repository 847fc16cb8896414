// RandAugment: a few operations on an image, drawn with replacement, one after another.
// Source: Cubuk et al. 2020, "RandAugment: practical automated data augmentation with a reduced search space", in the
// two forms that published trainings use, whose strengths do not compare:
//   torchvision  14 operations; the strength is one of 31 steps to each operation's most, with a random sign;
//   composer     13 operations (without the identity); the strength is drawn anew each time, uniformly from 0.1 to the
//                given one, of 10; tones become as often stronger as weaker. Used by QSR's vision transformers.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "workers/datasets/byte_image.hpp"
#include "workers/datasets/image_warp.hpp"

namespace syncopate {

enum class ImageOperation {
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  colour,
  contrast,
  sharpness,
  posterize,
  solarize,
  autocontrast,
  equalize,
  identity,
};
inline constexpr int image_operations = 14;

// `amount`: slope, pixels, degrees, factor, bits that stay, threshold; of the last three nothing.
void apply(ImageOperation operation, double amount, Resampling resampling, const ByteImage& image);

struct RandAugment {
  enum class Form { torchvision, composer };

  Form form = Form::torchvision;
  int operations = 2;
  double strength = 9;  // torchvision: a whole number from 0 to 30; composer: 0.1 to 10

  Resampling resampling() const { return form == Form::torchvision ? Resampling::nearest : Resampling::bilinear; }
};

// What four uniform numbers make of it: which operation, its sign, its strength, and which way tones go.
inline constexpr std::size_t draws_of_operation = 4;
struct DrawnOperation {
  ImageOperation operation = ImageOperation::identity;
  double amount = 0;
};
DrawnOperation drawn_operation(const RandAugment& law, const SampleShape& shape,
                               std::span<const double, draws_of_operation> uniform);

}  // namespace syncopate
