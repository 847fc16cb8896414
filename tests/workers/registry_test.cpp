#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "tests/workers/npy_files.hpp"
#include "tests/workers/planned_objective.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/datasets.hpp"
#include "workers/models/models.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Registry : public PlannedObjective {};

TEST_F(Registry, NamesAreUniqueAndExplained) {
  std::set<std::string_view> names;
  for (const auto& row : models()) EXPECT_TRUE(names.insert(row.name).second && !row.sentence.empty());
  for (const auto& row : datasets()) EXPECT_TRUE(names.insert(row.name).second && !row.sentence.empty());
}

// A listed name is never reported as unknown, even if tables that it needs are missing.
TEST_F(Registry, EveryNameOfTheListIsRead) {
  const auto report_on = [&](std::string_view model, std::string_view dataset) {
    plan({fmt::format("training.model=\"{}\"", model), fmt::format("training.dataset=\"{}\"", dataset),
          "training.micro_batch_size=4"});
    return report;
  };
  const auto unknown = HasSubstr("must be one of");
  EXPECT_THAT(report_on("no such model", "no such data"), AllOf(unknown, HasSubstr("no such data")));
  for (const auto& row : models()) EXPECT_THAT(report_on(row.name, "gaussian-mixture"), testing::Not(unknown));
  for (const auto& row : datasets()) EXPECT_THAT(report_on("mlp", row.name), testing::Not(unknown));
}

// Numbers of parameters with default keys, for images of 28 x 28 in 10 classes or definitions in 45 classes. They show
// that no name stands for another model.
TEST_F(Registry, EachNameIsAModelOfItsOwn) {
  const std::map<std::string_view, std::int64_t> parameters = {
      {"linear", 784 * 10 + 10},
      {"mlp", 784 * 256 + 256 + 256 * 10 + 10},
      {"cnn", 16 * 25 + 16 + 32 * 16 * 25 + 32 + 32 * 4 * 4 * 64 + 64 + 64 * 10 + 10},  // 28, 24, 12, 8, 4 pixels wide
      {"resnet", 75'290 - 2 * 16 * 9},                                                  // published for three channels
      {"imagenet-resnet", 11'689'512 - 990 * 513 - 2 * 64 * 49},  // published for three channels and 1,000 classes
      {"vit", 2'676'778 - 2 * (4 * 4 * 2) - 4 * 4 * 2 * 192},
      {"text-transformer", (20005 + 128) * 128 + 2 * 128 +
                               2 * (4 * (128 * 128 + 128) + 2 * 128 * 512 + 512 + 128 + 512) + 128 * 128 + 128 +
                               45 * 128 + 45},
      {"gpt", (20005 + 256) * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128},
      {"torchscript", 10 * 784 + 3},
      {"quadratic", 100},
      {"valley", 2},
      {"diagonal-linear", 48},
      {"none", 0}};
  const std::string file = (directory_ / "model.pt").string();
  save_script(file, {{.name = "weight", .shape = {10, 784}}, {.name = "idle", .shape = {3}}},
              "return torch.linear(x.flatten(1), self.weight)");
  for (const auto& row : models()) {
    ASSERT_TRUE(parameters.contains(row.name)) << row.name;
    const bool takes_texts = row.name.starts_with("text") || row.name == "gpt";
    const std::string_view dataset = takes_texts ? "wordnet-glosses" : "fashion-mnist";
    const auto planned =
        plan({fmt::format("training.model=\"{}\"", row.name), fmt::format("training.dataset=\"{}\"", dataset),
              fmt::format("models.torchscript.file=\"{}\"", file)});
    EXPECT_EQ(planned.parameters, parameters.at(row.name)) << row.name;
    EXPECT_EQ(report, "");
  }
  EXPECT_FALSE(plan({"training.model=\"residual\""}).load);
}

TEST_F(Registry, DefaultMlpTrainsOnFashionMnist) {
  const auto planned = plan({"training.model=\"mlp\"", "training.micro_batch_size=8"});
  ASSERT_EQ(report, "");
  EXPECT_EQ(planned.steps_per_epoch, 60000 / (4 * 2 * 8));
  EXPECT_EQ(planned.samples_per_micro_batch, 8);
  EXPECT_TRUE(planned.has_accuracy);
  const auto objective = planned.load();
  EXPECT_EQ(objective->parameters(), 784u * 256 + 256 * 10 + 256 + 10);
  EXPECT_EQ(objective->steps_per_epoch(), planned.steps_per_epoch);
  EXPECT_EQ(objective->evaluation_samples(Split::test), 10000);
}

TEST_F(Registry, TablesOfAllModelsAreKnownWhicheverIsChosen) {
  const auto planned = plan({"training.model=\"cnn\"", "models.mlp.hidden=[3]", "models.cnn.channels=[2]",
                             "models.cnn.kernel=3", "models.cnn.dense=5", "models.cnn.batch_norm=true",
                             "models.quadratic.noise=0.5", "datasets.gaussian-mixture.classes=3"});
  ASSERT_EQ(report, "");
  const auto objective = planned.load();
  // Images become 28, 26 and 13 pixels wide, with 2 channels.
  EXPECT_EQ(objective->parameters(), 2u * 9 + 2 * 2 + 13 * 13 * 2 * 5 + 5 + 5 * 10 + 10);
  EXPECT_EQ(objective->buffers(), 4u);
}

TEST_F(Registry, EveryModelLoads) {
  for (const std::string model : {"linear", "mlp"}) {
    const auto planned = plan({"training.model=\"" + model + "\"", "training.dataset=\"gaussian-mixture\"",
                               "datasets.gaussian-mixture.train=100", "datasets.gaussian-mixture.test=10",
                               "training.micro_batch_size=4", "datasets.gaussian-mixture.dimension=1"});
    ASSERT_EQ(report, "") << model;
    const auto objective = planned.load();
    const auto theta = objective->initial_parameters(1);
    const MicroBatch micro_batch;
    EXPECT_GT(objective->gradient(theta.data(), nullptr, std::span(&micro_batch, 1)).loss_sum, 0) << model;
    EXPECT_EQ(planned.steps_per_epoch, 3);
  }
}

TEST_F(Registry, TheQuadraticNeedsNoData) {
  const auto planned = plan(
      {"training.model=\"quadratic\"", "models.quadratic.dimension=7", "datasets.fashion-mnist.directory=\"/absent\""});
  ASSERT_EQ(report, "");
  EXPECT_EQ(planned.load()->parameters(), 7u);
  EXPECT_EQ(planned.steps_per_epoch, 0);
  EXPECT_FALSE(planned.has_accuracy);
}

TEST_F(Registry, WithoutAModelThereIsNothingToLoad) {
  const auto planned = plan({"training.model=\"none\"", "training.micro_batch_size=12"});
  ASSERT_EQ(report, "");
  EXPECT_FALSE(planned.load);
  EXPECT_EQ(planned.samples_per_micro_batch, 12);
  EXPECT_EQ(planned.steps_per_epoch, 0);
  EXPECT_EQ(plan({"training.model=\"none\"", "training.dataset=\"fashion-mnist\"", "training.micro_batch_size=10"})
                .steps_per_epoch,
            750);
}

TEST_F(Registry, ArraysOfOnesOwnAreADataSet) {
  write("x_train.npy", npy_file("<f4", "(40, 3)", FileBytes(480)));
  write("y_train.npy", npy_file("|u1", "(40,)", FileBytes(40, 3)));
  write("x_test.npy", npy_file("<f4", "(2, 3)", FileBytes(24)));
  write("y_test.npy", npy_file("|u1", "(2,)", {1, 0}));
  const std::string directory = fmt::format("datasets.npy.directory=\"{}\"", directory_.string());
  const auto planned =
      plan({"training.model=\"linear\"", "training.dataset=\"npy\"", "training.micro_batch_size=2", directory});
  ASSERT_EQ(report, "");
  EXPECT_EQ(planned.parameters, 3 * 4 + 4);
  EXPECT_EQ(planned.steps_per_epoch, 40 / (4 * 2 * 2));
  EXPECT_EQ(planned.load()->evaluation_samples(Split::test), 2);
  write("y_test.npy", npy_file("|u1", "(3,)", {1, 0, 0}));
  plan({"training.model=\"linear\"", "training.dataset=\"npy\"", directory});
  EXPECT_THAT(report, AllOf(HasSubstr("datasets.npy.directory"), HasSubstr("3 labels for 2 samples")));
  plan({"training.model=\"linear\"", "training.dataset=\"npy\""});
  EXPECT_THAT(report, AllOf(HasSubstr("datasets.npy.directory"), HasSubstr("is required")));
}

TEST_F(Registry, TextsAreDataSetsOfThoseModelsThatTakeTokens) {
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);  // not the user's cache
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("{}\tsome words of line {}\n", i % 2 ? "odd" : "even", i);
  write("a.txt", {text.begin(), text.end()});
  const auto plan_lines = [&](const std::string& model, const std::string& key) {
    return plan({fmt::format("training.model=\"{}\"", model), "training.dataset=\"text-lines\"",
                 "training.micro_batch_size=4", key,
                 fmt::format("datasets.text-lines.file=\"{}\"", (directory_ / "a.txt").string())});
  };
  const auto planned = plan_lines("linear", "datasets.text-lines.labelled=true");
  ASSERT_EQ(report, "");
  EXPECT_EQ(planned.parameters, (5 + 4) * 2 + 2) << "special tokens; some, words, of, line; no number stands twice";
  const auto objective = planned.load();
  const std::vector<float> zeros(objective->parameters());
  const auto sums =
      objective->evaluate(zeros.data(), nullptr, Split::test, 0, objective->evaluation_samples(Split::test));
  EXPECT_NEAR(sums.loss / static_cast<double>(sums.samples), std::log(2), 1e-5);
  EXPECT_FALSE(plan_lines("mlp", "datasets.text-lines.labelled=true").load);
  EXPECT_THAT(report,
              HasSubstr("training.model = \"mlp\"; needs samples made of numbers, such as images; text-lines has "
                        "sequences of up to 7 tokens"));
  EXPECT_FALSE(plan_lines("linear", "datasets.text-lines.labelled=false").load);
  EXPECT_THAT(report, HasSubstr("needs samples with labels"));
  plan_lines("linear", "datasets.text-lines.least=1000");
  EXPECT_THAT(report, AllOf(HasSubstr("datasets.text-lines.file"), HasSubstr("no word occurs 1000 times")));
  plan({"training.model=\"linear\"", "training.dataset=\"text-lines\""});
  EXPECT_THAT(report, AllOf(HasSubstr("datasets.text-lines.file"), HasSubstr("is required")));
  plan({"training.model=\"linear\"", "training.dataset=\"wordnet-glosses\"",
        fmt::format("datasets.wordnet-glosses.directory=\"{}\"", directory_.string())});
  EXPECT_THAT(report, AllOf(HasSubstr("datasets.wordnet-glosses.directory"), HasSubstr("data.noun")));
}

// One process reads the same files with fine and with coarse labels. The second reading must not use the first one's
// cache.
TEST_F(Registry, CifarsFilesAreReadByEitherLabelInColour) {
  FileBytes records;
  for (int i = 0; i < 64; ++i) {
    records.push_back(static_cast<std::uint8_t>(i % 20));
    records.push_back(static_cast<std::uint8_t>(i));
    records.insert(records.end(), 3072, static_cast<std::uint8_t>(i));
  }
  write("train.bin", records);
  write("test.bin", records);
  const std::string directory = fmt::format("datasets.cifar-100.directory=\"{}\"", directory_.string());
  for (const auto& [labels, classes] : {std::pair("fine", 100), std::pair("coarse", 20)}) {
    const auto planned =
        plan({"training.model=\"linear\"", "training.dataset=\"cifar-100\"", "training.micro_batch_size=4", directory,
              "datasets.cifar-100.complete=false", fmt::format("datasets.cifar-100.labels=\"{}\"", labels)});
    ASSERT_EQ(report, "");
    EXPECT_EQ(planned.parameters, 3072 * classes + classes);
    const auto objective = planned.load();
    const std::vector<float> zeros(objective->parameters());
    EXPECT_NEAR(objective->evaluate(zeros.data(), nullptr, Split::test, 0, 64).loss, 64 * std::log(classes), 1e-2);
  }
  plan({"training.model=\"linear\"", "training.dataset=\"cifar-100\"", "training.micro_batch_size=4", directory});
  EXPECT_THAT(report, AllOf(HasSubstr("datasets.cifar-100.directory"), HasSubstr("has 64 records; must have 50000")));
  plan({"training.model=\"linear\"", "training.dataset=\"cifar-10\"", "datasets.cifar-10.directory=\"nowhere\""});
  EXPECT_THAT(report, HasSubstr("datasets.cifar-10.directory"));
}

TEST_F(Registry, APartitionThatLeavesAWorkerWithoutAMicroBatchIsAFault) {
  const std::vector<std::string> keys = {"training.model=\"linear\"", "training.dataset=\"gaussian-mixture\"",
                                         "training.micro_batch_size=8", "datasets.gaussian-mixture.train=400",
                                         "datasets.gaussian-mixture.classes=2"};
  const auto divided = [&](const std::string& partition) {
    auto all = keys;
    all.push_back("training.partition={" + partition + "}");
    return plan(all);
  };
  divided("kind='dirichlet',alpha=0.00001");  // nearly all samples of a class go to one worker
  EXPECT_THAT(report, AllOf(HasSubstr("training.partition"), HasSubstr("fewer than a micro-batch of 8")));
  divided("kind='label',shards=101");
  EXPECT_THAT(report, HasSubstr("training.partition.shards = 101; must be at most 100: 400 training samples for 4"));
  const auto planned = divided("kind='label',shards=2");
  ASSERT_EQ(report, "");
  EXPECT_EQ(planned.steps_per_epoch, 400 / (4 * 2 * 8));
  EXPECT_EQ(planned.load()->steps_per_epoch(), planned.steps_per_epoch);
  plan({"training.model=\"quadratic\"", "training.partition={kind='size'}"});
  EXPECT_THAT(report, HasSubstr("training.partition"));
}

TEST_F(Registry, AMissingDirectoryIsAFaultOfItsKey) {
  const auto planned = plan({"training.model=\"mlp\"", "datasets.fashion-mnist.directory=\"/absent\""});
  EXPECT_THAT(report, AllOf(HasSubstr("directory"), HasSubstr("/absent"), HasSubstr("no such directory")));
  EXPECT_FALSE(planned.load);
}

TEST_F(Registry, AMislabelledFileIsAFaultBeforeAnythingRuns) {
  for (const auto* split : {"train", "t10k"})
    for (const auto* kind : {"-images-idx3-ubyte", "-labels-idx1-ubyte"})
      write(std::string(split) + kind, idx_file({2}, {0, 1}));  // all four files have labels
  plan({"training.model=\"mlp\"", "datasets.fashion-mnist.directory=\"" + directory_.string() + "\""});
  EXPECT_THAT(report, AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("must contain images")));
}

TEST_F(Registry, BadLabelsShowWhenTheDataIsLoaded) {
  for (const auto* split : {"train", "t10k"}) {
    write(std::string(split) + "-images-idx3-ubyte", idx_file({8, 1, 1}, FileBytes(8, 1)));
    write(std::string(split) + "-labels-idx1-ubyte", idx_file({8}, FileBytes(8, 11)));
  }
  const auto planned = plan({"training.model=\"linear\"", "training.micro_batch_size=1",
                             "datasets.fashion-mnist.directory=\"" + directory_.string() + "\""});
  ASSERT_EQ(report, "");
  EXPECT_THAT(message_of<DataFault>([&] { planned.load(); }), HasSubstr("label 0 = 11"));
}

TEST_F(Registry, TooFewSamplesForOneStepAreAFault) {
  plan({"training.model=\"mlp\"", "training.micro_batch_size=10000"});
  EXPECT_THAT(report, AllOf(HasSubstr("micro_batch_size"), HasSubstr("60000"), HasSubstr("4 workers")));
}

TEST_F(Registry, TokensAreNotMixed) {
  write("a.txt", {'x', '\t', 'a', '\n', 'x', '\t', 'b', '\n', 'y', '\t', 'a', '\n', 'y', '\t', 'c', '\n'});
  plan({"training.model=\"linear\"", "training.dataset=\"text-lines\"", "training.micro_batch_size=1",
        "training.augmentation={mixup=0.5,label_noise=0.1}",
        fmt::format("datasets.text-lines={{file=\"{}\",labelled=true,test_share=0.5,least=1}}",
                    (directory_ / "a.txt").string())});
  EXPECT_THAT(report, HasSubstr("augmentation.mixup = 0.5; must be left out: tokens of text-lines are not mixed"));
  EXPECT_THAT(report, HasSubstr("augmentation.label_noise = 0.1; must be left out: text-lines has texts"));
}

TEST_F(Registry, FaultsOfModelAndDataAreReportedTogether) {
  plan({"training.model=\"mpl\"", "training.dataset=\"fashion\"", "models.mlp.hidden=[0]", "models.mlp.depth=2"});
  EXPECT_THAT(report, AllOf(HasSubstr("mpl"), HasSubstr("fashion"), HasSubstr("hidden"), HasSubstr("depth")));
}

TEST_F(Registry, TheLibraryHasAVersion) { EXPECT_THAT(torch_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\..*")); }

}  // namespace
}  // namespace syncopate
