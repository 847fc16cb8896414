#include "workers/config/key_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

namespace syncopate {

namespace {

constexpr std::array<std::string_view, 3> naming_keys = {"label", "algorithm", "kind"};

// The names by which elements can be given, without duplicates.
std::vector<std::string> names_of(const TomlNode::Array& elements) {
  std::vector<std::string> names;
  for (const TomlNode& element : elements)
    for (const std::string_view key : naming_keys) {
      const std::string_view name = text_in(element.find(key));
      if (!name.empty() && std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    }
  return names;
}

std::string no_such_element(const TomlNode::Array& elements, const std::string& part) {
  if (elements.empty()) return fmt::format("\"{}\" does not exist, because the list is empty", part);
  const NamesToChoose choice = names_to_choose(part, names_of(elements));
  const std::string names = choice.list.empty() ? "" : fmt::format("one of {}, or ", choice.list);
  const std::string numbers = elements.size() == 1 ? "0" : fmt::format("a number from 0 to {}", elements.size() - 1);
  return fmt::format("{}\"{}\" must be {}{}{}", choice.before, part, names, numbers, choice.after);
}

std::optional<std::size_t> as_index(const std::string& part) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || end != part.data() + part.size()) return {};
  return index;
}

char folded(char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string folded(std::string_view name) {
  std::string letters(name);
  for (char& letter : letters) letter = folded(letter);
  return letters;
}

// Whether the known name contains `name` from the beginning of a word on: "directory" contains "dir",
// "micro_batch_size" contains "batch_size".
bool is_piece(std::string_view name, std::string_view known) {
  constexpr std::size_t shortest = 3;
  return name.size() >= shortest && ("_" + folded(known)).find("_" + folded(name)) != std::string::npos;
}

// Returns the name that the user probably meant: the one in `names` with the smallest edit distance to `name` (the
// first of several). The distance must be less than the length of `name`, and at most a third of the longer name's
// length or at most 2. (At most 1 instead of 2 if `name` has up to four letters and the two first letters differ.) If
// no name is near enough, returns the only one that contains `name` at the beginning of a word. That one must begin
// with `name` or be at most twice as long as `name`.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> names) {
  if (names.empty()) return {};
  const auto distance = [&](const std::string& known) { return edit_distance(name, known); };
  const std::string& nearest = *std::ranges::min_element(names, {}, distance);
  // Two wrong letters of four are a typo only if the first is right: "noon" for "none", but not "test" for "least".
  const bool begins_alike = !name.empty() && !nearest.empty() && folded(name.front()) == folded(nearest.front());
  const std::size_t least_allowed = name.size() > 4 || begins_alike ? 2 : 1;
  const std::size_t allowed = std::max(least_allowed, std::max(name.size(), nearest.size()) / 3);
  if (distance(nearest) <= allowed && distance(nearest) < name.size()) return nearest;
  const auto has_piece = [&](const std::string& known) { return is_piece(name, known); };
  const auto whole = std::ranges::find_if(names, has_piece);
  if (whole == names.end() || std::ranges::count_if(names, has_piece) != 1) return {};
  // Accepts "dir" for "directory", but not "throughput" for "first_formula_over_throughput".
  const bool begins_so = folded(*whole).starts_with(folded(name));
  return begins_so || 2 * name.size() >= whole->size() ? std::optional(*whole) : std::nullopt;
}

}  // namespace

std::vector<std::string> split_key(std::string_view dotted) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (;;) {
    std::string part;
    if (at < dotted.size() && (dotted[at] == '"' || dotted[at] == '\'')) {
      const std::size_t end = dotted.find(dotted[at], at + 1);
      if (end == std::string_view::npos) throw KeyPathFault("a quote in the key is not closed");
      part = dotted.substr(at + 1, end - at - 1);
      at = end + 1;
      if (at < dotted.size() && dotted[at] != '.') throw KeyPathFault("a quoted part of the key must end at a dot");
    } else {
      const std::size_t end = std::min(dotted.find('.', at), dotted.size());
      part = dotted.substr(at, end - at);
      at = end;
    }
    if (part.empty()) throw KeyPathFault("a part of the key is empty");
    if (std::ssize(parts) == most_levels) throw KeyPathFault(fmt::format("must have at most {} parts", most_levels));
    parts.push_back(std::move(part));
    if (at >= dotted.size()) return parts;
    ++at;  // the dot
  }
}

std::size_t element_index(const TomlNode& array, const std::string& part) {
  const TomlNode::Array& elements = array.array();
  if (const auto index = as_index(part)) {
    if (*index < elements.size()) return *index;
    throw KeyPathFault(no_such_element(elements, part));
  }
  for (const std::string_view key : naming_keys) {
    std::vector<std::size_t> matches;
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (!part.empty() && text_in(elements[i].find(key)) == part) matches.push_back(i);
    if (matches.size() == 1) return matches.front();
    if (matches.size() > 1)
      throw KeyPathFault(
          fmt::format("{} elements are named \"{}\"; must be a label that only one element has, or an element's "
                      "number, counted from 0",
                      matches.size(), part));
  }
  throw KeyPathFault(no_such_element(elements, part));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Row i contains the distances of the first i letters of `a` to all prefixes of `b`.
  std::vector<std::size_t> two_back(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_back.swap(previous);
    previous.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = folded(a[i - 1]);
      const char y = folded(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x == y ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y;
      if (swapped) row[j] = std::min(row[j], two_back[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string suggestion(std::string_view name, std::span<const std::string> names) {
  const auto nearest = nearest_name(name, names);
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

NamesToChoose names_to_choose(std::string_view name, std::span<const std::string> names, std::string_view quote) {
  constexpr std::size_t longest_list = 120, shown = 5;
  const auto listed = [quote](std::span<const std::string> some) {
    const std::string between = fmt::format("{0}, {0}", quote);
    return some.empty() ? "" : fmt::format("{0}{1}{0}", quote, fmt::join(some, between));
  };
  std::string all = listed(names);
  const auto nearest = nearest_name(name, names);
  std::vector<std::string> sorted(names.begin(), names.end());
  std::ranges::stable_sort(sorted, {}, [&](const std::string& other) { return edit_distance(name, other); });
  const auto others = std::stable_partition(sorted.begin(), sorted.end(),
                                            [&](const std::string& other) { return is_piece(name, other); });
  const bool is_piece_of_some = others != sorted.begin();
  if ((!nearest && !is_piece_of_some) || all.size() <= longest_list || names.size() <= shown)
    return {.before = "", .list = std::move(all), .after = suggestion(name, names)};
  if (nearest)
    std::stable_partition(sorted.begin(), sorted.end(), [&](const std::string& other) { return other == *nearest; });
  return {.before = nearest ? fmt::format("did you mean \"{}\"? ", *nearest) : "",
          .list = fmt::format("{} and {} more", listed(std::span(sorted).first(shown)), sorted.size() - shown),
          .after = ""};
}

std::string must_be_one_of(std::string_view name, std::span<const std::string> names, std::string_view quote) {
  const NamesToChoose choice = names_to_choose(name, names, quote);
  return fmt::format("{}must be {}{}{}", choice.before, names.size() > 1 ? "one of " : "", choice.list, choice.after);
}

}  // namespace syncopate
