// A family of methods has the same name in three places: its folder, its rows of the registry, and its line on the
// front page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;

std::string folder_of(std::string family) {
  for (char& c : family) c = c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return family;
}

// Returns the families in the order of the registry.
std::vector<std::string> families() {
  std::vector<std::string> result;
  for (const AlgorithmRow& row : algorithms())
    if (std::ranges::find(result, row.family) == result.end()) result.emplace_back(row.family);
  return result;
}

TEST(Families, AreTheFoldersOfMethods) {
  std::set<std::string> folders, named;
  for (const auto& entry : fs::directory_iterator(source / "algorithms"))
    if (entry.is_directory() && entry.path().filename() != "method") folders.insert(entry.path().filename());
  for (const std::string& family : families()) named.insert(folder_of(family));
  EXPECT_EQ(named, folders);
}

TEST(Families, AreThoseOfTheFrontPageInItsOrder) {
  std::vector<std::string> lines;  // the first cells of the table's rows
  std::ifstream page(source / "README.md");
  bool is_table = false;
  for (std::string line; std::getline(page, line);) {
    if (is_table && !line.starts_with("|")) break;
    if (is_table && line.starts_with("| ") && !line.starts_with("| |"))
      lines.push_back(line.substr(2, line.find(" |", 2) - 2));
    is_table |= line.starts_with("| family |");
  }
  EXPECT_EQ(lines, families());
}

}  // namespace
}  // namespace syncopate
