#include "experiments/sections/missing_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/sections/file_keys.hpp"
#include "experiments/sections/table_forms.hpp"
#include "workers/settings/key_path.hpp"

namespace syncopate {
namespace {

using Path = std::vector<std::string>;

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
}

// Of the fault "<key> is missing; ..."; nothing of others.
std::optional<Path> missing_key(const std::string& fault) {
  const std::size_t end = fault.find(" is missing; ");
  if (end == std::string::npos) return {};
  try {
    return split_key(std::string_view(fault).substr(0, end));
  } catch (const KeyPathFault&) {  // another sentence with these words
    return {};
  }
}

const TomlNode* found_at(const TomlNode& root, const Path& path) {
  try {
    return find(root, path);
  } catch (const KeyPathFault&) {  // an element that is not there
    return nullptr;
  }
}

// As descriptions name it: "methods.1.algorithm" is "methods.algorithm".
std::string described(const Path& path) {
  std::string name;
  for (const std::string& part : path)
    if (!is_number(part)) name += (name.empty() ? "" : ".") + part;
  return name;
}

// The key of a condition, in the elements of lists in which the missing key is.
Path beside(const std::string& condition_key, const Path& missing) {
  Path path;
  std::size_t at = 0;
  bool is_common = true;
  for (const std::string& part : split_key(condition_key)) {
    if (is_common && at < missing.size() && is_number(missing[at])) path.push_back(missing[at++]);
    is_common = is_common && at < missing.size() && missing[at] == part;
    path.push_back(part);
    if (is_common) ++at;
  }
  return path;
}

// The value of the condition's key, where the condition is true.
std::optional<std::string> value_if_true(const Condition& condition, const Path& path, const TomlNode& resolved) {
  const TomlNode* value = found_at(resolved, path);
  const auto* word = value ? std::get_if<std::string>(&value->value) : nullptr;
  if (!word || std::ranges::find(condition.words, *word) == condition.words.end()) return {};
  return *word;
}

// What asks for the key where all of the conditions are true; nothing where one is not. `kind = "ring"`: by the key's last
// part where it stands in the same table. One of another table is named where a single value of it asks for the key: that
// all models but "none" need a rate explains nothing. Whether tables are there is no choice of a value.
std::optional<std::vector<std::string>> texts_if_true(const std::vector<Condition>& conditions, const Path& missing,
                                                      const TomlNode& resolved) {
  std::vector<std::string> texts;
  for (const Condition& condition : conditions) {
    if (condition.key.ends_with('?')) continue;
    const Path path = beside(condition.key, missing);
    const auto value = value_if_true(condition, path, resolved);
    if (!value) return {};
    const bool is_same_table =
        path.size() == missing.size() && std::equal(path.begin(), path.end() - 1, missing.begin());
    if (is_same_table || condition.words.size() == 1)
      texts.push_back(fmt::format("{} = \"{}\"", is_same_table ? path.back() : condition.key, *value));
  }
  return texts;
}

// The algorithm whose keys are explored: of the method in which the key is missing, else of the first. To try all
// algorithms would take seconds.
std::string algorithm_of(const Path& missing, const TomlNode& resolved) {
  const bool is_of_method = missing.size() > 2 && missing.front() == "methods" && is_number(missing[1]);
  const TomlNode* const node = found_at(resolved, {"methods", is_of_method ? missing[1] : "0", "algorithm"});
  const auto* const word = node ? std::get_if<std::string>(&node->value) : nullptr;
  return word ? *word : std::string();
}

std::string what_asks(const Path& missing, const TomlNode& resolved) {
  const std::string name = described(missing), algorithm = algorithm_of(missing, resolved);
  const std::map<std::string, std::string> fixed = {{"methods.algorithm", algorithm.empty() ? "sync-sgd" : algorithm}};
  // A key of [training] in a method's own table is not the algorithm's.
  const bool is_algorithms = name.starts_with("methods.") && !name.starts_with("methods.training.");
  for (const KeyDescription& key : keys_of_file(fixed)) {
    if (key.path != name) continue;
    // Without any condition beside the algorithm's.
    const auto ways = key.conditions.empty() ? std::vector<std::vector<Condition>>(1) : key.conditions;
    for (const std::vector<Condition>& conditions : ways) {
      auto texts = texts_if_true(conditions, missing, resolved);
      if (!texts) continue;
      if (is_algorithms && !algorithm.empty())
        texts->insert(texts->begin(), fmt::format("algorithm = \"{}\"", algorithm));
      if (!texts->empty())
        return fmt::format(": {} {} for it", fmt::join(*texts, " and "), texts->size() == 1 ? "asks" : "ask");
    }
  }
  return {};
}

// The key of the file's own table in which a method's own table would stand.
Path without_method(const Path& path) {
  const bool is_own = path.size() > 2 && path[0] == "methods" && path[2] == "training";
  return is_own ? Path(path.begin() + 2, path.end()) : path;
}

std::string what_was_replaced(const Path& missing, const TomlNode& document, const TomlNode& before) {
  const Path table(missing.begin(), missing.end() - 1);
  const TomlNode *now = found_at(document, table), *then = found_at(before, without_method(table));
  if (!now || !then || !now->is_table() || !then->is_table()) return {};
  const TomlNode* value = then->find(missing.back());
  const std::string deciding = deciding_key(*then, *now);
  if (!value || now->find(missing.back()) || deciding.empty()) return {};
  const std::string where = value->place.line > 0 ? fmt::format("line {}", value->place.line) : "the command line";
  return fmt::format("; another {} starts its own table, without the {} of {}", deciding, missing.back(), where);
}

}  // namespace

void say_what_asks(FaultList& faults, const TomlNode& resolved) {
  faults.explain([&](const std::string& fault) {
    const auto missing = missing_key(fault);
    return missing ? what_asks(*missing, resolved) : "";
  });
}

void say_what_was_replaced(FaultList& faults, const TomlNode& document, std::initializer_list<const TomlNode*> before) {
  faults.explain([&](const std::string& fault) -> std::string {
    const auto missing = missing_key(fault);
    if (!missing) return {};
    for (const TomlNode* const earlier : before)
      if (std::string found = what_was_replaced(*missing, document, *earlier); !found.empty()) return found;
    return {};
  });
}

}  // namespace syncopate
