// Texts as data sets of tokens, and what is kept of them.
#include "workers/data/text_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "tests/workers/idx_files.hpp"
#include "workers/data/text.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class TextDataset : public IdxFiles {
 protected:
  void SetUp() override {
    IdxFiles::SetUp();
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);  // the user's own is none of a test's business
  }
  std::filesystem::path file(const std::string& text) const { return write("a.txt", {text.begin(), text.end()}); }

  // Of 400 lines with labels: line i has "common", i as a word of its own, and i % 7 times "more".
  std::string many_lines() const {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += i % 3 == 0 ? "third\t" : "other\t";
      text += "Common, word" + std::to_string(i);
      for (int j = 0; j < i % 7; ++j) text += " more";
      text += "\n";
    }
    return text;
  }
  std::string fault(const std::string& text, const TextOptions& options) const {
    return message_of<DataFault>([&] { text_dataset_size(text_lines(false), options, file(text)); });
  }
};

TEST_F(TextDataset, ASampleIsItsWordsByNumberBetweenFirstAndLast) {
  const TextOptions options{.test_share = 0.25, .words = 100, .least = 2};
  const auto path = file(many_lines());
  const auto dataset = load_text_dataset(text_lines(true), options, path);
  const DatasetSize& size = dataset->size();
  EXPECT_EQ(size.classes, 2);
  EXPECT_EQ(size.shape.vocabulary, special_tokens + 2) << "common and more; all others stand once";
  EXPECT_EQ(size.shape.width, 2 + 2 + 6);
  EXPECT_EQ(size.marks.mask, token_of(SpecialToken::mask));
  EXPECT_THAT(size.marks.never_masked, ElementsAre(token_of(SpecialToken::first), token_of(SpecialToken::last)));
  EXPECT_EQ(size.train + size.test, 400);
  EXPECT_NEAR(static_cast<double>(size.test), 100, 4 * std::sqrt(400 * 0.25 * 0.75)) << "four deviations";

  const std::int32_t first = token_of(SpecialToken::first), last = token_of(SpecialToken::last),
                     unknown = token_of(SpecialToken::unknown);
  std::map<std::size_t, int> lengths;
  for (const Split split : {Split::train, Split::test})
    for (std::uint32_t i = 0; i < size.samples(split); ++i) {
      const auto tokens = dataset->tokens(split, i);
      ASSERT_GE(tokens.size(), 4u);
      ++lengths[tokens.size()];
      EXPECT_THAT(std::vector(tokens.begin(), tokens.begin() + 3), ElementsAre(first, testing::_, unknown));
      EXPECT_EQ(tokens.back(), last);
      EXPECT_EQ(tokens[1], special_tokens + 1) << "common";
      for (std::size_t word = 3; word + 1 < tokens.size(); ++word)
        EXPECT_EQ(tokens[word], special_tokens) << "more, which stands more often";
    }
  EXPECT_EQ(size.shortest, 4);
  EXPECT_EQ(lengths[4], 58) << "of 0 .. 399, multiples of 7";
  EXPECT_EQ(lengths[10], 57);
}

TEST_F(TextDataset, LabelsStandBesideTheirTexts) {
  const auto dataset = load_text_dataset(text_lines(true), {.test_share = 0.5, .least = 1}, file(many_lines()));
  EXPECT_EQ(dataset->size().shape.vocabulary, special_tokens + 2 + dataset->size().train)
      << "a word that only a held-out text has is unknown";
  std::vector<std::int64_t> labels(static_cast<std::size_t>(dataset->size().train));
  std::vector<std::uint32_t> numbers(labels.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i);
  dataset->gather(Split::train, numbers, nullptr, labels.data());
  std::size_t sample = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = "Common, word" + std::to_string(i);
    for (int j = 0; j < i % 7; ++j) text += " more";
    if (split_of(text, 0.5) == Split::test) continue;
    EXPECT_EQ(labels.at(sample), i % 3 == 0 ? 1 : 0) << text;
    EXPECT_EQ(dataset->tokens(Split::train, numbers[sample]).size(), 4u + static_cast<unsigned>(i % 7));
    ++sample;
  }
  EXPECT_EQ(sample, labels.size());
}

TEST_F(TextDataset, LinesWithoutAWordAreNoted) {
  const TextOptions options{.test_share = 0.5, .least = 1};
  EXPECT_THAT(text_dataset_size(text_lines(true), options, file(many_lines())).notes, testing::IsEmpty());
  const auto path = file(many_lines() + "other\t\n");
  EXPECT_THAT(text_dataset_size(text_lines(true), options, path).notes,
              ElementsAre(path.string() + ": 1 line has no word and is left out"));
}

TEST_F(TextDataset, WhatLeavesNothingToTrainOrTestOnIsAFault) {
  EXPECT_THAT(fault("one line\n", {.least = 1}), AllOf(StartsWith((directory_ / "a.txt").string()),
                                                       HasSubstr("test_share = 0.1"), HasSubstr("both need some")));
  EXPECT_THAT(fault(many_lines(), {.least = 2000}), HasSubstr("no word stands 2000 times"));
  EXPECT_THAT(fault("", {}), HasSubstr("is empty"));
  EXPECT_THAT(fault("a\xff\n", {}), HasSubstr("is no UTF-8"));
}

TEST_F(TextDataset, WordnetsGlossesAreOne) {
  const auto directory = find_wordnet();
  const auto dataset = load_text_dataset(wordnet_glosses(), {}, directory);
  const DatasetSize& size = dataset->size();
  EXPECT_EQ(size.train + size.test, 117659);
  EXPECT_NEAR(static_cast<double>(size.test), 11765.9, 4 * std::sqrt(117659 * 0.09)) << "four deviations";
  EXPECT_EQ(size.classes, 45);
  EXPECT_EQ(size.shape.vocabulary, 20000 + special_tokens);
  std::size_t longest = 0;
  for (const Split split : {Split::train, Split::test})
    for (std::uint32_t i = 0; i < size.samples(split); ++i)
      longest = std::max(longest, dataset->tokens(split, i).size());
  EXPECT_EQ(size.shape.width, static_cast<std::int64_t>(longest));
}

class VocabularyFiles : public IdxFiles {
 protected:
  static TextContents some() {
    return {.size = {.train = 7, .test = 3, .shape = {.width = 9, .vocabulary = 7}, .classes = 2, .shortest = 4},
            .words = {"the", "\u00e9tude"},
            .left_out = 6};
  }
  // Whether it had to be made anew, by a process that begins.
  bool is_built(const std::string& name = "abc") const {
    bool built = false;
    VocabularyCache cache(directory_ / "kept");
    const auto build = [&] {
      built = true;
      return some();
    };
    for (int again = 0; again < 2; ++again) {
      const TextContents found = cache.contents(name, build);
      EXPECT_EQ(found.words, some().words);
      EXPECT_EQ(found.size.train, 7);
      EXPECT_EQ(found.size.test, 3);
      EXPECT_EQ(found.size.classes, 2);
      EXPECT_EQ(found.size.shape, some().size.shape);
      EXPECT_EQ(found.size.shortest, 4);
      EXPECT_EQ(found.left_out, some().left_out);
    }
    return built;
  }
  void replace(const std::string& content) const {
    std::ofstream(directory_ / "kept" / "abc", std::ios::binary) << content;
  }
  std::string kept() const {
    std::ifstream in(directory_ / "kept" / "abc", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(VocabularyFiles, AreMadeOnceAndReadByLaterProcesses) {
  EXPECT_TRUE(is_built());
  EXPECT_FALSE(is_built());
  EXPECT_TRUE(is_built("def")) << "of another text";
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "kept"))
    names.insert(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("abc", "def")) << "nothing is left aside";
}

TEST_F(VocabularyFiles, ADamagedOneIsMadeAnew) {
  is_built();
  const std::string whole = kept();
  std::vector<std::string> damaged = {"", "\n", whole.substr(0, whole.size() / 2), whole + "more\n", "0000" + whole};
  for (const std::size_t at : {std::size_t{3}, whole.find("the"), whole.size() - 1}) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 1;
  }
  for (const std::string& content : damaged) {
    replace(content);
    EXPECT_TRUE(is_built()) << content;
    EXPECT_EQ(kept(), whole);
  }
}

TEST_F(VocabularyFiles, WhereNoneCanBeWrittenItIsMadeOnceInAProcess) {
  int built = 0;
  for (const char* place : {"", "/proc/nowhere"}) {
    VocabularyCache cache(place);
    for (int again = 0; again < 2; ++again)
      cache.contents("abc", [&] {
        ++built;
        return some();
      });
  }
  EXPECT_EQ(built, 2);
}

}  // namespace
}  // namespace syncopate
