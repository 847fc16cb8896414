#define XXH_INLINE_ALL

#include "workers/data/text.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

Split split_of(std::string_view text, double test_share) {
  constexpr double hashes = 18446744073709551616.0;  // 2^64
  return static_cast<double>(XXH3_64bits(text.data(), text.size())) < test_share * hashes ? Split::test : Split::train;
}

namespace {

// A text file, line by line.
// Calls `line` with each line, without its end (\n or \r\n), and with its place, "FILE:LINE". Throws DataFault for a
// file that cannot be read, is empty, or is not UTF-8; of another encoding that is known by its bytes it says which.
void for_each_line(const std::filesystem::path& file,
                   const std::function<void(std::string_view line, const std::string& place)>& line);

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // by which editors mark UTF-8; it is no part of the text
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;

std::string content_of(const std::filesystem::path& file) {
  try {
    return whole_file(file, most_bytes);
  } catch (const std::system_error& problem) {
    throw DataFault(fmt::format("{}: {}", file.string(), problem.code().message()));
  }
}

void for_each_line(const std::filesystem::path& file,
                   const std::function<void(std::string_view line, const std::string& place)>& line) {
  const std::string content = content_of(file);
  if (content.empty()) throw DataFault(fmt::format("{}: is empty; must be a text, line by line", file.string()));
  if (const std::string form = foreign_form(content); !form.empty())
    throw DataFault(fmt::format("{}: is {}; must be a text in UTF-8, line by line", file.string(), form));
  const std::size_t valid = utf8_until(content);
  if (valid < content.size())
    throw DataFault(fmt::format(
        "{}:{}: byte 0x{:02x} is no UTF-8; a text in Latin-1 is converted by iconv -f ISO-8859-1 -t UTF-8",
        file.string(), 1 + std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(valid), '\n'),
        static_cast<unsigned char>(content[valid])));
  std::size_t number = 0;
  std::string_view rest = content;
  if (rest.starts_with(byte_order_mark)) rest.remove_prefix(byte_order_mark.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view one = rest.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    line(one, fmt::format("{}:{}", file.string(), ++number));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

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

std::vector<std::string> most_frequent(const ByWord<std::int64_t>& counts, std::size_t most, std::int64_t least) {
  std::vector<std::pair<std::int64_t, std::string_view>> frequent;
  for (const auto& [word, count] : counts)
    if (count >= least) frequent.emplace_back(-count, word);
  std::ranges::sort(frequent);
  frequent.resize(std::min(frequent.size(), most));
  std::vector<std::string> words;
  for (const auto& [count, word] : frequent) words.emplace_back(word);
  return words;
}

Vocabulary::Vocabulary(std::vector<std::string> words) : words_(std::move(words)) {
  std::int32_t number = special_tokens;
  for (const std::string& word : words_) numbers_.emplace(word, number++);
}

std::int32_t Vocabulary::number_of(std::string_view word) const {
  const auto found = numbers_.find(word);
  return found == numbers_.end() ? token_of(SpecialToken::unknown) : found->second;
}

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

namespace {

constexpr bool is_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte >= 0x80;
}
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word) {
  std::string letters;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_letter(text[at])) {
      ++at;
      continue;
    }
    letters.clear();
    while (at < text.size() &&
           (is_letter(text[at]) || (text[at] == '\'' && at + 1 < text.size() && is_letter(text[at + 1]))))
      letters += lower(text[at++]);
    word(letters);
  }
}

}  // namespace syncopate
