#include "workers/files/found_directory.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "workers/files/data_fault.hpp"

namespace syncopate {

std::filesystem::path found_directory(const std::string& name, const std::string& packaged,
                                      const std::string& what_to_do) {
  std::vector<std::filesystem::path> places;
  if (const char* data = std::getenv("SYNCOPATE_DATA")) places.push_back(std::filesystem::path(data) / name);
  for (const char* share : {"/usr/local/share", "/usr/share"})
    places.push_back(std::filesystem::path(share) / packaged);
  std::string missing;
  for (const auto& place : places) {
    if (std::filesystem::is_directory(place)) return place;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", place.string());
  }
  throw DataFault(fmt::format("found none of {}; {}", missing, what_to_do));
}

}  // namespace syncopate
