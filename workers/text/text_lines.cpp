#include "workers/text/text_lines.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "workers/files/data_fault.hpp"
#include "workers/text/text_file.hpp"
#include "workers/text/words.hpp"

namespace syncopate {
namespace {

bool has_words(std::string_view text) {
  bool any = false;
  for_each_word(text, [&](std::string_view) { any = true; });
  return any;
}

// Label and text of a line.
std::pair<std::string_view, std::string_view> parts_of(std::string_view line, const std::string& place) {
  const auto tab = line.find('\t');
  if (tab == line.npos || tab == 0)
    throw DataFault(place +
                    ": has no label; must be a label, a tab and a text, or the file must be read without labels");
  return {line.substr(0, tab), line.substr(tab + 1)};
}

}  // namespace

Corpus read_text_lines(const std::filesystem::path& file, bool labelled) {
  Corpus corpus;
  std::vector<std::string> labels;
  std::map<std::string, std::int32_t> numbers;
  for_each_line(file, [&](std::string_view line, const std::string& place) {
    if (line.empty()) return;
    const auto [label, text] = labelled ? parts_of(line, place) : std::pair(std::string_view(), line);
    if (!has_words(text)) {
      ++corpus.left_out;
      return;
    }
    corpus.texts.push_back({.text = std::string(text)});
    labels.emplace_back(label);
    numbers.emplace(label, 0);
  });
  if (corpus.texts.empty()) throw DataFault(fmt::format("{}: no line has a word", file.string()));
  for (auto& [label, number] : numbers) {
    number = static_cast<std::int32_t>(corpus.categories.size());
    corpus.categories.push_back(label);
  }
  for (std::size_t i = 0; i < labels.size(); ++i) corpus.texts[i].label = numbers.at(labels[i]);
  return corpus;
}

}  // namespace syncopate
