#include "experiments/commands/listing.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// One blank between words, whatever stood there.
std::string unwrapped(const std::string& text) {
  std::istringstream stream(text);
  std::string result;
  for (std::string word; stream >> word;) result += word + " ";
  return result;
}

TEST(Listing, LinesFitIntoAUsualTerminal) {
  for (const std::string& line : lines_of(listing(""))) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Listing, HasTheWholeSentenceAndPaperOfEveryAlgorithm) {
  const std::string text = unwrapped(listing("algorithms"));
  for (const AlgorithmRow& row : algorithms()) {
    EXPECT_THAT(text, HasSubstr(fmt::format(" {} {} [{}] ", row.name, row.sentence, row.source)));
  }
}

TEST(Listing, EveryAlgorithmStandsOnceBelowItsFamily) {
  std::vector<std::string> families;
  std::vector<std::pair<std::string, std::string>> listed;  // family and name
  const auto lines = lines_of(listing("algorithms"));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto indent = lines[i].find_first_not_of(' ');
    if (indent == 2) families.push_back(lines[i].substr(2));
    if (indent == 4)
      listed.emplace_back(families.at(families.size() - 1), lines[i].substr(4, lines[i].find(' ', 4) - 4));
  }
  EXPECT_EQ(listed.size(), algorithms().size());
  for (const AlgorithmRow& row : algorithms()) {
    EXPECT_THAT(listed, testing::Contains(testing::Pair(std::string(row.family) + ":", row.name)));
  }
  for (const std::string& family : families) EXPECT_EQ(std::count(families.begin(), families.end(), family), 1);
}

TEST(Listing, IsThatOfTheKindAskedFor) {
  EXPECT_THAT(listing("algorithms"), testing::Not(HasSubstr("[network] kind")));
  for (const std::string_view kind : listed_kinds) EXPECT_THAT(listing(""), HasSubstr(listing(kind).substr(0, 40)));
}

}  // namespace
}  // namespace syncopate
