// The requirements of models on their keys and data, and messages if these are not met.
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
              HasSubstr("models.resnet.groups = 8 (the default); must divide `width`, 12"));
  EXPECT_THAT(report_of({"models.resnet.norm=\"group\"", "models.resnet.groups=3"}),
              HasSubstr("models.resnet.groups = 3; must divide `width`, 16"));
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
              HasSubstr("models.text-transformer.width = 130; must be a multiple of `heads`, 4"));
  EXPECT_THAT(report_of({"positions=10"}),
              AllOf(HasSubstr("models.text-transformer.positions = 10; must be"),
                    HasSubstr("unless `cut` is true; wordnet-glosses has sequences of up to")));
  EXPECT_THAT(report_of({"task=\"masked-lm\"", "pooling=\"men\""}),
              HasSubstr("pooling = \"men\"; must be one of \"first\", \"mean\""));
  EXPECT_THAT(report_of({"masked_share=0.2"}), HasSubstr("only the task \"masked-lm\" uses it"));
  EXPECT_THAT(report_of({"task=\"masked-lm\"", "mask_copies=3"}),
              HasSubstr("mask_copies = 3; has no effect with dynamic masking, which has no copies"));
  EXPECT_THAT(
      report_of({}, "fashion-mnist"),
      HasSubstr("training.model = \"text-transformer\"; needs texts, which are sequences of tokens; fashion-mnist has "
                "images of 28 x 28"));
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

TEST_F(ModelDemands, WhatNoResnetForLargeImagesCanBeIsAFault) {
  const auto report_of = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> all = {"training.model=\"imagenet-resnet\""};
    all.insert(all.end(), keys.begin(), keys.end());
    EXPECT_FALSE(plan(all).load);
    return report;
  };
  EXPECT_THAT(report_of({"models.imagenet-resnet.depth=20"}),
              HasSubstr("models.imagenet-resnet.depth = 20; must be 18, 34, 50, 101 or 152"));
  EXPECT_THAT(report_of({"models.imagenet-resnet.norm=\"group\"", "models.imagenet-resnet.width=48"}),
              HasSubstr("models.imagenet-resnet.groups = 32 (the default); must divide `width`, 48"));
  EXPECT_THAT(report_of({"models.imagenet-resnet.groups=8"}),
              HasSubstr("models.imagenet-resnet.groups = 8; has no effect with batch normalisation"));
  EXPECT_THAT(report_of({"models.imagenet-resnet.stem=\"cifar10\""}),
              HasSubstr("models.imagenet-resnet.stem = \"cifar10\"; must be one of \"imagenet\", \"cifar\""));
  EXPECT_THAT(report_of({"training.dataset=\"gaussian-mixture\""}),
              AllOf(HasSubstr("training.model"), HasSubstr("images of at least 17 x 17"), HasSubstr("vectors of 32")));
}

TEST_F(ModelDemands, WhatNoGptCanBeIsAFault) {
  const auto report_of = [&](const std::vector<std::string>& keys, const std::string& dataset = "wordnet-glosses") {
    std::vector<std::string> all = {"training.model=\"gpt\"", fmt::format("training.dataset=\"{}\"", dataset)};
    for (const std::string& key : keys) all.push_back("models.gpt." + key);
    EXPECT_FALSE(plan(all).load);
    return report;
  };
  EXPECT_THAT(report_of({"width=130"}), HasSubstr("models.gpt.width = 130; must be a multiple of `heads`, 4"));
  EXPECT_THAT(report_of({"positions=\"rotary\"", "width=132"}),
              HasSubstr("models.gpt.width = 132; must be a multiple of 2 x `heads`, 8"));
  EXPECT_THAT(report_of({"context=10"}),
              AllOf(HasSubstr("models.gpt.context = 10; must be at least"),
                    HasSubstr("unless `cut` is true; wordnet-glosses has sequences of up to")));
  EXPECT_THAT(report_of({"rotary_base=500"}),
              HasSubstr("models.gpt.rotary_base = 500; has no effect with learned positions"));
  EXPECT_THAT(report_of({"norm=\"rmsnorm\""}), HasSubstr("must be one of \"layer\", \"rms\""));
  EXPECT_THAT(report_of({}, "fashion-mnist"),
              HasSubstr("training.model = \"gpt\"; needs texts, which are sequences of tokens; fashion-mnist has "
                        "images of 28 x 28"));
}

// A sequence has one token more than the model sees.
TEST_F(ModelDemands, AGptSeesAllTokensExceptTheLast) {
  write("x_train.npy", npy_file("<i4", "(40, 3)", FileBytes(480)));
  write("y_train.npy", npy_file("|u1", "(40,)", FileBytes(40, 3)));
  write("x_test.npy", npy_file("<i4", "(2, 3)", FileBytes(24)));
  write("y_test.npy", npy_file("|u1", "(2,)", {1, 0}));
  const auto planned_with = [&](const std::string& keys) {
    return plan({"training.model=\"gpt\"", "training.dataset=\"npy\"", "training.micro_batch_size=2",
                 fmt::format("datasets.npy={{directory=\"{}\",padding=7}}", directory_.string()),
                 fmt::format("models.gpt={{width=4,depth=1,{}}}", keys)});
  };
  EXPECT_TRUE(planned_with("context=2").load) << report;
  EXPECT_TRUE(planned_with("context=1,cut=true").load) << report;
  EXPECT_FALSE(planned_with("context=1").load);
  EXPECT_THAT(report, HasSubstr("models.gpt.context = 1; must be at least 2, one less than the length"));
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
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file"), HasSubstr("is required")));
  planned_with("models.torchscript.file=\"absent.pt\"");
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file = \"absent.pt\""), HasSubstr("there is no file")));
  planned_with(fmt::format("models.torchscript={{file=\"{}\",file_hash=\"0\"}}", file));
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file_hash"), HasSubstr("has the digest")));
  planned_with(fmt::format("models.torchscript={{file=\"{}\",longest=5}}", file));
  EXPECT_THAT(report, HasSubstr("models.torchscript.longest = 5; must be 0 or left out: only sequences of tokens can "
                                "be cut; gaussian-mixture has vectors of 5"));
  save_script(file, {{.name = "weight", .shape = {4, 5}}}, "return torch.linear(x, self.weight)");
  EXPECT_FALSE(planned_with(named).load);
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file"), HasSubstr("must return (4, 3)")));
  write("model.pt", {'n', 'o'});
  planned_with(named);
  EXPECT_THAT(report, AllOf(HasSubstr("models.torchscript.file"), HasSubstr("is not a module")));
}

// Targets that are numbers are only allowed with the loss "mse" of a user's module.
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
    EXPECT_THAT(report, HasSubstr("npy has vectors of 3, with numbers to learn instead of classes")) << model;
  }
  planned_with({script});
  EXPECT_THAT(
      report,
      HasSubstr("loss = \"cross-entropy\" (the default); needs classes; use loss = \"mse\" for numbers; npy has"));
  planned_with({"training.model=\"mlp\""});
  EXPECT_THAT(report, HasSubstr("only torchscript with loss = \"mse\" learns numbers"));
  planned_with({script, mse, "training.label_smoothing=0.1", "training.augmentation={mixup=1,label_noise=0.2}"});
  EXPECT_THAT(report, AllOf(HasSubstr("label_smoothing = 0.1; must be 0: samples of npy have numbers"),
                            HasSubstr("mixup = 1; must be left out"),
                            HasSubstr("label_noise = 0.2; must be left out: npy has numbers instead of classes")));
  planned_with({script, mse, "training.partition={kind=\"label\"}"});
  EXPECT_THAT(report, HasSubstr("kind = \"label\"; must be \"shuffled\" or \"size\": samples of npy have no classes"));
  EXPECT_TRUE(planned_with({script, mse, "training.partition={kind=\"size\"}"}).load);
  planned_with({script, mse, "models.torchscript.masked_share=0.2"});
  EXPECT_THAT(report, HasSubstr("has no effect: only the loss \"masked\" uses it"));
  write("y_train.npy", npy_file("|u1", "(40,)", FileBytes(40)));
  write("y_test.npy", npy_file("|u1", "(2,)", FileBytes(2)));
  planned_with({script, mse});
  EXPECT_THAT(report, HasSubstr("models.torchscript.loss = \"mse\"; needs targets that are real numbers"));
  planned_with({script, "models.torchscript.loss=\"causal\""});
  EXPECT_THAT(report, HasSubstr("models.torchscript.loss = \"causal\"; needs texts"));
}

// Labels of tokens are only allowed with the loss "masked" of a user's module.
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
  EXPECT_THAT(report, HasSubstr("needs one label per sequence; use \"masked\" for labels of tokens"));
  planned_with({script, "models.torchscript.loss=\"causal\""});
  EXPECT_THAT(report, HasSubstr("loss = \"causal\"; predicts only next tokens; use \"masked\" for labels of tokens"));
  planned_with({script, masked, "models.torchscript.masked_share=0.2"});
  EXPECT_THAT(
      report,
      HasSubstr(
          "models.torchscript.masked_share = 0.2; must be left out: tokens have labels, so no tokens are hidden"));
  planned_with({"training.model=\"text-transformer\"", "models.text-transformer.task=\"causal-lm\""});
  EXPECT_THAT(report, AllOf(HasSubstr("only torchscript with loss = \"masked\" learns labels of tokens"),
                            HasSubstr("sequences of up to 3 tokens, with one label per token")));
  planned_with({"training.model=\"linear\""});
  EXPECT_THAT(report, HasSubstr("labels"));
  save_script(file, {{.name = "words", .shape = {5, 3}}, {.name = "output", .shape = {3, 3}}},
              "return torch.linear(torch.embedding(self.words, x), self.output)");
  planned_with({script, masked});
  EXPECT_THAT(report, HasSubstr("returns shape [4, 3, 3] for inputs of shape [4, 3]; must return (4, 3, 4 or more)"));
}

// Rows in which a loss has no token to predict, because they have no label. Each would add a loss of 0 to a
// micro-batch's mean.
class AskedRows : public PlannedObjective {
 protected:
  using Tokens = std::vector<std::int64_t>;

  // Six rows for training and two for tests, of six tokens each.
  void save(const Tokens& x_train, const Tokens& x_test, const Tokens& y_train, const Tokens& y_test) {
    write("x_train.npy", npy_file("<i8", "(6, 6)", bytes_of(x_train)));
    write("x_test.npy", npy_file("<i8", "(2, 6)", bytes_of(x_test)));
    const bool of_tokens = y_train.size() == x_train.size();
    write("y_train.npy", npy_file("<i8", of_tokens ? "(6, 6)" : "(6,)", bytes_of(y_train)));
    write("y_test.npy", npy_file("<i8", of_tokens ? "(2, 6)" : "(2,)", bytes_of(y_test)));
    save_script((directory_ / "model.pt").string(),
                {{.name = "words", .shape = {9, 3}}, {.name = "output", .shape = {9, 3}}},
                "return torch.linear(torch.embedding(self.words, x), self.output)");
  }
  std::string report_of(const std::string& loss, const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"training.model=\"torchscript\"", "training.dataset=\"npy\"",
                             "training.micro_batch_size=1", fmt::format("models.torchscript.loss=\"{}\"", loss),
                             fmt::format("datasets.npy.directory=\"{}\"", directory_.string()),
                             fmt::format("models.torchscript.file=\"{}\"", (directory_ / "model.pt").string())});
    if (!model.empty()) more.push_back("models.torchscript." + model);
    workers = micro_batches = 1;
    const bool is_planned = plan(more).load != nullptr;
    EXPECT_TRUE(is_planned);
    return report;
  }
};

// Rows 1, 2 and 4 have their only label at place 4, 5 or 4. The second test row has it at place 5.
TEST_F(AskedRows, MustKeepALabelWhereTheyAreCut) {
  constexpr std::int64_t no = -100;
  const Tokens y = {1,  no, no, no, no, no, no, no, no, no, 2, no, no, no, no, no, no, 2,
                    no, 3,  no, no, no, no, no, no, no, no, 1, no, no, no, 0,  no, 1,  no};
  save(Tokens(36, 4), Tokens(12, 4), y, {0, no, no, no, no, no, no, no, no, no, no, 0});
  EXPECT_EQ(report_of("masked", ""), "");
  EXPECT_EQ(report_of("masked", "longest=6"), "");
  EXPECT_THAT(
      report_of("masked", "longest=4"),
      HasSubstr("models.torchscript.longest = 4; must be at least 6: row 1 of the training set and 3 others are "
                "without a label to predict in the first 4 tokens; each must keep a label other than -100"));
  EXPECT_THAT(
      report_of("masked", "longest=5"),
      HasSubstr(
          "longest = 5; must be at least 6: row 2 of the training set and 1 other are without a label to predict"));
  EXPECT_THAT(report_of("masked", "longest=4", {"training.validation_samples=2", "training.subset_samples=1"}),
              HasSubstr("row 1 of the training set and 3 others"))
      << "rows have the numbers of the file, whichever of them are trained on";
}

TEST_F(AskedRows, MustHaveANextTokenWhereThatIsAskedFor) {
  const Tokens x = {1, 2, 0, 0, 0, 0, 1, 2, 3, 4, 5, 8, 1, 2, 3, 0, 0, 0,
                    1, 2, 3, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0};
  const std::vector<std::string> padded = {"datasets.npy.padding=0"};
  save(x, {1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}, Tokens(6), Tokens(2));
  EXPECT_THAT(
      report_of("causal", "", padded),
      HasSubstr(
          "training.dataset = \"npy\"; row 1 of the test set is without a label to predict; each row must have two "
          "tokens, because the task predicts the second"));
  save(x, {1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0}, Tokens(6), Tokens(2));
  EXPECT_EQ(report_of("causal", "", padded), "");
  EXPECT_EQ(report_of("causal", "longest=2", padded), "");
  EXPECT_THAT(
      report_of("causal", "longest=1", padded),
      HasSubstr("models.torchscript.longest = 1; must be at least 2: row 0 of the training set and 7 others are "
                "without a label to predict in the first token; each must keep two tokens"));
}

TEST_F(AskedRows, MustHaveATokenThatMayBeHidden) {
  Tokens x(36, 4);
  for (const std::size_t never : {6, 7, 8, 30, 31}) x[never] = 7;
  std::vector<std::string> keys = {"datasets.npy.mask=8", "datasets.npy.never_masked=[7, 8]"};
  save(x, Tokens(12, 4), Tokens(6), Tokens(2));
  EXPECT_EQ(report_of("masked", "", keys), "");
  EXPECT_EQ(report_of("masked", "longest=4", keys), "");
  EXPECT_THAT(
      report_of("masked", "longest=3", keys),
      HasSubstr(
          "longest = 3; must be at least 4: row 1 of the training set is without a label to predict in the first 3 "
          "tokens; each must keep a token that may be hidden, that is, one not in never_masked"));
  EXPECT_THAT(report_of("masked", "longest=2", keys), HasSubstr("row 1 of the training set and 1 other are"));
  for (const std::size_t never : {9, 10, 11}) x[never] = 7;
  save(x, Tokens(12, 4), Tokens(6), Tokens(2));
  EXPECT_THAT(
      report_of("masked", "", keys),
      HasSubstr(
          "training.dataset = \"npy\"; row 1 of the training set is without a label to predict; each row must have "
          "a token that may be hidden"));
  keys.back() = "datasets.npy.never_masked=[]";
  EXPECT_EQ(report_of("masked", "longest=1", keys), "");
}

// A text of one word has three tokens: the word between a first and a last token.
TEST_F(AskedRows, OfTextsKeepAWord) {
  std::string text;
  for (int line = 0; line < 40; ++line) text += fmt::format("word{}\n", line);
  write("a.txt", {text.begin(), text.end()});
  const auto report_with = [&](const std::string& task, int positions) {
    workers = micro_batches = 1;
    plan({"training.model=\"text-transformer\"", "training.dataset=\"text-lines\"", "training.micro_batch_size=1",
          fmt::format("datasets.text-lines={{file=\"{}\",test_share=0.5,least=1}}", (directory_ / "a.txt").string()),
          fmt::format("models.text-transformer={{task=\"{}\",cut=true,positions={}}}", task, positions)});
    return report;
  };
  for (const char* task : {"masked-lm", "causal-lm"}) {
    EXPECT_EQ(report_with(task, 2), "") << task;
    EXPECT_THAT(report_with(task, 1),
                AllOf(HasSubstr("models.text-transformer.positions = 1; must be at least 2: row 0 of the training set"),
                      HasSubstr("without a label to predict in the first token")))
        << task;
  }
}

TEST_F(ModelDemands, FilesHaveTheirNotes) {
  write("x_train.npy", npy_file("<i4", "(4, 3)", bytes_of<std::int32_t>({0, 0, 1, 1, 2, 0, 0, 3, 4, 2, 2, 2})));
  write("y_train.npy", npy_file("|u1", "(4,)", {0, 1, 0, 1}));
  write("x_test.npy", npy_file("<i4", "(1, 3)", bytes_of<std::int32_t>({1, 2, 3})));
  write("y_test.npy", npy_file("|u1", "(1,)", {1}));
  workers = micro_batches = 1;
  const std::string data = fmt::format("datasets.npy={{directory=\"{}\",padding=0}}", directory_.string());
  const auto padded =
      plan({"training.model=\"linear\"", "training.dataset=\"npy\"", "training.micro_batch_size=1", data});
  EXPECT_EQ(report, "");
  EXPECT_THAT(padded.notes, testing::ElementsAre(
                                fmt::format("{}: 2 of its 4 rows begin with the padding token 0, which is kept there: "
                                            "only padding at a row's end is removed",
                                            (directory_ / "x_train.npy").string())));

  std::string lines = "label\t...\nlabel\t\n";
  for (int line = 0; line < 40; ++line) lines += fmt::format("{}\tword{}\n", line % 2 == 0 ? "a" : "b", line);
  write("a.txt", {lines.begin(), lines.end()});
  const auto texts =
      plan({"training.model=\"linear\"", "training.dataset=\"text-lines\"", "training.micro_batch_size=1",
            fmt::format("datasets.text-lines={{file=\"{}\",labelled=true,test_share=0.5,least=1}}",
                        (directory_ / "a.txt").string())});
  EXPECT_EQ(report, "");
  EXPECT_THAT(texts.notes, testing::ElementsAre(fmt::format("{}: 2 lines have no word and are left out",
                                                            (directory_ / "a.txt").string())));

  const auto of_script = [&](const std::string& forward) {
    save_script((directory_ / "model.pt").string(), {{.name = "weight", .shape = {3, 5}}}, forward);
    return plan({"training.model=\"torchscript\"", "training.dataset=\"gaussian-mixture\"",
                 "datasets.gaussian-mixture={classes=3,dimension=5,train=100,test=10}", "training.micro_batch_size=4",
                 fmt::format("models.torchscript.file=\"{}\"", (directory_ / "model.pt").string())})
        .notes;
  };
  EXPECT_THAT(of_script("return torch.dropout(torch.linear(x, self.weight), 0.5, self.training)"), testing::IsEmpty());
  EXPECT_THAT(of_script("return torch.dropout(torch.linear(x, self.weight), 0.5, False)"),
              testing::ElementsAre(AllOf(HasSubstr("models.torchscript.file = "),
                                         HasSubstr("its code has 1 dropout without effect, both in training and in "
                                                   "evaluation, because torch.jit.trace saved it in eval() mode"))));
}

}  // namespace
}  // namespace syncopate
