// The quick start at its full length: every method learns, and pages show the program's output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/experiments/page_samples.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

// Returns the non-empty cells of a row of a Markdown table.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  for (std::size_t begin = 0, end = 0; (end = row.find('|', begin + 1)) != row.npos; begin = end) {
    const std::string cell = row.substr(begin + 1, end - begin - 1);
    const std::size_t first = cell.find_first_not_of(' ');
    if (first != cell.npos) cells.push_back(cell.substr(first, cell.find_last_not_of(' ') + 1 - first));
  }
  return cells;
}

// Returns the cells in all rows of a method.
std::vector<std::string> rows_of(const std::string& page, const std::string& method) {
  std::vector<std::string> cells;
  for (const std::string& line : lines_of(page))
    if (line.starts_with("| " + method + " |"))
      for (const std::string& cell : cells_of(line)) cells.push_back(cell);
  return cells;
}

using Quickstart = ProgramTest;

TEST_F(Quickstart, EveryMethodLearnsAndPagesShowWhatItPrints) {
  const fs::path source = SYNCOPATE_SOURCE_DIR;
  fs::create_directory_symlink(source / "experiments", directory / "experiments");
  const auto outcome = syncopate("run experiments/quickstart.toml --quiet");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::set<std::string> methods, kernels;
  for (const auto& entry : fs::recursive_directory_iterator(directory / "results")) {
    if (entry.path().filename() != "summary.json") continue;
    const auto summary = nlohmann::json::parse(text_of(entry.path()));
    const std::string method = summary["method"];
    methods.insert(method);
    EXPECT_EQ(summary["status"], "finished") << method;
    EXPECT_GE(summary["final_test_accuracy"].get<double>(), 0.88) << method;
    kernels.insert(nlohmann::json::parse(text_of(entry.path().parent_path() / "metadata.json"))["blas_kernel"]);
  }
  EXPECT_EQ(methods.size(), 4u);

  // Another kernel of the BLAS sums in another order, so the page's numbers are compared only with the same kernel.
  const std::string front = text_of(source / "README.md");
  std::smatch kernel;
  ASSERT_TRUE(std::regex_search(front, kernel, std::regex("BLAS's kernel\\s(\\w+)")));
  if (kernels != std::set<std::string>{kernel[1].str()}) return;
  const std::string tables =
      syncopate("table results/runs/quickstart --against 'synchronous SGD' --format markdown").out;
  for (const std::string& method : methods)
    for (const std::string& cell : rows_of(front, method))
      EXPECT_THAT(rows_of(tables, method), testing::Contains(testing::AnyOf(cell, testing::EndsWith("  " + cell))))
          << method << '\n'
          << tables;
  int samples = 0;
  for (const fs::path& page : pages())
    for (const Sample& sample : samples_of(page, "console quickstart")) {
      SCOPED_TRACE(sample.place);
      const ProgramOutcome shown = syncopate(sample.lines.front().substr(std::string("$ ./dev ").size()));
      EXPECT_EQ(first_difference({sample.lines.begin() + 1, sample.lines.end()}, lines_of(shown.out)), "") << shown.out;
      ++samples;
    }
  EXPECT_GE(samples, 1);
}

}  // namespace
}  // namespace syncopate
