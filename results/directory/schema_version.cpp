#include "results/directory/schema_version.hpp"

#include <fmt/format.h>

#include "results/formats/json.hpp"
#include "results/rows/summary.hpp"

namespace syncopate {

std::optional<std::string> other_schema_version(const std::string& text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema_version")) return {};
  const auto& version = json["schema_version"];
  if (!version.is_number_integer() || version == results_schema_version) return {};
  return version.dump();
}

std::string of_other_schema(const std::string& version) {
  return fmt::format("of schema version {}, and this program knows {}", version, results_schema_version);
}

}  // namespace syncopate
