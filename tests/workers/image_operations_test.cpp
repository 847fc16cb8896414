// Operations on images against torchvision's and Pillow's own (tests/golden/image_operations.py), and closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "workers/data/augmentation.hpp"

namespace syncopate {
namespace {

using Json = nlohmann::json;
using Pixels = std::vector<std::uint8_t>;

const std::map<std::string, ImageOperation> names = {
    {"shear_x", ImageOperation::shear_x},         {"shear_y", ImageOperation::shear_y},
    {"translate_x", ImageOperation::translate_x}, {"translate_y", ImageOperation::translate_y},
    {"rotate", ImageOperation::rotate},           {"brightness", ImageOperation::brightness},
    {"colour", ImageOperation::colour},           {"contrast", ImageOperation::contrast},
    {"sharpness", ImageOperation::sharpness},     {"posterize", ImageOperation::posterize},
    {"solarize", ImageOperation::solarize},       {"autocontrast", ImageOperation::autocontrast},
    {"equalize", ImageOperation::equalize},       {"identity", ImageOperation::identity}};

Pixels bytes_of(const std::string& hex) {
  Pixels bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

struct Picture {
  explicit Picture(const Json& json)
      : pixels(bytes_of(json.at("pixels"))),
        shape{.channels = json.at("shape").at(0), .height = json.at("shape").at(1), .width = json.at("shape").at(2)} {}
  Pixels pixels;
  SampleShape shape;
};

TEST(ImageOperations, AreThoseOfTorchvisionAndPillow) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/image_operations.json");
  const Json golden = Json::parse(file);
  std::map<std::string, int> seen;
  for (const Json& one : golden.at("cases")) {
    const Picture picture(golden.at("images").at(one.at("image").get<std::string>()));
    const auto name = one.at("operation").get<std::string>();
    const auto resampling = one.at("resampling") == "nearest" ? Resampling::nearest : Resampling::bilinear;
    Pixels pixels = picture.pixels;
    apply(names.at(name), one.at("strength"), resampling, {.pixels = pixels, .shape = picture.shape});
    const Pixels expected = bytes_of(one.at("pixels"));
    ASSERT_EQ(pixels.size(), expected.size());
    int differ = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i) differ += pixels[i] != expected[i];
    EXPECT_EQ(differ, 0) << name << " " << one.at("strength") << " " << one.at("resampling") << " of "
                         << one.at("image");
    ++seen[name];
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(image_operations));
}

Pixels counted(std::size_t size) {
  Pixels pixels(size);
  for (std::size_t i = 0; i < size; ++i) pixels[i] = static_cast<std::uint8_t>(i + 1);
  return pixels;
}

// Of a picture in a frame of zeros, pixel by pixel.
TEST(ImageOperations, ACropIsAWindowOfTheFramedImage) {
  const SampleShape shape{.channels = 2, .height = 5, .width = 4};
  const Pixels in = counted(40);
  for (std::int64_t down = -6; down <= 6; ++down)
    for (std::int64_t right = -5; right <= 5; ++right)
      for (const bool flip : {false, true}) {
        Pixels out(40, 99);
        crop_and_flip(in, shape, {.down = down, .right = right, .flip = flip}, out);
        for (std::int64_t c = 0; c < 2; ++c)
          for (std::int64_t y = 0; y < 5; ++y)
            for (std::int64_t x = 0; x < 4; ++x) {
              const std::int64_t from_y = y + down, from_x = (flip ? 3 - x : x) + right;
              const bool is_inside = from_y >= 0 && from_y < 5 && from_x >= 0 && from_x < 4;
              const int expected = is_inside ? in[static_cast<std::size_t>(c * 20 + from_y * 4 + from_x)] : 0;
              ASSERT_EQ(out[static_cast<std::size_t>(c * 20 + y * 4 + x)], expected) << down << " " << right << flip;
            }
      }
}

// A quarter turn counter-clockwise takes the right column to the top row; at twice the size an image shows its middle.
TEST(ImageOperations, ARotationTurnsAroundTheMiddleAndAZoomEnlargesIt) {
  const SampleShape shape{.channels = 1, .height = 3, .width = 3};
  for (const auto resampling : {Resampling::nearest, Resampling::bilinear}) {
    Pixels pixels = counted(9);
    warp({.pixels = pixels, .shape = shape}, Warp::rotation(0, shape), resampling);
    EXPECT_EQ(pixels, counted(9));
    pixels = counted(9);
    warp({.pixels = pixels, .shape = shape}, Warp::rotation(180, shape), Resampling::nearest);
    EXPECT_EQ(pixels, (Pixels{9, 8, 7, 6, 5, 4, 3, 2, 1}));
  }
  const SampleShape four{.channels = 1, .height = 4, .width = 4};
  Pixels pixels = counted(16);
  warp({.pixels = pixels, .shape = four}, Warp::rotation(0, four, 2), Resampling::nearest);
  EXPECT_EQ(pixels, (Pixels{6, 6, 7, 7, 6, 6, 7, 7, 10, 10, 11, 11, 10, 10, 11, 11}));
  pixels = counted(16);
  warp({.pixels = pixels, .shape = four}, Warp::rotation(0, four, 0.5), Resampling::nearest);
  EXPECT_EQ(pixels, (Pixels{0, 0, 0, 0, 0, 6, 8, 0, 0, 14, 16, 0, 0, 0, 0, 0}));
}

TEST(ImageOperations, InvertingTwiceIsTheIdentity) {
  Pixels pixels = counted(200);
  const ByteImage image{.pixels = pixels, .shape = {.channels = 1, .height = 10, .width = 20}};
  solarize(image, 0);
  EXPECT_EQ(pixels.front(), 254);
  solarize(image, 0);
  EXPECT_EQ(pixels, counted(200));
}

DrawnOperation drawn(const RandAugment& law, const std::array<double, draws_of_operation>& uniform) {
  return drawn_operation(law, {.channels = 1, .height = 28, .width = 33}, uniform);
}

// recipes: 31 steps to the most; the operation is the first number's fourteenth.
TEST(RandAugment, OfTorchvisionHasOneStrengthAndARandomSign) {
  using enum ImageOperation;
  const auto amount = [](double strength, ImageOperation operation, double sign) {
    const auto one = drawn({.strength = strength}, {(static_cast<int>(operation) + 0.5) / 14, sign, 0.3, 0.8});
    EXPECT_EQ(one.operation, operation);
    return one.amount;
  };
  for (const double sign : {0.1, 0.9}) {
    const double s = sign < 0.5 ? 1 : -1;
    EXPECT_DOUBLE_EQ(amount(9, shear_x, sign), s * 0.09);
    EXPECT_DOUBLE_EQ(amount(30, shear_y, sign), s * 0.3);
    EXPECT_DOUBLE_EQ(amount(9, translate_x, sign), s * 4);  // 150/331 x 33 x 0.3 = 4.49
    EXPECT_DOUBLE_EQ(amount(30, translate_y, sign), s * 12);
    EXPECT_DOUBLE_EQ(amount(9, rotate, sign), s * 9);
    for (const auto tone : {brightness, colour, contrast, sharpness})
      EXPECT_DOUBLE_EQ(amount(10, tone, sign), 1 + s * 0.3);
    EXPECT_EQ(amount(9, ImageOperation::posterize, sign), 7);
    EXPECT_EQ(amount(30, ImageOperation::posterize, sign), 4);
    EXPECT_DOUBLE_EQ(amount(9, ImageOperation::solarize, sign), 178.5);
  }
}

TEST(RandAugment, OfComposerDrawsStrengthsUpToTheGivenOne) {
  using enum ImageOperation;
  const RandAugment law{.form = RandAugment::Form::composer, .strength = 8};
  const auto amount = [&](ImageOperation operation, double sign, double level, double way) {
    const auto one = drawn(law, {(static_cast<int>(operation) + 0.5) / 13, sign, level, way});
    EXPECT_EQ(one.operation, operation);
    return one.amount;
  };
  // Levels 0.1 + 7.9 u of 10: u = 0.5 is 4.05, u = 1 is 8.
  EXPECT_DOUBLE_EQ(amount(shear_x, 0.1, 0.5, 0), 0.3 * 0.405);
  EXPECT_DOUBLE_EQ(amount(shear_y, 0.9, 1, 0), -0.24);
  EXPECT_DOUBLE_EQ(amount(translate_x, 0.9, 1, 0), -8);  // 11 x 0.8 = 8.8
  EXPECT_DOUBLE_EQ(amount(rotate, 0.1, 0.5, 0), 12);     // 12.15
  EXPECT_DOUBLE_EQ(amount(ImageOperation::posterize, 0.1, 0.5, 0), 3);
  EXPECT_DOUBLE_EQ(amount(ImageOperation::solarize, 0.1, 0.5, 0), 256 - 103);  // 103.68
  for (const auto tone : {ImageOperation::colour, ImageOperation::contrast, ImageOperation::sharpness}) {
    EXPECT_DOUBLE_EQ(amount(tone, 0, 0.25, 0.1), 1 + 7 * 0.25);
    EXPECT_DOUBLE_EQ(amount(tone, 0, 0.25, 0.9), 1 - 0.72 * 0.25);
  }
  EXPECT_DOUBLE_EQ(amount(ImageOperation::brightness, 0, 0.25, 0.1), 0.75 * (1 + 7 * 0.25));
  EXPECT_DOUBLE_EQ(amount(ImageOperation::brightness, 0, 0.25, 0.9), 1 - 0.72 * 0.25);
}

TEST(RandAugment, EachOperationIsAsLikely) {
  for (const auto form : {RandAugment::Form::torchvision, RandAugment::Form::composer}) {
    std::map<ImageOperation, int> count;
    for (int i = 0; i < 1400; ++i) ++count[drawn({.form = form}, {(i + 0.5) / 1400, 0.5, 0.5, 0.5}).operation];
    const std::size_t operations = form == RandAugment::Form::torchvision ? 14 : 13;
    EXPECT_EQ(count.size(), operations);
    for (const auto& [operation, times] : count) EXPECT_NEAR(times, 1400.0 / operations, 1);
    EXPECT_EQ(count.contains(ImageOperation::identity), form == RandAugment::Form::torchvision);
  }
}

}  // namespace
}  // namespace syncopate
