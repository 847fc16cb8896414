// How long methods are, as the tables of algorithms/README.md say it: lines of code of header and source.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <string>

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path methods = fs::path(SYNCOPATE_SOURCE_DIR) / "algorithms";

// Without comments and blank ones.
int lines_of_code(const fs::path& path) {
  int count = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find_first_not_of(' ');
    count += begin != std::string::npos && line.compare(begin, 2, "//") != 0;
  }
  return count;
}

// Of the header and source of that name, in whichever family they are.
std::optional<int> lines_of(std::string name) {
  std::ranges::replace(name, '-', '_');
  for (const auto& folder : fs::directory_iterator(methods))
    if (const fs::path header = folder.path() / (name + ".hpp"); fs::exists(header))
      return lines_of_code(header) + lines_of_code(folder.path() / (name + ".cpp"));
  return {};
}

// The first name in backticks of which there are files.
std::optional<int> lines_of_first_named(const std::string& text) {
  static const std::regex name("`([a-z0-9_-]+)`");
  for (std::sregex_iterator match(text.begin(), text.end(), name), none; match != none; ++match)
    if (const auto lines = lines_of((*match)[1])) return lines;
  return {};
}

TEST(MethodLines, AreAsTheTablesSay) {
  static const std::regex own(R"(^(\d+)( in `[a-z_]+`)?(,.*)?$)");
  int rows = 0;
  bool is_table = false;
  std::ifstream page(methods / "README.md");
  for (std::string line; std::getline(page, line);) {
    is_table = line.starts_with("| method |") ? line.ends_with("| lines |") : is_table && line.starts_with("|");
    if (!is_table || !line.starts_with("| `")) continue;
    const std::string first = line.substr(2, line.find(" |", 2) - 2);
    const auto begin = line.rfind("| ", line.size() - 3) + 2;
    const std::string last = line.substr(begin, line.size() - 2 - begin);
    std::smatch said;
    if (!std::regex_match(last, said, own)) {
      EXPECT_EQ(last, "the same") << line;
      continue;
    }
    const auto counted = lines_of_first_named(said[2].matched ? said[2].str() : first);
    ASSERT_TRUE(counted) << line;
    EXPECT_EQ(std::stoi(said[1]), *counted) << first;
    ++rows;
  }
  EXPECT_GE(rows, 25);
}

}  // namespace
}  // namespace syncopate
