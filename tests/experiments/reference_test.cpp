// Pages that are written from the tables of the program are those that it would write now.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/sections/definition.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

const std::filesystem::path source = SYNCOPATE_SOURCE_DIR;

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(GeneratedPages, AreUpToDate) {
  const std::string reference = text_of(source / "experiments/reference.md"), page = reference_page();
  EXPECT_TRUE(reference == page) << "experiments/reference.md is out of date; " << command_that_writes;
  const std::string methods = text_of(source / "algorithms/README.md");
  EXPECT_TRUE(methods == with_table_of_methods(methods))
      << "the table in algorithms/README.md is out of date; " << command_that_writes;
}

TEST(GeneratedPages, HaveEveryKeyWithItsSentence) {
  const std::string page = reference_page();
  for (const KeyDescription& key : keys_of_file()) EXPECT_THAT(page, HasSubstr(key.sentence)) << key.path;
  for (const AlgorithmRow& row : algorithms())
    EXPECT_THAT(page, HasSubstr("### algorithm = \"" + std::string(row.name) + "\""));
}

TEST(GeneratedPages, TheTableOfMethodsReplacesWhatIsBetweenItsMarks) {
  const std::string page =
      with_table_of_methods("before\n<!-- methods: before -->\nan obsolete row\n<!-- end of methods -->\nafter\n");
  EXPECT_TRUE(page.starts_with("before\n<!-- methods: written by"));
  EXPECT_TRUE(page.ends_with("\n<!-- end of methods -->\nafter\n"));
  EXPECT_THAT(page, testing::Not(HasSubstr("obsolete")));
  for (const AlgorithmRow& row : algorithms()) EXPECT_THAT(page, HasSubstr("| `" + std::string(row.name) + "` |"));
}

TEST(GeneratedPages, APageWithoutTheMarksIsRefused) {
  EXPECT_THROW(with_table_of_methods("no marks"), std::runtime_error);
}

}  // namespace
}  // namespace syncopate
