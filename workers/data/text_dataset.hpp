// Texts as a data set of tokens: words by number, between a first and a last token. The vocabulary is of the training
// texts alone; a hash of each text says whether it is held out. A sample's label is its text's category.
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
  std::vector<std::string> categories;  // by label; one where there are no labels
  std::int64_t left_out = 0;            // lines that are not empty and have no word
};

// Whether a text is held out, by a hash of what it says: equal texts are on one side, and a corpus that grows keeps its
// split. `test_share` of all texts are in the test set, on average.
Split split_of(std::string_view text, double test_share);

// The user's own text: a UTF-8 file with one sequence a line, alone or behind a label and a tab. Labels are words,
// numbered in the order of their bytes. Lines without words are left out, and counted if not empty. Throws DataFault.
Corpus read_text_lines(const std::filesystem::path& file, bool labelled);

// The first numbers of a vocabulary, which are no words.
enum class SpecialToken : std::int32_t {
  padding,  // behind the end of a sequence that is shorter than others
  unknown,  // a word that the vocabulary lacks
  mask,     // what a masked language model has to find
  first,    // before a sequence's first word
  last,     // behind its last one
};
inline constexpr std::int32_t special_tokens = 5;
constexpr std::int32_t token_of(SpecialToken token) { return static_cast<std::int32_t>(token); }

// Values by words, which are found by views too.
struct WordHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};
template <typename Value>
using ByWord = std::unordered_map<std::string, Value, WordHash, std::equal_to<>>;

// The most frequent words, at most `most`, each seen at least `least` times. Equal counts come in the order of bytes.
std::vector<std::string> most_frequent(const ByWord<std::int64_t>& counts, std::size_t most, std::int64_t least);

class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> words);  // no word twice

  std::int32_t size() const { return special_tokens + static_cast<std::int32_t>(words_.size()); }
  std::int32_t number_of(std::string_view word) const;  // that of `unknown` for others
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
  ByWord<std::int32_t> numbers_;
};

// The files of WordNet's definitions, in the order in which they are read. Debian's package wordnet-base has them.
inline constexpr std::array wordnet_files = {"data.noun", "data.verb", "data.adj", "data.adv"};

// WordNet's definitions, with its lexicographer files as 45 categories: a real text of natural lengths. Texts are the
// glosses, examples included, without the blanks around them. Throws DataFault, which names the file and the line.
// Source:  Fellbaum (ed.) 1998, "WordNet: an electronic lexical database"; formats: wndb(5WN), lexnames(5WN).
Corpus read_wordnet_glosses(const std::filesystem::path& directory);

// found_directory of wordnet in $SYNCOPATE_DATA, or in share. Throws DataFault if there is none.
std::filesystem::path find_wordnet();

// Calls `word` with each word in turn: the longest runs of letters and digits, with apostrophes between them, in lower
// case. Letters beyond ASCII stay as they are; punctuation is left out. `word` is valid during the call.
void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word);

struct TextOptions {
  double test_share = 0.1;     // of the texts, in (0, 1)
  std::int64_t words = 20000;  // most of the vocabulary
  std::int64_t least = 2;      // how often a word of it must be seen
};

// Where texts come from. Both throw DataFault.
struct TextSource {
  std::string variant;  // tells apart those who read equal files differently
  std::function<Corpus(const std::filesystem::path&)> read;
  std::function<std::string(const std::filesystem::path&)> hash;  // 16 hexadecimal digits of the files
};

// The source's variant with the options.
std::string text_variant(const TextSource& source, const TextOptions& options);

// Reads the text only if nothing of it is kept. Throws DataFault, also for an empty split or without a frequent word.
DatasetSize text_dataset_size(const TextSource& source, const TextOptions& options, const std::filesystem::path& path);

// Throws DataFault.
std::shared_ptr<const Dataset> load_text_dataset(const TextSource& source, const TextOptions& options,
                                                 const std::filesystem::path& path);

// The texts that can be a data set.
TextSource text_lines(bool labelled);  // of a file
TextSource wordnet_glosses();          // of a directory

// Sequences of tokens in memory without padding, one after another, each with its label, or with one for each token.
class TokenSequences {
 public:
  void add(std::span<const std::int32_t> tokens, std::int64_t label);
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels);

  std::int64_t count() const { return std::ssize(labels_); }
  std::int64_t longest() const { return longest_; }
  std::int64_t shortest() const { return shortest_; }  // 0: there are none
  std::int32_t largest() const { return largest_; }    // token
  std::span<const std::int32_t> tokens(std::uint32_t sequence) const { return of(tokens_, sequence); }
  std::int64_t label(std::uint32_t sequence) const { return labels_[sequence]; }
  // None where sequences have one for all.
  std::span<const std::int32_t> token_labels(std::uint32_t sequence) const {
    return token_labels_.empty() ? std::span<const std::int32_t>() : of(token_labels_, sequence);
  }

 private:
  std::span<const std::int32_t> of(const std::vector<std::int32_t>& all, std::uint32_t sequence) const {
    const std::size_t begin = sequence == 0 ? 0 : ends_[sequence - 1];
    return std::span(all).subspan(begin, ends_[sequence] - begin);
  }

  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;  // in tokens_
  std::vector<std::int64_t> labels_;
  std::vector<std::int32_t> token_labels_;  // beside tokens_, or none
  std::int64_t longest_ = 0;
  std::int64_t shortest_ = 0;
  std::int32_t largest_ = -1;
};

// `size` must be that of the two.
std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test);

// A text's numbers of sequences, their lengths, and its vocabulary: kept for commands that train nothing.
struct TextContents {
  DatasetSize size;  // without marks and notes
  std::vector<std::string> words;
  std::int64_t left_out = 0;  // lines without a word
};

// Thread-safe, and safe beside other processes with the same directory.
class VocabularyCache {
 public:
  // Each in a file of `directory`, or in this process alone if that is empty. A faulty file costs only time.
  explicit VocabularyCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // The result of `build`, now or earlier for this name: hexadecimal digits of everything that decides the result.
  TextContents contents(const std::string& name, const std::function<TextContents()>& build);

 private:
  std::filesystem::path directory_;
  std::mutex mutex_;
  std::map<std::string, TextContents> known_;
};

// The user's, in its folder of files.hpp.
VocabularyCache& vocabulary_cache();

}  // namespace syncopate
