// Texts as a data set of tokens: words by number, between a first and a last token. The vocabulary comes from the
// training texts only. A hash of each text decides whether it is held out. A sample's label is its text's category.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "workers/data/dataset.hpp"

namespace syncopate {

struct LabelledText {
  std::string text;
  std::int32_t label = 0;  // below the number of categories
};

struct Corpus {
  std::vector<LabelledText> texts;
  std::vector<std::string> categories;  // by label; one if there are no labels
  std::int64_t left_out = 0;            // lines that are not empty but have no word
};

// Decides whether a text is held out, by a hash of it: equal texts are on the same side, and a growing corpus keeps its
// split. On average, `test_share` of all texts are in the test set.
Split split_of(std::string_view text, double test_share);

// The user's own text: a UTF-8 file with one sequence per line, alone or after a label and a tab. Labels are words,
// numbered in byte order. Lines without words are left out, and counted if not empty. Throws DataFault.
Corpus read_text_lines(const std::filesystem::path& file, bool labelled);

// The first numbers of a vocabulary, which are not words.
enum class SpecialToken : std::int32_t {
  padding,  // after the end of a sequence that is shorter than others
  unknown,  // a word that is not in the vocabulary
  mask,     // a token to be predicted by a masked language model
  first,    // before a sequence's first word
  last,     // after its last one
};
inline constexpr std::int32_t special_tokens = 5;
constexpr std::int32_t token_of(SpecialToken token) { return static_cast<std::int32_t>(token); }

// A map by words that also finds string views.
struct WordHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};
template <typename Value>
using ByWord = std::unordered_map<std::string, Value, WordHash, std::equal_to<>>;

// The most frequent words, at most `most`, each seen at least `least` times. Equal counts are ordered by bytes.
std::vector<std::string> most_frequent(const ByWord<std::int64_t>& counts, std::size_t most, std::int64_t least);

class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> words);  // words must be unique

  std::int32_t size() const { return special_tokens + static_cast<std::int32_t>(words_.size()); }
  std::int32_t number_of(std::string_view word) const;  // `unknown` for other words
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
  ByWord<std::int32_t> numbers_;
};

// The files of WordNet's definitions, in the order of reading. Debian's package wordnet-base contains them.
inline constexpr std::array wordnet_files = {"data.noun", "data.verb", "data.adj", "data.adv"};

// WordNet's definitions, with its lexicographer files as 45 categories: a real text of natural lengths. Texts are the
// glosses with their examples, without surrounding blanks. Throws DataFault, which names the file and the line.
// Source:  Fellbaum (ed.) 1998, "WordNet: an electronic lexical database"; formats: wndb(5WN), lexnames(5WN).
Corpus read_wordnet_glosses(const std::filesystem::path& directory);

// found_directory of wordnet in $SYNCOPATE_DATA, or in share. Throws DataFault if there is none.
std::filesystem::path find_wordnet();

// Calls `word` with each word in turn: the longest runs of letters and digits, with apostrophes between them, in lower
// case. Letters beyond ASCII are unchanged; punctuation is left out. `word` is valid during the call.
void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word);

struct TextOptions {
  double test_share = 0.1;     // share of the texts, in (0, 1)
  std::int64_t words = 20000;  // maximum size of the vocabulary
  std::int64_t least = 2;      // minimum number of occurrences of a word in it
};

// A source of texts. Both functions throw DataFault.
struct TextSource {
  std::string variant;  // distinguishes sources that read equal files differently
  std::function<Corpus(const std::filesystem::path&)> read;
  std::function<std::string(const std::filesystem::path&)> hash;  // 16 hexadecimal digits for the files
};

// The source's variant combined with the options.
std::string text_variant(const TextSource& source, const TextOptions& options);

// Reads the text only if it is not cached. Throws DataFault, also for an empty split or without a frequent word.
DatasetSize text_dataset_size(const TextSource& source, const TextOptions& options, const std::filesystem::path& path);

// Throws DataFault.
std::shared_ptr<const Dataset> load_text_dataset(const TextSource& source, const TextOptions& options,
                                                 const std::filesystem::path& path);

// The sources that can be a data set.
TextSource text_lines(bool labelled);  // from a file
TextSource wordnet_glosses();          // from a directory

// Sequences of tokens in memory without padding, one after another, each with a label, or with a label per token.
class TokenSequences {
 public:
  void add(std::span<const std::int32_t> tokens, std::int64_t label);
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels);

  std::int64_t count() const { return std::ssize(labels_); }
  std::int64_t longest() const { return longest_; }
  std::int64_t shortest() const { return shortest_; }  // 0: no sequences
  std::int32_t largest() const { return largest_; }    // token
  std::span<const std::int32_t> tokens(std::uint32_t sequence) const { return of(tokens_, sequence); }
  std::int64_t label(std::uint32_t sequence) const { return labels_[sequence]; }
  // Empty if sequences have one label each.
  std::span<const std::int32_t> token_labels(std::uint32_t sequence) const {
    return token_labels_.empty() ? std::span<const std::int32_t>() : of(token_labels_, sequence);
  }

 private:
  std::span<const std::int32_t> of(const std::vector<std::int32_t>& all, std::uint32_t sequence) const {
    const std::size_t begin = sequence == 0 ? 0 : ends_[sequence - 1];
    return std::span(all).subspan(begin, ends_[sequence] - begin);
  }

  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;  // ends of sequences in tokens_
  std::vector<std::int64_t> labels_;
  std::vector<std::int32_t> token_labels_;  // parallel to tokens_; empty: one label per sequence
  std::int64_t longest_ = 0;
  std::int64_t shortest_ = 0;
  std::int32_t largest_ = -1;
};

// `size` must be that of `train` and `test`.
std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test);

// A text's numbers of sequences, their lengths, and its vocabulary: cached for commands that train nothing.
struct TextContents {
  DatasetSize size;  // without marks and notes
  std::vector<std::string> words;
  std::int64_t left_out = 0;  // lines without a word
};

// Thread-safe, and safe beside other processes that use the same directory.
class VocabularyCache {
 public:
  // Stores each entry in a file of `directory`, or only in this process if that is empty. A faulty file costs only
  // time.
  explicit VocabularyCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // The result of `build`, now or earlier for this name. The name is hexadecimal digits that depend on everything that
  // determines the result.
  TextContents contents(const std::string& name, const std::function<TextContents()>& build);

 private:
  std::filesystem::path directory_;
  std::mutex mutex_;
  std::map<std::string, TextContents> known_;
};

// The user's cache, in users_cache() of files.hpp.
VocabularyCache& vocabulary_cache();

}  // namespace syncopate
