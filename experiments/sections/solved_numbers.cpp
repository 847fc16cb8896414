#include "experiments/sections/solved_numbers.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <variant>

namespace syncopate {
namespace {

constexpr const char* told_key = "solved_for";

const char* solved_key(const TomlNode& period) { return period.find("coefficient") ? "coefficient" : "steps"; }

}  // namespace

std::string solved_note(const TomlNode& method) {
  const TomlNode* period = method.find("period");
  const TomlNode* told = period ? period->find(told_key) : nullptr;
  const TomlNode *rounds = told ? told->find("rounds") : nullptr, *found = told ? told->find("found") : nullptr;
  if (!rounds || !found) return "";
  const char* const key = solved_key(*period);
  const auto asked = std::get<std::int64_t>(rounds->value), made = std::get<std::int64_t>(found->value);
  std::string note = fmt::format("period.{} = {} makes {} {}", key, inline_toml(*period->find(key)), made,
                                 made == 1 ? "round" : "rounds");
  if (made != asked) note += fmt::format(", the nearest to {} that there is", asked);
  return note;
}

TomlNode with_numbers_as_asked(TomlNode document) {
  TomlNode* methods = document.find("methods");
  if (!methods || !methods->is_array_of_tables()) return document;
  for (TomlNode& method : methods->array()) {
    TomlNode* period = method.find("period");
    const TomlNode* told = period ? period->find(told_key) : nullptr;
    if (!told) continue;
    TomlNode asked;
    for (const char* const key : {"share", "rounds"})
      if (const TomlNode* value = told->find(key); value && asked.table().empty()) asked.set(key, {}, *value);
    if (asked.table().empty()) continue;
    period->set(solved_key(*period), {}, std::move(asked));
    period->erase(told_key);
  }
  return document;
}

}  // namespace syncopate
