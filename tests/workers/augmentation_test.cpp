// Augmentation of training images: its random draws, the order of changes, and that evaluations see unchanged images.
#include "workers/data/augmentation.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/npy_files.hpp"
#include "tests/workers/planned_objective.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/toml.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/images.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

constexpr SampleShape byte_shape{.channels = 1, .height = 6, .width = 7};
constexpr std::size_t features = 42;
constexpr std::int64_t image_count = 50;
// A normalisation that leaves pixels unchanged: (pixel - 0) x 1.
const std::vector<PixelScale> as_they_are = {{.mean = 0, .factor = 1}};

// All pixels of an image are different and at least 10, so a pixel of 0 belongs to the black frame around the image.
std::uint8_t pixel_of(std::uint32_t sample, std::size_t place) {
  return static_cast<std::uint8_t>(10 + sample % 4 + 5 * place);
}

std::shared_ptr<const Dataset> stored(const std::vector<PixelScale>& scales = as_they_are) {
  const auto pixels = std::make_shared<std::vector<std::uint8_t>>();
  SampleRows train, test{.labels = {2}};
  for (std::uint32_t i = 0; i < image_count; ++i) {
    for (std::size_t p = 0; p < features; ++p) pixels->push_back(pixel_of(i, p));
    train.labels.push_back(i % 3);
  }
  pixels->insert(pixels->end(), features, 30);
  train.owner = pixels;
  train.bytes = pixels->data();
  test.bytes = pixels->data() + image_count * features;
  return make_dataset({.train = image_count, .test = 1, .shape = byte_shape, .classes = 3, .has_byte_images = true},
                      train, test, scales);
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

// The augmented images of sample 3 in epochs 0 .. times - 1.
Met meet_often(const Augmentation& augmentation, std::size_t times) {
  std::vector<std::int64_t> epochs(times);
  std::iota(epochs.begin(), epochs.end(), std::int64_t{0});
  return meet(*augmented(stored(), augmentation), std::vector<std::uint32_t>(times, 3), epochs);
}

std::vector<float> changed(std::uint32_t sample, const CropAndFlip& change) {
  std::vector<std::uint8_t> in(features), out(features);
  for (std::size_t p = 0; p < features; ++p) in[p] = pixel_of(sample, p);
  crop_and_flip(in, byte_shape, change, out);
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

// Each kind of augmentation has its own draws, so switching on another kind does not change them.
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

// Black is the byte 0. After normalisation it is (0 - 100) x 0.5 = -50.
TEST(Augmentation, TheFrameIsBlackNotTheMean) {
  const auto dataset = augmented(stored({{.mean = 100, .factor = 0.5}}), {.crop = 5});
  std::vector<std::int64_t> epochs(50);
  std::iota(epochs.begin(), epochs.end(), std::int64_t{0});
  const Met met = meet(*dataset, std::vector<std::uint32_t>(50, 1), epochs);
  EXPECT_EQ(std::ranges::min(met.inputs), -50);
  EXPECT_GT(std::ranges::count(met.inputs, -50.0f), 50);
}

// 20,000 visits of a sample of class 0. A share of 0.3 of them have the label of another class: 3,000 for each of the
// two.
TEST(Augmentation, LabelNoiseDrawsEachWrongClassAsOften) {
  constexpr std::size_t times = 20000;
  const Met met = meet_often({.label_noise = 0.3}, times);
  for (const std::int64_t wrong : {1, 2})
    EXPECT_NEAR(static_cast<double>(std::ranges::count(met.labels, wrong)), 3000, 5 * std::sqrt(3000 * 0.85));
  EXPECT_EQ(std::ranges::count(met.labels, 0), times - std::ranges::count_if(met.labels, [](auto l) { return l > 0; }));
  EXPECT_EQ(met.image(0), changed(3, {}));
}

// 50 samples in 40 epochs: whether a label is wrong depends on neither the sample nor the epoch nor the seed alone.
TEST(Augmentation, LabelNoiseIsDrawnForEachVisitAndSeed) {
  const auto dataset = augmented(stored(), {.label_noise = 0.5});
  std::vector<std::uint32_t> all(image_count);
  std::iota(all.begin(), all.end(), 0u);
  const auto wrong_in = [&](std::int64_t epoch, std::uint64_t seed) {
    std::vector<bool> wrong;
    const Met met = meet(*dataset, all, std::vector<std::int64_t>(image_count, epoch), seed);
    for (std::uint32_t i = 0; i < image_count; ++i) wrong.push_back(met.labels[i] != i % 3);
    return wrong;
  };
  std::set<std::vector<bool>> seen;
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) seen.insert(wrong_in(epoch, 1));
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_EQ(wrong_in(3, 1), wrong_in(3, 1));
  EXPECT_NE(wrong_in(3, 1), wrong_in(3, 2));
}

TEST(Augmentation, LabelNoiseChangesNeitherImagesNorEvaluations) {
  const auto cropped = augmented(stored(), {.crop = 3, .flip = true});
  const auto noisy = augmented(stored(), {.crop = 3, .flip = true, .label_noise = 0.9});
  EXPECT_EQ(meet(*cropped, {5, 9}, {2, 3}).inputs, meet(*noisy, {5, 9}, {2, 3}).inputs);
  std::vector<float> image(features);
  for (std::uint32_t sample = 0; sample < image_count; ++sample) {
    std::int64_t label = -1;
    noisy->gather(Split::train, {&sample, 1}, image.data(), &label);
    EXPECT_EQ(label, sample % 3);
  }
}

// 200 rotations and zooms are almost all different. If both bounds are near 0, the image hardly changes.
TEST(Augmentation, RotationsAndZoomsAreDrawnFromTheirWholeRange) {
  std::set<std::vector<float>> seen;
  const Met met = meet_often({.rotate_degrees = 15, .zoom = 0.2}, 200);
  for (std::size_t i = 0; i < 200; ++i) seen.insert(met.image(i));
  EXPECT_GT(seen.size(), 190u);
  const Met none = meet_often({.rotate_degrees = 1e-9, .zoom = 0}, 5);
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t p = 0; p < features; ++p) EXPECT_NEAR(none.image(i)[p], changed(3, {})[p], 1);
}

// With strength 0 autocontrast and equalize still change the image. The other twelve operations do not.
TEST(Augmentation, RandAugmentChangesImagesByItsOperations) {
  const auto images_of = [](int operations) {
    std::set<std::vector<float>> seen;
    const Met met = meet_often({.randaugment = RandAugment{.operations = operations, .strength = 0}}, 600);
    for (std::size_t i = 0; i < 600; ++i) seen.insert(met.image(i));
    return seen;
  };
  std::vector<std::uint8_t> pixels(features);
  const ByteImage image{.pixels = pixels, .shape = byte_shape};
  const auto with = [&](ImageOperation operation) {
    for (std::size_t p = 0; p < features; ++p) pixels[p] = pixel_of(3, p);
    apply(operation, 0, Resampling::nearest, image);
    return std::vector<float>(pixels.begin(), pixels.end());
  };
  const std::set<std::vector<float>> expected = {with(ImageOperation::identity), with(ImageOperation::autocontrast),
                                                 with(ImageOperation::equalize)};
  EXPECT_EQ(images_of(1), expected) << "strength 0 solarizes from 255 on, and no pixel is that bright";
  for (const auto& one : expected) EXPECT_TRUE(images_of(2).contains(one));
}

// Keys of augmentation, validation and dropout: their effects, and the faults that they report.

using testing::AllOf;
using testing::HasSubstr;

class AugmentationSettings : public PlannedObjective {
 protected:
  AugmentationSettings() {
    workers = 2;
    micro_batches = 1;
  }
  ObjectivePlan plan_on_vectors(const std::string& key, const std::string& another = "training.label_smoothing=0") {
    return plan({"training.model=\"linear\"", "training.dataset=\"gaussian-mixture\"", "training.micro_batch_size=4",
                 "datasets.gaussian-mixture.train=100", "datasets.gaussian-mixture.test=10", key, another});
  }
  std::string report_on_images(const std::string& key) {
    plan({"training.model=\"linear\"", key});
    return report;
  }
};

TEST_F(AugmentationSettings, KeysMakeTheAugmentation) {
  TomlNode root;
  FaultList overriding;
  const std::vector<std::string> keys = {
      "augmentation={crop=3,flip=true,rotate_degrees=4.5,zoom=0.25,mixup=0.2,label_noise=0.1}",
      "augmentation.randaugment={form=\"composer\",operations=3,strength=7.5}"};
  apply_command_line(root, keys, overriding);
  SettingsDocument document(root);
  Settings training = document.root();
  const Augmentation read = read_augmentation(training);
  EXPECT_EQ(document.check().report(), "");
  EXPECT_EQ(read.crop, 3);
  EXPECT_TRUE(read.flip);
  EXPECT_EQ(read.rotate_degrees, 4.5);
  EXPECT_EQ(read.zoom, 0.25);
  EXPECT_EQ(read.mixup, 0.2);
  EXPECT_EQ(read.label_noise, 0.1);
  ASSERT_TRUE(read.randaugment);
  EXPECT_EQ(read.randaugment->form, RandAugment::Form::composer);
  EXPECT_EQ(read.randaugment->operations, 3);
  EXPECT_EQ(read.randaugment->strength, 7.5);
}

TEST_F(AugmentationSettings, OfNothingIsNone) {
  SettingsDocument document{TomlNode{}};
  Settings training = document.root();
  EXPECT_FALSE(read_augmentation(training).changes_samples());
}

// With zeros, a method or a point of a sweep switches augmentation off.
TEST_F(AugmentationSettings, OfAllZerosIsNone) {
  SettingsDocument document(
      parse_toml("augmentation = { crop = 0, rotate_degrees = 0, zoom = 0, mixup = 0, label_noise = 0 }", "a.toml"));
  Settings training = document.root();
  EXPECT_FALSE(read_augmentation(training).changes_samples());
  EXPECT_EQ(document.check().report(), "");
  EXPECT_TRUE(plan_on_vectors("training.augmentation={mixup=0}").load);
  EXPECT_EQ(report, "");
}

TEST_F(AugmentationSettings, OutOfRangeAreFaultsWithTheirPlace) {
  for (const auto& [key, needed] :
       std::vector<std::pair<std::string, std::string>>{{"crop=-1", "from 0"},
                                                        {"crop=28", "less than the images' 28 x 28"},
                                                        {"rotate_degrees=181", "180"},
                                                        {"rotate_degrees=-1", "0"},
                                                        {"zoom=1", "below 1"},
                                                        {"mixup=0.0009", "must be 0 or at least 0.001"},
                                                        {"mixup=-0.2", "at least 0"},
                                                        {"label_noise=1", "below 1"},
                                                        {"label_noise=-0.1", "at least 0"},
                                                        {"randaugment.form=\"autoaugment\"", "torchvision"},
                                                        {"randaugment={form=\"torchvision\",strength=31}", "30"},
                                                        {"randaugment={form=\"torchvision\",strength=9.5}", "integer"},
                                                        {"randaugment={form=\"composer\",strength=0}", "0.1"},
                                                        {"randaugment={form=\"composer\",strength=11}", "10"},
                                                        {"randaugment={form=\"composer\",operations=0}", "1"}})
    EXPECT_THAT(report_on_images("training.augmentation." + key),
                AllOf(HasSubstr("training.augmentation." + key.substr(0, key.find_first_of("=."))), HasSubstr(needed)))
        << key;
  EXPECT_EQ(report_on_images("training.augmentation={crop=27,randaugment={form=\"torchvision\"},mixup=0.2}"), "");
}

TEST_F(AugmentationSettings, OfVectorsIsAFaultAndMixingThemIsNone) {
  for (const std::string key : {"crop=1", "flip=true", "zoom=0.1", "randaugment={form=\"composer\"}"}) {
    plan_on_vectors("training.augmentation={" + key + "}");
    EXPECT_THAT(report, AllOf(HasSubstr("training.augmentation." + key.substr(0, key.find('=')) + " = "),
                              HasSubstr("needs images of bytes (uint8); gaussian-mixture has vectors")));
  }
  for (const char* const key : {"mixup=0.2", "label_noise=0.2"}) {
    EXPECT_TRUE(plan_on_vectors(fmt::format("training.augmentation={{{}}}", key)).load);
    EXPECT_EQ(report, "");
  }
}

TEST_F(AugmentationSettings, MixingNeedsPairs) {
  const auto report_with = [&](int micro_batch_size) {
    plan({"training.model=\"linear\"", "training.dataset=\"gaussian-mixture\"", "training.augmentation={mixup=0.2}",
          fmt::format("training.micro_batch_size={}", micro_batch_size)});
    return report;
  };
  EXPECT_THAT(report_with(1),
              AllOf(HasSubstr("training.augmentation.mixup = 0.2"), HasSubstr("micro_batch_size of at least 2")));
  EXPECT_EQ(report_with(2), "");
}

TEST_F(AugmentationSettings, OfArraysNeedsImagesOfBytes) {
  const auto report_on = [&](const char* type, const std::string& shape, std::size_t bytes, const std::string& key) {
    write("x_train.npy", npy_file(type, "(40, " + shape + ")", FileBytes(40 * bytes)));
    write("y_train.npy", npy_file("|u1", "(40,)", FileBytes(40, 3)));
    write("x_test.npy", npy_file(type, "(2, " + shape + ")", FileBytes(2 * bytes)));
    write("y_test.npy", npy_file("|u1", "(2,)", {1, 0}));
    const auto planned = plan({"training.model=\"linear\"", "training.dataset=\"npy\"", "training.micro_batch_size=2",
                               "training.augmentation={" + key + "}",
                               fmt::format("datasets.npy.directory=\"{}\"", directory_.string())});
    if (report.empty()) planned.load();
    return report;
  };
  EXPECT_EQ(report_on("|u1", "5, 6", 30, "crop=2,flip=true"), "");
  EXPECT_THAT(report_on("|u1", "6", 6, "flip=true"), HasSubstr("npy has vectors"));
  EXPECT_THAT(report_on("<f4", "5, 6", 120, "flip=true"), HasSubstr("npy has images of floats"));
  EXPECT_EQ(report_on("|u1", "2, 5, 6", 60, "flip=true"), "");
  EXPECT_THAT(report_on("|u1", "2, 5, 6", 60, "randaugment={form=\"composer\"}"),
              AllOf(HasSubstr("randaugment.form"), HasSubstr("images of 1 or 3 channels, not 2")));
}

TEST_F(AugmentationSettings, HeldOutSamplesAreFewerThanTheData) {
  EXPECT_EQ(plan_on_vectors("training.validation_samples=60").steps_per_epoch, 40 / (2 * 4));
  EXPECT_EQ(report, "");
  const auto objective = plan_on_vectors("training.validation_samples=60").load();
  EXPECT_EQ(objective->validation_samples(), 60);
  EXPECT_EQ(objective->evaluation_samples(Split::train), 40);
  EXPECT_EQ(plan_on_vectors("training.clip_norm=0").load()->validation_samples(), 0);
  for (const char* const samples : {"100", "101", "5000000000"}) {
    plan_on_vectors(fmt::format("training.validation_samples={}", samples));
    EXPECT_THAT(report, HasSubstr("training.validation_samples"));
  }
  plan_on_vectors("training.validation_samples=100");
  EXPECT_THAT(report, HasSubstr("must be less than the 100 training samples of gaussian-mixture"));
  plan_on_vectors("training.validation_seed=3");
  EXPECT_THAT(report, AllOf(HasSubstr("training.validation_seed"), HasSubstr("has no effect")));
  plan_on_vectors("training.subset_by_seed=true");
  EXPECT_THAT(report, AllOf(HasSubstr("training.subset_by_seed"), HasSubstr("has no effect")));
  plan_on_vectors("training.validation_samples=95");
  EXPECT_THAT(report, HasSubstr("the 5 training samples are fewer than one step's"));
}

TEST_F(AugmentationSettings, ASubsetIsOfWhatIsNotHeldOut) {
  EXPECT_EQ(plan_on_vectors("training.subset_samples=24").steps_per_epoch, 24 / (2 * 4));
  EXPECT_EQ(plan_on_vectors("training.subset_samples=24", "training.validation_samples=60")
                .load()
                ->evaluation_samples(Split::train),
            24);
  EXPECT_EQ(report, "");
  plan_on_vectors("training.subset_samples=101");
  EXPECT_THAT(report, HasSubstr("must be at most the 100 training samples of gaussian-mixture"));
  plan_on_vectors("training.subset_samples=41", "training.validation_samples=60");
  EXPECT_THAT(report, HasSubstr("must be at most the 40 training samples of gaussian-mixture that are not held out"));
}

// All pixels of sample i are i, so different subsets have different losses.
TEST_F(AugmentationSettings, SeedsShareASubsetUnlessEachSelectsItsOwn) {
  FileBytes pixels, labels;
  for (std::uint8_t i = 0; i < 200; ++i) {
    pixels.insert(pixels.end(), 4, i);
    labels.push_back(i % 3);
  }
  write("x_train.npy", npy_file("|u1", "(200, 2, 2)", pixels));
  write("y_train.npy", npy_file("|u1", "(200,)", labels));
  write("x_test.npy", npy_file("|u1", "(1, 2, 2)", FileBytes(4)));
  write("y_test.npy", npy_file("|u1", "(1,)", {0}));
  const auto loss_with = [&](std::uint64_t of_run, const std::string& key, const std::string& another) {
    seed = of_run;
    const auto objective = plan({"training.model=\"linear\"", "training.dataset=\"npy\"", "training.micro_batch_size=2",
                                 fmt::format("datasets.npy.directory=\"{}\"", directory_.string()),
                                 "training.subset_samples=20", key, another})
                               .load();
    EXPECT_EQ(report, "");
    std::vector<float> parameters(objective->parameters());
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = static_cast<float>(i % 5);
    return objective->evaluate(parameters.data(), nullptr, Split::train, 0, 20).loss;
  };
  const std::string own = "training.subset_by_seed=true", one = "training.subset_by_seed=false";
  EXPECT_EQ(loss_with(1, one, "training.validation_seed=5"), loss_with(2, one, "training.validation_seed=5"));
  EXPECT_NE(loss_with(1, own, "training.validation_seed=5"), loss_with(2, own, "training.validation_seed=5"));
  EXPECT_EQ(loss_with(2, own, "training.validation_seed=5"), loss_with(9, one, "training.validation_seed=7"));
}

TEST_F(AugmentationSettings, AModelWithoutDataHasNoneOfThem) {
  for (const std::string key : {"augmentation={crop=1}", "augmentation={mixup=0.2}", "augmentation={label_noise=0.1}",
                                "validation_samples=5"}) {
    plan({"training.model=\"quadratic\"", "training." + key});
    EXPECT_THAT(report, AllOf(HasSubstr("training." + key.substr(0, key.find('='))), HasSubstr("has no data")));
  }
}

TEST_F(AugmentationSettings, DropoutOfAllIsAFault) {
  for (const std::string model : {"mlp", "cnn", "resnet", "vit"}) {
    plan({"training.model=\"" + model + "\"", "models." + model + ".dropout=1"});
    EXPECT_THAT(report, AllOf(HasSubstr("models." + model + ".dropout"), HasSubstr("below 1")));
    plan({"training.model=\"" + model + "\"", "models." + model + ".dropout=0.9"});
    EXPECT_EQ(report, "");
  }
}

// Operations on images, compared with torchvision's and Pillow's results (tests/golden/image_operations.py) and with
// closed forms.

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

// Compares each pixel of a crop with the pixel at this place of the image in its frame of zeros.
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

// A quarter turn counter-clockwise moves the right column to the top row. A zoom of 2 shows only the image's middle.
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
  apply(ImageOperation::solarize, 0, Resampling::nearest, image);
  EXPECT_EQ(pixels.front(), 254);
  apply(ImageOperation::solarize, 0, Resampling::nearest, image);
  EXPECT_EQ(pixels, counted(200));
}

DrawnOperation drawn(const RandAugment& law, const std::array<double, draws_of_operation>& uniform) {
  return drawn_operation(law, {.channels = 1, .height = 28, .width = 33}, uniform);
}

// As in torchvision: strengths are integers from 0 to 30, the maximum. The first uniform number u selects operation
// floor(14 u).
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
    EXPECT_DOUBLE_EQ(amount(9, translate_x, sign), s * 4);  // 150/331 of the width 33, x 9/30 = 4.49, rounded down
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
  // The level on a scale of 10 is 0.1 + 7.9 u, with the third uniform number u: 4.05 for u = 0.5, and 8 for u = 1.
  EXPECT_DOUBLE_EQ(amount(shear_x, 0.1, 0.5, 0), 0.3 * 0.405);
  EXPECT_DOUBLE_EQ(amount(shear_y, 0.9, 1, 0), -0.24);
  EXPECT_DOUBLE_EQ(amount(translate_x, 0.9, 1, 0), -8);  // a third of the width 33, x 0.8 = 8.8, rounded down
  EXPECT_DOUBLE_EQ(amount(rotate, 0.1, 0.5, 0), 12);     // 30 x 0.405 = 12.15, rounded down
  EXPECT_DOUBLE_EQ(amount(ImageOperation::posterize, 0.1, 0.5, 0), 3);
  EXPECT_DOUBLE_EQ(amount(ImageOperation::solarize, 0.1, 0.5, 0), 256 - 103);  // 256 x 0.405 = 103.68
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

// Mixup: the distribution of shares and partners, mixed values, and gradients compared with a reference in double.

using namespace reference;

MicroBatch numbered(int i) { return {.worker = Rank{i % 7}, .step = i / 7, .index = i % 3}; }

// Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
TEST(Mixup, SharesAreBetas) {
  constexpr int draws = 20000;
  for (const double alpha : {0.2, 1.0, 4.0}) {
    double sum = 0, squares = 0;
    for (int i = 0; i < draws; ++i) {
      const double share = drawn_mixture(5, numbered(i), 4, alpha).share;
      ASSERT_GE(share, 0);
      ASSERT_LE(share, 1);
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / draws, 0.5, 5 * std::sqrt(variance / draws));
    EXPECT_NEAR(squares / draws, variance, 0.03 * variance);
  }
}

TEST(Mixup, OfExtremeParametersIsANumber) {
  for (const double alpha : {1e-3, 1e3})
    for (int i = 0; i < 300; ++i) {
      const float share = drawn_mixture(1, numbered(i), 2, alpha).share;
      EXPECT_TRUE(share >= 0 && share <= 1) << share;
    }
}

TEST(Mixup, PartnersAreAPermutationThatEachMicroBatchDraws) {
  std::set<std::vector<std::uint32_t>> seen;
  std::vector<int> first(5);
  for (int i = 0; i < 1050; ++i) {
    const Mixture mixture = drawn_mixture(9, numbered(i), 5, 0.2);
    auto sorted = mixture.partners;
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
    seen.insert(mixture.partners);
    ++first[mixture.partners[0]];
  }
  EXPECT_EQ(seen.size(), 120u);
  for (const int count : first) EXPECT_NEAR(count, 210, 5 * 13);
  const Mixture a = drawn_mixture(9, numbered(1), 5, 0.2), b = drawn_mixture(9, numbered(1), 5, 0.2);
  EXPECT_EQ(a.share, b.share);
  EXPECT_EQ(a.partners, b.partners);
  EXPECT_NE(a.share, drawn_mixture(10, numbered(1), 5, 0.2).share);
  EXPECT_NE(a.share, drawn_mixture(9, numbered(2), 5, 0.2).share);
}

TEST(Mixup, MixesEachSampleWithItsPartnerAsItWas) {
  std::vector<float> inputs = {0, 8, 100, 108, 200, 208};
  mix({.share = 0.25f, .partners = {1, 2, 0}}, inputs);
  EXPECT_EQ(inputs, (std::vector<float>{25, 33, 125, 133, 150, 158}));
}

TEST(Mixup, LossIsThatOfMixedTargets) {
  torch::manual_seed(3);
  const auto logits = torch::randn({4, 5}, torch::kDouble);
  const auto labels = torch::tensor({0, 4, 2, 2}, torch::kLong), others = torch::tensor({1, 4, 0, 3}, torch::kLong);
  const auto shares = torch::tensor({0.1, 0.9, 0.4, 0.0}, torch::kDouble);
  const MixedLabels mixed{.labels = others, .shares = shares};
  const auto hot = [](const at::Tensor& of) { return torch::one_hot(of, 5).to(torch::kDouble); };
  const auto column = shares.unsqueeze(1);
  const auto log_probabilities = torch::log_softmax(logits, 1);
  for (const double e : {0.0, 0.2}) {
    const auto targets = (1 - column) * hot(labels) + column * hot(others);
    const auto smooth = (1 - e) * targets + e / 5;
    const LossSums found = cross_entropy(logits, labels, e, &mixed);
    EXPECT_NEAR(found.minimised.item<double>(), -(smooth * log_probabilities).sum().item<double>(), 1e-12);
    EXPECT_NEAR(found.reported.item<double>(), -(targets * log_probabilities).sum().item<double>(), 1e-12);
  }
}

// The objective fuses the two micro-batches, but mixes each one separately.
TEST(Mixup, GradientsAreThoseOfMixedSamples) {
  constexpr double alpha = 0.7;
  const TorchObjective objective(linear_network(shape, classes), images(), sampling, 32, 0, alpha);
  const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                                 {.worker = Rank{1}, .step = 3, .index = 1}};
  const auto theta = objective.initial_parameters(3);
  const auto gradient = objective.gradient(theta.data(), nullptr, micro_batches);

  auto module = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(shape.features(), classes));
  module->to(torch::kDouble);
  set_parameters(module, theta);
  double loss_sum = 0;
  for (const auto& micro_batch : micro_batches) {
    const Mixture mixture = drawn_mixture(sampling.seed, micro_batch, 5, alpha);
    auto samples = samples_of(micro_batch);
    const auto x = input_tensor(samples);
    const auto order = torch::tensor(std::vector<std::int64_t>(mixture.partners.begin(), mixture.partners.end()));
    const auto labels = label_tensor(samples);
    const auto logits = module->forward((1 - mixture.share) * x + mixture.share * x.index_select(0, order));
    const auto loss = (1 - mixture.share) * torch::nn::functional::cross_entropy(logits, labels) +
                      mixture.share * torch::nn::functional::cross_entropy(logits, labels.index_select(0, order));
    loss.backward();
    loss_sum += loss.item<double>();
  }
  EXPECT_NEAR(gradient.loss_sum, loss_sum, 1e-5);
  std::vector<double> expected;
  for (const auto& parameter : flat_order(module)) {
    const auto values = parameter.grad().contiguous();
    expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  std::size_t at = 0;
  for (const auto& segment : gradient.segments)
    for (std::size_t i = 0; i < segment.size; ++i, ++at) ASSERT_NEAR(segment.data[i], expected[at], 1e-5) << at;
  EXPECT_EQ(at, expected.size());
}

TEST(Mixup, LeavesEvaluationsAlone) {
  const auto network = linear_network(shape, classes);
  const TorchObjective plain(network, images(), sampling, 32), mixed(network, images(), sampling, 32, 0, 0.2);
  const auto theta = plain.initial_parameters(3);
  for (const Split split : {Split::train, Split::test})
    EXPECT_EQ(plain.evaluate(theta.data(), nullptr, split, 0, 50).loss,
              mixed.evaluate(theta.data(), nullptr, split, 0, 50).loss);
}

}  // namespace
}  // namespace syncopate
