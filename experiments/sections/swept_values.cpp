#include "experiments/sections/swept_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "experiments/sections/swept_label.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

constexpr int most_of_a_range = 1'000'000;
constexpr double slack = 1e-9;  // what rounding may take from the last value

__extension__ using Wide = __int128;  // holds what is one step beyond the end of std::int64_t

struct RangeFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::optional<double> number_at(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  if (!node) return {};
  if (const auto* integer = std::get_if<std::int64_t>(&node->value)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(&node->value);
  if (number && std::isfinite(*number)) return *number;
  throw RangeFault(fmt::format("{} must be a number", key));
}

// The nearest number that one would write: 0.3 for 0.1 + 2 x 0.1.
double rounded(double value) { return std::stod(fmt::format("{:.12g}", value)); }

// from, from + step, ... or from, from x factor, ... up to `to`.
std::vector<double> numbers_of(const TomlNode& table) {
  constexpr std::array known = {"from", "to", "step", "factor"};
  for (const TomlNode::Member& member : table.table())
    if (std::ranges::find(known, std::string_view(member.key)) == known.end())
      throw RangeFault(fmt::format("{}; unknown key; must be one of {}", member.key, fmt::join(known, ", ")));
  const auto from = number_at(table, "from"), to = number_at(table, "to"), step = number_at(table, "step"),
             factor = number_at(table, "factor");
  if (!from || !to || step.has_value() == factor.has_value())
    throw RangeFault(
        "must be a list, or a range: { from = 1, to = 9, step = 2 }, or a factor in the place of the step");
  if (factor && !(*factor > 0 && *factor != 1)) throw RangeFault("factor must be above 0 and not 1");
  if (factor && !(*from > 0 && *to > 0)) throw RangeFault("from and to must be above 0 beside a factor");
  if (step && *step == 0) throw RangeFault("step must not be 0");
  const double steps = factor ? std::log(*to / *from) / std::log(*factor) : (*to - *from) / *step;
  if (steps < -slack)
    throw RangeFault(fmt::format("holds no value: {} leads away from `to`", factor ? "factor" : "step"));
  if (steps > most_of_a_range) throw RangeFault(fmt::format("must hold at most {} values", most_of_a_range));
  std::vector<double> numbers;
  for (int i = 0; i <= static_cast<int>(steps + slack); ++i)
    numbers.push_back(rounded(factor ? *from * std::pow(*factor, i) : *from + i * *step));
  return numbers;
}

// The largest whole number that is at most the end of the range, or the smallest that is at least it.
Wide whole_end(const TomlNode& to, bool upwards) {
  if (const auto* integer = std::get_if<std::int64_t>(&to.value)) return *integer;
  constexpr double beyond = 0x1p63;  // further than any value
  const double end = std::clamp(std::get<double>(to.value), -beyond, beyond);
  return static_cast<Wide>(upwards ? std::floor(end + slack) : std::ceil(end - slack));
}

// The values of a range of whole numbers, up to the last that a key may have.
std::vector<std::int64_t> whole_numbers_of(const TomlNode& table) {
  const auto integer = [&](const char* key) -> Wide { return std::get<std::int64_t>(table.find(key)->value); };
  const bool multiplies = table.find("factor") != nullptr;
  const Wide change = integer(multiplies ? "factor" : "step");
  const bool upwards = multiplies || change > 0;
  constexpr Wide least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  const Wide end = std::clamp(whole_end(*table.find("to"), upwards), least, most);
  std::vector<std::int64_t> numbers;
  for (Wide value = integer("from"); upwards ? value <= end : value >= end;
       value = multiplies ? value * change : value + change)
    numbers.push_back(static_cast<std::int64_t>(value));
  if (numbers.empty()) throw RangeFault("holds no value: `to` is on the other side of `from`");
  return numbers;
}

bool is_whole(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  return !node || std::holds_alternative<std::int64_t>(node->value);
}

// Whole numbers where nothing else is written.
TomlNode::Array values_of_range(const TomlNode& table) {
  const std::vector<double> numbers = numbers_of(table);
  TomlNode::Array values;
  if (is_whole(table, "from") && is_whole(table, "step") && is_whole(table, "factor"))
    for (const std::int64_t number : whole_numbers_of(table)) values.push_back({number, table.place});
  else
    for (const double number : numbers) values.push_back({number, table.place});
  return values;
}

// The name of an element { label = "...", value = ... }; null if it is a value itself.
const TomlNode* name_of(const TomlNode& element) {
  const bool is_named = element.is_table() && element.table().size() == 2 && element.find("value");
  return is_named ? element.find("label") : nullptr;
}

// What tells values apart where they are read: 1 and 1.0 are one number.
std::string as_read(const TomlNode& value) {
  const auto* const number = std::get_if<double>(&value.value);
  if (number && *number == std::round(*number) && *number >= -0x1p63 && *number < 0x1p63)
    return inline_toml({static_cast<std::int64_t>(*number), {}});
  if (!value.is_array()) return inline_toml(value);
  std::string text;
  for (const TomlNode& element : value.array()) text += as_read(element) + ",";
  return "[" + text + "]";
}

}  // namespace

bool is_range(const TomlNode& node) {
  const auto is_plain = [](const TomlNode* member) { return member && !member->is_table() && !member->is_array(); };
  return node.is_table() && (is_plain(node.find("from")) || is_plain(node.find("to")));
}

std::optional<SweptValues> read_swept_values(const TomlNode& node, const std::string& table, const std::string& key,
                                             FaultList& faults) {
  const std::size_t faults_before = faults.size();
  const auto fault = [&](const SourcePlace& place, const TomlNode& found, const std::string& text) {
    faults.add(place, fmt::format("{}.\"{}\" = {}; {}", table, key, shortened(inline_toml(found)), text));
  };
  SweptValues result;
  std::vector<std::optional<std::string>> names;
  if (is_range(node)) {
    try {
      result.values = values_of_range(node);
    } catch (const RangeFault& problem) {
      fault(node.place, node, problem.what());
    }
  } else if (!node.is_array()) {
    fault(node.place, node, "must be a list of values");
  } else if (node.array().empty()) {
    fault(node.place, node, "must hold a value");
  } else {
    for (const TomlNode& element : node.array()) {
      const TomlNode* name = name_of(element);
      result.values.push_back(name ? *element.find("value") : element);
      const auto* text = name ? std::get_if<std::string>(&name->value) : nullptr;
      if (name && (!text || text->empty())) fault(name->place, element, "label must be a text");
      names.emplace_back(text ? std::optional(*text) : std::nullopt);
    }
  }
  std::set<std::string> seen;
  for (const TomlNode& value : result.values)
    if (!seen.insert(as_read(value)).second) fault(value.place, value, "must hold no value twice");
  if (faults.size() > faults_before) return {};
  result.labels = swept_labels(result.values);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i]) result.labels[i] = *names[i];
  if (std::set(result.labels.begin(), result.labels.end()).size() < result.labels.size()) {
    fault(node.place, node, "must hold no label twice");
    return {};
  }
  return result;
}

}  // namespace syncopate
