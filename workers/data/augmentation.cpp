#include "workers/data/augmentation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

namespace syncopate {

namespace {

// Indices of the random numbers in a sample's stream. They do not depend on which changes are enabled. RandAugment's
// numbers begin at index `places`.
enum Place : std::size_t { place_of_row, place_of_column, place_of_flip, place_of_angle, place_of_zoom, places = 8 };

// A data set whose samples are those of another, except for the training samples of gradients.
class AugmentedDataset : public Dataset {
 public:
  AugmentedDataset(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation)
      : inner_(std::move(inner)), augmentation_(augmentation) {
    assert(!augmentation_.changes_images() || size().has_byte_images);
    assert(augmentation_.label_noise == 0 || size().classes > 1);
  }

  const DatasetSize& size() const override { return inner_->size(); }
  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    inner_->gather(split, samples, inputs, labels);
  }
  void gather_targets(Split split, std::span<const std::uint32_t> samples, float* targets) const override {
    inner_->gather_targets(split, samples, targets);
  }

  void gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const override {
    if (augmentation_.changes_images())
      gather_changed(visits, inputs, labels);
    else
      inner_->gather_training(visits, inputs, labels);
    if (augmentation_.label_noise > 0) change_labels(visits, labels);
  }

 private:
  void gather_changed(const Visits& visits, float* inputs, std::int64_t* labels) const {
    const auto features = static_cast<std::size_t>(size().shape.features());
    const auto scales = inner_->pixel_scales();
    thread_local std::vector<std::uint8_t> pixels;
    thread_local std::vector<double> draws;
    pixels.resize(features);
    draws.resize(places + draws_of_operation * static_cast<std::size_t>(operations()));
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const StoredImage image = inner_->stored_image(visits.samples[i]);
      visits.stream(Purpose::augmentation, i).fill_uniform(0, draws);
      change(image, draws, pixels);
      normalise(pixels, scales, inputs + i * features);
      labels[i] = image.label;
    }
  }

  int operations() const { return augmentation_.randaugment ? augmentation_.randaugment->operations : 0; }

  void change(const StoredImage& stored, std::span<const double> draws, std::span<std::uint8_t> pixels) const {
    const ByteImage image{.pixels = pixels, .shape = size().shape};
    crop_and_flip(stored.pixels, image.shape, crop_of(draws), pixels);
    if (augmentation_.warps()) {
      const auto symmetric = [&](Place place) { return 2 * draws[place] - 1; };
      const double degrees = augmentation_.rotate_degrees * symmetric(place_of_angle);
      const double factor = 1 + augmentation_.zoom * symmetric(place_of_zoom);
      warp(image, Warp::rotation(degrees, image.shape, factor), Resampling::bilinear);
    }
    for (int i = 0; i < operations(); ++i) {
      const RandAugment& law = *augmentation_.randaugment;
      const auto own = draws.subspan(places + draws_of_operation * static_cast<std::size_t>(i));
      const auto [operation, amount] = drawn_operation(law, image.shape, own.first<draws_of_operation>());
      apply(operation, amount, law.resampling(), image);
    }
  }

  CropAndFlip crop_of(std::span<const double> draws) const {
    const auto crops = static_cast<double>(2 * augmentation_.crop + 1);
    const auto shift = [&](Place place) {
      return static_cast<std::int64_t>(draws[place] * crops) - augmentation_.crop;
    };
    return {.down = shift(place_of_row),
            .right = shift(place_of_column),
            .flip = augmentation_.flip && draws[place_of_flip] < 0.5};
  }

  void change_labels(const Visits& visits, std::int64_t* labels) const {
    const double probability = augmentation_.label_noise;
    const std::int64_t others = size().classes - 1;
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const double draw = visits.stream(Purpose::label_noise, i).uniform(0);
      if (draw >= probability) continue;
      // Given that the label changes, draw / probability is uniform. It selects one of the other classes.
      const auto place =
          std::min(static_cast<std::int64_t>(draw / probability * static_cast<double>(others)), others - 1);
      labels[i] = (labels[i] + 1 + place) % size().classes;
    }
  }

  std::shared_ptr<const Dataset> inner_;
  Augmentation augmentation_;
};

constexpr double least_mixup = 1e-3;  // a smaller alpha would give only shares of 0 and 1
constexpr Range shares{.low = 0, .high = 1, .high_open = true};

std::optional<RandAugment> read_randaugment(Settings& augmentation) {
  using Form = RandAugment::Form;
  Settings table =
      augmentation.section({"randaugment", "Random operations that are applied to each image, one after another."});
  const auto form = table.choice<std::optional<Form>>(
      {"form", "None; 14 operations of the given strength; or 13 of random strength up to it, as in QSR's code."},
      {{"none", std::nullopt}, {"torchvision", Form::torchvision}, {"composer", Form::composer}}, std::nullopt);
  if (!form) return std::nullopt;
  RandAugment law{.form = *form};
  law.operations = static_cast<int>(
      table.integer({"operations", "Number of operations per image, drawn with replacement."}, 1, 64, 2));
  if (law.form == Form::torchvision)
    law.strength = static_cast<double>(
        table.integer({"strength", "Strength of each operation, in thirtieths of its maximum."}, 0, 30, 9));
  else
    law.strength = table.number(
        {"strength", "Largest strength, in tenths of an operation's maximum; each operation draws from 0.1 to this."},
        {.low = 0.1, .high = 10}, 10.0);
  return law;
}

// The first key of [training.augmentation] that changes images.
const char* key_that_changes_images(const Augmentation& augmentation) {
  if (augmentation.crop > 0) return "crop";
  if (augmentation.flip) return "flip";
  if (augmentation.rotate_degrees > 0) return "rotate_degrees";
  return augmentation.zoom > 0 ? "zoom" : "randaugment";
}

constexpr int tones = 256;

// Replaces each tone of the pixels by change(tone), which is called once per tone, in ascending order.
template <typename Change>
void change_tones(std::span<std::uint8_t> pixels, const Change& change) {
  std::array<std::uint8_t, tones> changed{};
  for (int tone = 0; tone < tones; ++tone) changed[static_cast<std::size_t>(tone)] = change(tone);
  for (std::uint8_t& pixel : pixels) pixel = changed[pixel];
}

// The grey image as Pillow computes it, with 16 fractional bits.
std::vector<std::uint8_t> grey_of(const ByteImage& image) {
  const auto first = image.plane(0);
  if (image.shape.channels == 1) return {first.begin(), first.end()};
  assert(image.shape.channels == 3);
  constexpr std::uint32_t red = 19595, green = 38470, blue = 7471, half = 0x8000;
  std::vector<std::uint8_t> grey(image.plane_size());
  for (std::size_t i = 0; i < grey.size(); ++i)
    grey[i] =
        static_cast<std::uint8_t>((first[i] * red + image.plane(1)[i] * green + image.plane(2)[i] * blue + half) >> 16);
  return grey;
}

// Interpolates between `from` (factor 0) and `pixel` (factor 1). Truncates the fraction, as Pillow does.
std::uint8_t blended(int from, int pixel, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(pixel - from);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f));
}

void blend(std::span<const std::uint8_t> from, std::span<std::uint8_t> pixels, double factor) {
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = blended(from[i], pixels[i], static_cast<float>(factor));
}

// The rounded mean of 3 x 3 pixels, in which the middle pixel counts five times. Pixels at the border are unchanged.
std::vector<std::uint8_t> smoothed(std::span<const std::uint8_t> plane, const SampleShape& shape) {
  std::vector<std::uint8_t> smooth(plane.begin(), plane.end());
  const auto width = static_cast<std::size_t>(shape.width), height = static_cast<std::size_t>(shape.height);
  for (std::size_t y = 1; y + 1 < height; ++y)
    for (std::size_t x = 1; x + 1 < width; ++x) {
      const std::size_t at = y * width + x;
      int sum = 4 * plane[at];
      for (const std::size_t row : {at - width, at, at + width}) sum += plane[row - 1] + plane[row] + plane[row + 1];
      smooth[at] = static_cast<std::uint8_t>((2 * sum + 13) / 26);
    }
  return smooth;
}

// Operations that change an image's tones in place. The last four interpolate linearly between another image (factor 0)
// and the image itself (factor 1), and clip to 0 .. 255. The other image is black (brightness), the mean grey
// (contrast), the grey image (colour), or a smoothed image (sharpness).
namespace tone_change {

// Keeps only the highest `bits` bits.
void posterize(const ByteImage& image, int bits) {
  const auto mask = static_cast<std::uint8_t>(0xff00 >> bits);
  for (std::uint8_t& pixel : image.pixels) pixel &= mask;
}

// Inverts pixels that are not below the threshold.
void solarize(const ByteImage& image, double threshold) {
  change_tones(image.pixels, [&](int tone) { return static_cast<std::uint8_t>(tone < threshold ? tone : 255 - tone); });
}

// Stretches each channel over 0 .. 255.
void autocontrast(const ByteImage& image) {
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) {
    const auto plane = image.plane(channel);
    const auto [low, high] = std::ranges::minmax_element(plane);
    const int darkest = *low, brightest = *high;
    if (brightest <= darkest) continue;
    const double scale = 255.0 / (brightest - darkest), offset = -darkest * scale;
    change_tones(plane, [&](int tone) {
      return static_cast<std::uint8_t>(std::clamp(static_cast<int>(tone * scale + offset), 0, 255));
    });
  }
}

// Flattens each channel's histogram: the new tone increases by one after each 255th of the pixels. Pixels of the
// brightest tone are not counted.
void equalize(const ByteImage& image) {
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) {
    const auto plane = image.plane(channel);
    std::array<std::int64_t, tones> count{};
    for (const std::uint8_t pixel : plane) ++count[pixel];
    const auto step = (std::ssize(plane) - count[std::ranges::max(plane)]) / 255;
    if (step == 0) continue;
    std::int64_t below = step / 2;
    change_tones(plane, [&](int tone) {
      const std::int64_t before = std::exchange(below, below + count[static_cast<std::size_t>(tone)]);
      return static_cast<std::uint8_t>(std::min<std::int64_t>(before / step, 255));
    });
  }
}

void brightness(const ByteImage& image, double factor) {
  change_tones(image.pixels, [&](int tone) { return blended(0, tone, static_cast<float>(factor)); });
}

void contrast(const ByteImage& image, double factor) {
  const auto grey = grey_of(image);
  const auto sum = std::accumulate(grey.begin(), grey.end(), std::int64_t{0});
  const int mean = static_cast<int>(std::floor(static_cast<double>(sum) / static_cast<double>(grey.size()) + 0.5));
  change_tones(image.pixels, [&](int tone) { return blended(mean, tone, static_cast<float>(factor)); });
}

void colour(const ByteImage& image, double factor) {
  if (image.shape.channels == 1) return;
  const auto grey = grey_of(image);
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) blend(grey, image.plane(channel), factor);
}

void sharpness(const ByteImage& image, double factor) {
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel)
    blend(smoothed(image.plane(channel), image.shape), image.plane(channel), factor);
}

}  // namespace tone_change

// One channel of an image.
struct Plane {
  const std::uint8_t* pixels;
  std::int64_t height, width;

  // The pixel, or the nearest one inside.
  std::uint8_t at(std::int64_t row, std::int64_t column) const {
    return pixels[std::clamp<std::int64_t>(row, 0, height - 1) * width +
                  std::clamp<std::int64_t>(column, 0, width - 1)];
  }
};

// Coordinates have 16 fractional bits, as in Pillow unless images are huge. Only additions are needed, so the rounding
// is known.
constexpr int fraction_bits = 16;
std::int64_t fixed(double value) { return static_cast<std::int64_t>(std::floor(value * (1 << fraction_bits) + 0.5)); }

void warp_nearest(const Plane& in, const Warp& how, std::uint8_t* out) {
  std::int64_t row_x = fixed(how.x0 + how.xx * 0.5 + how.xy * 0.5), row_y = fixed(how.y0 + how.yx * 0.5 + how.yy * 0.5);
  for (std::int64_t y = 0; y < in.height; ++y, row_x += fixed(how.xy), row_y += fixed(how.yy)) {
    std::int64_t at_x = row_x, at_y = row_y;
    for (std::int64_t x = 0; x < in.width; ++x, at_x += fixed(how.xx), at_y += fixed(how.yx)) {
      const std::int64_t from_x = at_x >> fraction_bits, from_y = at_y >> fraction_bits;
      const bool is_inside = from_x >= 0 && from_x < in.width && from_y >= 0 && from_y < in.height;
      *out++ = is_inside ? in.pixels[from_y * in.width + from_x] : std::uint8_t{0};
    }
  }
}

// The value at a point by bilinear interpolation; black outside of the image. Between the outermost pixels' centres and
// the border, the outermost pixels are extended.
std::uint8_t interpolated(const Plane& in, double x, double y) {
  if (x < 0 || x >= static_cast<double>(in.width) || y < 0 || y >= static_cast<double>(in.height)) return 0;
  x -= 0.5, y -= 0.5;
  const auto left = static_cast<std::int64_t>(std::floor(x)), top = static_cast<std::int64_t>(std::floor(y));
  const double share_x = x - static_cast<double>(left), share_y = y - static_cast<double>(top);
  const auto between = [](double a, double b, double share) { return a + (b - a) * share; };
  const auto of_row = [&](std::int64_t row) { return between(in.at(row, left), in.at(row, left + 1), share_x); };
  return static_cast<std::uint8_t>(between(of_row(top), of_row(top + 1), share_y));
}

void warp_bilinear(const Plane& in, const Warp& how, std::uint8_t* out) {
  for (std::int64_t row = 0; row < in.height; ++row)
    for (std::int64_t column = 0; column < in.width; ++column) {
      const double x = static_cast<double>(column) + 0.5, y = static_cast<double>(row) + 0.5;
      *out++ = interpolated(in, how.xx * x + how.xy * y + how.x0, how.yx * x + how.yy * y + how.y0);
    }
}

}  // namespace

std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation) {
  if (!augmentation.changes_images() && augmentation.label_noise == 0) return inner;
  return std::make_shared<AugmentedDataset>(std::move(inner), augmentation);
}

Augmentation read_augmentation(Settings& training) {
  Settings table = training.section(
      {"augmentation", "Random changes of training samples at each visit, determined by seed, sample and epoch."});
  Augmentation augmentation;
  augmentation.crop = table.integer(
      {"crop", "Width of a black frame around the image; a random crop of it has the image's size.", "pixels"}, 0,
      1 << 16, augmentation.crop);
  augmentation.flip =
      table.flag({"flip", "Whether images are flipped left to right, with probability 1/2."}, augmentation.flip);
  augmentation.rotate_degrees = table.number(
      {"rotate_degrees", "Images are rotated by a random angle of at most this, in both directions.", "degrees"},
      Range::between(0, 180), augmentation.rotate_degrees);
  augmentation.zoom = table.number({"zoom", "Images are enlarged or reduced by a random share of at most this."},
                                   shares, augmentation.zoom);
  augmentation.randaugment = read_randaugment(table);
  augmentation.mixup = table.number(
      {"mixup", "Samples of a micro-batch are mixed in pairs, with shares from Beta(mixup, mixup); 0: no mixing."},
      {.low = 0, .high = 1e3}, augmentation.mixup);
  if (augmentation.mixup > 0 && augmentation.mixup < least_mixup)
    table.fault("mixup", fmt::format("must be 0 or at least {}", least_mixup));
  const Key label_noise{"label_noise", "Probability that a sample has a wrong label, drawn at each visit.", "",
                        "labels do not change"};
  augmentation.label_noise = table.optional_number(label_noise, shares).value_or(0);
  return augmentation;
}

void check_augmentation(const Augmentation& augmentation, const DatasetSize& size, std::string_view dataset,
                        Settings& training) {
  const SampleShape& shape = size.shape;
  Settings table = training.section("augmentation");
  if (augmentation.mixup > 0 && shape.has_tokens())
    table.fault("mixup", fmt::format("must be left out: tokens of {} are not mixed", dataset));
  if (augmentation.label_noise > 0 && (shape.has_tokens() || size.classes < 2))
    table.fault("label_noise", fmt::format("must be left out: {} has {}", dataset,
                                           shape.has_tokens() ? "texts"
                                           : size.targets > 0 ? "numbers instead of classes"
                                                              : "a single class"));
  if (!augmentation.changes_images()) return;
  if (!size.has_byte_images)
    return table.fault(key_that_changes_images(augmentation),
                       fmt::format("needs images of bytes (uint8); {} has {}", dataset,
                                   shape.has_tokens()                         ? "texts"
                                   : shape.channels == 1 && shape.height == 1 ? "vectors"
                                                                              : "images of floats"));
  if (augmentation.crop >= std::min(shape.height, shape.width))
    table.fault("crop", fmt::format("must be less than the images' {} x {}", shape.height, shape.width));
  if (augmentation.randaugment && shape.channels != 1 && shape.channels != 3)
    table.section("randaugment")
        .fault("form",
               fmt::format("must be \"none\": RandAugment needs images of 1 or 3 channels, not {}", shape.channels));
}

// Fills or copies whole runs of a row, so that pixels need not be tested one by one.
void crop_and_flip(std::span<const std::uint8_t> in, const SampleShape& shape, const CropAndFlip& change,
                   std::span<std::uint8_t> out) {
  assert(std::ssize(in) == shape.features() && in.size() == out.size());
  const std::int64_t width = shape.width;
  const std::int64_t left = std::clamp<std::int64_t>(-change.right, 0, width);  // first column of `out` inside `in`
  const std::int64_t end = std::clamp<std::int64_t>(width - change.right, left, width);
  std::uint8_t* row = out.data();
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    const std::uint8_t* const plane = in.data() + channel * shape.height * width;
    for (std::int64_t y = 0; y < shape.height; ++y, row += width) {
      const std::int64_t from = y + change.down;
      const bool is_inside = from >= 0 && from < shape.height;
      const std::int64_t begin = is_inside ? left : width;
      std::fill_n(row, begin, std::uint8_t{0});
      if (!is_inside) continue;
      std::copy_n(plane + from * width + begin + change.right, end - begin, row + begin);
      std::fill_n(row + end, width - end, std::uint8_t{0});
      if (change.flip) std::reverse(row, row + width);
    }
  }
}

Warp Warp::rotation(double degrees, const SampleShape& shape, double factor) {
  const double angle = degrees * std::numbers::pi / 180;
  const double c = std::cos(angle) / factor, s = std::sin(angle) / factor;
  const double x = static_cast<double>(shape.width) / 2, y = static_cast<double>(shape.height) / 2;
  return {.xx = c, .xy = -s, .x0 = x - c * x + s * y, .yx = s, .yy = c, .y0 = y - s * x - c * y};
}

void warp(const ByteImage& image, const Warp& how, Resampling resampling) {
  thread_local std::vector<std::uint8_t> before;
  before.assign(image.pixels.begin(), image.pixels.end());
  for (std::int64_t channel = 0; channel < image.shape.channels; ++channel) {
    const auto begin = static_cast<std::size_t>(channel) * image.plane_size();
    const Plane plane{.pixels = before.data() + begin, .height = image.shape.height, .width = image.shape.width};
    if (resampling == Resampling::nearest)
      warp_nearest(plane, how, image.pixels.data() + begin);
    else
      warp_bilinear(plane, how, image.pixels.data() + begin);
  }
}

namespace {

using enum ImageOperation;

bool is_tone_factor(ImageOperation operation) {
  return operation == brightness || operation == colour || operation == contrast || operation == sharpness;
}

// The amount for a strength; `share` is the strength divided by the maximum. Composer truncates to integers; its
// factors of tones come from composer_factor.
double amount_of(ImageOperation operation, bool is_torchvision, double share, double sign, const SampleShape& shape) {
  constexpr double most_of_size = 150.0 / 331.0, most_slope = 0.3, most_degrees = 30, most_factor = 0.9;
  const auto size = static_cast<double>(operation == translate_x ? shape.width : shape.height);
  switch (operation) {
    case shear_x:
    case shear_y:
      return sign * most_slope * share;
    case translate_x:
    case translate_y:
      return is_torchvision ? std::trunc(sign * most_of_size * size * share) : sign * std::trunc(size / 3 * share);
    case rotate:
      return sign * (is_torchvision ? most_degrees * share : std::trunc(most_degrees * share));
    case posterize:
      return is_torchvision ? 8 - std::nearbyint(4 * share) : 4 - std::trunc(4 * share);
    case solarize:
      return is_torchvision ? 255 * (1 - share) : 256 - std::trunc(256 * share);
    default:
      return is_tone_factor(operation) ? 1 + sign * most_factor * share : 0;
  }
}

// The factor of brightness, contrast and the like: with equal probability between 1 and the maximum for this strength,
// or between the minimum and 1.
double composer_factor(ImageOperation operation, double strength, bool is_stronger, double draw) {
  const double end = is_stronger ? strength : 1 - 0.09 * strength;
  const double factor = 1 + (end - 1) * draw;
  return operation == brightness && factor > 1 ? 0.75 * factor : factor;
}

}  // namespace

void apply(ImageOperation operation, double amount, Resampling resampling, const ByteImage& image) {
  switch (operation) {
    case shear_x:  // moves rows to the left, lower rows more
      return warp(image, {.xy = amount}, resampling);
    case shear_y:
      return warp(image, {.yx = amount}, resampling);
    case translate_x:
      return warp(image, {.x0 = -amount}, resampling);
    case translate_y:
      return warp(image, {.y0 = -amount}, resampling);
    case rotate:
      return warp(image, Warp::rotation(amount, image.shape), resampling);
    case brightness:
      return tone_change::brightness(image, amount);
    case colour:
      return tone_change::colour(image, amount);
    case contrast:
      return tone_change::contrast(image, amount);
    case sharpness:
      return tone_change::sharpness(image, amount);
    case posterize:
      return tone_change::posterize(image, static_cast<int>(amount));
    case solarize:
      return tone_change::solarize(image, amount);
    case autocontrast:
      return tone_change::autocontrast(image);
    case equalize:
      return tone_change::equalize(image);
    case identity:
      return;
  }
}

DrawnOperation drawn_operation(const RandAugment& law, const SampleShape& shape,
                               std::span<const double, draws_of_operation> uniform) {
  const bool is_torchvision = law.form == RandAugment::Form::torchvision;
  const int choices = is_torchvision ? image_operations : image_operations - 1;  // the identity is the last operation
  const auto operation = static_cast<ImageOperation>(static_cast<int>(uniform[0] * choices));
  const double sign = uniform[1] < 0.5 ? 1 : -1;
  constexpr double steps = 30, weakest = 0.1;
  if (!is_torchvision && is_tone_factor(operation))
    return {operation, composer_factor(operation, law.strength, uniform[3] < 0.5, uniform[2])};
  const double share = is_torchvision ? law.strength / steps : (weakest + (law.strength - weakest) * uniform[2]) / 10;
  return {operation, amount_of(operation, is_torchvision, share, sign, shape)};
}

}  // namespace syncopate
