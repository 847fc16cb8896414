#include "workers/settings/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace syncopate {
namespace {

char folded(char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string folded(std::string_view name) {
  std::string letters(name);
  for (char& letter : letters) letter = folded(letter);
  return letters;
}

// Whether the name is a piece of the known one from a word's beginning on: "dir" of "directory", "batch_size" of
// "micro_batch_size".
bool is_piece(std::string_view name, std::string_view known) {
  constexpr std::size_t shortest = 3;
  return name.size() >= shortest && ("_" + folded(known)).find("_" + folded(name)) != std::string::npos;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Row i holds the distances of a's first i letters to all beginnings of b.
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

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> names) {
  if (names.empty()) return {};
  const auto distance = [&](const std::string& known) { return edit_distance(name, known); };
  const std::string& nearest = *std::ranges::min_element(names, {}, distance);
  // Two of four letters are a slip where the first one is right: "noon" for "none", and not "test" for "least".
  const bool begins_alike = !name.empty() && !nearest.empty() && folded(name.front()) == folded(nearest.front());
  const std::size_t least_allowed = name.size() > 4 || begins_alike ? 2 : 1;
  const std::size_t allowed = std::max(least_allowed, std::max(name.size(), nearest.size()) / 3);
  if (distance(nearest) <= allowed && distance(nearest) < name.size()) return nearest;
  const auto has_piece = [&](const std::string& known) { return is_piece(name, known); };
  const auto whole = std::ranges::find_if(names, has_piece);
  if (whole == names.end() || std::ranges::count_if(names, has_piece) != 1) return {};
  // "dir" for "directory"; but not "throughput" for "first_formula_over_throughput", which is something else.
  const bool begins_so = folded(*whole).starts_with(folded(name));
  return begins_so || 2 * name.size() >= whole->size() ? std::optional(*whole) : std::nullopt;
}

std::string suggestion(std::string_view name, std::span<const std::string> names) {
  const auto nearest = nearest_name(name, names);
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

NamesToChoose names_to_choose(std::string_view name, std::span<const std::string> names, std::string_view quote) {
  constexpr std::size_t longest_list = 120, shown = 5;
  const auto listed = [quote](std::span<const std::string> some) {
    std::string list;
    for (const std::string& one : some) list += fmt::format("{}{}{}{}", list.empty() ? "" : ", ", quote, one, quote);
    return list;
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
