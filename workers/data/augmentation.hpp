// Augmentation: changes training images at random at each visit. It works on bytes, before normalisation, so that areas
// outside of an image are black and do not have the mean colour. The changes are, in this order, a crop of the image in
// a frame of zeros, a flip, a rotation with a zoom, and RandAugment. Labels can be changed too, for any samples with
// classes.
// Source:  crop and flip as for CIFAR in He et al. 2016, section 4.2; RandAugment's source is below. Label noise as in
//          the reference code of Gu et al. 2023 (repository hmgxr128/Local-SGD): with probability p, a label becomes
//          one of the other classes, all equally likely.
//
// The random draws are a function of (seed, sample, epoch), so all methods and numbers of workers get the same images.
// Evaluations use the images as they are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"

namespace syncopate {

// An image of bytes that is changed in place.
struct ByteImage {
  std::span<std::uint8_t> pixels;  // (channels, height, width)
  SampleShape shape;

  std::size_t plane_size() const { return static_cast<std::size_t>(shape.height * shape.width); }
  std::span<std::uint8_t> plane(std::int64_t channel) const {
    return pixels.subspan(static_cast<std::size_t>(channel) * plane_size(), plane_size());
  }
};

enum class Resampling { nearest, bilinear };

// An affine map that moves, shears, rotates and scales images. Pixel (x, y) of the result is pixel (x', y') of the
// image, or black if (x', y') is outside: x' = xx x + xy y + x0, y' = yx x + yy y + y0. Coordinates are those of the
// pixels' centres, which are at half-integers.
// Source:  an affine transform as in the Python Imaging Library (Pillow), with its rounding.
struct Warp {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  // Rotates counter-clockwise around the image's centre and enlarges by `factor`.
  static Warp rotation(double degrees, const SampleShape& shape, double factor = 1);
};

void warp(const ByteImage& image, const Warp& how, Resampling resampling);

// RandAugment: applies a few operations to an image, which are drawn with replacement.
// Source: Cubuk et al. 2020, "RandAugment: practical automated data augmentation with a reduced search space", in the
// two forms that published trainings use; their strengths are not comparable:
//   torchvision  14 operations; the strength is an integer from 0 to 30, where 30 is the maximum, with a random sign;
//   composer     13 operations (without the identity); the strength of each is drawn uniformly from 0.1 to the given
//                strength, where 10 is the maximum; brightness, colour, contrast and sharpness increase or decrease
//                equally often. Used by QSR's vision transformers.
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

// Applies an operation, with the result of the Python Imaging Library (Pillow), including its rounding. Images of one
// channel correspond to Pillow's grey images, images of three channels to its colour images. `amount` is, by
// operation, a slope, pixels, degrees, a factor, the remaining bits, or a threshold. The operations autocontrast,
// equalize and identity ignore it.
void apply(ImageOperation operation, double amount, Resampling resampling, const ByteImage& image);

struct RandAugment {
  enum class Form { torchvision, composer };

  Form form = Form::torchvision;
  int operations = 2;
  double strength = 9;  // torchvision: an integer from 0 to 30; composer: 0.1 to 10

  Resampling resampling() const { return form == Form::torchvision ? Resampling::nearest : Resampling::bilinear; }
};

// Four uniform numbers determine an operation: its kind, its sign, its strength, and whether brightness, colour,
// contrast or sharpness increases.
inline constexpr std::size_t draws_of_operation = 4;
struct DrawnOperation {
  ImageOperation operation = ImageOperation::identity;
  double amount = 0;
};
DrawnOperation drawn_operation(const RandAugment& law, const SampleShape& shape,
                               std::span<const double, draws_of_operation> uniform);

struct Augmentation {
  std::int64_t crop = 0;      // width of the frame in pixels; all (2 crop + 1)^2 crops are equally likely
  bool flip = false;          // flips left to right with probability 1/2
  double rotate_degrees = 0;  // largest angle; angles are uniform in both directions, pixels interpolated bilinearly
  double zoom = 0;            // the factor is uniform in [1 - zoom, 1 + zoom]
  std::optional<RandAugment> randaugment{};
  double mixup = 0;        // alpha, for all samples but tokens (models/forward.hpp); 0: no mixing
  double label_noise = 0;  // probability that a visited sample has a wrong label, for all samples but tokens

  bool warps() const { return rotate_degrees > 0 || zoom > 0; }
  bool changes_images() const { return crop > 0 || flip || warps() || randaugment; }
  bool changes_samples() const { return changes_images() || mixup > 0 || label_noise > 0; }
};

// Returns the data set with augmented training samples. If images change, `inner` must have images of bytes
// (DatasetSize::has_byte_images); if labels change, it must have at least two classes.
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation);

// Reads the table [training.augmentation].
Augmentation read_augmentation(Settings& training);

// Reports faults if the augmentation cannot be applied to the data set's samples.
void check_augmentation(const Augmentation& augmentation, const DatasetSize& size, std::string_view dataset,
                        Settings& training);

// Crops and flips byte images (channels, height, width).
struct CropAndFlip {
  std::int64_t down = 0;  // out(y, x) = in(y + down, x + right), or black if that is outside
  std::int64_t right = 0;
  bool flip = false;  // flip left to right after the crop
};

// `out` must not overlap `in`.
void crop_and_flip(std::span<const std::uint8_t> in, const SampleShape& shape, const CropAndFlip& change,
                   std::span<std::uint8_t> out);

}  // namespace syncopate
