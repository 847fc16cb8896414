#define XXH_INLINE_ALL

#include "workers/data/text_dataset.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <optional>
#include <sstream>
#include <system_error>

#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

using std::filesystem::path;

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // some editors write it; not part of the text
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;

// Calls `line` with each line of a text file, without its end (\n or \r\n), and with its place, "FILE:LINE". Throws
// DataFault if the file cannot be read, and as checked_text.
void for_each_line(const path& file, const std::function<void(std::string_view line, const std::string& place)>& line) {
  const std::string content = content_of(file, most_bytes);
  std::size_t number = 0;
  std::string_view rest = checked_text(file, content, "a text in UTF-8 with one entry per line");
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view one = rest.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    line(one, fmt::format("{}:{}", file.string(), ++number));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

constexpr bool is_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte >= 0x80;
}
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::pair<std::string_view, std::string_view> parts_of(std::string_view line, const std::string& place) {
  const auto tab = line.find('\t');
  if (tab == line.npos || tab == 0)
    throw DataFault(place +
                    ": has no label; must be a label, a tab and a text; if no line has a label, set labelled = false");
  return {line.substr(0, tab), line.substr(tab + 1)};
}

// The categories of lexnames(5WN), by number. The package does not contain this table as a file.
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

// Returns the second field of a line, the number of the lexicographer file (two digits); -1 if there is none.
std::int32_t category_of(std::string_view line) {
  const auto blank = line.find(' ');
  std::int32_t number = -1;
  if (blank != line.npos && line.size() >= blank + 3)
    std::from_chars(line.data() + blank + 1, line.data() + blank + 3, number);
  return number;
}

Corpus read_text_lines(const path& file, bool labelled) {
  Corpus corpus;
  std::vector<std::string> labels;
  std::map<std::string, std::int32_t> numbers;
  for_each_line(file, [&](std::string_view line, const std::string& place) {
    if (line.empty()) return;
    const auto [label, text] = labelled ? parts_of(line, place) : std::pair(std::string_view(), line);
    if (std::ranges::none_of(text, is_letter)) {  // no word
      ++corpus.left_out;
      return;
    }
    corpus.texts.push_back({.text = std::string(text)});
    labels.emplace_back(label);
    numbers.emplace(label, 0);
  });
  if (corpus.texts.empty()) reject(file, "no line contains a word");
  for (auto& [label, number] : numbers) {
    number = static_cast<std::int32_t>(corpus.categories.size());
    corpus.categories.push_back(label);
  }
  for (std::size_t i = 0; i < labels.size(); ++i) corpus.texts[i].label = numbers.at(labels[i]);
  return corpus;
}

// In the order in which they are read.
constexpr std::array wordnet_files = {"data.noun", "data.verb", "data.adj", "data.adv"};

Corpus read_wordnet_glosses(const path& directory) {
  Corpus corpus;
  corpus.categories.assign(categories.begin(), categories.end());
  for (const char* name : wordnet_files) {
    throw_if_interrupted();
    for_each_line(directory / name, [&](std::string_view line, const std::string& place) {
      if (line.starts_with("  ")) return;  // the licence
      const auto bar = line.find('|');
      const std::int32_t category = category_of(line);
      if (bar == line.npos || category < 0 || category >= std::ssize(categories))
        throw DataFault(
            place + ": is not a definition of WordNet 3.0; must have a category from 00 to 44, and a gloss after |");
      corpus.texts.push_back({.text = std::string(without_blanks(line.substr(bar + 1))), .label = category});
    });
  }
  return corpus;
}

TextContents contents_of(const Corpus& corpus, const TextOptions& options, const path& file) {
  TextContents contents;
  contents.left_out = corpus.left_out;
  DatasetSize& size = contents.size;
  std::unordered_map<std::string, std::int64_t> counts;
  for (const LabelledText& one : corpus.texts) {
    const bool is_train = split_of(one.text, options.test_share) == Split::train;
    std::int64_t length = 2;  // first and last token
    for_each_word(one.text, [&](std::string_view word) {
      ++length;
      if (is_train) ++counts[std::string(word)];
    });
    ++(is_train ? size.train : size.test);
    size.shape.width = std::max(size.shape.width, length);
    size.shortest = size.shortest == 0 ? length : std::min(size.shortest, length);
  }
  if (size.train == 0 || size.test == 0)
    reject(file, fmt::format(
                     "test_share = {} leaves {} of its {} texts for training and {} for tests; both need at least one",
                     options.test_share, size.train, corpus.texts.size(), size.test));
  contents.words = most_frequent(counts, static_cast<std::size_t>(options.words), options.least);
  if (contents.words.empty())
    reject(file, fmt::format("no word occurs {} times in the training texts; `least` must be smaller", options.least));
  size.classes = std::ssize(corpus.categories);
  size.shape.vocabulary = special_tokens + std::ssize(contents.words);
  return contents;
}

std::string text_variant(const TextSource& source, const TextOptions& options) {
  return fmt::format("{} {} {} {}", source.files.variant, options.test_share, options.words, options.least);
}

TextContents known_contents(const TextSource& source, const TextOptions& options, const path& file) {
  const std::string name = content_hash(text_variant(source, options) + " " + source.files.hash(file));
  return vocabulary_cache().contents(name, [&] { return contents_of(source.read(file), options, file); });
}

DatasetSize with_marks(DatasetSize size) {
  size.marks = {.mask = token_of(SpecialToken::mask),
                .never_masked = {token_of(SpecialToken::first), token_of(SpecialToken::last)},
                .padding = token_of(SpecialToken::padding),
                .never_masked_stand_at_ends = true};
  return size;
}

constexpr std::string_view format = "syncopate-vocabulary-3";

// The contents of a cache file. The first line is a digest of the rest, so that damaged files can be recognised.
std::string text_of(const TextContents& contents) {
  const DatasetSize& size = contents.size;
  std::string rest =
      fmt::format("{} {} {} {} {} {} {} {} {}\n", format, size.train, size.test, size.classes, size.shape.width,
                  size.shortest, size.shape.vocabulary, contents.left_out, contents.words.size());
  for (const std::string& word : contents.words) rest += word + "\n";
  return content_hash(rest) + "\n" + rest;
}

std::optional<TextContents> read(const path& file) {
  std::istringstream text(text_or_nothing(file));
  std::string digest, word;
  std::size_t words = 0;
  TextContents contents;
  DatasetSize& size = contents.size;
  text >> digest >> word >> size.train >> size.test >> size.classes >> size.shape.width >> size.shortest >>
      size.shape.vocabulary >> contents.left_out >> words;
  while (contents.words.size() < words && text >> word) contents.words.push_back(word);
  return text_of(contents) == text.str() ? std::optional(std::move(contents)) : std::nullopt;
}

class TokenDataset : public Dataset {
 public:
  TokenDataset(const DatasetSize& size, TokenSequences train, TokenSequences test)
      : size_(size), splits_{std::move(train), std::move(test)} {
    assert(size.train == splits_.train.count() && size.test == splits_.test.count());
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float*, std::int64_t* labels) const override {
    for (const std::uint32_t sample : samples) *labels++ = splits_[split].label(sample);
  }

  std::span<const std::int32_t> tokens(Split split, std::uint32_t sample, const Visit&,
                                       std::vector<std::int32_t>&) const override {
    return splits_[split].tokens(sample);
  }

  std::span<const std::int32_t> token_labels(Split split, std::uint32_t sample) const override {
    return splits_[split].token_labels(sample);
  }

 private:
  DatasetSize size_;
  Splits<TokenSequences> splits_;
};

DatasetSize size_in(const TextSource& source, const TextOptions& options, const path& file) {
  const TextContents contents = known_contents(source, options, file);
  DatasetSize size = with_marks(contents.size);
  if (contents.left_out > 0)
    size.notes.push_back(contents.left_out == 1 ? fmt::format("{}: 1 line has no word and is left out", file.string())
                                                : fmt::format("{}: {} lines have no word and are left out",
                                                              file.string(), contents.left_out));
  return size;
}

std::shared_ptr<const Dataset> load_from(const TextSource& source, const TextOptions& options, const path& file) {
  const TextContents contents = known_contents(source, options, file);
  std::unordered_map<std::string, std::int32_t> numbers;
  for (const std::string& word : contents.words)
    numbers.emplace(word, special_tokens + static_cast<std::int32_t>(numbers.size()));
  const Corpus corpus = source.read(file);
  Splits<TokenSequences> splits;
  std::vector<std::int32_t> tokens;
  for (const LabelledText& one : corpus.texts) {
    tokens.assign(1, token_of(SpecialToken::first));
    for_each_word(one.text, [&](std::string_view word) {
      const auto known = numbers.find(std::string(word));
      tokens.push_back(known == numbers.end() ? token_of(SpecialToken::unknown) : known->second);
    });
    tokens.push_back(token_of(SpecialToken::last));
    const bool is_train = split_of(one.text, options.test_share) == Split::train;
    (is_train ? splits.train : splits.test).add(tokens, one.label);
  }
  if (splits.train.count() != contents.size.train || splits.test.count() != contents.size.test)
    reject(file, "changed while it was being read; start the command again");
  return make_token_dataset(with_marks(contents.size), std::move(splits.train), std::move(splits.test));
}

}  // namespace

std::string_view checked_text(const path& file, std::string_view content, std::string_view needed) {
  if (content.empty()) reject(file, fmt::format("is empty; must be {}", needed));
  if (const std::string form = foreign_form(content); !form.empty())
    reject(file, fmt::format("is {}; must be {}", form, needed));
  const std::size_t valid = utf8_until(content);
  if (valid < content.size())
    throw DataFault(fmt::format(
        "{}:{}: byte 0x{:02x} is not UTF-8; convert a text in Latin-1 with iconv -f ISO-8859-1 -t UTF-8", file.string(),
        1 + std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(valid), '\n'),
        static_cast<unsigned char>(content[valid])));
  if (content.starts_with(byte_order_mark)) content.remove_prefix(byte_order_mark.size());
  return content;
}

Split split_of(std::string_view text, double test_share) {
  constexpr double hashes = 18446744073709551616.0;  // 2^64
  return static_cast<double>(XXH3_64bits(text.data(), text.size())) < test_share * hashes ? Split::test : Split::train;
}

std::vector<std::string> most_frequent(const std::unordered_map<std::string, std::int64_t>& counts, std::size_t most,
                                       std::int64_t least) {
  std::vector<std::pair<std::int64_t, std::string_view>> frequent;
  for (const auto& [word, count] : counts)
    if (count >= least) frequent.emplace_back(-count, word);
  std::ranges::sort(frequent);
  frequent.resize(std::min(frequent.size(), most));
  std::vector<std::string> words;
  for (const auto& [count, word] : frequent) words.emplace_back(word);
  return words;
}

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

DirectoryFormat text_dataset(const TextSource& source, const TextOptions& options) {
  DirectoryFormat format = source.files;
  format.variant = text_variant(source, options);
  format.size = [source, options](const path& file) { return size_in(source, options, file); };
  format.load = [source, options](const path& file) { return load_from(source, options, file); };
  return format;
}

TextSource text_lines(bool labelled) {
  DirectoryFormat files{.variant = labelled ? "labelled lines" : "lines", .place = "file"};
  files.hash = [](const path& file) { return digest_cache().digest(file); };
  return {std::move(files), [labelled](const path& file) { return read_text_lines(file, labelled); }};
}

TextSource wordnet_glosses() {
  DirectoryFormat files{.variant = "wordnet glosses"};
  files.usual = [] {
    return found_directory("wordnet", "wordnet",
                           "install the package wordnet-base, or set `directory` to a folder with its files");
  };
  files.hash = [](const path& directory) {
    require_directory(directory, "must be a directory with WordNet's files");
    std::vector<path> all;
    for (const char* file : wordnet_files) all.push_back(directory / file);
    return digest_of_files(all);
  };
  return {std::move(files), read_wordnet_glosses};
}

void TokenSequences::add(std::span<const std::int32_t> tokens, std::int64_t label) {
  assert(!tokens.empty());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(tokens_.size());
  labels_.push_back(label);
  largest_ = std::max(largest_, std::ranges::max(tokens));
  longest_ = std::max<std::int64_t>(longest_, std::ssize(tokens));
  shortest_ = count() == 1 ? std::ssize(tokens) : std::min<std::int64_t>(shortest_, std::ssize(tokens));
}

void TokenSequences::add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels) {
  assert(tokens.size() == token_labels.size() && tokens_.size() == token_labels_.size());
  token_labels_.insert(token_labels_.end(), token_labels.begin(), token_labels.end());
  add(tokens, 0);
}

std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test) {
  return std::make_shared<TokenDataset>(size, std::move(train), std::move(test));
}

TextContents VocabularyCache::contents(const std::string& name, const std::function<TextContents()>& build) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(name); found != known_.end()) return found->second;
  const path file = directory_.empty() ? path() : directory_ / name;
  auto contents = file.empty() ? std::nullopt : read(file);
  if (!contents) {
    contents = build();
    if (!file.empty()) {
      std::error_code ignored;
      std::filesystem::create_directories(directory_, ignored);
      write_to_cache(file, text_of(*contents));
    }
  }
  return known_.emplace(name, *std::move(contents)).first->second;
}

VocabularyCache& vocabulary_cache() {
  static VocabularyCache cache(users_cache().empty() ? path() : users_cache() / "vocabularies");
  return cache;
}

}  // namespace syncopate
