#include "results/run/run_label.hpp"

#include <fmt/format.h>

#include <string_view>

namespace syncopate {
namespace {

// "threshold_s" of methods.drop.threshold_s; "delays.0", since a number says nothing by itself.
std::string_view last_name(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  if (dot == key.npos) return key;
  const bool is_number = key.find_first_not_of("0123456789", dot + 1) == key.npos;
  const std::size_t before = is_number && dot > 0 ? key.rfind('.', dot - 1) : dot;
  return before == key.npos ? key : key.substr(before + 1);
}

}  // namespace

std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep) {
  std::string label = method;
  for (const auto& [key, value] : sweep)
    label += key == "variant" ? ", " + value : fmt::format(", {} = {}", last_name(key), value);
  return label;
}

}  // namespace syncopate
