#include "workers/settings/fault_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <tuple>

namespace syncopate {
namespace {

// That the fault is about.
std::string_view key_of(const std::string& text) { return std::string_view(text).substr(0, text.find_first_of(" ;")); }

// What tells it from others: of a key that is unknown, not its value, of which a sweep has many; of one that is missing,
// not why it is required.
std::string what_is_wrong(const std::string& text) {
  constexpr std::string_view missing = " is missing; ";
  if (const std::size_t end = text.find(missing); end != text.npos) return text.substr(0, end + missing.size());
  const std::size_t unknown = text.find("; unknown key"), value = text.find(" = ");
  return unknown == text.npos || value > unknown ? text : text.substr(0, value) + text.substr(unknown);
}

}  // namespace

void FaultList::add(const SourcePlace& place, std::string text) {
  // Where on the command line is not told, so what reads alike there is the same.
  const bool from_command_line = place.source == command_line_source;
  Fault fault{from_command_line ? SourcePlace{place.source} : place, std::move(text)};
  if (known_.insert({fault.place, what_is_wrong(fault.text)}).second) faults_.push_back(std::move(fault));
}

void FaultList::add(const FaultList& others) {
  for (const Fault& fault : others.faults_) add(fault.place, fault.text);
}

void FaultList::add(const FaultList& others, const std::string& prefix, const std::string& name) {
  const std::size_t before = faults_.size();
  for (const Fault& fault : others.faults_) {
    if (known_.contains({fault.place, what_is_wrong(fault.text)})) continue;
    if (!fault.text.starts_with(prefix)) {
      add(fault.place, fault.text);
      continue;
    }
    const std::string key = fmt::format(".{}", key_of(fault.text).substr(prefix.size()));
    const auto is_told = [&](const Fault& other) {
      return other.place == fault.place && key_of(other.text).ends_with(key);
    };
    if (std::ranges::none_of(std::span(faults_).first(before), is_told))
      add(fault.place, name + fault.text.substr(prefix.size()));
  }
}

void FaultList::explain(const std::function<std::string(const std::string&)>& reason) {
  for (Fault& fault : faults_) fault.text += reason(fault.text);
}

std::string FaultList::report() const {
  std::vector<Fault> sorted = faults_;
  std::ranges::stable_sort(sorted, {}, [](const Fault& fault) {
    return std::tuple(fault.place.source == command_line_source, fault.place.line, fault.place.column);
  });
  constexpr std::size_t most = 50;
  const std::size_t shown = std::min(sorted.size(), most);
  std::string result;
  for (const Fault& fault : std::span(sorted).first(shown)) {
    if (!result.empty()) result += '\n';
    result += fmt::format("{}: {}", fault.place.text(), fault.text);
  }
  if (sorted.size() > shown) result += fmt::format("\nand {} more faults", sorted.size() - shown);
  return result;
}

}  // namespace syncopate
