#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/sections/definition.hpp"
#include "results/text_table.hpp"
#include "workers/base/files.hpp"
#include "workers/config/key_path.hpp"
#include "workers/data/datasets.hpp"
#include "workers/models/models.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/network.hpp"

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

// Whether a condition need not be shown: it says that the key's own table exists, or it is on the key `given`.
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

// Returns text for users about the values that the key takes, such as "a number above 0, in s".
std::string what_it_takes(const KeyDescription& key) {
  std::vector<std::string> words;
  for (const auto& [name, sentence] : key.words) words.push_back(fmt::format("\"{}\"", name));
  std::string text = words.empty() ? key.takes : joined(words, " or ");
  if (!key.unit.empty()) text += fmt::format(", in {}", key.unit);
  return text;
}

// Returns text about a file without the key: "required", "default 0.9", "left out: all workers" or "may be left out".
std::string what_if_left_out(const KeyDescription& key) {
  if (key.fallback) return fmt::format("default {}", *key.fallback);
  if (key.required) return "required";
  return key.left_out.empty() ? "may be left out" : fmt::format("left out: {}", key.left_out);
}

// Returns the key's sentence, preceded by the conditions under which the key exists: "With `rule = "power"`: ...".
// Shows keys without `prefix`. Omits conditions on the key `given`.
std::string what_it_means(const KeyDescription& key, std::string_view prefix, std::string_view given = {}) {
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

// Returns lines for the key's values that have a sentence: "\"carry-over\": dropped micro-batches come ...".
std::vector<std::string> what_its_words_mean(const KeyDescription& key) {
  std::vector<std::string> meanings;
  for (const auto& [word, sentence] : key.words)
    if (!sentence.empty()) meanings.push_back(fmt::format("\"{}\": {}", word, sentence));
  return meanings;
}

std::string prefix_of(const NameGroup& group, std::string_view name) {
  return fmt::format(fmt::runtime(group.prefix), name);
}

template <typename Rows>
std::vector<ListedName> names_of(const Rows& registry) {
  std::vector<ListedName> names;
  for (const auto& row : registry) names.push_back({row.name, std::string(row.sentence)});
  return names;
}

// Returns the names of algorithms grouped by family, in the order of the families' first rows.
std::vector<ListedName> algorithm_names() {
  const auto family_of = [](const AlgorithmRow& row) { return std::string(row.family); };
  std::vector<ListedName> names;
  for (const auto& [family, rows] : grouped_by(family_of, algorithms()))
    for (const AlgorithmRow& row : rows)
      names.push_back({row.name, std::string(row.sentence), row.family, row.source, row.evaluated});
  return names;
}

// Returns the key with the conditions under which it exists together with this name, or nullopt if it never does. With
// own_keys_only, also returns nullopt if the key does not depend on the name.
std::optional<KeyDescription> key_with(KeyDescription key, const NameGroup& group, std::string_view name) {
  if (key.conditions.empty()) return group.own_keys_only ? std::nullopt : std::optional(std::move(key));
  std::erase_if(key.conditions, [&](const std::vector<Condition>& all) {
    const auto own = std::ranges::find(all, group.place, &Condition::key);
    if (own == all.end()) return group.own_keys_only;
    return std::ranges::find(own->words, name) == own->words.end();
  });
  return key.conditions.empty() ? std::nullopt : std::optional(std::move(key));
}

// Returns the keys among `all` that a name has.
std::vector<KeyDescription> keys_among(const std::vector<KeyDescription>& all, const NameGroup& group,
                                       std::string_view name) {
  const std::string prefix = prefix_of(group, name);
  std::vector<KeyDescription> keys;
  for (const KeyDescription& key : all)
    if (key.path.starts_with(prefix) && key.path != group.place)
      if (auto with_it = key_with(key, group, name)) keys.push_back(*std::move(with_it));
  return keys;
}

// Returns `text` in lines of at most 110 columns. All lines except the first are indented.
std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t line_width = 110;
  return fold_lines(std::string(indent, ' ') + text, line_width, indent).substr(indent);
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

std::string key_lines(const KeyDescription& key, std::string_view prefix, std::string_view given) {
  const std::string name = key.path.substr(prefix.size());
  std::string head = key.is_table() ? fmt::format("{}: {}", name, key.takes)
                                    : fmt::format("{}: {}; {}", name, what_it_takes(key), what_if_left_out(key));
  std::string lines = fmt::format("  {}\n      {}\n", wrapped(head, 6), wrapped(what_it_means(key, prefix, given), 6));
  for (const std::string& word : what_its_words_mean(key)) lines += fmt::format("        {}\n", wrapped(word, 10));
  return lines;
}

// Returns the keys in parts: first the name's own keys, then those of each table below the table's sentence. Within a
// table, the key on whose value other keys depend comes first. Tables that many methods have come last.
std::string keys_by_table(std::vector<KeyDescription> keys, std::string_view prefix, std::string_view given) {
  std::ranges::stable_sort(keys, {}, [&](const KeyDescription& key) {
    const std::string name = key.path.substr(prefix.size());
    return std::ranges::none_of(std::array{".rule", ".kind", ".name", ".form"}, [&](const char* last) {
      return name.ends_with(last) && std::ranges::count(name, '.') == 1;
    });
  });
  std::vector<std::string> parts = {""};
  std::map<std::string, std::string> lines;
  for (const KeyDescription& key : keys) {
    const std::string name = key.path.substr(prefix.size());
    const std::string table = key.is_table() || name.find('.') != name.npos ? name.substr(0, name.find('.')) : "";
    if (std::ranges::find(parts, table) == parts.end()) parts.push_back(table);
    if (name == table)
      lines[table] =
          fmt::format("  {}\n", wrapped(fmt::format("{}: {}", table, what_it_means(key, prefix, given)), 4)) +
          lines[table];
    else
      lines[table] += key_lines(key, prefix, given);
  }
  const auto is_common = [](const std::string& table) {
    return table == "compression" || table == "average" || table == "restart" || table == "training";
  };
  std::ranges::stable_sort(parts, {}, is_common);
  std::string text;
  for (const std::string& part : parts)
    if (!lines[part].empty()) text += "\n" + lines[part];
  return text;
}

std::string listing_of(const NameGroup& group, const ListedName& name) {
  std::string result = fmt::format("{} ({})\n  {}\n", name.name, group.title, wrapped(with_paper(name), 2));
  if (!name.evaluated.empty()) result += fmt::format("  Evaluated: {}.\n", name.evaluated);
  const std::string keys = keys_by_table(keys_of(group, name.name), prefix_of(group, name.name), group.place);
  return result + (keys.empty() ? "  No keys.\n" : keys);
}

bool is_called(const KeyDescription& key, std::string_view name) {
  return key.path == name || key.path.ends_with(fmt::format(".{}", name));
}

// Returns the keys that are called `name`, the keys of tables of that name, and the keys that accept it as a value.
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

// Whether a word of the text begins with `beginning`, ignoring case. ("track" does not begin with "rack".)
bool has_word(std::string_view text, std::string_view beginning) {
  const auto is_same = [](char a, char b) { return small(a) == small(b); };
  for (std::size_t at = 0; at + beginning.size() <= text.size(); ++at) {
    const bool begins_word = at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1]));
    if (begins_word && std::ranges::equal(text.substr(at, beginning.size()), beginning, is_same)) return true;
  }
  return false;
}

using Mention = std::pair<std::string, std::string>;  // a name and its sentence

std::string lines_of(std::string_view title, const std::vector<Mention>& mentions) {
  std::string text = mentions.empty() ? "" : fmt::format("\n{}\n", title);
  for (const auto& [name, sentence] : mentions) {
    text += fmt::format("  {}\n", name);
    if (!sentence.empty()) text += fmt::format("      {}\n", wrapped(sentence, 6));
  }
  return text;
}

// Returns keys and their values whose names or sentences contain the word. Omits keys and tables called `word`.
std::vector<Mention> keys_that_mention(std::string_view word) {
  std::vector<Mention> found;
  const auto add = [&](std::string_view name, std::string path, const std::string& sentence) {
    const Mention mention{std::move(path), sentence};
    if ((has_word(name, word) || has_word(sentence, word)) && std::ranges::count(found, mention) == 0)
      found.push_back(mention);
  };
  const std::vector<NameGroup> groups = name_groups();
  for (const KeyDescription& key : keys_of_file()) {
    if (is_called(key, word) || fmt::format(".{}", key.path).find(fmt::format(".{}.", word)) != std::string::npos)
      continue;
    add(key.path, key.path, key.sentence);
    // Names of methods, delays, networks or models are listed with their groups, not here.
    const bool is_of_group = std::ranges::find(groups, key.path, &NameGroup::place) != groups.end();
    for (const auto& [name, sentence] : key.words)
      if (!is_of_group && name != word) add(name, fmt::format("{} = \"{}\"", key.path, name), sentence);
  }
  return found;
}

// Returns names and keys whose names or sentences contain a word that begins with `word`; empty if there are none.
std::string mentions_of(std::string_view word) {
  std::string text;
  for (const NameGroup& group : name_groups()) {
    std::vector<Mention> found;
    for (const ListedName& row : group.names) {
      const std::string sentence = with_paper(row);
      if (has_word(row.name, word) || has_word(sentence, word)) found.emplace_back(row.name, sentence);
    }
    text += lines_of(group.title, found);
  }
  return text + lines_of("keys", keys_that_mention(word));
}

namespace fs = std::filesystem;

constexpr const char* columns = "| key | what it takes | left out | what it means |\n|---|---|---|---|\n";

// Escapes vertical bars, which would end the table's cell.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != text.npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

std::string left_out(const KeyDescription& key) {
  if (key.is_table()) return "";
  if (key.fallback) return *key.fallback;
  if (key.required) return "required";
  return key.left_out.empty() ? "—" : key.left_out;
}

std::string row(const KeyDescription& key, const std::string& prefix, std::string_view given = {}) {
  std::string meaning = what_it_means(key, prefix, given);
  // Names of methods, delays, networks or models have their own sections, which explain them.
  const bool is_of_method = key.path.starts_with("methods.") && !key.path.ends_with(".algorithm");
  for (const std::string& word : is_of_method ? what_its_words_mean(key) : std::vector<std::string>{})
    meaning += "<br>" + word;
  return fmt::format("| `{}` | {} | {} | {} |\n", key.path.substr(prefix.size()), cell(what_it_takes(key)),
                     cell(left_out(key)), cell(meaning));
}

std::string table_of(const KeyDescription& key) {
  const auto dot = key.path.rfind('.');
  return dot == key.path.npos ? "" : key.path.substr(0, dot);
}

// Returns the tables in the order of the file; each table precedes the tables within it.
std::vector<std::string> tables_of(const std::vector<KeyDescription>& keys) {
  std::vector<std::string> found, sorted;
  for (const KeyDescription& key : keys) {
    const std::string table = key.is_table() ? key.path : table_of(key);
    if (std::ranges::find(found, table) == found.end()) found.push_back(table);
  }
  const auto top = [](const std::string& table) { return table.substr(0, table.find('.')); };
  for (const auto& [name, tables] : grouped_by(top, found)) sorted.insert(sorted.end(), tables.begin(), tables.end());
  return sorted;
}

const KeyDescription* description_of(const std::vector<KeyDescription>& keys, const std::string& table) {
  const auto found = std::ranges::find(keys, table, &KeyDescription::path);
  return found == keys.end() ? nullptr : &*found;
}

std::string heading(const std::vector<KeyDescription>& keys, const std::string& table) {
  const KeyDescription* const described = description_of(keys, table);
  const bool is_array = described && described->kind == KeyDescription::Kind::array_of_tables;
  std::string text = fmt::format(fmt::runtime(is_array ? "\n## [[{}]]\n\n" : "\n## [{}]\n\n"), table);
  if (!described) return text;
  return text + what_it_means(*described, "") + "\n\n";
}

// Returns the section of a table whose keys do not depend on a name.
std::string plain_section(const std::vector<KeyDescription>& keys, const std::string& table) {
  std::string rows;
  const std::string prefix = table.empty() ? "" : table + ".";
  for (const KeyDescription& key : keys)
    if (table_of(key) == table && !key.is_table()) rows += row(key, prefix);
  if (rows.empty()) return description_of(keys, table) ? heading(keys, table) : "";
  return (table.empty() ? "\n## Above all tables\n\n" : heading(keys, table)) + columns + rows;
}

// Returns the section of a table whose keys depend on a name: the keys that it always has, then those of each name.
std::string section_by_names(const std::vector<KeyDescription>& keys, const NameGroup& group) {
  const std::string table = group.prefix.substr(0, group.prefix.size() - 1);
  const auto depends_on_name = [&](const KeyDescription& key) {
    return std::ranges::any_of(key.conditions,
                               [&](const auto& all) { return std::ranges::count(all, group.place, &Condition::key); });
  };
  std::string text = heading(keys, table) + columns;
  for (const KeyDescription& key : keys)
    if (key.path.starts_with(group.prefix) && !depends_on_name(key)) text += row(key, group.prefix);
  for (const ListedName& name : group.names) {
    text += fmt::format("\n### {} = \"{}\"\n\n{}{}{}\n", group.place.substr(group.prefix.size()), name.name,
                        name.sentence, name.paper.empty() ? "" : fmt::format(" Source: {}.", name.paper),
                        name.evaluated.empty() ? "" : fmt::format(" Evaluated: {}.", name.evaluated));
    std::string rows;
    for (const KeyDescription& key : keys_among(keys, group, name.name))
      if (depends_on_name(key)) rows += row(key, group.prefix, group.place);
    if (!rows.empty()) text += fmt::format("\n{}{}", columns, rows);
  }
  return text;
}

std::string unlisted(std::string_view name) {
  std::vector<std::string> known(listed_kinds.begin(), listed_kinds.end());
  for (const NameGroup& group : name_groups())
    for (const ListedName& row : group.names) known.emplace_back(row.name);
  for (const KeyDescription& key : keys_of_file()) known.push_back(key.path);
  return fmt::format(
      "list {}: no such name, and no description contains this word; must be one of {}, or a name or key of an "
      "experiment file{}",
      name, fmt::join(listed_kinds, ", "), suggestion(name, known));
}

}  // namespace

std::vector<NameGroup> name_groups() {
  const std::map<std::string, std::string> in_dropcompute = {{"methods.algorithm", "dropcompute"}};
  const std::map<std::string, std::string> in_threshold = {{"methods.algorithm", "dropcompute"},
                                                           {"methods.threshold?", present}};
  const std::map<std::string, std::string> in_rounds = {{"methods.algorithm", "rounds"}};
  const std::map<std::string, std::string> in_outer = {{"methods.algorithm", "outer-local-sgd"}};
  return {
      {"algorithms", "algorithms: [[methods]] algorithm", "methods.algorithm", "methods.", algorithm_names()},
      {"delays", "delays: [[delays]] kind", "delays.kind", "delays.", names_of(delays())},
      {"networks", "network models: [network] kind", "network.kind", "network.", names_of(networks())},
      {"models", "models: training.model", "training.model", "models.{}.", names_of(models())},
      {"datasets", "data sets: training.dataset", "training.dataset", "datasets.{}.", names_of(datasets())},
      {"schedules", "synchronisation periods: [[methods]] period.rule", "methods.period.rule", "methods.period.",
       names_of(sync_periods()), in_rounds},
      {"schedules", "outer optimizers of outer-local-sgd: [[methods]] outer.name", "methods.outer.name",
       "methods.outer.", names_of(outer_optimizers()), in_outer},
      {"schedules", "thresholds of dropcompute: [[methods]] threshold.rule", "methods.threshold.rule",
       "methods.threshold.", names_of(drop_thresholds()), in_threshold},
      {"schedules", "compensations of dropcompute: [[methods]] compensation", "methods.compensation", "methods.",
       names_of(drop_compensations()), in_dropcompute, true},
      {"schedules", "learning-rate schedules: training.learning_rate.schedule", "training.learning_rate.schedule",
       "training.learning_rate.", names_of(learning_rate_schedules())},
      {"optimizers", "optimizers: training.optimizer.name", "training.optimizer.name", "training.optimizer.",
       names_of(optimizers())},
  };
}

std::vector<KeyDescription> keys_of(const NameGroup& group, std::string_view name) {
  return keys_among(keys_of_file(group.around), group, name);
}

std::string listing_of(std::string_view name) {
  const bool is_kind = name.empty() || std::ranges::find(listed_kinds, name) != listed_kinds.end();
  std::string result;
  const auto add = [&result](const std::string& part) { result += (result.empty() ? "" : "\n") + part; };
  for (const NameGroup& group : name_groups()) {
    if (name.empty() || group.kind == name) add(listing_of(group));
    for (const ListedName& row : group.names)
      if (!is_kind && row.name == name) add(listing_of(group, row));
  }
  if (!result.empty()) return result;
  const std::string keys = listing_of_key(name), mentions = mentions_of(name);
  if (keys.empty() && mentions.empty()) throw ConfigurationFault(unlisted(name));
  if (mentions.empty()) return keys;
  return keys +
         (keys.empty() ? fmt::format("no name or key is called \"{}\"; it is mentioned here:\n", name)
                       : "\nit is also mentioned here:\n") +
         mentions;
}

std::string reference_page() {
  const std::vector<KeyDescription>& keys = keys_of_file();
  std::vector<NameGroup> groups = name_groups();
  std::erase_if(groups, [](const NameGroup& group) {
    return group.prefix.find('.') + 1 != group.prefix.size() || !group.around.empty();
  });

  std::string text = fmt::format(
      "# Every key of an experiment file\n\n"
      "Written by `{}` from the code that reads these keys: do not change it by hand.\n"
      "[`experiments/README.md`](README.md) has an example with the most important keys; `./dev list NAME` prints one "
      "of these parts.\nThe third column says what applies without the key. A dash: the key may be left out, without a "
      "default. For a table, see its keys.\n",
      command_that_writes);
  for (const std::string& table : tables_of(keys)) {
    const auto group =
        std::ranges::find_if(groups, [&](const auto& one) { return (table + ".").starts_with(one.prefix); });
    if (group == groups.end())
      text += plain_section(keys, table);
    else if (table + "." == group->prefix)
      text += section_by_names(keys, *group);
  }
  return text;
}

std::string with_table_of_methods(std::string page) {
  const std::string first = "<!-- methods: ", last = "<!-- end of methods -->";
  const auto begin = page.find(first), end = page.find(last);
  if (begin == page.npos || end == page.npos || end < begin)
    throw std::runtime_error(fmt::format("the page has no lines \"{}...\" and \"{}\"", first, last));
  std::string table =
      fmt::format("{}written by `{}` -->\n\n| name | what it does | evaluated model | source |\n|---|---|---|---|\n",
                  first, command_that_writes);
  for (const ListedName& name : algorithm_names())
    table +=
        fmt::format("| `{}` | {} | {} | {} |\n", name.name, cell(name.sentence),
                    name.evaluated.empty() ? "—" : cell(std::string(name.evaluated)), cell(std::string(name.paper)));
  return page.replace(begin, end - begin, table + "\n");
}

void write_pages(const fs::path& checkout) {
  const fs::path methods = checkout / "algorithms/README.md";
  const auto before = read_file(methods);
  if (!before)
    throw std::runtime_error(fmt::format("{}: cannot be read; run this command in a checkout", methods.string()));
  const std::string page = with_table_of_methods(*before);
  replace_named_file(checkout / "experiments/reference.md", reference_page());
  replace_named_file(methods, page);
}

}  // namespace syncopate
