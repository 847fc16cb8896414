// Training images that are changed at random each time they are met, as bytes, before they are normalised: so beyond
// the border is black, not the mean. In this order: a crop of the image in a frame of zeros; a flip; a rotation with a
// zoom; RandAugment.
// Source:  crop and flip as for CIFAR in He et al. 2016, section 4.2; RandAugment's below.
//
// The draws are a function of (seed, sample, epoch), so that all methods and numbers of workers meet the same images.
// Evaluations meet the stored ones.
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

// Images moved, sheared, turned and scaled: pixel (x, y) of the result is taken from (x', y') of the image, black where
// that is outside. x' = xx x + xy y + x0, y' = yx x + yy y + y0, of the pixels' centres, which lie at halves.
// Source:  an affine transform as in the Python Imaging Library (Pillow), with its rounding.
struct Warp {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  static Warp shear_x(double slope) { return {.xy = slope}; }  // rows move to the left, the more the lower
  static Warp shear_y(double slope) { return {.yx = slope}; }
  static Warp translation(double right, double down) { return {.x0 = -right, .y0 = -down}; }
  // Counter-clockwise around the image's centre, and larger by the factor.
  static Warp rotation(double degrees, const SampleShape& shape, double factor = 1);
};

void warp(const ByteImage& image, const Warp& how, Resampling resampling);

// RandAugment: a few operations on an image, drawn with replacement, one after another.
// Source: Cubuk et al. 2020, "RandAugment: practical automated data augmentation with a reduced search space", in the
// two forms that published trainings use, whose strengths do not compare:
//   torchvision  14 operations; the strength is one of 31 steps to each operation's most, with a random sign;
//   composer     13 operations (without the identity); the strength is drawn anew each time, uniformly from 0.1 to the
//                given one, of 10; tones become as often stronger as weaker. Used by QSR's vision transformers.
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

// `amount`: slope, pixels, degrees, factor, bits that stay, or threshold; the last three operations have none.
void apply(ImageOperation operation, double amount, Resampling resampling, const ByteImage& image);

struct RandAugment {
  enum class Form { torchvision, composer };

  Form form = Form::torchvision;
  int operations = 2;
  double strength = 9;  // torchvision: a whole number from 0 to 30; composer: 0.1 to 10

  Resampling resampling() const { return form == Form::torchvision ? Resampling::nearest : Resampling::bilinear; }
};

// Four uniform numbers decide: the operation, its sign, its strength, and which way tones go.
inline constexpr std::size_t draws_of_operation = 4;
struct DrawnOperation {
  ImageOperation operation = ImageOperation::identity;
  double amount = 0;
};
DrawnOperation drawn_operation(const RandAugment& law, const SampleShape& shape,
                               std::span<const double, draws_of_operation> uniform);

struct Augmentation {
  std::int64_t crop = 0;      // pixels of the frame, of which each of the (2 crop + 1)^2 crops is as likely
  bool flip = false;          // left and right, every second time
  double rotate_degrees = 0;  // uniform from its negative to it, counter-clockwise, bilinear
  double zoom = 0;            // larger by a factor that is uniform in [1 - zoom, 1 + zoom]
  std::optional<RandAugment> randaugment{};
  double mixup = 0;  // alpha, of the samples of a micro-batch (models/forward.hpp), of whatever kind; 0: none

  bool warps() const { return rotate_degrees > 0 || zoom > 0; }
  bool changes_images() const { return crop > 0 || flip || warps() || randaugment; }
  bool changes_samples() const { return changes_images() || mixup > 0; }
};

// `inner` must have images of bytes (DatasetSize::has_byte_images).
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation);

// The table [training.augmentation], and whether it suits a data set.
Augmentation read_augmentation(Settings& training);

// Faults where the data set's samples are nothing that could be changed so.
void check_augmentation(const Augmentation& augmentation, const DatasetSize& size, std::string_view dataset,
                        Settings& training);

// Crops and flips of images (channels, height, width) of bytes.
struct CropAndFlip {
  std::int64_t down = 0;  // out(y, x) = in(y + down, x + right), black where that is outside
  std::int64_t right = 0;
  bool flip = false;  // afterwards, left and right
};

// `out` must not overlap `in`.
void crop_and_flip(std::span<const std::uint8_t> in, const SampleShape& shape, const CropAndFlip& change,
                   std::span<std::uint8_t> out);

// Images with other tones, in place. Source: the operations of these names in the Python Imaging Library (Pillow), with
// its rounding; images of one channel are its grey ones, and those of three its coloured ones.
void posterize(const ByteImage& image, int bits);         // only so many of the highest stay, 0 to 8
void solarize(const ByteImage& image, double threshold);  // pixels of at least the threshold are inverted
void autocontrast(const ByteImage& image);                // each channel stretched over 0 .. 255
void equalize(const ByteImage& image);                    // each channel's histogram made flat

// At factor 1 the image; at 0 black, the mean of its grey, its grey, or a smoothed image. Linear, cut to 0 .. 255.
void brightness(const ByteImage& image, double factor);
void contrast(const ByteImage& image, double factor);
void colour(const ByteImage& image, double factor);  // of one channel: nothing
void sharpness(const ByteImage& image, double factor);

}  // namespace syncopate
