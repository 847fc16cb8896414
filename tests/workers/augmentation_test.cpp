// Augmented training images: what is drawn, for whom, in which order, and that nobody else meets them.
#include "workers/data/augmentation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/images.hpp"

namespace syncopate {
namespace {

constexpr SampleShape shape{.channels = 1, .height = 6, .width = 7};
constexpr std::size_t features = 42;
constexpr std::int64_t images = 50;
// Pixels come through as they are: (pixel - 0) x 1.
const std::vector<PixelScale> as_they_are = {{.mean = 0, .factor = 1}};

// Every pixel of an image has a value of its own, at least 10, so that black tells of the frame.
std::uint8_t pixel_of(std::uint32_t sample, std::size_t place) {
  return static_cast<std::uint8_t>(10 + sample % 4 + 5 * place);
}

std::shared_ptr<const Dataset> stored(const std::vector<PixelScale>& scales = as_they_are) {
  ByteImages train, test;
  for (std::uint32_t i = 0; i < images; ++i) {
    for (std::size_t p = 0; p < features; ++p) train.pixels.push_back(pixel_of(i, p));
    train.labels.push_back(static_cast<std::uint8_t>(i % 3));
  }
  test.pixels.assign(features, 30);
  test.labels.assign(1, 2);
  return make_byte_images({.train = images, .test = 1, .shape = shape, .classes = 3}, train, test, scales);
}

struct Met {
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
  std::vector<float> image(std::size_t i) const {
    return {inputs.begin() + static_cast<std::ptrdiff_t>(i * features),
            inputs.begin() + static_cast<std::ptrdiff_t>((i + 1) * features)};
  }
};

Met meet(const Dataset& dataset, const std::vector<std::uint32_t>& samples, const std::vector<std::int64_t>& epochs,
         std::uint64_t seed = 1) {
  Met met{.inputs = std::vector<float>(samples.size() * features), .labels = std::vector<std::int64_t>(samples.size())};
  dataset.gather_training({.seed = seed, .samples = samples, .epochs = epochs}, met.inputs.data(), met.labels.data());
  return met;
}

// One sample in many epochs.
Met meet_often(const Augmentation& augmentation, std::size_t times) {
  std::vector<std::int64_t> epochs(times);
  std::iota(epochs.begin(), epochs.end(), std::int64_t{0});
  return meet(*augmented(stored(), augmentation), std::vector<std::uint32_t>(times, 3), epochs);
}

std::vector<float> changed(std::uint32_t sample, const CropAndFlip& change) {
  std::vector<std::uint8_t> in(features), out(features);
  for (std::size_t p = 0; p < features; ++p) in[p] = pixel_of(sample, p);
  crop_and_flip(in, shape, change, out);
  return {out.begin(), out.end()};
}

TEST(Augmentation, EachCropAndEachSideIsAsLikely) {
  std::map<std::vector<float>, int> known;
  for (std::int64_t down = -2; down <= 2; ++down)
    for (std::int64_t right = -2; right <= 2; ++right)
      for (const bool flip : {false, true}) known[changed(3, {.down = down, .right = right, .flip = flip})] = 0;
  ASSERT_EQ(known.size(), 50u);
  constexpr std::size_t times = 20000;
  const Met met = meet_often({.crop = 2, .flip = true}, times);
  for (std::size_t i = 0; i < times; ++i) {
    const auto found = known.find(met.image(i));
    ASSERT_NE(found, known.end()) << "no crop of the framed image";
    ++found->second;
  }
  for (const auto& [image, count] : known) EXPECT_NEAR(count, 400, 5 * std::sqrt(400));
}

TEST(Augmentation, OfNothingIsTheStoredImage) {
  const auto met = meet(*augmented(stored(), {}), {7, 0}, {0, 4});
  EXPECT_EQ(met.image(0), changed(7, {}));
  EXPECT_EQ(met.image(1), changed(0, {}));
  EXPECT_EQ(met.labels, (std::vector<std::int64_t>{1, 0}));
}

TEST(Augmentation, IsTheSamplesInAnyBatchAndAnotherInEachEpoch) {
  const auto dataset = augmented(stored(), {.crop = 3, .flip = true, .rotate_degrees = 20, .zoom = 0.1});
  const Met met = meet(*dataset, {5, 9, 5}, {0, 0, 1});
  const Met alone = meet(*dataset, {9}, {0});
  EXPECT_EQ(met.image(1), alone.image(0));
  EXPECT_NE(met.image(0), met.image(2));
  EXPECT_NE(meet(*dataset, {9}, {0}, 2).image(0), alone.image(0));
}

// A change that is added later leaves the draws of the others alone.
TEST(Augmentation, EachChangeHasDrawsOfItsOwn) {
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto cropped = meet(*augmented(stored(), {.crop = 2}), {4}, {epoch}).image(0);
    auto flipped = meet(*augmented(stored(), {.crop = 2, .flip = true}), {4}, {epoch}).image(0);
    if (flipped == cropped) continue;
    for (std::size_t row = 0; row < 6; ++row)
      std::reverse(flipped.begin() + static_cast<std::ptrdiff_t>(7 * row),
                   flipped.begin() + static_cast<std::ptrdiff_t>(7 * row + 7));
    EXPECT_EQ(flipped, cropped) << epoch;
  }
}

TEST(Augmentation, EvaluationsMeetTheStoredImages) {
  const auto plain = stored(), changed = augmented(plain, {.crop = 3, .flip = true});
  for (const Split split : {Split::train, Split::test}) {
    std::vector<float> a(features), b(features);
    std::int64_t label = 0;
    const std::uint32_t number = 0;
    plain->gather(split, {&number, 1}, a.data(), &label);
    changed->gather(split, {&number, 1}, b.data(), &label);
    EXPECT_EQ(a, b);
  }
}

// Black is the byte 0, which is not 0 once it is normalised.
TEST(Augmentation, TheFrameIsBlackNotTheMean) {
  const auto dataset = augmented(stored({{.mean = 100, .factor = 0.5}}), {.crop = 5});
  std::vector<std::int64_t> epochs(50);
  std::iota(epochs.begin(), epochs.end(), std::int64_t{0});
  const Met met = meet(*dataset, std::vector<std::uint32_t>(50, 1), epochs);
  EXPECT_EQ(std::ranges::min(met.inputs), -50);
  EXPECT_GT(std::ranges::count(met.inputs, -50.0f), 50);
}

// A rotation and a zoom stay within their bounds: at small ones the middle pixels hardly move.
TEST(Augmentation, RotationsAndZoomsAreDrawnFromTheirWholeRange) {
  std::set<std::vector<float>> seen;
  const Met met = meet_often({.rotate_degrees = 15, .zoom = 0.2}, 200);
  for (std::size_t i = 0; i < 200; ++i) seen.insert(met.image(i));
  EXPECT_GT(seen.size(), 190u);
  const Met none = meet_often({.rotate_degrees = 1e-9, .zoom = 0}, 5);
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t p = 0; p < features; ++p) EXPECT_NEAR(none.image(i)[p], changed(3, {})[p], 1);
}

// Each image is what two of the fourteen make of it, in some order: with the strength 0 most are the identity, and
// those that are not are known.
TEST(Augmentation, RandAugmentChangesImagesByItsOperations) {
  const auto images_of = [](int operations) {
    std::set<std::vector<float>> seen;
    const Met met = meet_often({.randaugment = RandAugment{.operations = operations, .strength = 0}}, 600);
    for (std::size_t i = 0; i < 600; ++i) seen.insert(met.image(i));
    return seen;
  };
  std::vector<std::uint8_t> pixels(features);
  const ByteImage image{.pixels = pixels, .shape = shape};
  const auto with = [&](void (*operation)(const ByteImage&)) {
    for (std::size_t p = 0; p < features; ++p) pixels[p] = pixel_of(3, p);
    operation(image);
    return std::vector<float>(pixels.begin(), pixels.end());
  };
  const std::set<std::vector<float>> expected = {with(+[](const ByteImage&) {}), with(autocontrast), with(equalize)};
  EXPECT_EQ(images_of(1), expected) << "strength 0 solarizes from 255 on, and no pixel is that bright";
  for (const auto& one : expected) EXPECT_TRUE(images_of(2).contains(one));
}

}  // namespace
}  // namespace syncopate
