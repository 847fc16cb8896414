#include "workers/text/wordnet_glosses.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "workers/files/data_fault.hpp"
#include "workers/files/found_directory.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/text/text_file.hpp"

namespace syncopate {
namespace {

// lexnames(5WN), whose table is no file of the package.
constexpr std::array categories = {"adj.all",          "adj.pert",           "adv.all",
                                   "noun.Tops",        "noun.act",           "noun.animal",
                                   "noun.artifact",    "noun.attribute",     "noun.body",
                                   "noun.cognition",   "noun.communication", "noun.event",
                                   "noun.feeling",     "noun.food",          "noun.group",
                                   "noun.location",    "noun.motive",        "noun.object",
                                   "noun.person",      "noun.phenomenon",    "noun.plant",
                                   "noun.possession",  "noun.process",       "noun.quantity",
                                   "noun.relation",    "noun.shape",         "noun.state",
                                   "noun.substance",   "noun.time",          "verb.body",
                                   "verb.change",      "verb.cognition",     "verb.communication",
                                   "verb.competition", "verb.consumption",   "verb.contact",
                                   "verb.creation",    "verb.emotion",       "verb.motion",
                                   "verb.perception",  "verb.possession",    "verb.social",
                                   "verb.stative",     "verb.weather",       "adj.ppl"};

std::string_view without_blanks(std::string_view text) {
  const auto begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == text.npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

// The second of the fields at the line's beginning: the number of the lexicographer file, two digits.
std::int32_t category_of(std::string_view line) {
  const auto blank = line.find(' ');
  std::int32_t number = -1;
  if (blank != line.npos && line.size() >= blank + 3)
    std::from_chars(line.data() + blank + 1, line.data() + blank + 3, number);
  return number;
}

}  // namespace

Corpus read_wordnet_glosses(const std::filesystem::path& directory) {
  Corpus corpus;
  corpus.categories.assign(categories.begin(), categories.end());
  for (const char* name : wordnet_files) {
    throw_if_interrupted();
    for_each_line(directory / name, [&](std::string_view line, const std::string& place) {
      if (line.starts_with("  ")) return;  // the licence
      const auto bar = line.find('|');
      const std::int32_t category = category_of(line);
      if (bar == line.npos || category < 0 || category >= std::ssize(categories))
        throw DataFault(place +
                        ": no definition of WordNet 3.0: must have a category from 00 to 44, and a gloss behind |");
      corpus.texts.push_back({.text = std::string(without_blanks(line.substr(bar + 1))), .label = category});
    });
  }
  return corpus;
}

std::filesystem::path find_wordnet() {
  return found_directory("wordnet", "wordnet", "install the package wordnet-base, or name a directory with its files");
}

}  // namespace syncopate
