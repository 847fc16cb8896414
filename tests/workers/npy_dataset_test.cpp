#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <span>

#include "tests/workers/idx_files.hpp"
#include "tests/workers/npy_files.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/data/datasets.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Gathered {
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
};

Gathered gather(const Dataset& dataset, Split split, const std::vector<std::uint32_t>& samples) {
  Gathered result{std::vector<float>(samples.size() * static_cast<std::size_t>(dataset.size().shape.features())),
                  std::vector<std::int64_t>(samples.size())};
  dataset.gather(split, samples, result.inputs.data(), result.labels.data());
  return result;
}

class NpyDataset : public IdxFiles {
 protected:
  // Three training vectors and one test vector of two features.
  void SetUp() override {
    IdxFiles::SetUp();
    write("x_train.npy", npy_file("<f4", "(3, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6})));
    write("y_train.npy", npy_file("<i8", "(3,)", bytes_of<std::int64_t>({2, 0, 1})));
    write("x_test.npy", npy_file("<f4", "(1, 2)", bytes_of<float>({-0.5f, 7})));
    write("y_test.npy", npy_file("<i8", "(1,)", bytes_of<std::int64_t>({4})));
  }
  std::string fault() const {
    return message_of<DataFault>([&] { npy_arrays().load(directory_); });
  }
};

TEST_F(NpyDataset, FloatsAreTakenAsTheyAre) {
  const auto dataset = npy_arrays().load(directory_);
  EXPECT_EQ(dataset->size().train, 3);
  EXPECT_EQ(dataset->size().test, 1);
  EXPECT_EQ(dataset->size().shape, (SampleShape{.channels = 1, .height = 1, .width = 2}));
  EXPECT_EQ(dataset->size().classes, 5) << "the largest label is in the test set";
  const auto train = gather(*dataset, Split::train, {2, 0});
  EXPECT_THAT(train.inputs, ElementsAre(5, 6, 1, 2));
  EXPECT_THAT(train.labels, ElementsAre(1, 2));
  EXPECT_THAT(gather(*dataset, Split::test, {0}).inputs, ElementsAre(-0.5f, 7));
}

TEST_F(NpyDataset, BytesAreNormalisedByTheTrainingSetChannelByChannel) {
  // Two images of 1 x 2 pixels and 2 channels: channel 0 has 0, 2, 4, 6 (mean 3, variance 5), channel 1 only 7.
  write("x_train.npy", npy_file("|u1", "(2, 2, 1, 2)", {0, 2, 7, 7, 4, 6, 7, 7}));
  write("y_train.npy", npy_file("|u1", "(2,)", {1, 0}));
  write("x_test.npy", npy_file("|u1", "(1, 2, 1, 2)", {3, 255, 8, 7}));
  write("y_test.npy", npy_file("<i4", "(1,)", bytes_of<std::int32_t>({1})));
  const auto dataset = npy_arrays().load(directory_);
  EXPECT_EQ(dataset->size().shape, (SampleShape{.channels = 2, .height = 1, .width = 2}));
  const float unit = 1 / std::sqrt(5.0f);
  EXPECT_THAT(gather(*dataset, Split::train, {1}).inputs,
              testing::Pointwise(testing::FloatNear(1e-6f), {unit, 3 * unit, 0.0f, 0.0f}));
  EXPECT_THAT(gather(*dataset, Split::test, {0}).inputs,
              testing::Pointwise(testing::FloatNear(1e-4f), {0.0f, 252 * unit, 1.0f, 0.0f}));
  EXPECT_THAT(gather(*dataset, Split::test, {0}).labels, ElementsAre(1));
}

TEST_F(NpyDataset, NumbersThatAreNotFiniteAreNamedWithTheirSample) {
  const auto written = [&](const std::string& name, const std::vector<float>& values) {
    write(name, npy_file("<f4", "(" + std::to_string(values.size() / 2) + ", 2)", bytes_of<float>(values)));
  };
  written("x_train.npy", {1, 2, 3, 4, NAN, 6});
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("feature 0 of sample 2 is nan; must be finite")));
  EXPECT_THAT(message_of<DataFault>([&] { npy_arrays().size(directory_); }), HasSubstr("x_train.npy"))
      << "known before anything is run";
  written("x_train.npy", {1, 2, 3, 4, 5, 6});
  EXPECT_NO_THROW(npy_arrays().load(directory_));
  written("x_test.npy", {1, -INFINITY});
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_test.npy"), HasSubstr("feature 1 of sample 0 is -inf")));
  // The last of many values. It is beyond the last whole block of values that are checked together.
  std::vector<float> many(2 * ((1 << 20) + 3), 1e38f);
  write("y_train.npy", npy_file("|u1", "(1048579,)", FileBytes(1048579, 1)));
  written("x_test.npy", {1, 2});
  written("x_train.npy", many);
  EXPECT_NO_THROW(npy_arrays().load(directory_));
  many.back() = INFINITY;
  written("x_train.npy", many);
  EXPECT_THAT(fault(), HasSubstr("feature 1 of sample 1048578 is inf"));
}

TEST_F(NpyDataset, ImagesWithoutChannelsHaveOneAndLaterVersionsOfTheFormatAreRead) {
  for (const std::uint8_t version : {2, 3}) {
    write("x_train.npy", npy_file("<f4", "(3, 1, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6}), "False", version));
    write("x_test.npy", npy_file("<f4", "(1, 1, 2)", bytes_of<float>({1, 2})));
    EXPECT_EQ(npy_arrays().size(directory_).shape, (SampleShape{.channels = 1, .height = 1, .width = 2}));
  }
}

TEST_F(NpyDataset, RowsOfTokensEndBeforeTheirPadding) {
  for (const char* type : {"<i4", "<i8"}) {
    const auto elements = [&](const std::vector<std::int32_t>& tokens) {
      return std::string(type) == "<i4" ? bytes_of(tokens)
                                        : bytes_of(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
    };
    write("x_train.npy", npy_file(type, "(3, 4)", elements({5, 0, 2, 0, 7, 7, 7, 7, 3, 0, 0, 0})));
    write("x_test.npy", npy_file(type, "(1, 2)", elements({9, 1})));
    const TokenMarks tokens{.mask = 4, .never_masked = {1}, .padding = 0};
    const auto dataset = npy_arrays(tokens).load(directory_);
    EXPECT_EQ(dataset->size().shape, (SampleShape{.width = 4, .vocabulary = 10}));
    EXPECT_EQ(npy_arrays(tokens).size(directory_).shape, dataset->size().shape);
    EXPECT_EQ(dataset->size().classes, 5);
    EXPECT_EQ(dataset->size().shortest, 1);
    EXPECT_EQ(npy_arrays().size(directory_).shortest, 2) << "whole rows: those of the test set";
    EXPECT_EQ(dataset->size().marks.mask, 4);
    EXPECT_THAT(dataset->size().marks.never_masked, ElementsAre(1));
    EXPECT_THAT(sample_tokens(*dataset, Split::train, 0), ElementsAre(5, 0, 2)) << "within a sequence it is a token";
    EXPECT_THAT(sample_tokens(*dataset, Split::train, 1), ElementsAre(7, 7, 7, 7));
    EXPECT_THAT(sample_tokens(*dataset, Split::train, 2), ElementsAre(3));
    EXPECT_THAT(sample_tokens(*dataset, Split::test, 0), ElementsAre(9, 1));
    EXPECT_THAT(sample_tokens(*npy_arrays().load(directory_), Split::train, 2), ElementsAre(3, 0, 0, 0))
        << "whole rows";
    std::vector<std::int64_t> labels(2);
    dataset->gather(Split::train, std::vector<std::uint32_t>{2, 0}, nullptr, labels.data());
    EXPECT_THAT(labels, ElementsAre(1, 2));
  }
  EXPECT_EQ(npy_arrays({.mask = 20}).size(directory_).shape.vocabulary, 21) << "a mask that no text has";
}

TEST_F(NpyDataset, TokensThatAreNoneAreFaults) {
  const auto train = [&](const std::string& shape, const std::vector<std::int32_t>& tokens) {
    write("x_train.npy", npy_file("<i4", shape, bytes_of(tokens)));
  };
  const auto fault_of = [&](const TokenMarks& tokens) {
    return message_of<DataFault>([&] { npy_arrays(tokens).size(directory_); });
  };
  EXPECT_THAT(fault_of({.padding = 0}), AllOf(HasSubstr("x_train.npy"), HasSubstr("contains no tokens")));
  write("x_test.npy", npy_file("<i4", "(1, 2)", bytes_of<std::int32_t>({9, 1})));
  train("(3, 1, 2)", {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("tokens must be (n, length)")));
  train("(3, 2)", {1, 2, 3, -4, 5, 6});
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("row 1 has the token -4")));
  train("(3, 2)", {1, 2, 3, 4, 5, 1 << 24});
  EXPECT_THAT(fault(), HasSubstr("row 2 has the token 16777216; must be in 0 .. 16777215"));
  train("(3, 2)", {1, 2, 3, 4, 0, 0});
  EXPECT_THAT(fault_of({.padding = 0}), HasSubstr("row 2 contains only padding (0)"));
}

// Three sequences of four tokens that are padded with 0 to the right, and a complete one.
TEST_F(NpyDataset, EachTokenMayHaveALabel) {
  write("x_train.npy", npy_file("<i4", "(3, 4)", bytes_of<std::int32_t>({5, 6, 7, 0, 4, 4, 0, 0, 1, 2, 3, 4})));
  write("y_train.npy",
        npy_file("<i8", "(3, 4)", bytes_of<std::int64_t>({1, -100, 0, -100, -100, 2, -100, -100, -100, 0, -100, 1})));
  write("x_test.npy", npy_file("<i4", "(1, 2)", bytes_of<std::int32_t>({9, 1})));
  write("y_test.npy", npy_file("<i8", "(1, 2)", bytes_of<std::int64_t>({-100, 6})));
  const TokenMarks tokens{.padding = 0};
  const auto dataset = npy_arrays(tokens).load(directory_);
  for (const DatasetSize& size : {dataset->size(), npy_arrays(tokens).size(directory_)}) {
    EXPECT_EQ(size.train, 3);
    EXPECT_EQ(size.classes, 0);
    EXPECT_EQ(size.token_classes, 7) << "the largest label is in the test set";
    EXPECT_EQ(size.shape, (SampleShape{.width = 4, .vocabulary = 10}));
  }
  EXPECT_THAT(sample_tokens(*dataset, Split::train, 1), ElementsAre(4, 4));
  EXPECT_THAT(dataset->token_labels(Split::train, 0), ElementsAre(1, -100, 0));
  EXPECT_THAT(dataset->token_labels(Split::train, 1), ElementsAre(-100, 2));
  EXPECT_THAT(dataset->token_labels(Split::train, 2), ElementsAre(-100, 0, -100, 1));
  EXPECT_THAT(dataset->token_labels(Split::test, 0), ElementsAre(-100, 6));
  const auto divided = with_validation(dataset, {.samples = 1, .seed = 4});
  for (const auto& [split, samples] : {std::pair{Split::train, 2u}, {Split::validation, 1u}, {Split::test, 1u}})
    for (std::uint32_t sample = 0; sample < samples; ++sample)
      EXPECT_EQ(divided->token_labels(split, sample).size(), sample_tokens(*divided, split, sample).size());
  EXPECT_THAT(divided->token_labels(Split::test, 0), ElementsAre(-100, 6));
}

TEST_F(NpyDataset, LabelsOfTokensThatAreNoneAreFaults) {
  write("x_train.npy", npy_file("<i8", "(2, 3)", bytes_of<std::int64_t>({5, 6, 7, 4, 4, 0})));
  write("x_test.npy", npy_file("<i8", "(1, 2)", bytes_of<std::int64_t>({9, 1})));
  write("y_test.npy", npy_file("<i8", "(1, 2)", bytes_of<std::int64_t>({-100, 6})));
  const auto fault_of = [&](const std::string& shape, const std::vector<std::int64_t>& labels) {
    write("y_train.npy", npy_file("<i8", shape, bytes_of(labels)));
    return message_of<DataFault>([&] { npy_arrays({.padding = 0}).size(directory_); });
  };
  EXPECT_THAT(fault_of("(2, 2)", {1, 1, 1, 1}),
              AllOf(HasSubstr("y_train.npy"),
                    HasSubstr("has shape (2, 2); labels of tokens must have the shape of the tokens, (2, 3)")));
  EXPECT_THAT(fault_of("(2, 3)", {1, -1, 1, 1, 1, -100}),
              AllOf(HasSubstr("y_train.npy"),
                    HasSubstr("label (0, 1) = -1; must be in 0 .. 16777215, or -100 for tokens without a label")));
  EXPECT_THAT(fault_of("(2, 3)", {1, 1, 1, 1 << 24, 1, -100}), HasSubstr("label (1, 0) = 16777216; must be in 0"));
  EXPECT_THAT(fault_of("(2, 3)", {1, 1, 1, 1, 1, 2}), HasSubstr("label (1, 2) = 2 belongs to padding; must be -100"));
  EXPECT_THAT(fault_of("(2, 3)", {1, 1, 1, -100, -100, -100}),
              HasSubstr("row 1 contains only -100, which means no label; must have at least one label"));
  EXPECT_THAT(fault_of("(2,)", {1, 1}),
              AllOf(HasSubstr("y_test.npy"), HasSubstr("has shape (1, 2)"), HasSubstr("the training set's, (2,)")));
  write("y_train.npy", npy_file("|u1", "(2, 3)", {1, 1, 1, 1, 1, 1}));
  EXPECT_THAT(fault(), HasSubstr("has elements of type uint8 ('|u1'); labels of tokens must be int64 or int32: "
                                 "numpy.save(\"y_train.npy\", a.astype(\"<i8\"))"));
}

TEST_F(NpyDataset, TheDigestIsThatOfAllFourFiles) {
  std::vector<std::string> digests{npy_arrays().hash(directory_)};
  for (const char* file : {"x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"}) {
    FileBytes bytes;
    {
      std::ifstream in(directory_ / file, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    bytes.back() ^= 1;
    write(file, bytes);
    digests.push_back(npy_arrays().hash(directory_));
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

TEST_F(NpyDataset, ArraysMustBeAsLongAsEachOther) {
  write("y_train.npy", npy_file("<i8", "(2,)", bytes_of<std::int64_t>({2, 0})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("2 labels for 3 samples of x_train.npy")));
}

TEST_F(NpyDataset, BothSplitsHaveOneShapeAndType) {
  write("x_test.npy", npy_file("<f4", "(1, 3)", bytes_of<float>({1, 2, 3})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_test.npy"), HasSubstr("(1, 3)"), HasSubstr("the training set's, (3, 2)")));
  write("x_test.npy", npy_file("|u1", "(1, 2)", {1, 2}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_test.npy"), HasSubstr("'|u1'"), HasSubstr("'<f4'")));
}

TEST_F(NpyDataset, OtherTypesShapesAndLabelsAreRefused) {
  write("x_train.npy", npy_file("<f8", "(3, 2)", FileBytes(48)));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("'<f8'"), HasSubstr("float32 or uint8")));
  write("x_train.npy", npy_file(">f4", "(3, 2)", FileBytes(24)));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("'>f4'")));
  write("x_train.npy", npy_file("<f4", "(6,)", FileBytes(24)));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("(6,)"), HasSubstr("(n, features)")));
  write("x_train.npy", npy_file("<f4", "(0, 2)", {}));
  EXPECT_THAT(fault(), HasSubstr("x_train.npy: has 0 samples (shape (0, 2)); must have at least one"));
  write("x_train.npy", npy_file("<f4", "(0,)", {}));
  EXPECT_THAT(fault(), HasSubstr("has 0 samples"));
  SetUp();
  write("y_train.npy", npy_file("<f8", "(3,)", FileBytes(24)));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("uint8, int32 or int64 for classes, or float32")));
  write("y_train.npy", npy_file("<i8", "(3, 1)", FileBytes(24)));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("must be (n,)")));
  write("y_train.npy", npy_file("<i8", "(3,)", bytes_of<std::int64_t>({2, -1, 1})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("label 1 = -1")));
}

TEST_F(NpyDataset, SamplesMayHaveNumbersInsteadOfClasses) {
  write("y_train.npy", npy_file("<f4", "(3, 2)", bytes_of<float>({1, -2, 3, 4.5f, 5, 6})));
  write("y_test.npy", npy_file("<f4", "(1, 2)", bytes_of<float>({7, 8})));
  const auto of = [](const Dataset& dataset, Split split, const std::vector<std::uint32_t>& samples) {
    std::vector<float> targets(samples.size() * static_cast<std::size_t>(dataset.size().targets));
    dataset.gather_targets(split, samples, targets.data());
    return targets;
  };
  const auto both = npy_arrays().load(directory_);
  EXPECT_EQ(both->size().targets, 2);
  EXPECT_EQ(both->size().classes, 0);
  EXPECT_EQ(npy_arrays().size(directory_).targets, 2);
  EXPECT_THAT(of(*both, Split::train, {2, 1}), ElementsAre(5, 6, 3, 4.5f));
  EXPECT_THAT(of(*both, Split::test, {0}), ElementsAre(7, 8));
  const auto gathered = gather(*both, Split::train, {2, 1});
  EXPECT_THAT(gathered.inputs, ElementsAre(5, 6, 3, 4));
  EXPECT_THAT(gathered.labels, ElementsAre(0, 0));
  const auto divided = with_validation(both, {.samples = 1, .seed = 4});
  std::vector<float> all = of(*divided, Split::train, {0, 1});
  for (const float target : of(*divided, Split::validation, {0})) all.push_back(target);
  EXPECT_THAT(all, testing::UnorderedElementsAre(1, -2, 3, 4.5f, 5, 6));
  EXPECT_THAT(of(*divided, Split::test, {0}), ElementsAre(7, 8));

  write("y_train.npy", npy_file("<f4", "(3,)", bytes_of<float>({1, -2, 3})));
  write("y_test.npy", npy_file("<f4", "(1,)", bytes_of<float>({7})));
  const auto one = npy_arrays().load(directory_);
  EXPECT_EQ(one->size().targets, 1);
  EXPECT_THAT(of(*one, Split::train, {1, 2}), ElementsAre(-2, 3));
}

TEST_F(NpyDataset, NumbersThatAreNoTargetsAreFaults) {
  write("y_train.npy", npy_file("<f4", "(3,)", bytes_of<float>({1, NAN, 3})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("target 0 of sample 1 is nan; must be finite")));
  write("y_train.npy", npy_file("<f4", "(3, 1, 1)", bytes_of<float>({1, 2, 3})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("must be (n,), or (n, targets)")));
  write("y_train.npy", npy_file("<f4", "(3,)", bytes_of<float>({1, 2, 3})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_test.npy"), HasSubstr("'<i8'"), HasSubstr("the training set's, (3,)")));
  write("y_train.npy", npy_file("<f4", "(2,)", bytes_of<float>({1, 2})));
  EXPECT_THAT(fault(), HasSubstr("2 labels for 3 samples"));
  write("y_train.npy", npy_file("<f4", "(3,)", bytes_of<float>({1, 2, 3})));
  write("x_train.npy", npy_file("<i4", "(3, 2)", bytes_of<std::int32_t>({1, 2, 3, 4, 5, 6})));
  EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr("labels of tokens are numbers of classes")));
}

TEST_F(NpyDataset, WhatIsNoWholeArrayIsNamed) {
  const FileBytes whole = npy_file("<f4", "(3, 2)", FileBytes(24));
  write("x_train.npy", FileBytes(whole.begin(), whole.end() - 4));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("truncated")));
  write("x_train.npy", FileBytes(whole.begin(), whole.begin() + 30));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("ends within its header")));
  FileBytes longer = whole;
  longer.push_back(0);
  write("x_train.npy", longer);
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("its header declares")));
  write("x_train.npy", {1, 2, 3});
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("is not a NumPy array")));
  write("x_train.npy", {});
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("is empty")));
  write("x_train.npy", npy_file("<f4", "(3, 2)", FileBytes(24), "True"));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("Fortran")));
  write("x_train.npy", npy_file("<f4", "(99999999999, 99999999999)", FileBytes(24)));
  EXPECT_THAT(fault(), AllOf(HasSubstr("x_train.npy"), HasSubstr("more elements than a file can contain")));
}

TEST_F(NpyDataset, AMissingFileOrDirectoryIsNamed) {
  std::filesystem::remove(directory_ / "y_test.npy");
  EXPECT_THAT(fault(), AllOf(HasSubstr(directory_.string()), HasSubstr("no file y_test.npy")));
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(fault(), HasSubstr("no such directory"));
}

// All types that NumPy saves. The message names the type and says how to convert it.
TEST_F(NpyDataset, TypesThatAreNotReadAreNamedWithTheWayToTheRightOne) {
  const auto fault_of_x = [&](const std::string& type, std::size_t bytes, const std::string& shape = "(3, 2)") {
    write("x_train.npy", npy_file(type, shape, FileBytes(bytes)));
    return fault();
  };
  const std::string as_numbers = "numpy.save(\"x_train.npy\", a.astype(\"<f4\"))",
                    as_tokens = "numpy.save(\"x_train.npy\", a.astype(\"<i8\"))";
  EXPECT_THAT(fault_of_x("<f2", 12), AllOf(HasSubstr("float16 ('<f2'); must be float32"), HasSubstr(as_numbers)));
  EXPECT_THAT(fault_of_x(">f4", 24), AllOf(HasSubstr("float32 in big-endian order ('>f4')"), HasSubstr(as_numbers)));
  EXPECT_THAT(fault_of_x("<f8", 48), AllOf(HasSubstr("float64 ('<f8')"), HasSubstr(as_numbers)));
  EXPECT_THAT(fault_of_x("|b1", 6), AllOf(HasSubstr("bool ('|b1')"), HasSubstr(as_numbers)));
  for (const auto& [type, name, each] : {std::tuple{"<u2", "uint16 ('<u2')", 2},
                                         {"<i2", "int16 ('<i2')", 2},
                                         {"<u4", "uint32 ('<u4')", 4},
                                         {">i8", "int64 in big-endian order ('>i8')", 8}})
    EXPECT_THAT(fault_of_x(type, 6 * static_cast<std::size_t>(each)),
                AllOf(HasSubstr(name), HasSubstr(as_numbers), HasSubstr(as_tokens)));
  EXPECT_THAT(fault_of_x("<u2", 24, "(3, 2, 2)"), testing::Not(HasSubstr(as_tokens))) << "images are no tokens";
  EXPECT_THAT(fault_of_x("|O", 48),
              AllOf(HasSubstr("x_train.npy: contains Python objects"), HasSubstr("pad the rows")));
  EXPECT_THAT(fault_of_x("<U7", 168), HasSubstr("contains strings ('<U7'); must contain numbers"));
  EXPECT_THAT(fault_of_x("<M8[s]", 48), HasSubstr("'<M8[s]'"));
  EXPECT_THAT(fault_of_x("<f2", 10), HasSubstr("truncated")) << "of any type";
  write("x_train.npy", {'P', 'K', 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(fault(), AllOf(HasSubstr("is a zip archive, as spreadsheets (.xlsx, .ods) and .npz are;"),
                             HasSubstr("must be a single, uncompressed array written by numpy.save")));
  SetUp();
  for (const auto& [type, name, bytes] : {std::tuple{"<u2", "uint16 ('<u2')", 6},
                                          {"<f8", "float64 ('<f8')", 24},
                                          {">i8", "int64 in big-endian order ('>i8')", 24}}) {
    write("y_train.npy", npy_file(type, "(3,)", FileBytes(static_cast<std::size_t>(bytes))));
    EXPECT_THAT(fault(), AllOf(HasSubstr("y_train.npy"), HasSubstr(name),
                               HasSubstr("numpy.save(\"y_train.npy\", a.astype(\"<i8\"))"),
                               HasSubstr("numpy.save(\"y_train.npy\", a.astype(\"<f4\"))")));
  }
}

}  // namespace
}  // namespace syncopate
