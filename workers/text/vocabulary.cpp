#include "workers/text/vocabulary.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

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

}  // namespace syncopate
