#include "results/formats/host.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string_view>

namespace syncopate {
namespace {

utsname system_names() {
  utsname names{};
  uname(&names);  // cannot fail with a valid pointer
  return names;
}

}  // namespace

std::string host_name() { return system_names().nodename; }

std::string distribution_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (constexpr std::string_view key = "PRETTY_NAME="; line.starts_with(key)) {
      std::string name = line.substr(key.size());
      std::erase(name, '"');
      return name;
    }
  return "unknown distribution";
}

std::string operating_system() {
  const utsname names = system_names();
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  return "unknown";
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::string iso_time(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts));
}

}  // namespace syncopate
