// A method's program reads like the paper's pseudo-code: bars for its length.
//
// Counted is what a method's source has before its card (what it says about itself, what formulas say, how its settings
// are read), and likewise of the sources that it alone includes; all lines but blank ones, comments, includes and lines
// that name a namespace, a type or an access. A rule that a key chooses, such as a threshold's, is a program by itself.
// So is what several methods share.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;

// What keys choose: thresholds, and by what they are searched; compensations; periods; phases; outer optimizers; codes;
// what servers make of differences, of unequal steps too; steps by speed; how pairs and groups meet; forms of dynamic
// averaging (the paper's has a program for the coordinator, too) and of overlap; EDiT's penalty, and rounds by time;
// the other rule of MindFlayer; Decoupled DiLoCo's grace, merge rules, its workers' side, and what both of its sides know of fragments.
const std::set<std::string> rules = {
    "drop_threshold",    "automatic_threshold", "adaptive_threshold",    "threshold_search",
    "drop_compensation", "extra_steps",         "recomputation",         "carry_over",
    "sync_period",       "outer_optimizer",     "fractional_repetition", "cyclic_repetition",
    "stochastic_code",   "local_phase",         "gathered_averaging",    "model_coordinator",
    "push_overlap",      "server_update",       "steps_by_speed",        "pair_exchanges",
    "group_averages",    "uneven_mean",         "loss_period",           "pseudo_gradient_penalty",
    "timed_rounds",      "fragment_answers",    "grace_window",          "merge_rule",
    "edit_round",        "fragment_learner",    "clipping_rennala"};
const std::map<std::string, int> shorter = {
    {"sync_sgd", 30}, {"drop_compute", 30}, {"local_sgd", 30}, {"backup_workers", 30}, {"async_sgd", 30}};
constexpr int most_lines = 60;
int bar_of(const std::string& name) { return shorter.contains(name) ? shorter.at(name) : most_lines; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Up to what the card begins with.
std::string program_of(const std::string& text) {
  auto end = text.size();
  for (const char* card : {"\nForecast ", "\nTraits ", "\nstd::unique_ptr<Algorithm> make_", "\n// The card."})
    end = std::min(end, text.find(card));
  return text.substr(0, end);
}

int lines_of(const std::string& program) {
  std::istringstream lines(program);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    line = line.substr(begin);
    const auto begins = [&](const char* with) { return line.starts_with(with); };
    if (!begins("//") && !begins("#") && !begins("namespace") && !begins("using ") && !begins("}  // namespace") &&
        !begins("public:") && !begins("private:"))
      ++count;
  }
  return count;
}

// Sources by name: all but what formulas say, and how numbers are solved for, which is part of the card; and but graphs
// and the files that they come from, which are data that methods run on.
std::map<std::string, fs::path> sources() {
  const std::set<std::string> of_cards = {"round_prediction", "overlapped_prediction", "streaming_prediction",
                                          "asked_rounds", "rounds_of_rule"};
  const std::set<std::string> of_graphs = {"graph", "graph_section", "weighted_graph", "two_sides", "rotating_groups"};
  std::map<std::string, fs::path> result;
  for (const auto& entry : fs::recursive_directory_iterator(source / "algorithms")) {
    const fs::path folder = entry.path().parent_path(), name = entry.path().stem();
    const bool is_card = folder.stem() == "method" || folder.stem() == "algorithms" || of_cards.contains(name);
    if (entry.path().extension() == ".cpp" && !is_card && !of_graphs.contains(name)) result[name] = entry.path();
  }
  return result;
}

bool is_method(const fs::path& path) {
  return text_of(path).find("::run(Worker& worker) const {") != std::string::npos;
}

// Whose headers a source and its own header include.
std::set<std::string> includes_of(fs::path path) {
  std::set<std::string> result;
  for (const char* extension : {".cpp", ".hpp"}) {
    std::istringstream lines(text_of(path.replace_extension(extension)));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("#include \"algorithms/"))
        result.insert(fs::path(line.substr(10, line.rfind('"') - 10)).stem());
  }
  result.erase(path.stem());
  return result;
}

TEST(ProgramLengths, AreThoseOfPseudoCode) {
  const auto all = sources();
  EXPECT_GE(std::ranges::count_if(all, [](const auto& one) { return is_method(one.second); }), 21)
      << "the sources were read";
  std::map<std::string, int> users;
  for (const auto& [name, path] : all)
    for (const std::string& other : includes_of(path)) ++users[other];
  const auto stands_alone = [&](const std::string& name) {
    return is_method(all.at(name)) || rules.contains(name) || users[name] > 1;
  };
  for (const auto& [name, path] : all) {
    if (!stands_alone(name)) continue;
    int lines = lines_of(program_of(text_of(path)));
    for (const std::string& other : includes_of(path))
      if (all.contains(other) && !stands_alone(other)) lines += lines_of(program_of(text_of(all.at(other))));
    EXPECT_GT(lines, 3) << name;
    EXPECT_LE(lines, bar_of(name)) << name;
  }
}

TEST(ProgramLengths, KnowEveryRule) {
  for (const std::string& rule : rules) EXPECT_TRUE(sources().contains(rule)) << rule;
}

TEST(ProgramLengths, CountAllLinesThatDoSomething) {
  EXPECT_EQ(lines_of("#include <a>\nnamespace a {\n// Why.\n\nvoid f() {\n  while (true) {\n    g();\n  }\n}\n"), 5);
  EXPECT_EQ(program_of("int a;\nForecast A::forecast() {}\n"), "int a;");
  EXPECT_EQ(program_of("int a;\n// The card.\nint b;"), "int a;");
}

}  // namespace
}  // namespace syncopate
