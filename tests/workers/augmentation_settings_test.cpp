// The keys of augmentation, validation and dropout: what they make, and what is wrong with which.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/workers/npy_files.hpp"
#include "tests/workers/planned_objective.hpp"
#include "workers/config/toml.hpp"
#include "workers/data/augmentation.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class AugmentationSettings : public PlannedObjective {
 protected:
  AugmentationSettings() {
    workers = 2;
    micro_batches = 1;
  }
  // On 100 generated vectors.
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
  const std::vector<std::string> keys = {"augmentation={crop=3,flip=true,rotate_degrees=4.5,zoom=0.25,mixup=0.2}",
                                         "augmentation.randaugment={form=\"composer\",operations=3,strength=7.5}"};
  apply_overrides(root, keys, overriding);
  SettingsDocument document(root);
  Settings training = document.root();
  const Augmentation read = read_augmentation(training);
  EXPECT_EQ(document.check().report(), "");
  EXPECT_EQ(read.crop, 3);
  EXPECT_TRUE(read.flip);
  EXPECT_EQ(read.rotate_degrees, 4.5);
  EXPECT_EQ(read.zoom, 0.25);
  EXPECT_EQ(read.mixup, 0.2);
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

// So that it can be switched off for a method, and swept.
TEST_F(AugmentationSettings, OfAllZerosIsNone) {
  SettingsDocument document(
      parse_toml("augmentation = { crop = 0, rotate_degrees = 0, zoom = 0, mixup = 0 }", "a.toml"));
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
                              HasSubstr("needs images of bytes; gaussian-mixture has vectors")));
  }
  EXPECT_TRUE(plan_on_vectors("training.augmentation={mixup=0.2}").load);
  EXPECT_EQ(report, "");
}

TEST_F(AugmentationSettings, MixingNeedsPairs) {
  const auto report_with = [&](int micro_batch_size) {
    plan({"training.model=\"linear\"", "training.dataset=\"gaussian-mixture\"", "training.augmentation={mixup=0.2}",
          fmt::format("training.micro_batch_size={}", micro_batch_size)});
    return report;
  };
  EXPECT_THAT(report_with(1),
              AllOf(HasSubstr("training.augmentation.mixup = 0.2"), HasSubstr("micro_batch_size at least 2")));
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
              AllOf(HasSubstr("randaugment.form"), HasSubstr("1 or 3 channels, not of 2")));
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
  EXPECT_THAT(report, AllOf(HasSubstr("training.validation_seed"), HasSubstr("must be left out")));
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

TEST_F(AugmentationSettings, AModelWithoutDataHasNoneOfThem) {
  for (const std::string key : {"augmentation={crop=1}", "augmentation={mixup=0.2}", "validation_samples=5"}) {
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

}  // namespace
}  // namespace syncopate
