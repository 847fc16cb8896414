#include "experiments/commands/key_text.hpp"

#include <fmt/format.h>

#include <cctype>

namespace syncopate {
namespace {

std::string without(std::string_view path, std::string_view prefix) {
  return std::string(path.starts_with(prefix) ? path.substr(prefix.size()) : path);
}

std::string joined(const std::vector<std::string>& parts, std::string_view last_separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 < parts.size() ? ", " : last_separator;
    text += parts[i];
  }
  return text;
}

// Of a table that must be there for the key to stand in it nothing need be said.
bool goes_without_saying(const Condition& condition, const KeyDescription& key, std::string_view given) {
  if (condition.key == given) return true;
  if (!condition.key.ends_with('?')) return false;
  const std::string table = condition.key.substr(0, condition.key.size() - 1);
  return condition.words.front() == present && key.path.starts_with(table + ".");
}

std::string text_of(const Condition& condition, std::string_view prefix) {
  if (condition.key.ends_with('?'))
    return fmt::format("{} `{}`", condition.words.front() == present ? "with" : "without",
                       without(condition.key.substr(0, condition.key.size() - 1), prefix));
  std::vector<std::string> words;
  for (const std::string& word : condition.words) words.push_back(fmt::format("\"{}\"", word));
  return fmt::format("with `{} = {}`", without(condition.key, prefix), joined(words, " or "));
}

}  // namespace

std::string what_it_takes(const KeyDescription& key) {
  std::vector<std::string> words;
  for (const auto& [name, sentence] : key.words) words.push_back(fmt::format("\"{}\"", name));
  std::string text = words.empty() ? key.takes : joined(words, " or ");
  if (!key.unit.empty()) text += fmt::format(", in {}", key.unit);
  return text;
}

std::string what_if_left_out(const KeyDescription& key) {
  if (key.fallback) return fmt::format("default {}", *key.fallback);
  if (key.required) return "required";
  return key.left_out.empty() ? "may be left out" : fmt::format("left out: {}", key.left_out);
}

std::string what_it_means(const KeyDescription& key, std::string_view prefix, std::string_view given) {
  std::vector<std::string> ways;
  for (const auto& conditions : key.conditions) {
    std::vector<std::string> texts;
    for (const Condition& condition : conditions)
      if (!goes_without_saying(condition, key, given)) texts.push_back(text_of(condition, prefix));
    if (texts.empty()) return key.sentence;
    ways.push_back(joined(texts, " and "));
  }
  if (ways.empty()) return key.sentence;
  std::string where = joined(ways, ", or ");
  where.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(where.front())));
  return fmt::format("{}: {}", where, key.sentence);
}

std::vector<std::string> what_its_words_mean(const KeyDescription& key) {
  std::vector<std::string> meanings;
  for (const auto& [word, sentence] : key.words)
    if (!sentence.empty()) meanings.push_back(fmt::format("\"{}\": {}", word, sentence));
  return meanings;
}

}  // namespace syncopate
