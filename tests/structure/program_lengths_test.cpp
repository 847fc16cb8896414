// A method's program reads like the paper's pseudo-code: bars for its length.
//
// Counted is what a method's source has before its card (what it says about itself, what formulas say, how its settings
// are read), and likewise of the sources that it alone includes; as pseudo-code would have it, without blank lines,
// comments, includes, and lines of braces alone. Rules that a key of their own chooses are programs by themselves.
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

// Thresholds and compensations of DropCompute, outer optimizers, gradient codes.
const std::set<std::string> rules = {
    "drop_threshold",  "automatic_threshold", "adaptive_threshold", "threshold_search",  "drop_compensation",
    "outer_optimizer", "gradient_code",       "stochastic_code",    "cyclic_repetition", "pivoted_qr"};
const std::map<std::string, int> shorter = {
    {"sync_sgd", 30}, {"drop_compute", 30}, {"local_sgd", 30}, {"backup_workers", 30}, {"async_sgd", 30}};
constexpr int most_lines = 60;

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
    const bool says_something = line.find_first_not_of("});") != std::string::npos;
    const auto begins = [&](const char* with) { return line.starts_with(with); };
    if (says_something && !begins("//") && !begins("#") && !begins("namespace") && !begins("using ") &&
        !begins("}  // namespace") && !begins("public:") && !begins("private:"))
      ++count;
  }
  return count;
}

// Sources of methods, by name.
std::map<std::string, fs::path> methods() {
  std::map<std::string, fs::path> result;
  for (const auto& entry : fs::recursive_directory_iterator(source / "algorithms"))
    if (entry.path().extension() == ".cpp" &&
        text_of(entry.path()).find("::run(Worker& worker) const {") != std::string::npos)
      result[entry.path().stem()] = entry.path();
  return result;
}

// The headers of ours that a source and its own header include.
std::set<std::string> includes_of(fs::path path) {
  std::set<std::string> result;
  for (const char* extension : {".cpp", ".hpp"}) {
    std::istringstream lines(text_of(path.replace_extension(extension)));
    const std::string mark = "#include \"algorithms/";
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(mark)) result.insert(line.substr(10, line.rfind('"') - 10));
  }
  return result;
}

TEST(ProgramLengths, AreThoseOfPseudoCode) {
  const auto all = methods();
  EXPECT_GE(all.size(), 21u) << "the sources were read";
  std::map<std::string, int> users;  // methods that include a header
  for (const auto& [name, path] : all)
    for (const std::string& header : includes_of(path)) ++users[header];
  for (const auto& [name, path] : all) {
    int lines = lines_of(program_of(text_of(path)));
    for (const std::string& header : includes_of(path)) {
      const fs::path other = fs::path(source / header).replace_extension(".cpp");
      if (users[header] == 1 && other != path && !rules.contains(other.stem()))
        lines += lines_of(program_of(text_of(other)));
    }
    EXPECT_GT(lines, 3) << name;
    EXPECT_LE(lines, shorter.contains(name) ? shorter.at(name) : most_lines) << name;
  }
}

TEST(ProgramLengths, CountWhatPseudoCodeWouldHave) {
  EXPECT_EQ(lines_of("#include <a>\nnamespace a {\n// Why.\n\nvoid f() {\n  while (true) {\n    g();\n  }\n}\n"), 3);
  EXPECT_EQ(program_of("int a;\nForecast A::forecast() {}\n"), "int a;");
  EXPECT_EQ(program_of("int a;\n// The card.\nint b;"), "int a;");
}

}  // namespace
}  // namespace syncopate
