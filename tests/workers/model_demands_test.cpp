// What models demand of their keys and of the data that they are to learn, and what is said where they do not get it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/workers/npy_files.hpp"
#include "tests/workers/planned_objective.hpp"
#include "tests/workers/script_files.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ModelDemands : public PlannedObjective {};

TEST_F(ModelDemands, ConvolutionsNeedImages) {
  plan({"training.model=\"cnn\"", "training.dataset=\"gaussian-mixture\""});
  EXPECT_THAT(report, AllOf(HasSubstr("model"), HasSubstr("at least 16 x 16"), HasSubstr("vectors of 32")));
}

TEST_F(ModelDemands, WhatNoResnetCanBeIsAFault) {
  const auto report_of = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> all = {"training.model=\"resnet\""};
    all.insert(all.end(), keys.begin(), keys.end());
    EXPECT_FALSE(plan(all).load);
    return report;
  };
  EXPECT_THAT(report_of({"models.resnet.depth=10"}),
              HasSubstr("models.resnet.depth = 10; must be 6 n + 2, such as 8 and 14"));
  EXPECT_THAT(report_of({"models.resnet.norm=\"group\"", "models.resnet.width=12"}),
              HasSubstr("models.resnet.groups = 8 (the default); must divide the width, 12"));
  EXPECT_THAT(report_of({"models.resnet.norm=\"group\"", "models.resnet.groups=3"}),
              HasSubstr("models.resnet.groups = 3; must divide the width, 16"));
  EXPECT_THAT(report_of({"training.dataset=\"gaussian-mixture\""}),
              AllOf(HasSubstr("training.model"), HasSubstr("images of at least 4 x 4"), HasSubstr("vectors of 32")));
  EXPECT_THAT(report_of({"models.resnet.norm=\"layer\"", "models.resnet.depth=0"}),
              AllOf(HasSubstr("models.resnet.norm"), HasSubstr("models.resnet.depth = 0; must be an integer from 8")));
}

TEST_F(ModelDemands, WhatNoVisionTransformerCanBeIsAFault) {
  EXPECT_FALSE(plan({"training.model=\"vit\"", "models.vit.patch=5"}).load);
  EXPECT_THAT(report, HasSubstr("models.vit.patch = 5; must divide the images' height and width; "
                                "fashion-mnist has images of 28 x 28"));
  EXPECT_FALSE(plan({"training.model=\"vit\"", "training.dataset=\"gaussian-mixture\""}).load);
  EXPECT_THAT(report, AllOf(HasSubstr("models.vit.patch = 4 (the default); must divide"), HasSubstr("vectors of 32")));
  EXPECT_FALSE(plan({"training.model=\"vit\"", "models.vit.width=10"}).load);
  EXPECT_THAT(report, HasSubstr("models.vit.width = 10; must be a multiple of 4"));
  EXPECT_FALSE(plan({"training.model=\"vit\"", "models.vit.width=4"}).load);
  EXPECT_THAT(report, HasSubstr("models.vit.width = 4; must be an integer from 8"));
}

TEST_F(ModelDemands, WhatNoTransformerOfTextsCanBeIsAFault) {
  const auto report_of = [&](const std::vector<std::string>& keys, const std::string& dataset = "wordnet-glosses") {
    std::vector<std::string> all = {"training.model=\"text-transformer\"",
                                    fmt::format("training.dataset=\"{}\"", dataset)};
    for (const std::string& key : keys)
      all.push_back(key.starts_with("datasets") ? key : "models.text-transformer." + key);
    EXPECT_FALSE(plan(all).load);
    return report;
  };
  EXPECT_THAT(report_of({"width=130"}),
              HasSubstr("models.text-transformer.width = 130; must be a multiple of the heads, 4"));
  EXPECT_THAT(report_of({"positions=10"}),
              AllOf(HasSubstr("models.text-transformer.positions = 10; must be"),
                    HasSubstr("or `cut` be true; wordnet-glosses has sequences of up to")));
  EXPECT_THAT(report_of({"task=\"masked-lm\"", "pooling=\"men\""}),
              HasSubstr("pooling = \"men\"; must be one of \"first\", \"mean\""));
  EXPECT_THAT(report_of({"masked_share=0.2"}), HasSubstr("only the task \"masked-lm\" looks at it"));
  EXPECT_THAT(report_of({"task=\"masked-lm\"", "mask_copies=3"}),
              HasSubstr("mask_copies = 3; must be left out: dynamic masking has no copies"));
  EXPECT_THAT(
      report_of({}, "fashion-mnist"),
      HasSubstr(
          "training.model = \"text-transformer\"; needs texts, which are tokens; fashion-mnist has images of 28 x 28"));
  write("x_train.npy", npy_file("<i4", "(40, 3)", FileBytes(480, 1)));
  write("y_train.npy", npy_file("|u1", "(40,)", FileBytes(40, 3)));
  write("x_test.npy", npy_file("<i4", "(2, 3)", FileBytes(24)));
  write("y_test.npy", npy_file("|u1", "(2,)", {1, 0}));
  EXPECT_THAT(report_of({}, "npy"), HasSubstr("datasets.npy.directory"));
  const std::string directory = fmt::format("datasets.npy.directory=\"{}\"", directory_.string());
  EXPECT_THAT(report_of({"task=\"masked-lm\"", directory}, "npy"), HasSubstr("row 0 has the token 16843009"));
  write("x_train.npy", npy_file("<i4", "(40, 3)", FileBytes(480)));
  EXPECT_THAT(report_of({"task=\"masked-lm\"", directory}, "npy"),
              HasSubstr("task = \"masked-lm\"; needs a data set with a token that hides others"));
  write("a.txt", {'a', '\n', 'a', '\n', 'b', '\n'});
  EXPECT_THAT(report_of({"cut=true", fmt::format("datasets.text-lines={{file=\"{}\",test_share=0.5,least=1}}",
                                                 (directory_ / "a.txt").string())},
                        "text-lines"),
              HasSubstr("task = \"classification\" (the default); needs samples with labels"));
}

TEST_F(ModelDemands, AModuleOfOnesOwnLoadsAndItsFaultsAreItsFiles) {
  const std::string file = (directory_ / "model.pt").string();
  const auto planned_with = [&](const std::string& more) {
    return plan({"training.model=\"torchscript\"", "training.dataset=\"gaussian-mixture\"",
                 "datasets.gaussian-mixture={classes=3,dimension=5,train=100,test=10}", "training.micro_batch_size=4",
                 more});
  };
  const std::string named = fmt::format("models.torchscript.file=\"{}\"", file);
  save_script(file, {{.name = "weight", .shape = {3, 5}}}, "return torch.linear(x, self.weight)");
  const auto planned = planned_with(named);
  ASSERT_EQ(report, "");
  EXPECT_EQ(planned.parameters, 15);
  EXPECT_THAT(planned.tensors, testing::ElementsAre(testing::Field(&ParameterTensor::name, "weight")));
  const auto objective = planned.load();
  const MicroBatch micro_batch;
  EXPECT_GT(objective->gradient(objective->initial_parameters(1).data(), nullptr, std::span(&micro_batch, 1)).loss_sum,
            0);

  planned_with("models.torchscript.fused=\"auto\"");
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file"), HasSubstr("must be given")));
  planned_with("models.torchscript.file=\"absent.pt\"");
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file = \"absent.pt\""), HasSubstr("there is no file")));
  planned_with(fmt::format("models.torchscript={{file=\"{}\",file_hash=\"0\"}}", file));
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file_hash"), HasSubstr("is another")));
  planned_with(fmt::format("models.torchscript={{file=\"{}\",longest=5}}", file));
  EXPECT_THAT(report, HasSubstr("models.torchscript.longest = 5; must be 0 or left out: only sequences of tokens are "
                                "cut; gaussian-mixture has vectors of 5"));
  save_script(file, {{.name = "weight", .shape = {4, 5}}}, "return torch.linear(x, self.weight)");
  EXPECT_FALSE(planned_with(named).load);
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file"), HasSubstr("must return (4, 3)")));
  write("model.pt", {'n', 'o'});
  planned_with(named);
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file"), HasSubstr("is no module")));
}

// Numbers in y are for the loss "mse" of one's own module, and for nothing else.
TEST_F(ModelDemands, NumbersAsTargetsNeedALossThatIsOfThem) {
  const std::string file = (directory_ / "model.pt").string();
  save_script(file, {{.name = "weight", .shape = {2, 3}}}, "return torch.linear(x, self.weight)");
  write("x_train.npy", npy_file("<f4", "(40, 3)", FileBytes(480)));
  write("x_test.npy", npy_file("<f4", "(2, 3)", FileBytes(24)));
  write("y_train.npy", npy_file("<f4", "(40, 2)", FileBytes(320)));
  write("y_test.npy", npy_file("<f4", "(2, 2)", FileBytes(16)));
  const auto planned_with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"training.dataset=\"npy\"", "training.micro_batch_size=4",
                             fmt::format("datasets.npy.directory=\"{}\"", directory_.string()),
                             fmt::format("models.torchscript.file=\"{}\"", file)});
    return plan(more);
  };
  const std::string mse = "models.torchscript.loss=\"mse\"", script = "training.model=\"torchscript\"";
  const auto planned = planned_with({script, mse});
  ASSERT_EQ(report, "");
  EXPECT_TRUE(planned.is_network);
  EXPECT_FALSE(planned.has_accuracy);
  EXPECT_FALSE(planned.load()->has_accuracy());

  for (const char* model : {"linear", "mlp", "torchscript"}) {
    planned_with({fmt::format("training.model=\"{}\"", model)});
    EXPECT_THAT(report, HasSubstr("classes")) << model;
    EXPECT_THAT(report, HasSubstr("npy has vectors of 3, and numbers to be learned instead of classes")) << model;
  }
  planned_with({script});
  EXPECT_THAT(
      report,
      HasSubstr(
          "loss = \"cross-entropy\" (the default); needs classes; numbers are learned with loss = \"mse\"; npy has"));
  planned_with({"training.model=\"mlp\""});
  EXPECT_THAT(report, HasSubstr("only torchscript with loss = \"mse\" learns numbers"));
  planned_with({script, mse, "training.label_smoothing=0.1", "training.augmentation.mixup=1"});
  EXPECT_THAT(report, AllOf(HasSubstr("label_smoothing = 0.1; must be 0: samples of npy have numbers"),
                            HasSubstr("mixup = 1; must be left out")));
  planned_with({script, mse, "training.partition={kind=\"label\"}"});
  EXPECT_THAT(report, HasSubstr("kind = \"label\"; must be \"shuffled\" or \"size\": samples of npy have no classes"));
  EXPECT_TRUE(planned_with({script, mse, "training.partition={kind=\"size\"}"}).load);
  planned_with({script, mse, "models.torchscript.masked_share=0.2"});
  EXPECT_THAT(report, HasSubstr("must be left out: only the loss \"masked\" looks at it"));
  write("y_train.npy", npy_file("|u1", "(40,)", FileBytes(40)));
  write("y_test.npy", npy_file("|u1", "(2,)", FileBytes(2)));
  planned_with({script, mse});
  EXPECT_THAT(report, HasSubstr("models.torchscript.loss = \"mse\"; needs samples with numbers"));
  planned_with({script, "models.torchscript.loss=\"causal\""});
  EXPECT_THAT(report, HasSubstr("models.torchscript.loss = \"causal\"; needs texts"));
}

// Labels of tokens are for the loss "masked" of one's own module, and for nothing else.
TEST_F(ModelDemands, LabelsOfTokensNeedALossThatIsOfThem) {
  const std::string file = (directory_ / "model.pt").string();
  save_script(file, {{.name = "words", .shape = {5, 3}}, {.name = "output", .shape = {4, 3}}},
              "return torch.linear(torch.embedding(self.words, x), self.output)");
  for (const char* name : {"x_train.npy", "y_train.npy"})
    write(name, npy_file("<i8", "(40, 3)", bytes_of(std::vector<std::int64_t>(120, 2))));
  for (const char* name : {"x_test.npy", "y_test.npy"})
    write(name, npy_file("<i8", "(2, 3)", bytes_of(std::vector<std::int64_t>{1, 2, 3, 3, 2, 1})));
  const auto planned_with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"training.dataset=\"npy\"", "training.micro_batch_size=4",
                             fmt::format("datasets.npy.directory=\"{}\"", directory_.string()),
                             fmt::format("models.torchscript.file=\"{}\"", file)});
    return plan(more);
  };
  const std::string script = "training.model=\"torchscript\"", masked = "models.torchscript.loss=\"masked\"";
  const auto planned = planned_with({script, masked});
  ASSERT_EQ(report, "");
  EXPECT_TRUE(planned.has_accuracy);
  EXPECT_TRUE(planned.load());
  planned_with({script});
  EXPECT_THAT(report, HasSubstr("needs one label of each sequence; \"masked\" is of labels of tokens"));
  planned_with({script, "models.torchscript.loss=\"causal\""});
  EXPECT_THAT(report, HasSubstr("loss = \"causal\"; asks for next tokens alone; \"masked\" is of labels of tokens"));
  planned_with({script, masked, "models.torchscript.masked_share=0.2"});
  EXPECT_THAT(report, HasSubstr("models.torchscript.masked_share = 0.2; must be left out: labels of tokens say"));
  planned_with({"training.model=\"text-transformer\"", "models.text-transformer.task=\"causal-lm\""});
  EXPECT_THAT(report, AllOf(HasSubstr("only torchscript with loss = \"masked\" learns those of tokens"),
                            HasSubstr("sequences of up to 3 tokens, with a label of each token")));
  planned_with({"training.model=\"linear\""});
  EXPECT_THAT(report, HasSubstr("labels"));
  save_script(file, {{.name = "words", .shape = {5, 3}}, {.name = "output", .shape = {3, 3}}},
              "return torch.linear(torch.embedding(self.words, x), self.output)");
  planned_with({script, masked});
  EXPECT_THAT(report, HasSubstr("returns shape [4, 3, 3] for inputs of shape [4, 3]; must return (4, 3, 4 or more)"));
}

}  // namespace
}  // namespace syncopate
