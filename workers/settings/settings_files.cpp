// Keys that name files and directories.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "workers/settings/settings.hpp"
#include "workers/settings/settings_node.hpp"

namespace syncopate {
namespace {

// Where a name was sought after the first place.
std::string second_of(const std::vector<std::filesystem::path>& places) {
  return places.size() > 1 ? fmt::format(", nor {}", std::filesystem::absolute(places[1]).string()) : "";
}

// Also a link that leads nowhere.
bool exists_as_anything(const std::filesystem::path& place) {
  std::error_code ignored;
  return std::filesystem::symlink_status(place, ignored).type() != std::filesystem::file_type::not_found;
}

}  // namespace

std::filesystem::path Settings::file(const Key& described) {
  namespace fs = std::filesystem;
  node_->describe(described, "the name of a file", {}, true);
  const std::string_view key = described.name;
  const std::size_t faults = faults_so_far();
  const fs::path named = text(key);
  if (faults_so_far() > faults) return {};
  std::error_code ignored;
  const std::vector<fs::path> places = node_->places_of(named);
  for (const fs::path& place : places) {
    if (!fs::is_regular_file(place, ignored)) continue;
    node_->record(key, fs::absolute(place).lexically_normal().string());
    return place;
  }
  const auto other = std::ranges::find_if(places, [&](const fs::path& place) { return fs::exists(place, ignored); });
  if (other != places.end() && !named.empty()) {
    fault(key, fmt::format("{} is {}; must be a file", other->string(),
                           fs::is_directory(*other, ignored) ? "a directory" : "a device or a pipe"));
  } else {
    fault(key, named.empty() ? "must be the name of a file"
                             : fmt::format("there is no file {}{}", places.front().string(), second_of(places)));
  }
  return {};
}

std::filesystem::path Settings::directory(const Key& described) {
  namespace fs = std::filesystem;
  node_->describe(described, "the name of a directory", {}, true);
  const std::string_view key = described.name;
  const std::size_t faults = faults_so_far();
  const fs::path named = text(key);
  if (faults_so_far() > faults) return {};
  std::error_code ignored;
  const std::vector<fs::path> places = node_->places_of(named);
  auto found = std::ranges::find_if(places, [&](const fs::path& place) { return fs::is_directory(place, ignored); });
  if (found == places.end()) found = std::ranges::find_if(places, exists_as_anything);
  if (found == places.end()) {
    fault(key, fmt::format("{}: no such directory{}", places.front().string(), second_of(places)));
    return {};
  }
  node_->record(key, fs::absolute(*found).lexically_normal().string());
  return *found;
}

}  // namespace syncopate
