#include "workers/datasets/text_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/datasets/token_sequences.hpp"
#include "workers/datasets/vocabulary_cache.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/text/vocabulary.hpp"
#include "workers/text/words.hpp"

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

}  // namespace syncopate
