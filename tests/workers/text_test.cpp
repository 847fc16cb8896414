// Texts as data sets of tokens, and their cached forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <unordered_map>

#include "tests/workers/idx_files.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/text_dataset.hpp"

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
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);  // not the user's cache
  }
  std::filesystem::path file(const std::string& text) const { return write("a.txt", {text.begin(), text.end()}); }

  // 400 lines with labels. Line i has "common", a word that only it has, and "more" i % 7 times.
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
    return message_of<DataFault>([&] { text_dataset(text_lines(false), options).size(file(text)); });
  }
};

TEST_F(TextDataset, ASampleIsItsWordsByNumberBetweenFirstAndLast) {
  const TextOptions options{.test_share = 0.25, .words = 100, .least = 2};
  const auto path = file(many_lines());
  const auto dataset = text_dataset(text_lines(true), options).load(path);
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
      const auto tokens = sample_tokens(*dataset, split, i);
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
  const auto dataset = text_dataset(text_lines(true), {.test_share = 0.5, .least = 1}).load(file(many_lines()));
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
    EXPECT_EQ(sample_tokens(*dataset, Split::train, numbers[sample]).size(), 4u + static_cast<unsigned>(i % 7));
    ++sample;
  }
  EXPECT_EQ(sample, labels.size());
}

TEST_F(TextDataset, LinesWithoutAWordAreNoted) {
  const TextOptions options{.test_share = 0.5, .least = 1};
  EXPECT_THAT(text_dataset(text_lines(true), options).size(file(many_lines())).notes, testing::IsEmpty());
  const auto path = file(many_lines() + "other\t\n");
  EXPECT_THAT(text_dataset(text_lines(true), options).size(path).notes,
              ElementsAre(path.string() + ": 1 line has no word and is left out"));
}

TEST_F(TextDataset, WhatLeavesNothingToTrainOrTestOnIsAFault) {
  EXPECT_THAT(fault("one line\n", {.least = 1}),
              AllOf(StartsWith((directory_ / "a.txt").string()), HasSubstr("test_share = 0.1"),
                    HasSubstr("both need at least one")));
  EXPECT_THAT(fault(many_lines(), {.least = 2000}), HasSubstr("no word occurs 2000 times"));
  EXPECT_THAT(fault("", {}), HasSubstr("is empty"));
  EXPECT_THAT(fault("a\xff\n", {}), HasSubstr("is not UTF-8"));
}

TEST_F(TextDataset, WordnetsGlossesAreOne) {
  const auto directory = wordnet_glosses().files.usual();
  const auto dataset = text_dataset(wordnet_glosses(), {}).load(directory);
  const DatasetSize& size = dataset->size();
  EXPECT_EQ(size.train + size.test, 117659);
  EXPECT_NEAR(static_cast<double>(size.test), 11765.9, 4 * std::sqrt(117659 * 0.09)) << "four deviations";
  EXPECT_EQ(size.classes, 45);
  EXPECT_EQ(size.shape.vocabulary, 20000 + special_tokens);
  std::size_t longest = 0;
  for (const Split split : {Split::train, Split::test})
    for (std::uint32_t i = 0; i < size.samples(split); ++i)
      longest = std::max(longest, sample_tokens(*dataset, split, i).size());
  EXPECT_EQ(size.shape.width, static_cast<std::int64_t>(longest));
}

class VocabularyFiles : public IdxFiles {
 protected:
  static TextContents some() {
    return {.size = {.train = 7, .test = 3, .shape = {.width = 9, .vocabulary = 7}, .classes = 2, .shortest = 4},
            .words = {"the", "\u00e9tude"},
            .left_out = 6};
  }
  // Whether a new process has to build the vocabulary again.
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

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(Words, AreRunsOfLettersAndDigitsInLowerCase) {
  EXPECT_THAT(words_of("The 2nd  (worker's) \"quorum\"; it isn't late.\tN+1"),
              ElementsAre("the", "2nd", "worker's", "quorum", "it", "isn't", "late", "n", "1"));
  EXPECT_THAT(words_of("'quoted' dogs' o'"), ElementsAre("quoted", "dogs", "o"));
  EXPECT_THAT(words_of("na\u00efve \u00c9tude"), ElementsAre("na\u00efve", "\u00c9tude")) << "beyond ASCII as it is";
  EXPECT_TRUE(words_of(" ... -- ").empty());
}

TEST(Vocabulary, HasTheMostFrequentWords) {
  const std::unordered_map<std::string, std::int64_t> counts{
      {"b", 5}, {"a", 5}, {"often", 9}, {"seldom", 1}, {"twice", 2}};
  EXPECT_THAT(most_frequent(counts, 3, 1), ElementsAre("often", "a", "b"));
  EXPECT_THAT(most_frequent(counts, 10, 2), ElementsAre("often", "a", "b", "twice"));
}

TEST(Corpus, TheShareHeldOutIsTheOneAskedForAndFollowsTheTextAlone) {
  int held_out = 0;
  constexpr int texts = 20000;
  for (int i = 0; i < texts; ++i) {
    const std::string text = "text number " + std::to_string(i);
    const Split split = split_of(text, 0.2);
    if (split == Split::test) ++held_out;
    EXPECT_EQ(split_of(text, 0.2), split);
    EXPECT_TRUE(split == Split::train || split_of(text, 0.4) == Split::test) << "a larger share has the smaller one's";
  }
  EXPECT_NEAR(held_out, 0.2 * texts, 4 * std::sqrt(texts * 0.2 * 0.8)) << "four deviations";
  EXPECT_EQ(split_of("any", 0), Split::train);
  EXPECT_EQ(split_of("any", 1), Split::test);
}

TEST(Utf8, IsValidUpToTheFirstWrongByte) {
  EXPECT_EQ(utf8_until("plain"), 5u);
  EXPECT_EQ(utf8_until("\u00e9\u20ac\U0001F600"), 9u);
  EXPECT_EQ(utf8_until("a\xff"), 1u);
  EXPECT_EQ(utf8_until("ab\xc3"), 2u) << "cut within a character";
  EXPECT_EQ(utf8_until("\xc0\xaf"), 0u) << "longer than it need be";
  EXPECT_EQ(utf8_until("\xed\xa0\x80"), 0u) << "half of a pair";
}

class TextLines : public IdxFiles {
 protected:
  std::filesystem::path file(const std::string& text) const { return write("a.txt", {text.begin(), text.end()}); }
  std::string fault(const std::string& text, bool labelled = true) const {
    return message_of<DataFault>([&] { text_lines(labelled).read(file(text)); });
  }
};

TEST_F(TextLines, EachLineIsASequenceBehindItsLabel) {
  const Corpus corpus = text_lines(true).read(file("sport\tA ball.\r\nart\tA canvas\tand paint\n\nsport\tnet"));
  EXPECT_THAT(corpus.categories, ElementsAre("art", "sport"));
  ASSERT_EQ(corpus.texts.size(), 3u);
  EXPECT_EQ(corpus.texts[0].text, "A ball.");
  EXPECT_EQ(corpus.texts[0].label, 1);
  EXPECT_EQ(corpus.texts[1].text, "A canvas\tand paint");
  EXPECT_EQ(corpus.texts[1].label, 0);
  EXPECT_EQ(corpus.texts[2].text, "net");
}

TEST_F(TextLines, AByteOrderMarkIsNoPartOfTheFirstLabel) {
  const Corpus corpus = text_lines(true).read(file("\xef\xbb\xbfsport\tA ball\nsport\tA net\n"));
  EXPECT_THAT(corpus.categories, ElementsAre("sport"));
  EXPECT_EQ(corpus.texts.size(), 2u);
}

TEST_F(TextLines, WithoutLabelsAllAreOfOneCategory) {
  const Corpus corpus = text_lines(false).read(file("first\tline\n...\nsecond\n"));
  EXPECT_EQ(corpus.categories.size(), 1u);
  ASSERT_EQ(corpus.texts.size(), 2u) << "a line without words is none";
  EXPECT_EQ(corpus.texts[0].text, "first\tline");
  EXPECT_EQ(corpus.texts[1].label, 0);
}

TEST_F(TextLines, WithoutAWordAreCounted) {
  EXPECT_EQ(text_lines(true).read(file("a\tb\n\na\t...\na\t\nb\tc\n")).left_out, 2);
  EXPECT_EQ(text_lines(false).read(file("a\n\n***\nb\n")).left_out, 1) << "an empty line is none";
}

// Other encodings are detected even if each byte is valid UTF-8. In UTF-16 without a byte order mark each byte is
// valid, and words would be single letters.
TEST_F(TextLines, OtherEncodingsAreNamed) {
  const std::string plain = "sport\tA ball and a net\nart\tcanvas\n";
  const auto widened = [&](std::size_t bytes, bool is_little) {
    std::string text;
    for (const char letter : plain) {
      std::string one(bytes, '\0');
      one[is_little ? 0 : bytes - 1] = letter;
      text += one;
    }
    return text;
  };
  const auto says = [](const std::string& form) {
    return AllOf(HasSubstr("a.txt: is " + form), HasSubstr("must be a text in UTF-8 with one entry per line"));
  };
  for (const bool has_mark : {false, true}) {
    const auto mark = [&](const std::string& bytes) { return has_mark ? bytes : std::string(); };
    EXPECT_THAT(fault(mark("\xff\xfe") + widened(2, true)),
                says("UTF-16 (little-endian), which iconv -f UTF-16LE -t UTF-8 converts"));
    EXPECT_THAT(fault(mark("\xfe\xff") + widened(2, false)),
                says("UTF-16 (big-endian), which iconv -f UTF-16BE -t UTF-8 converts"));
    EXPECT_THAT(fault(mark(std::string("\xff\xfe\0\0", 4)) + widened(4, true)), says("UTF-32 (little-endian)"));
    EXPECT_THAT(fault(mark(std::string("\0\0\xfe\xff", 4)) + widened(4, false)), says("UTF-32 (big-endian)"));
  }
  EXPECT_THAT(fault("\x1f\x8b\x08 and more"), says("compressed with gzip"));
  EXPECT_THAT(fault(std::string(64, '\0')), says("full of zero bytes"));
  EXPECT_THAT(
      fault("caf\xe9\tau lait\n"),
      HasSubstr("a.txt:1: byte 0xe9 is not UTF-8; convert a text in Latin-1 with iconv -f ISO-8859-1 -t UTF-8"));
}

TEST_F(TextLines, WhatIsNoSuchFileIsNamedWithItsLine) {
  EXPECT_THAT(fault("a\tb\nno label\n"), AllOf(HasSubstr("a.txt:2"), HasSubstr("a label, a tab and a text")));
  EXPECT_THAT(fault("a\tb\n\tno label\n"), HasSubstr("a.txt:2"));
  EXPECT_THAT(fault("a\tb\na\tc\xff\n"), AllOf(HasSubstr("a.txt:2"), HasSubstr("byte 0xff is not UTF-8")));
  EXPECT_THAT(fault(""), AllOf(HasSubstr("a.txt"), HasSubstr("is empty")));
  EXPECT_THAT(fault("\n...\n", false), HasSubstr("no line contains a word"));
  std::filesystem::remove(directory_ / "a.txt");
  EXPECT_THAT(message_of<DataFault>([&] { text_lines(true).read(directory_ / "a.txt"); }),
              HasSubstr("No such file or directory"));
}

// WordNet's definitions: known properties of the package's files.

using testing::AllOf;
using testing::HasSubstr;

// Words between blanks: 117,659 definitions with 12.4 words on average, a deviation of 7.4, and at most 82.
TEST(WordnetGlosses, AreThoseOfThePackage) {
  const Corpus corpus = wordnet_glosses().read(wordnet_glosses().files.usual());
  EXPECT_EQ(corpus.texts.size(), 117659u);
  EXPECT_EQ(corpus.categories.size(), 45u);
  double sum = 0, squares = 0, most = 0;
  std::set<std::int32_t> labels;
  for (const LabelledText& one : corpus.texts) {
    std::istringstream text(one.text);
    const auto words = static_cast<double>(std::distance(std::istream_iterator<std::string>(text), {}));
    sum += words;
    squares += words * words;
    most = std::max(most, words);
    labels.insert(one.label);
  }
  const double mean = sum / 117659;
  EXPECT_NEAR(mean, 12.4, 0.05);
  EXPECT_NEAR(std::sqrt(squares / 117659 - mean * mean), 7.4, 0.05);
  EXPECT_EQ(most, 82);
  EXPECT_EQ(labels.size(), 45u);
}

TEST(WordnetGlosses, HaveTheCategoryOfTheirLexicographerFile) {
  const Corpus corpus = wordnet_glosses().read(wordnet_glosses().files.usual());
  const auto found = std::ranges::find_if(corpus.texts, [](const LabelledText& one) {
    return one.text == "an organism that depends on complex organic substances for nutrition";
  });
  ASSERT_NE(found, corpus.texts.end());
  EXPECT_EQ(corpus.categories[static_cast<std::size_t>(found->label)], "noun.Tops");
}

class WordnetFiles : public IdxFiles {};

TEST_F(WordnetFiles, ALineThatIsNoDefinitionIsNamed) {
  const auto text = [&](const std::string& name, const std::string& content) {
    write(name, {content.begin(), content.end()});
  };
  const auto fault = [&] { return message_of<DataFault>([&] { wordnet_glosses().read(directory_); }); };
  text("data.noun", "  1 licence\n00001740 03 n 01 entity 0 000 | what exists  \n");
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.verb"), HasSubstr("No such file")));
  for (const char* name : {"data.verb", "data.adj", "data.adv"})
    text(name, "00001740 29 v 01 breathe 0 000 | draw air\n");
  EXPECT_EQ(wordnet_glosses().read(directory_).texts.front().text, "what exists");
  text("data.adj", "  1\n00001740 45 n 01 entity 0 000 | what exists\n");
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.adj:2"), HasSubstr("from 00 to 44")));
  text("data.adj", "00001740 29 n 01 entity\n");
  EXPECT_THAT(fault(), HasSubstr("data.adj:1"));
  text("data.adj", "x\n");
  EXPECT_THAT(fault(), HasSubstr("data.adj:1"));
}

constexpr std::int32_t hidden = 2, first = 3, last = 4;
const DatasetSize size{.shape = {.width = 1024, .vocabulary = 50},
                       .marks = {.mask = hidden, .never_masked = {first, last}}};

// The tokens first, 10, 11, ..., last.
std::vector<std::int32_t> text_of(std::size_t length) {
  std::vector<std::int32_t> tokens(length);
  std::iota(tokens.begin(), tokens.end(), 9);
  tokens.front() = first;
  tokens.back() = last;
  return tokens;
}

std::size_t asked(std::size_t length, const MaskingOptions& options) {
  return mask(text_of(length), size, options, masking_stream(1, Split::train, 7, 0, options)).places.size();
}

// 15 % of all tokens, as in the code of BERT: 19 of 128 tokens (most = 20), 77 of 512 (most = 80).
TEST(Masking, AsksForAShareOfAllTokensAtLeastOneAndNotTooMany) {
  EXPECT_EQ(asked(128, {.most = 20}), 19u);
  EXPECT_EQ(asked(512, {.most = 80}), 77u);
  EXPECT_EQ(asked(512, {.most = 20}), 20u);
  EXPECT_EQ(asked(3, {}), 1u) << "round(0.45) = 0";
  EXPECT_EQ(asked(10, {}), 2u) << "round(1.5) = 2";
  EXPECT_EQ(asked(30, {}), 4u) << "round(4.5) = 4, halves to even";
  EXPECT_EQ(asked(2, {}), 0u) << "its two ends are never asked for";
  EXPECT_EQ(asked(5, {.share = 1}), 3u);
}

TEST(Masking, HidesEightOfTenKeepsOneAndShowsAnyTokenForOne) {
  constexpr int texts = 4000;
  const auto text = text_of(22);  // 3 tokens are hidden in each copy
  std::map<std::int32_t, int> shown_for_kept;
  int masks = 0, kept = 0, total = 0;
  std::map<std::int32_t, int> places, others;
  for (int sample = 0; sample < texts; ++sample) {
    const auto masked =
        mask(text, size, {}, masking_stream(1, Split::train, static_cast<std::uint32_t>(sample), 0, {}));
    ASSERT_EQ(masked.places.size(), 3u);
    ASSERT_THAT(masked.places, testing::WhenSorted(testing::ContainerEq(masked.places)));
    EXPECT_EQ(std::set(masked.places.begin(), masked.places.end()).size(), 3u);
    std::set<std::int32_t> asked_for(masked.places.begin(), masked.places.end());
    for (std::int32_t place = 0; place < 22; ++place) {
      const std::int32_t shown = masked.tokens[static_cast<std::size_t>(place)];
      const std::int32_t is = text[static_cast<std::size_t>(place)];
      if (!asked_for.contains(place)) {
        EXPECT_EQ(shown, is);
        continue;
      }
      ++places[place];
      ++total;
      if (shown == hidden)
        ++masks;
      else if (shown == is)
        ++kept;
      else
        ++others[shown];
    }
  }
  // Random tokens replace a tenth of the hidden ones. About 1 in 50 of them is the mask, 1 in 50 the token itself.
  const auto near = [&](int found, double share) {
    EXPECT_NEAR(found, share * total, 4 * std::sqrt(total * share * (1 - share))) << share;
  };
  near(masks, 0.8 + 0.1 / 50);
  near(kept, 0.1 + 0.1 / 50);
  EXPECT_EQ(others.size(), 49u) << "any token of the vocabulary, the first, the last and padding among them";
  for (const auto& [token, count] : others) near(count, 0.1 / 50);
  EXPECT_EQ(places.size(), 20u);
  EXPECT_FALSE(places.contains(0) || places.contains(21));
  for (const auto& [place, count] : places) near(count, 1.0 / 20);
}

// Static masks: a text has `copies` masks, which take turns. Dynamic masks are drawn again at each visit.
TEST(Masking, FollowsSeedSampleAndEpoch) {
  const auto text = text_of(100);
  const auto tokens = [&](std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                          std::int64_t copies = 0) {
    const MaskingOptions options{.copies = copies};
    return mask(text, size, options, masking_stream(seed, split, sample, epoch, options)).tokens;
  };
  const auto base = tokens(1, Split::train, 5, 0);
  EXPECT_EQ(tokens(1, Split::train, 5, 0), base);
  EXPECT_NE(tokens(2, Split::train, 5, 0), base);
  EXPECT_NE(tokens(1, Split::train, 6, 0), base);
  EXPECT_NE(tokens(1, Split::train, 5, 1), base);
  EXPECT_NE(tokens(1, Split::train, 5, 10), base);
  EXPECT_EQ(tokens(1, Split::train, 5, 13, 10), tokens(1, Split::train, 5, 3, 10));
  EXPECT_NE(tokens(1, Split::train, 5, 9, 10), tokens(1, Split::train, 5, 0, 10));
  EXPECT_NE(tokens(1, Split::test, 5, 0), base);
  EXPECT_EQ(tokens(1, Split::test, 5, 3), tokens(1, Split::test, 5, 0)) << "evaluations are comparable";
}

// The validation sample with a training sample's number is a different text and has its own masks. They are drawn once.
TEST(Masking, OfAValidationSampleIsDrawnOnceAndOnAStreamOfItsOwn) {
  const auto text = text_of(100);
  for (const std::int64_t copies : {0, 10}) {
    const MaskingOptions options{.copies = copies};
    const auto tokens = [&](Split split, std::uint32_t sample, std::int64_t epoch) {
      return mask(text, size, options, masking_stream(1, split, sample, epoch, options)).tokens;
    };
    EXPECT_EQ(tokens(Split::validation, 5, 7), tokens(Split::validation, 5, 0)) << "evaluations are comparable";
    EXPECT_NE(tokens(Split::validation, 5, 0), tokens(Split::validation, 6, 0));
    EXPECT_NE(tokens(Split::validation, 5, 0), tokens(Split::test, 5, 0));
    for (std::int64_t epoch = 0; epoch < 12; ++epoch)
      EXPECT_NE(tokens(Split::validation, 5, 0), tokens(Split::train, 5, epoch)) << epoch;
  }
}

}  // namespace
}  // namespace syncopate
