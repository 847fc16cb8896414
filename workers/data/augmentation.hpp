// Changes training images at random at each visit. It works on bytes, before normalisation, so that areas outside of an
// image are black, not the mean. The order: a crop of the image in a frame of zeros; a flip; a rotation with a zoom;
// RandAugment.
// Source:  crop and flip as for CIFAR in He et al. 2016, section 4.2; RandAugment's below.
//
// The draws are a function of (seed, sample, epoch), so all methods and numbers of workers get the same images.
// Evaluations use the stored images.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/images.hpp"

namespace syncopate {

enum class Resampling { nearest, bilinear };

// Moves, shears, rotates and scales images: pixel (x, y) of the result comes from (x', y') of the image, and is black
// if that is outside. x' = xx x + xy y + x0, y' = yx x + yy y + y0, for the pixels' centres, which are at
// half-integers.
// Source:  an affine transform as in the Python Imaging Library (Pillow), with its rounding.
struct Warp {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  static Warp shear_x(double slope) { return {.xy = slope}; }  // moves rows to the left, lower ones more
  static Warp shear_y(double slope) { return {.yx = slope}; }
  static Warp translation(double right, double down) { return {.x0 = -right, .y0 = -down}; }
  // Rotates counter-clockwise around the image's centre and enlarges by the factor.
  static Warp rotation(double degrees, const SampleShape& shape, double factor = 1);
};

void warp(const ByteImage& image, const Warp& how, Resampling resampling);

// RandAugment: a few operations on an image, drawn with replacement and applied one after another.
// Source: Cubuk et al. 2020, "RandAugment: practical automated data augmentation with a reduced search space", in the
// two forms that published trainings use; their strengths are not comparable:
//   torchvision  14 operations; the strength is one of 31 steps up to each operation's maximum, with a random sign;
//   composer     13 operations (without the identity); the strength is drawn each time, uniformly from 0.1 to the given
//                one, on a scale of 10; tones become stronger or weaker equally often. Used by QSR's vision
//                transformers.
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

// `amount`: slope, pixels, degrees, factor, remaining bits, or threshold; the last three operations have none.
void apply(ImageOperation operation, double amount, Resampling resampling, const ByteImage& image);

struct RandAugment {
  enum class Form { torchvision, composer };

  Form form = Form::torchvision;
  int operations = 2;
  double strength = 9;  // torchvision: a whole number from 0 to 30; composer: 0.1 to 10

  Resampling resampling() const { return form == Form::torchvision ? Resampling::nearest : Resampling::bilinear; }
};

// Four uniform numbers decide: the operation, its sign, its strength, and the direction of tones.
inline constexpr std::size_t draws_of_operation = 4;
struct DrawnOperation {
  ImageOperation operation = ImageOperation::identity;
  double amount = 0;
};
DrawnOperation drawn_operation(const RandAugment& law, const SampleShape& shape,
                               std::span<const double, draws_of_operation> uniform);

struct Augmentation {
  std::int64_t crop = 0;      // pixels of the frame; each of the (2 crop + 1)^2 crops is equally likely
  bool flip = false;          // left and right, with probability 1/2
  double rotate_degrees = 0;  // uniform from minus this angle to this angle, counter-clockwise, bilinear
  double zoom = 0;            // enlarges by a factor uniform in [1 - zoom, 1 + zoom]
  std::optional<RandAugment> randaugment{};
  double mixup = 0;  // alpha, for samples of any kind in a micro-batch (models/forward.hpp); 0: none

  bool warps() const { return rotate_degrees > 0 || zoom > 0; }
  bool changes_images() const { return crop > 0 || flip || warps() || randaugment; }
  bool changes_samples() const { return changes_images() || mixup > 0; }
};

// `inner` must have byte images (DatasetSize::has_byte_images).
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation);

// Reads the table [training.augmentation]; checks whether it suits a data set.
Augmentation read_augmentation(Settings& training);

// Reports faults if the data set's samples cannot be changed in this way.
void check_augmentation(const Augmentation& augmentation, const DatasetSize& size, std::string_view dataset,
                        Settings& training);

// Crops and flips byte images (channels, height, width).
struct CropAndFlip {
  std::int64_t down = 0;  // out(y, x) = in(y + down, x + right), black if that is outside
  std::int64_t right = 0;
  bool flip = false;  // afterwards, left to right
};

// `out` must not overlap `in`.
void crop_and_flip(std::span<const std::uint8_t> in, const SampleShape& shape, const CropAndFlip& change,
                   std::span<std::uint8_t> out);

// These change an image's tones in place. Source: the operations of these names in the Python Imaging Library (Pillow),
// with its rounding. Images of one channel correspond to its grey images, those of three to its colour images.
void posterize(const ByteImage& image, int bits);         // keeps only this many of the highest bits, 0 to 8
void solarize(const ByteImage& image, double threshold);  // inverts pixels of at least the threshold
void autocontrast(const ByteImage& image);                // stretches each channel over 0 .. 255
void equalize(const ByteImage& image);                    // flattens each channel's histogram

// At factor 1 these return the image; at 0 black, the mean of its grey, its grey, or a smoothed image. Linear in
// between, clipped to 0 .. 255.
void brightness(const ByteImage& image, double factor);
void contrast(const ByteImage& image, double factor);
void colour(const ByteImage& image, double factor);  // no effect on one channel
void sharpness(const ByteImage& image, double factor);

}  // namespace syncopate
