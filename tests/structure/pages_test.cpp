// Pages for people. The front page is short and its experiment is right, each folder has a page, and files and types
// that pages name exist.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;
const std::vector<std::string> folders = {"algorithms", "experiments", "plots", "results", "tests", "workers"};

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(Pages, TheFrontPageHasAtMost150Lines) {
  const std::string page = text_of(source / "README.md");
  const auto lines = std::ranges::count(page, '\n');
  EXPECT_GT(lines, 50);
  EXPECT_LE(lines, 150);
}

TEST(Pages, TheFrontPageCanBeReadAsText) {
  std::istringstream page(text_of(source / "README.md"));
  for (std::string line; std::getline(page, line);) EXPECT_LE(line.size(), 120u) << line;
}

// The formatter does not check this, because comments are wrapped by hand.
TEST(Pages, CommentsOfHeadersHaveAtMost120Columns) {
  int headers = 0;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(source / folder)) {
      if (entry.path().extension() != ".hpp") continue;
      ++headers;
      std::istringstream text(text_of(entry.path()));
      for (std::string line; std::getline(text, line);) {
        if (!line.starts_with("//")) continue;
        EXPECT_LE(line.size(), 120u) << entry.path() << ": " << line;
      }
    }
  EXPECT_GT(headers, 100);
}

TEST(Pages, EachFolderHasOne) {
  for (const std::string& folder : folders) EXPECT_TRUE(fs::exists(source / folder / "README.md")) << folder;
}

// As in a browser, links are relative to the page's own folder.
bool links_to(const fs::path& page, const std::string& name) { return fs::exists(source / page.parent_path() / name); }

// Names may be relative to the root too. The files of the worked example are in the folder of its test.
bool names(const fs::path& page, const std::string& name) {
  return links_to(page, name) || fs::exists(source / name) || fs::exists(source / "tests/worked_example" / name);
}

std::vector<std::string> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

// Pages can name four things: a source file in backquotes; any file in backquotes that has its path from a folder of
// the program; a folder in backquotes in a table's first cell; a link's target.
const std::string file_named = R"(`([\w./-]+\.(?:hpp|cpp|py))`)";
const std::string path_named = R"(`((?:algorithms|experiments|plots|results|tests|workers)/[\w./-]*\.\w+)`)";
const std::string folder_named = R"(\n\| `(\w+/)`)";
const std::string link = R"(\]\(([^)#:]+)\))";

TEST(Pages, WhatTheyNameIsThere) {
  std::vector<fs::path> pages = {"README.md",
                                 "CONTRIBUTING.md",
                                 "CHANGELOG.md",
                                 "experiments/reference.md",
                                 "workers/data/README.md",
                                 "workers/models/README.md",
                                 "workers/models/TORCHSCRIPT.md"};
  for (const std::string& folder : folders) pages.emplace_back(fs::path(folder) / "README.md");
  std::size_t seen = 0;
  for (const fs::path& page : pages) {
    const std::string text = text_of(source / page);
    const auto links = all_matches(text, link);
    for (const std::string& name : links) EXPECT_TRUE(links_to(page, name)) << page << ": " << name;
    seen += links.size();
    for (const std::string& pattern : {file_named, path_named, folder_named}) {
      const auto named = all_matches(text, pattern);
      for (const std::string& name : named) EXPECT_TRUE(names(page, name)) << page << ": " << name;
      seen += named.size();
    }
  }
  EXPECT_GT(seen, 80u);
}

// Types of the program and of tests in backquotes, such as `GradientRound` or `Deadline::until_message()`.
TEST(Pages, TypesThatTheyNameAreThere) {
  std::set<std::string> words;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(source / folder)) {
      if (entry.path().extension() != ".hpp" && entry.path().extension() != ".cpp") continue;
      const std::string text = text_of(entry.path());
      const std::regex word(R"(\b[A-Z][a-z0-9]+[A-Z]\w*)");
      for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match)
        words.insert(match->str());
    }
  const std::vector<fs::path> pages = {"CONTRIBUTING.md", "algorithms/README.md", "workers/README.md",
                                       "workers/data/README.md", "workers/models/README.md"};
  std::size_t seen = 0;
  for (const fs::path& page : pages)
    for (const std::string& name : all_matches(text_of(source / page), R"(`([A-Z][a-z0-9]+[A-Z]\w*)[^`]*`)")) {
      EXPECT_TRUE(words.contains(name)) << page << ": " << name;
      ++seen;
    }
  EXPECT_GT(seen, 8u);
}

class FrontPage : public ExperimentFile {};

TEST_F(FrontPage, HasAnExperimentThatIsRight) {
  const std::string page = text_of(source / "README.md");
  const std::string mark = "```toml\n";
  const auto begin = page.find(mark) + mark.size();
  ASSERT_NE(page.find(mark), page.npos);
  write(page.substr(begin, page.find("```", begin) - begin));
  const Experiment experiment = load();
  EXPECT_EQ(experiment.runs.size(), 2u * 3) << "two methods, three seeds";
}

}  // namespace
}  // namespace syncopate
