// Blocks of pages that show the output of a command.
//
//   ```console
//   $ ./dev predict experiments/quickstart.toml
//   ...
//   ```
//
// A block contains a command and lines of its output. A line "..." matches any number of lines, and "..." within a line
// matches any text.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace syncopate {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  return lines;
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

inline std::vector<std::filesystem::path> pages() {
  const std::filesystem::path source = SYNCOPATE_SOURCE_DIR;
  std::vector<std::filesystem::path> found = {source / "README.md"};
  for (const char* const folder : {"algorithms", "experiments", "plots", "results", "tests", "workers"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source / folder))
      if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

struct Sample {
  std::string place;               // for example, "experiments/README.md:594"
  std::vector<std::string> lines;  // the block's lines without the fences
};

// Returns the page's blocks that have this word after the fence.
inline std::vector<Sample> samples_of(const std::filesystem::path& page, const std::string& word) {
  std::vector<Sample> samples;
  const std::vector<std::string> lines = lines_of(text_of(page));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with("```")) continue;
    Sample sample{std::filesystem::relative(page, SYNCOPATE_SOURCE_DIR).string() + ":" + std::to_string(i + 1), {}};
    const bool is_wanted = lines[i] == "```" + word;
    while (++i < lines.size() && lines[i] != "```") sample.lines.push_back(lines[i]);
    if (is_wanted) samples.push_back(std::move(sample));
  }
  return samples;
}

// Whether `line` matches the sample's line `shown`, in which "..." matches any text.
inline bool is_shown_by(const std::string& shown, const std::string& line) {
  const std::string any = "...";
  std::size_t from = 0, at = 0;
  for (std::size_t to = 0; (to = shown.find(any, from)) != shown.npos; from = to + any.size()) {
    const std::string part = shown.substr(from, to - from);
    const std::size_t found = line.find(part, at);
    if (found == line.npos || (from == 0 && found != 0)) return false;
    at = found + part.size();
  }
  const std::string last = shown.substr(from);
  return from == 0 ? shown == line : line.size() >= at + last.size() && line.ends_with(last);
}

// Returns the sample's first line that does not match the output; empty if all lines match.
inline std::string first_difference(const std::vector<std::string>& shown, const std::vector<std::string>& output) {
  std::size_t at = 0;
  bool may_skip = false;
  for (const std::string& line : shown) {
    if (line == "...") {
      may_skip = true;
      continue;
    }
    while (may_skip && at < output.size() && !is_shown_by(line, output[at])) ++at;
    if (at == output.size() || !is_shown_by(line, output[at])) return line;
    ++at;
    may_skip = false;
  }
  return may_skip || at == output.size() ? "" : "(the output goes on with \"" + output[at] + "\")";
}

}  // namespace syncopate
