// The words that a model knows, by number. The first numbers are no words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace syncopate {

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

}  // namespace syncopate
