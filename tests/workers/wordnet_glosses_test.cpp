// WordNet's definitions, against what is known of the package's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/data/text.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Words as blanks divide them: 117,659 definitions of 12.4 words on average, with a deviation of 7.4, at most 82.
TEST(WordnetGlosses, AreThoseOfThePackage) {
  const Corpus corpus = read_wordnet_glosses(find_wordnet());
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
  const Corpus corpus = read_wordnet_glosses(find_wordnet());
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
  const auto fault = [&] { return message_of<DataFault>([&] { read_wordnet_glosses(directory_); }); };
  text("data.noun", "  1 licence\n00001740 03 n 01 entity 0 000 | what exists  \n");
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.verb"), HasSubstr("No such file")));
  for (const char* name : {"data.verb", "data.adj", "data.adv"})
    text(name, "00001740 29 v 01 breathe 0 000 | draw air\n");
  EXPECT_EQ(read_wordnet_glosses(directory_).texts.front().text, "what exists");
  text("data.adj", "  1\n00001740 45 n 01 entity 0 000 | what exists\n");
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.adj:2"), HasSubstr("from 00 to 44")));
  text("data.adj", "00001740 29 n 01 entity\n");
  EXPECT_THAT(fault(), HasSubstr("data.adj:1"));
  text("data.adj", "x\n");
  EXPECT_THAT(fault(), HasSubstr("data.adj:1"));
}

}  // namespace
}  // namespace syncopate
