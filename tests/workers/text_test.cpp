// From a text to the numbers of its words.
#include "workers/data/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {
namespace {

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

TEST(Vocabulary, HasTheMostFrequentWordsBehindTheSpecialTokens) {
  const ByWord<std::int64_t> counts{{"b", 5}, {"a", 5}, {"often", 9}, {"seldom", 1}, {"twice", 2}};
  EXPECT_THAT(most_frequent(counts, 3, 1), ElementsAre("often", "a", "b"));
  EXPECT_THAT(most_frequent(counts, 10, 2), ElementsAre("often", "a", "b", "twice"));
  const Vocabulary vocabulary(most_frequent(counts, 3, 1));
  EXPECT_EQ(vocabulary.size(), special_tokens + 3);
  EXPECT_EQ(vocabulary.number_of("often"), special_tokens);
  EXPECT_EQ(vocabulary.number_of("b"), special_tokens + 2);
  EXPECT_EQ(vocabulary.number_of("seldom"), token_of(SpecialToken::unknown));
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
    return message_of<DataFault>([&] { read_text_lines(file(text), labelled); });
  }
};

TEST_F(TextLines, EachLineIsASequenceBehindItsLabel) {
  const Corpus corpus = read_text_lines(file("sport\tA ball.\r\nart\tA canvas\tand paint\n\nsport\tnet"), true);
  EXPECT_THAT(corpus.categories, ElementsAre("art", "sport"));
  ASSERT_EQ(corpus.texts.size(), 3u);
  EXPECT_EQ(corpus.texts[0].text, "A ball.");
  EXPECT_EQ(corpus.texts[0].label, 1);
  EXPECT_EQ(corpus.texts[1].text, "A canvas\tand paint");
  EXPECT_EQ(corpus.texts[1].label, 0);
  EXPECT_EQ(corpus.texts[2].text, "net");
}

TEST_F(TextLines, AByteOrderMarkIsNoPartOfTheFirstLabel) {
  const Corpus corpus = read_text_lines(file("\xef\xbb\xbfsport\tA ball\nsport\tA net\n"), true);
  EXPECT_THAT(corpus.categories, ElementsAre("sport"));
  EXPECT_EQ(corpus.texts.size(), 2u);
}

TEST_F(TextLines, WithoutLabelsAllAreOfOneCategory) {
  const Corpus corpus = read_text_lines(file("first\tline\n...\nsecond\n"), false);
  EXPECT_EQ(corpus.categories.size(), 1u);
  ASSERT_EQ(corpus.texts.size(), 2u) << "a line without words is none";
  EXPECT_EQ(corpus.texts[0].text, "first\tline");
  EXPECT_EQ(corpus.texts[1].label, 0);
}

TEST_F(TextLines, WithoutAWordAreCounted) {
  EXPECT_EQ(read_text_lines(file("a\tb\n\na\t...\na\t\nb\tc\n"), true).left_out, 2);
  EXPECT_EQ(read_text_lines(file("a\n\n***\nb\n"), false).left_out, 1) << "an empty line is none";
}

// Also where each byte is UTF-8, as in UTF-16 without a mark: its words would be letters.
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
    return AllOf(HasSubstr("a.txt: is " + form), HasSubstr("must be a text in UTF-8, line by line"));
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
      HasSubstr("a.txt:1: byte 0xe9 is no UTF-8; a text in Latin-1 is converted by iconv -f ISO-8859-1 -t UTF-8"));
}

TEST_F(TextLines, WhatIsNoSuchFileIsNamedWithItsLine) {
  EXPECT_THAT(fault("a\tb\nno label\n"), AllOf(HasSubstr("a.txt:2"), HasSubstr("a label, a tab and a text")));
  EXPECT_THAT(fault("a\tb\n\tno label\n"), HasSubstr("a.txt:2"));
  EXPECT_THAT(fault("a\tb\na\tc\xff\n"), AllOf(HasSubstr("a.txt:2"), HasSubstr("byte 0xff is no UTF-8")));
  EXPECT_THAT(fault(""), AllOf(HasSubstr("a.txt"), HasSubstr("is empty")));
  EXPECT_THAT(fault("\n...\n", false), HasSubstr("no line has a word"));
  std::filesystem::remove(directory_ / "a.txt");
  EXPECT_THAT(message_of<DataFault>([&] { read_text_lines(directory_ / "a.txt", true); }),
              HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace syncopate
