#include "experiments/commands/listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "experiments/commands/key_text.hpp"
#include "experiments/commands/listed_names.hpp"
#include "experiments/sections/file_keys.hpp"
#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

constexpr std::size_t line_width = 110;

// The words of `text` on lines that end before `line_width`; all but the first begin after `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool first = column == indent;
    if (!first && column + 1 + word.size() > line_width) {
      result += fmt::format("\n{:{}}{}", "", indent, word);
      column = indent + word.size();
    } else {
      result += fmt::format("{}{}", first ? "" : " ", word);
      column += word.size() + (first ? 0 : 1);
    }
  }
  return result;
}

std::string with_paper(const ListedName& name) {
  return name.paper.empty() ? name.sentence : fmt::format("{} [{}]", name.sentence, name.paper);
}

std::string listing_of(const NameGroup& group) {
  std::string result = fmt::format("{}\n", group.title);
  std::size_t width = 0;
  for (const ListedName& row : group.names) width = std::max(width, row.name.size());
  std::string_view family;
  for (const ListedName& row : group.names) {
    if (row.family != family) result += fmt::format("  {}:\n", row.family);
    family = row.family;
    const std::size_t indent = family.empty() ? 2 : 4;
    result +=
        fmt::format("{:{}}{:<{}}  {}\n", "", indent, row.name, width, wrapped(with_paper(row), indent + width + 2));
  }
  return result;
}

// A key below its table's name: what it takes, what it means, and where it exists.
std::string key_lines(const KeyDescription& key, std::string_view prefix, std::string_view given) {
  const std::string name = key.path.substr(prefix.size());
  std::string head = key.is_table() ? fmt::format("{}: {}", name, key.takes)
                                    : fmt::format("{}: {}; {}", name, what_it_takes(key), what_if_left_out(key));
  std::string lines = fmt::format("  {}\n      {}\n", wrapped(head, 6), wrapped(what_it_means(key, prefix, given), 6));
  for (const std::string& word : what_its_words_mean(key)) lines += fmt::format("        {}\n", wrapped(word, 10));
  return lines;
}

std::string listing_of(const NameGroup& group, const ListedName& name) {
  std::string result = fmt::format("{} ({})\n  {}\n", name.name, group.title, wrapped(with_paper(name), 2));
  if (!name.evaluated.empty()) result += fmt::format("  Evaluated: {}.\n", name.evaluated);
  const std::string prefix = prefix_of(group, name.name);
  std::string keys;
  for (const KeyDescription& key : keys_of(group, name.name)) keys += key_lines(key, prefix, group.place);
  return result + (keys.empty() ? "  It has no keys of its own.\n" : "\n" + keys);
}

bool is_called(const KeyDescription& key, std::string_view name) {
  return key.path == name || key.path.ends_with(fmt::format(".{}", name));
}

// Keys by their whole names or the last parts of them, those of a table with what stands in it, and words of choices.
std::string listing_of_key(std::string_view name) {
  std::string result;
  const std::vector<KeyDescription>& keys = keys_of_file();
  for (const KeyDescription& key : keys) {
    const bool is_named = is_called(key, name);
    const bool is_word = std::ranges::any_of(key.words, [&](const auto& word) { return word.first == name; });
    if (is_named || is_word) result += key_lines(key, "", "");
    if (!is_named || !key.is_table()) continue;
    for (const KeyDescription& inner : keys)
      if (inner.path.starts_with(key.path + ".")) result += key_lines(inner, "", "");
  }
  return result;
}

char small(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Whether a word of the text begins so, in capitals or not: "slow" is in "slower", "rack" is not in "track".
bool has_word(std::string_view text, std::string_view beginning) {
  const auto is_same = [](char a, char b) { return small(a) == small(b); };
  for (std::size_t at = 0; at + beginning.size() <= text.size(); ++at) {
    const bool begins_word = at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1]));
    if (begins_word && std::ranges::equal(text.substr(at, beginning.size()), beginning, is_same)) return true;
  }
  return false;
}

struct Mention {
  std::string name, sentence;
  bool operator==(const Mention&) const = default;
};

std::string lines_of(std::string_view title, const std::vector<Mention>& mentions) {
  std::string text = mentions.empty() ? "" : fmt::format("\n{}\n", title);
  for (const Mention& mention : mentions) {
    text += fmt::format("  {}\n", mention.name);
    if (!mention.sentence.empty()) text += fmt::format("      {}\n", wrapped(mention.sentence, 6));
  }
  return text;
}

// Of keys that are not called so and do not stand in a table of that name, and of the words that they take.
std::vector<Mention> keys_that_mention(std::string_view word) {
  std::vector<Mention> found;
  const auto add = [&](std::string_view name, std::string path, const std::string& sentence) {
    Mention mention{std::move(path), sentence};
    if ((has_word(name, word) || has_word(sentence, word)) && std::ranges::find(found, mention) == found.end())
      found.push_back(std::move(mention));
  };
  const std::vector<NameGroup> groups = name_groups();
  for (const KeyDescription& key : keys_of_file()) {
    if (is_called(key, word) || fmt::format(".{}", key.path).find(fmt::format(".{}.", word)) != std::string::npos)
      continue;
    add(key.path, key.path, key.sentence);
    // Words that name methods, delays, networks or models stand among those.
    const bool is_of_group = std::ranges::find(groups, key.path, &NameGroup::place) != groups.end();
    for (const auto& [name, sentence] : key.words)
      if (!is_of_group && name != word) add(name, fmt::format("{} = \"{}\"", key.path, name), sentence);
  }
  return found;
}

// Names and keys, of another name, whose sentences have a word that begins so; empty: there are none.
std::string mentions_of(std::string_view word) {
  std::string text;
  for (const NameGroup& group : name_groups()) {
    std::vector<Mention> found;
    for (const ListedName& row : group.names) {
      const std::string sentence = with_paper(row);
      if (has_word(row.name, word) || has_word(sentence, word)) found.push_back({std::string(row.name), sentence});
    }
    text += lines_of(group.title, found);
  }
  text += lines_of("keys", keys_that_mention(word));
  return text;
}

}  // namespace

std::string listing(std::string_view kind) {
  std::string result;
  for (const NameGroup& group : name_groups()) {
    if (!kind.empty() && group.kind != kind) continue;
    result += fmt::format("{}{}", result.empty() ? "" : "\n", listing_of(group));
  }
  return result;
}

std::string listing_of(std::string_view name) {
  if (std::ranges::find(listed_kinds, name) != listed_kinds.end()) return listing(name);
  std::string result;
  for (const NameGroup& group : name_groups())
    for (const ListedName& row : group.names)
      if (row.name == name) result += fmt::format("{}{}", result.empty() ? "" : "\n", listing_of(group, row));
  if (!result.empty() || name.empty()) return result;
  const std::string keys = listing_of_key(name), mentions = mentions_of(name);
  if (mentions.empty()) return keys;
  return keys +
         (keys.empty() ? fmt::format("nothing is called \"{}\"; it is mentioned here:\n", name)
                       : "\nit is mentioned here too:\n") +
         mentions;
}

std::string unlisted(std::string_view name) {
  std::vector<std::string> known(listed_kinds.begin(), listed_kinds.end());
  for (const NameGroup& group : name_groups())
    for (const ListedName& row : group.names) known.emplace_back(row.name);
  for (const KeyDescription& key : keys_of_file()) known.push_back(key.path);
  std::string kinds;
  for (const std::string_view kind : listed_kinds) kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", kind);
  return fmt::format(
      "list {}: nothing has this name, and no sentence this word; must be one of {}, or a name or key of an experiment "
      "file{}",
      name, kinds, suggestion(name, known));
}

}  // namespace syncopate
