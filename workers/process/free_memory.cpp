#include "workers/process/free_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace syncopate {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

// Of lines such as "MemAvailable:   23492296 kB"; none where there is no such line.
std::optional<std::int64_t> kilobytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  std::string key;
  for (std::int64_t value = 0; lines >> key; lines.ignore(unlimited, '\n'))
    if (key == name && lines >> value) return value * 1024;
  return {};
}

// None where the file is missing, or says "max".
std::optional<std::int64_t> number_in(const char* file) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

std::int64_t left_by_machine() {
  const auto available = kilobytes("/proc/meminfo", "MemAvailable:");
  return available ? *available + kilobytes("/proc/meminfo", "SwapFree:").value_or(0) : unlimited;
}

std::int64_t left_by_control_group() {
  const auto most = number_in("/sys/fs/cgroup/memory.max");
  return most ? *most - number_in("/sys/fs/cgroup/memory.current").value_or(0) : unlimited;
}

// `used`: the system's name for what counts towards the limit.
std::int64_t left_by_limit(__rlimit_resource of, const char* used) {
  rlimit limit{};
  if (getrlimit(of, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  return static_cast<std::int64_t>(limit.rlim_cur) - kilobytes("/proc/self/status", used).value_or(0);
}

}  // namespace

std::int64_t free_memory_bytes() {
  return std::max<std::int64_t>(
      0, std::min({left_by_machine(), left_by_control_group(), left_by_limit(RLIMIT_AS, "VmSize:"),
                   left_by_limit(RLIMIT_DATA, "VmData:")}));
}

}  // namespace syncopate
