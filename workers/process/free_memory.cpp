#include "workers/process/free_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

// The number behind the name, in the line that begins with it; none where there is no such line.
std::optional<std::int64_t> number_in_line(const fs::path& file, const std::string& name) {
  std::ifstream lines(file);
  std::string key;
  for (std::int64_t value = 0; lines >> key; lines.ignore(unlimited, '\n'))
    if (key == name && lines >> value) return value;
  return {};
}

// Of lines such as "MemAvailable:   23492296 kB".
std::optional<std::int64_t> kilobytes(const char* file, const std::string& name) {
  const auto number = number_in_line(file, name);
  return number ? std::optional(*number * 1024) : std::nullopt;
}

// None where the file is missing, or says "max".
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

std::int64_t left_by_machine() {
  const auto available = kilobytes("/proc/meminfo", "MemAvailable:");
  return available ? *available + kilobytes("/proc/meminfo", "SwapFree:").value_or(0) : unlimited;
}

// The names of the files of a control group.
struct GroupFiles {
  std::vector<const char*> limits;
  const char* used;
  const char* cached;  // in memory.stat: files that nobody has used lately, which go where memory is needed
};
const GroupFiles version_1{{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"};
const GroupFiles version_2{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

std::int64_t left_by_group(const fs::path& group, const GroupFiles& files) {
  std::int64_t most = unlimited;
  for (const char* const limit : files.limits) most = std::min(most, number_in(group / limit).value_or(unlimited));
  if (most == unlimited) return unlimited;
  const std::int64_t used = number_in(group / files.used).value_or(0);
  const std::int64_t cached = number_in_line(group / "memory.stat", files.cached).value_or(0);
  return most - std::max<std::int64_t>(0, used - cached);
}

// `group`: "/system.slice/job", below where the control groups lie. A container may see its own group there in the place
// of all: then the folders of that name are not there.
std::int64_t left_by_groups(const fs::path& groups, const fs::path& group, const GroupFiles& files) {
  std::int64_t least = left_by_group(groups, files);
  fs::path above = groups;
  for (const fs::path& part : group.lexically_normal().relative_path())
    least = std::min(least, left_by_group(above /= part, files));
  return least;
}

bool has_memory(std::string_view controllers) {
  for (const auto part : std::views::split(controllers, ','))
    if (std::string_view(part.begin(), part.end()) == "memory") return true;
  return false;
}

// `used`: the system's name for what counts towards the limit.
std::int64_t left_by_limit(__rlimit_resource of, const char* used) {
  rlimit limit{};
  if (getrlimit(of, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  return static_cast<std::int64_t>(limit.rlim_cur) - kilobytes("/proc/self/status", used).value_or(0);
}

}  // namespace

// Of /proc/self/cgroup, lines "<number>:<controllers>:<group>"; version 2 has no controllers there.
std::int64_t left_by_control_groups(const fs::path& root) {
  const fs::path groups = root / "sys/fs/cgroup";
  std::int64_t least = std::min(left_by_group(groups, version_2), left_by_group(groups / "memory", version_1));
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const fs::path& place : {groups, groups / "unified"})
        least = std::min(least, left_by_groups(place, group, version_2));
    } else if (has_memory(controllers)) {
      least = std::min(least, left_by_groups(groups / "memory", group, version_1));
    }
  }
  return least;
}

std::int64_t free_memory_bytes() {
  return std::max<std::int64_t>(
      0, std::min({left_by_machine(), left_by_control_groups(), left_by_limit(RLIMIT_AS, "VmSize:"),
                   left_by_limit(RLIMIT_DATA, "VmData:")}));
}

}  // namespace syncopate
