// WordNet's definitions, with its lexicographer files as 45 categories: a real text of natural lengths. Debian's
// package wordnet-base has the files.
// Source:  Fellbaum (ed.) 1998, "WordNet: an electronic lexical database"; formats: wndb(5WN), lexnames(5WN).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

// Texts with labels, as they are read: what a data set of tokens is made of.
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

// A text of one's own: a UTF-8 file with one sequence a line, alone or behind a label and a tab.
// Labels are words, numbered in the order of their bytes. Lines without any word are passed over,
// and counted where they are not empty. Throws DataFault,
// which names the file and the line.
Corpus read_text_lines(const std::filesystem::path& file, bool labelled);

// The words that a model knows, by number. The first numbers are no words.
enum class SpecialToken : std::int32_t {
  padding,  // behind the end of a sequence that is shorter than others
  unknown,  // a word that the vocabulary lacks
  mask,     // what a masked language model has to find
  first,    // before a sequence's first word
  last,     // behind its last one
};
inline constexpr std::int32_t special_tokens = 5;
constexpr std::int32_t token_of(SpecialToken token) { return static_cast<std::int32_t>(token); }

// How often each word was seen; found by views too.
struct WordHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};
template <typename Value>
using ByWord = std::unordered_map<std::string, Value, WordHash, std::equal_to<>>;

// The most frequent words, those with equal counts in the order of their bytes: at most `most` of them, each seen at
// least `least` times.
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

// The files that hold the definitions, in the order in which they are read.
inline constexpr std::array wordnet_files = {"data.noun", "data.verb", "data.adj", "data.adv"};

// Texts are the glosses, examples included, without the blanks around them. Throws DataFault, which names the file and
// the line.
Corpus read_wordnet_glosses(const std::filesystem::path& directory);

// The first directory that exists: wordnet in the directory that SYNCOPATE_DATA names, then share/wordnet of /usr/local
// and /usr. Throws DataFault if there is none.
std::filesystem::path find_wordnet();

// A text as words: what a model's tokens are.
// Calls `word` with each word in turn: the longest runs of letters and digits, with apostrophes between them, in lower
// case. Letters beyond ASCII stay as they are; punctuation is left out. `word` is valid during the call.
void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& word);

}  // namespace syncopate
