#include "workers/data/text_dataset.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/text.hpp"

namespace syncopate {

namespace {

using std::filesystem::path;

[[noreturn]] void fail(const path& file, const std::string& what) {
  throw DataFault(fmt::format("{}: {}", file.string(), what));
}

TextContents contents_of(const Corpus& corpus, const TextOptions& options, const path& file) {
  TextContents contents;
  contents.left_out = corpus.left_out;
  DatasetSize& size = contents.size;
  ByWord<std::int64_t> counts;
  for (const LabelledText& one : corpus.texts) {
    const bool is_train = split_of(one.text, options.test_share) == Split::train;
    std::int64_t length = 2;  // first, last
    for_each_word(one.text, [&](std::string_view word) {
      ++length;
      if (!is_train) return;
      if (const auto known = counts.find(word); known != counts.end())
        ++known->second;
      else
        counts.emplace(word, 1);
    });
    ++(is_train ? size.train : size.test);
    size.shape.width = std::max(size.shape.width, length);
    size.shortest = size.shortest == 0 ? length : std::min(size.shortest, length);
  }
  if (size.train == 0 || size.test == 0)
    fail(file, fmt::format("test_share = {} leaves {} of its {} texts for training and {} for tests; both need some",
                           options.test_share, size.train, corpus.texts.size(), size.test));
  contents.words = most_frequent(counts, static_cast<std::size_t>(options.words), options.least);
  if (contents.words.empty())
    fail(file, fmt::format("no word stands {} times in the texts for training; must be fewer times", options.least));
  size.classes = std::ssize(corpus.categories);
  size.shape.vocabulary = special_tokens + std::ssize(contents.words);
  return contents;
}

TextContents known_contents(const TextSource& source, const TextOptions& options, const path& file) {
  const std::string name = content_hash(text_variant(source, options) + " " + source.hash(file));
  return vocabulary_cache().contents(name, [&] { return contents_of(source.read(file), options, file); });
}

DatasetSize with_marks(DatasetSize size) {
  size.marks = {.mask = token_of(SpecialToken::mask),
                .never_masked = {token_of(SpecialToken::first), token_of(SpecialToken::last)},
                .padding = token_of(SpecialToken::padding),
                .never_masked_stand_at_ends = true};
  return size;
}

}  // namespace

std::string text_variant(const TextSource& source, const TextOptions& options) {
  return fmt::format("{} {} {} {}", source.variant, options.test_share, options.words, options.least);
}

DatasetSize text_dataset_size(const TextSource& source, const TextOptions& options, const path& file) {
  const TextContents contents = known_contents(source, options, file);
  DatasetSize size = with_marks(contents.size);
  if (contents.left_out > 0)
    size.notes.push_back(contents.left_out == 1 ? fmt::format("{}: 1 line has no word and is left out", file.string())
                                                : fmt::format("{}: {} lines have no word and are left out",
                                                              file.string(), contents.left_out));
  return size;
}

std::shared_ptr<const Dataset> load_text_dataset(const TextSource& source, const TextOptions& options,
                                                 const path& file) {
  TextContents contents = known_contents(source, options, file);
  const Vocabulary vocabulary(std::move(contents.words));
  const Corpus corpus = source.read(file);
  std::array<TokenSequences, 2> splits;
  std::vector<std::int32_t> tokens;
  for (const LabelledText& one : corpus.texts) {
    tokens.assign(1, token_of(SpecialToken::first));
    for_each_word(one.text, [&](std::string_view word) { tokens.push_back(vocabulary.number_of(word)); });
    tokens.push_back(token_of(SpecialToken::last));
    splits[split_of(one.text, options.test_share) == Split::train ? 0 : 1].add(tokens, one.label);
  }
  if (splits[0].count() != contents.size.train || splits[1].count() != contents.size.test)
    fail(file, "has changed while it was read; start again");
  return make_token_dataset(with_marks(contents.size), std::move(splits[0]), std::move(splits[1]));
}

namespace {

using std::filesystem::path;

std::string glosses_hash(const path& directory) {
  if (const std::string why = why_no_directory(directory); !why.empty())
    throw DataFault(fmt::format("{}: {}; must be a directory with WordNet's files", directory.string(), why));
  std::string digests;
  for (const char* file : wordnet_files) digests += digest_cache().digest(directory / file);
  return content_hash(digests);
}

}  // namespace

TextSource text_lines(bool labelled) {
  return {.variant = labelled ? "labelled lines" : "lines",
          .read = [labelled](const path& file) { return read_text_lines(file, labelled); },
          .hash = [](const path& file) { return digest_cache().digest(file); }};
}

TextSource wordnet_glosses() {
  return {.variant = "wordnet glosses", .read = read_wordnet_glosses, .hash = glosses_hash};
}

namespace {

class TokenDataset : public Dataset {
 public:
  TokenDataset(const DatasetSize& size, TokenSequences train, TokenSequences test)
      : size_(size), splits_{std::move(train), std::move(test)} {
    assert(size.train == of(Split::train).count() && size.test == of(Split::test).count());
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float*, std::int64_t* labels) const override {
    for (const std::uint32_t sample : samples) *labels++ = of(split).label(sample);
  }

  std::span<const std::int32_t> tokens(Split split, std::uint32_t sample) const override {
    return of(split).tokens(sample);
  }

  std::span<const std::int32_t> token_labels(Split split, std::uint32_t sample) const override {
    return of(split).token_labels(sample);
  }

 private:
  const TokenSequences& of(Split split) const { return splits_[split == Split::train ? 0 : 1]; }

  DatasetSize size_;
  std::array<TokenSequences, 2> splits_;
};

}  // namespace

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

std::span<const std::int32_t> TokenSequences::of(const std::vector<std::int32_t>& all, std::uint32_t sequence) const {
  const std::size_t begin = sequence == 0 ? 0 : ends_[sequence - 1];
  return std::span(all).subspan(begin, ends_[sequence] - begin);
}

std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test) {
  return std::make_shared<TokenDataset>(size, std::move(train), std::move(test));
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view format = "syncopate-vocabulary-3";

// The first line is a digest of the rest: what is damaged is nothing.
std::string text_of(const TextContents& contents) {
  const DatasetSize& size = contents.size;
  std::string rest =
      fmt::format("{} {} {} {} {} {} {} {} {}\n", format, size.train, size.test, size.classes, size.shape.width,
                  size.shortest, size.shape.vocabulary, contents.left_out, contents.words.size());
  for (const std::string& word : contents.words) rest += word + "\n";
  return content_hash(rest) + "\n" + rest;
}

std::optional<TextContents> read(const fs::path& file) {
  std::istringstream text;
  try {
    text.str(read_file(file).value_or(""));
  } catch (const std::runtime_error&) {  // nothing of ours: it is built once more
    return {};
  }
  std::string digest, word;
  std::size_t words = 0;
  TextContents contents;
  DatasetSize& size = contents.size;
  text >> digest >> word >> size.train >> size.test >> size.classes >> size.shape.width >> size.shortest >>
      size.shape.vocabulary >> contents.left_out >> words;
  while (contents.words.size() < words && text >> word) contents.words.push_back(word);
  return text_of(contents) == text.str() ? std::optional(std::move(contents)) : std::nullopt;
}

// Aside and then renamed: whoever reads meanwhile has all of it or nothing.
void write(const fs::path& file, const std::string& text) {
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  std::string aside = file.string() + ".XXXXXX";
  const int number = mkstemp(aside.data());
  if (number < 0) return;
  close(number);
  std::ofstream out(aside, std::ios::binary);
  out << text;
  out.close();
  if (out) fs::rename(aside, file, ignored);
  if (!out || ignored) fs::remove(aside, ignored);
}

}  // namespace

VocabularyCache::VocabularyCache(fs::path directory) : directory_(std::move(directory)) {}

TextContents VocabularyCache::contents(const std::string& name, const std::function<TextContents()>& build) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(name); found != known_.end()) return found->second;
  const fs::path file = directory_.empty() ? fs::path() : directory_ / name;
  auto contents = file.empty() ? std::nullopt : read(file);
  if (!contents) {
    contents = build();
    if (!file.empty()) write(file, text_of(*contents));
  }
  return known_.emplace(name, *std::move(contents)).first->second;
}

VocabularyCache& vocabulary_cache() {
  static VocabularyCache cache(users_cache().empty() ? fs::path() : users_cache() / "vocabularies");
  return cache;
}

}  // namespace syncopate
