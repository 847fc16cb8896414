// Data sets of texts. A sample's tokens are the numbers of its words, between a special first and a special last token.
// Its label is the text's category. The vocabulary contains words of the training texts only. A hash of each text
// decides whether it belongs to the training set or the test set.
#pragma once

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
#include "workers/data/datasets.hpp"

namespace syncopate {

struct LabelledText {
  std::string text;
  std::int32_t label = 0;  // less than the number of categories
};

struct Corpus {
  std::vector<LabelledText> texts;
  std::vector<std::string> categories;  // names by label; a single one if there are no labels
  std::int64_t left_out = 0;            // number of lines that are not empty but contain no word
};

// Decides by a hash of a text whether it belongs to the test set. Therefore equal texts are in the same split, and
// texts that are added to a corpus do not change the split of the others. On average, the share `test_share` of the
// texts is in the test set.
Split split_of(std::string_view text, double test_share);

// Returns a file's content without a byte order mark. Throws DataFault, with the place, if it is empty or not UTF-8. If
// the encoding is recognised, the message names it. `needed`: what the file must be, "a text in UTF-8 ...". The result
// is valid as long as the content.
std::string_view checked_text(const std::filesystem::path& file, std::string_view content,
                              std::string_view needed = "a text in UTF-8");

// The first tokens of a vocabulary, which are not words.
enum class SpecialToken : std::int32_t {
  padding,  // fills shorter sequences at their end
  unknown,  // stands for words that are not in the vocabulary
  mask,     // replaces tokens that a masked language model must predict
  first,    // before a sequence's first word
  last,     // after a sequence's last word
};
inline constexpr std::int32_t special_tokens = 5;
constexpr std::int32_t token_of(SpecialToken token) { return static_cast<std::int32_t>(token); }

// Returns the most frequent words: at most `most`, each with a count of at least `least`. Words with equal counts are
// in the order of their bytes.
std::vector<std::string> most_frequent(const std::unordered_map<std::string, std::int64_t>& counts, std::size_t most,
                                       std::int64_t least);

// Calls `word` with each word of the text. Words are the longest runs of letters and digits, with apostrophes between
// them, in lower case. Letters beyond ASCII are unchanged; punctuation is left out. The word is valid during the call.
void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word);

struct TextOptions {
  double test_share = 0.1;     // share of the texts in the test set, in (0, 1)
  std::int64_t words = 20000;  // maximum size of the vocabulary
  std::int64_t least = 2;      // minimum number of occurrences of a word of the vocabulary
};

// A source of texts. All functions throw DataFault; the message names the file and the line.
struct TextSource {
  DirectoryFormat files;  // without `size` and `load`
  std::function<Corpus(const std::filesystem::path&)> read;
};

// The user's own text: a UTF-8 file with one sequence per line. If `labelled`, a label and a tab precede each sequence.
// Labels are numbered in the order of their bytes. Lines without words are left out, and counted if they are not empty.
TextSource text_lines(bool labelled);

// WordNet's definitions, which are real texts of natural lengths; their lexicographer files are the 45 categories. A
// text is a gloss with its examples, without surrounding blanks. Debian's package wordnet-base contains the files.
// Source:  Fellbaum (ed.) 1998, "WordNet: an electronic lexical database"; formats: wndb(5WN), lexnames(5WN).
TextSource wordnet_glosses();

// `size` reads the text only if its result is not cached. Faults include an empty split, and a text in which no word is
// frequent enough.
DirectoryFormat text_dataset(const TextSource& source, const TextOptions& options);

// Sequences of tokens in memory, concatenated without padding. Each has one label, or one label per token.
class TokenSequences {
 public:
  void add(std::span<const std::int32_t> tokens, std::int64_t label);
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels);

  std::int64_t count() const { return std::ssize(labels_); }
  std::int64_t longest() const { return longest_; }
  std::int64_t shortest() const { return shortest_; }  // 0 if there are no sequences
  std::int32_t largest() const { return largest_; }    // the largest token; -1 if there are none
  std::span<const std::int32_t> tokens(std::uint32_t sequence) const { return of(tokens_, sequence); }
  std::int64_t label(std::uint32_t sequence) const { return labels_[sequence]; }
  // Empty if each sequence has one label.
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

// Makes a data set. The numbers of samples in `size` must be those of `train` and `test`.
std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test);

// The cached properties of a text: numbers and lengths of its sequences, and its vocabulary. Commands that train
// nothing then need not read the text.
struct TextContents {
  DatasetSize size;  // without marks and notes
  std::vector<std::string> words;
  std::int64_t left_out = 0;  // number of lines without a word
};

// A cache of TextContents. Thread-safe; several processes may use the same directory.
class VocabularyCache {
 public:
  // Stores each entry in a file in `directory`, or only in memory if `directory` is empty. If a file is faulty, its
  // contents are built again.
  explicit VocabularyCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // Returns the result of `build` for this name, calling it only if the result is not cached. The name consists of
  // hexadecimal digits and must depend on everything that determines the result.
  TextContents contents(const std::string& name, const std::function<TextContents()>& build);

 private:
  std::filesystem::path directory_;
  std::mutex mutex_;
  std::map<std::string, TextContents> known_;
};

// The user's cache of vocabularies, in users_cache() (files.hpp).
VocabularyCache& vocabulary_cache();

}  // namespace syncopate
