#include "experiments/commands/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "experiments/commands/key_text.hpp"
#include "experiments/commands/listed_names.hpp"
#include "experiments/sections/file_keys.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

constexpr const char* columns = "| key | what it takes | left out | what it means |\n|---|---|---|---|\n";

// In a cell of a table a bar would end it.
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
  // Words that name methods, delays, networks or models have sections, which say what they mean.
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

// In the order of the file, a table's own tables behind it.
std::vector<std::string> tables_of(const std::vector<KeyDescription>& keys) {
  std::vector<std::string> found, sorted;
  for (const KeyDescription& key : keys) {
    const std::string table = key.is_table() ? key.path : table_of(key);
    if (std::ranges::find(found, table) == found.end()) found.push_back(table);
  }
  const auto top = [](const std::string& table) { return table.substr(0, table.find('.')); };
  for (const std::string& first : found)
    for (const std::string& table : found)
      if (top(table) == top(first) && std::ranges::find(sorted, table) == sorted.end()) sorted.push_back(table);
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

// A table without words that decide which keys it has.
std::string plain_section(const std::vector<KeyDescription>& keys, const std::string& table) {
  std::string rows;
  const std::string prefix = table.empty() ? "" : table + ".";
  for (const KeyDescription& key : keys)
    if (table_of(key) == table && !key.is_table()) rows += row(key, prefix);
  if (rows.empty()) return description_of(keys, table) ? heading(keys, table) : "";
  return (table.empty() ? "\n## Above all tables\n\n" : heading(keys, table)) + columns + rows;
}

// A table with a choice that decides it: what it has in any case, and then what each word of the choice adds.
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
    for (const KeyDescription& key : keys_of(keys, group, name.name))
      if (depends_on_name(key)) rows += row(key, group.prefix, group.place);
    if (!rows.empty()) text += fmt::format("\n{}{}", columns, rows);
  }
  return text;
}

std::string contents_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be read; must be a page of a checkout", file.string()));
  return text.str();
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary);
  stream << text << std::flush;
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace

std::string reference_page() {
  const std::vector<KeyDescription> keys = keys_of_file();
  std::vector<NameGroup> groups = name_groups();
  std::erase_if(groups, [](const NameGroup& group) {
    return group.prefix.find('.') + 1 != group.prefix.size() || !group.around.empty();
  });

  std::string text = fmt::format(
      "# Every key of an experiment file\n\n"
      "Written by `{}` from the tables that read these keys: do not change it by hand.\n"
      "[`experiments/README.md`](README.md) has an example with the keys that are needed first; `./dev list NAME` "
      "shows one of these parts.\nThe third column says what holds without the key. A dash: it may be left out, and "
      "nothing takes its place. For a table, see its keys.\n",
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
      fmt::format("{}written by `{}` -->\n\n| name | what it does | evaluated is | source |\n|---|---|---|---|\n",
                  first, command_that_writes);
  for (const NameGroup& group : name_groups())
    if (group.kind == "algorithms")
      for (const ListedName& name : group.names)
        table += fmt::format("| `{}` | {} | {} | {} |\n", name.name, cell(name.sentence),
                             name.evaluated.empty() ? "—" : cell(std::string(name.evaluated)),
                             cell(std::string(name.paper)));
  return page.replace(begin, end - begin, table + "\n");
}

void write_pages(const fs::path& checkout) {
  const fs::path methods = checkout / "algorithms/README.md";
  const std::string page = with_table_of_methods(contents_of(methods));
  write(checkout / "experiments/reference.md", reference_page());
  write(methods, page);
}

}  // namespace syncopate
