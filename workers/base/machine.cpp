#include "workers/base/machine.hpp"

#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace syncopate {

namespace fs = std::filesystem;

namespace {

utsname system_names() {
  utsname names{};
  uname(&names);  // cannot fail with a valid pointer
  return names;
}

// Returns the text behind `key` in the first line that begins with it; nullopt if there is no such line.
std::optional<std::string> rest_of_line(const fs::path& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

constexpr const char* kernel_variable = "OPENBLAS_CORETYPE";
// Set before the program re-executes itself, so that it re-executes at most once.
constexpr const char* guard_variable = "SYNCOPATE_BLAS_KERNEL_CHOSEN";

// Returns a function of the loaded libraries, or null. The function is looked up at run time, because the build does
// not depend on OpenBLAS.
template <typename Function>
Function* loaded_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Whether OpenBLAS's x86 kernel of this name does not use AVX2.
bool lacks_avx2(std::string_view kernel) {
  constexpr std::array<std::string_view, 21> old_kernels = {
      "Katmai", "Coppermine", "Northwood",  "Prescott",    "Banias",  "Core2",        "Penryn",
      "Atom",   "Dunnington", "Nehalem",    "Athlon",      "Opteron", "Opteron_SSE3", "Barcelona",
      "Bobcat", "Bulldozer",  "Piledriver", "Steamroller", "Nano",    "Sandybridge",  "Generic"};
  return std::ranges::find(old_kernels, kernel) != old_kernels.end();
}

// OpenBLAS's best kernel for this CPU; empty if the CPU lacks AVX2.
std::string best_kernel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

// For example "MKL 2024.2"; empty without Intel's MKL.
std::string mkl_version() {
  auto* const version_string = loaded_function<void(char*, int)>("MKL_Get_Version_String");
  if (!version_string) return "";
  std::array<char, 200> text{};
  version_string(text.data(), static_cast<int>(text.size()));
  // The text is "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for ..."
  const std::string version(text.data());
  const std::size_t begin = version.find_first_of("0123456789");
  return begin == std::string::npos ? "MKL"
                                    : "MKL " + version.substr(begin, version.find_first_of("- ", begin) - begin);
}

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> number_in_line(const fs::path& file, std::string_view key) {
  std::int64_t value = 0;
  return std::istringstream(rest_of_line(file, key).value_or("")) >> value ? std::optional(value) : std::nullopt;
}

// Returns the number of bytes in a line such as "MemAvailable:   23492296 kB".
std::optional<std::int64_t> kilobytes(const char* file, std::string_view key) {
  const auto number = number_in_line(file, key);
  return number ? std::optional(*number * 1024) : std::nullopt;
}

// Returns the number in a file; nullopt if the file is missing or contains "max".
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

std::int64_t own_bytes(std::string_view key) { return kilobytes("/proc/self/status", key).value_or(0); }

std::int64_t left_by_machine() {
  const auto available = kilobytes("/proc/meminfo", "MemAvailable:");
  return available ? *available + kilobytes("/proc/meminfo", "SwapFree:").value_or(0) : unlimited;
}

struct GroupFiles {
  std::vector<const char*> limits;
  const char* used;
  const char* cached;  // key in memory.stat: cached files not used recently, which are evicted when needed
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

// Returns the least memory that a group, such as "/system.slice/job", or one of the groups above it allows. In a
// container, the root can be the container's own group. The folders of `group` are then missing and count as unlimited.
std::int64_t left_by_groups(const fs::path& groups, const fs::path& group, const GroupFiles& files) {
  std::int64_t least = left_by_group(groups, files);
  fs::path above = groups;
  for (const fs::path& part : group.lexically_normal().relative_path())
    least = std::min(least, left_by_group(above /= part, files));
  return least;
}

// Returns the bytes that a resource limit still allows. `used` is the key in /proc/self/status of the memory that the
// limit counts.
std::int64_t left_by_limit(__rlimit_resource of, const char* used) {
  rlimit limit{};
  if (getrlimit(of, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  return static_cast<std::int64_t>(limit.rlim_cur) - own_bytes(used);
}

// Returns the bytes that ulimit -v and ulimit -d still allow.
std::int64_t left_by_limits() {
  return std::min(left_by_limit(RLIMIT_AS, "VmSize:"), left_by_limit(RLIMIT_DATA, "VmData:"));
}

constexpr std::size_t blas_buffer_bytes = std::size_t{128} << 20;  // in OpenBLAS 0.3 on x86-64
constexpr int most_blas_buffers = 128;                             // fewer than OpenBLAS's table has room for
constexpr std::int64_t thread_stack_bytes = 8 << 20;
constexpr int other_threads = 4;  // threads of LibTorch, the progress display and leases

bool can_map_blas_buffers(int number) {
  std::vector<void*> mapped;
  for (int i = 0; i < number; ++i) {
    void* const buffer = mmap(nullptr, blas_buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) break;
    mapped.push_back(buffer);
  }
  for (void* const buffer : mapped) munmap(buffer, blas_buffer_bytes);
  return std::ssize(mapped) == number;
}

// Makes OpenBLAS allocate its buffers before a limit applies, or before the first product. OpenBLAS maps a buffer for
// each thread that calls it at the same time, and never unmaps it. If mapping fails, OpenBLAS retries forever. Does
// nothing without OpenBLAS.
void reserve_blas_buffers(int threads) {
  auto* const take = loaded_function<void*(int)>("blas_memory_alloc");
  auto* const give_back = loaded_function<void(void*)>("blas_memory_free");
  if (!take || !give_back) return;
  const int number = std::min(threads, most_blas_buffers);
  if (!can_map_blas_buffers(number))
    throw std::runtime_error(
        "the memory does not suffice: OpenBLAS maps 128 MiB for each thread, and the limit on mapped memory (ulimit "
        "-d, ulimit -v) leaves less; raise the limit or use fewer --threads");
  std::vector<void*> buffers;
  for (int i = 0; i < number; ++i) buffers.push_back(take(0));
  for (void* const buffer : buffers)
    if (buffer) give_back(buffer);
}

constexpr const char* blas_threads = "OPENBLAS_NUM_THREADS";

// Ends the process if no buffer can be mapped for five seconds while OpenBLAS is being loaded. OpenBLAS could not map
// its own buffer either.
void end_where_blas_finds_no_room(const std::stop_token& is_loaded) {
  constexpr int attempts = 50;
  constexpr auto between = std::chrono::milliseconds(100);
  for (int failed = 0; failed < attempts && !is_loaded.stop_requested(); std::this_thread::sleep_for(between))
    failed = can_map_blas_buffers(1) ? 0 : failed + 1;
  if (is_loaded.stop_requested()) return;
  std::fputs(
      "syncopate: the memory does not suffice: OpenBLAS maps 128 MiB when it is loaded, and the limit on mapped memory "
      "(ulimit -d, ulimit -v) leaves less; raise the limit\n",
      stderr);
  std::_Exit(1);
}

}  // namespace

std::string host_name() { return system_names().nodename; }

std::string distribution_name() {
  std::string name = rest_of_line("/etc/os-release", "PRETTY_NAME=").value_or("unknown distribution");
  std::erase(name, '"');
  return name;
}

std::string operating_system() {
  const utsname names = system_names();
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

std::string processor_name() { return rest_of_line("/proc/cpuinfo", "model name\t: ").value_or("unknown"); }

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::string iso_time(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

bool blas_is_reference() {
  // Looks for the library that provides matrix products, because another BLAS may be loaded as well.
  Dl_info info;
  void* const sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  if (!sgemm || dladdr(sgemm, &info) == 0 || !info.dli_fname) return false;
  std::error_code failed;
  const fs::path file = fs::canonical(info.dli_fname, failed);
  if (failed || !file.filename().string().starts_with("libblas")) return false;
  // Linux distributions store the libblas of a fast library in a folder with that library's name.
  constexpr std::array<std::string_view, 4> fast_libraries = {"openblas", "blis", "atlas", "mkl"};
  return std::ranges::none_of(fast_libraries, [folder = file.parent_path().string()](std::string_view name) {
    return folder.find(name) != std::string::npos;
  });
}

bool blas_says_its_kernel() {
  return mkl_version().empty() && loaded_function<char*()>("openblas_get_corename") && !blas_is_reference();
}

std::string blas_kernel() {
  if (const std::string mkl = mkl_version(); !mkl.empty()) return mkl;
  return blas_says_its_kernel() ? loaded_function<char*()>("openblas_get_corename")() : "not OpenBLAS";
}

void use_one_blas_thread() {
  if (auto* const set_threads = loaded_function<void(int)>("openblas_set_num_threads")) set_threads(1);
}

void use_best_blas_kernel(char** argv) {
  use_one_blas_thread();
  const std::string better = best_kernel();
  if (better.empty() || std::getenv(kernel_variable) || std::getenv(guard_variable)) return;
  const bool is_loaded = loaded_function<char*()>("openblas_get_corename") != nullptr;
  if (is_loaded && !lacks_avx2(blas_kernel())) return;
  setenv(kernel_variable, better.c_str(), 1);
  if (!is_loaded) return;  // OpenBLAS will read the variable
  setenv(guard_variable, "1", 1);
  execv("/proc/self/exe", argv);
  // Re-executing failed: continue with the slow kernel.
  unsetenv(kernel_variable);
}

// Lines of /proc/self/cgroup are "<number>:<controllers>:<group>"; version 2 has no controllers.
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
    } else if (fmt::format(",{},", controllers).find(",memory,") != std::string::npos) {
      least = std::min(least, left_by_groups(groups / "memory", group, version_1));
    }
  }
  return least;
}

std::int64_t free_memory_bytes() {
  return std::max<std::int64_t>(0, std::min({left_by_machine(), left_by_control_groups(), left_by_limits()}));
}

LimitedBlasLoading::LimitedBlasLoading() {
  if (left_by_limits() == unlimited) return;
  if (const char* const before = std::getenv(blas_threads)) threads_before_ = before;
  setenv(blas_threads, "1", 1);
  watch_ = std::jthread(end_where_blas_finds_no_room);
}

LimitedBlasLoading::~LimitedBlasLoading() {
  if (!watch_.joinable()) return;
  watch_.request_stop();
  watch_.join();
  if (threads_before_)
    setenv(blas_threads, threads_before_->c_str(), 1);
  else
    unsetenv(blas_threads);
}

void reserve_blas_memory(int threads) {
  if (left_by_limits() != unlimited) reserve_blas_buffers(threads);
}

void keep_to_memory_part(const MemoryPart& part) {
  reserve_blas_buffers(part.threads + 1);  // plus 1, because the main thread can compute, too
  const std::int64_t held = own_bytes("RssAnon:");
  const std::int64_t not_held = std::max<std::int64_t>(0, own_bytes("VmData:") - held);
  const std::int64_t stacks = (part.threads + other_threads) * thread_stack_bytes;
  const auto most = static_cast<rlim_t>(std::max(part.bytes, held) + not_held + stacks + part.hardly_held);
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_cur, most);
  setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace syncopate
