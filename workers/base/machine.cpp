#include "workers/process/memory_part.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {
namespace {

constexpr std::size_t blas_buffer_bytes = std::size_t{128} << 20;  // of OpenBLAS 0.3 on x86-64
constexpr int most_blas_buffers = 128;                             // fewer than it has places for
constexpr std::int64_t thread_stack_bytes = 8 << 20;
constexpr int other_threads = 4;  // LibTorch's, and those that show progress and keep leases

// Of this process, by the system's name for it.
std::int64_t own_bytes(std::string_view name) {
  std::ifstream lines("/proc/self/status");
  std::string key;
  for (std::int64_t value = 0; lines >> key; lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (key == name && lines >> value) return value * 1024;
  return 0;
}

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

bool has_limit() {
  for (const auto what : {RLIMIT_AS, RLIMIT_DATA})
    if (rlimit limit{}; getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  return false;
}

// OpenBLAS maps a buffer for each thread that calls it at once, keeps it, and where it gets none it tries for ever: so
// it has them before there is a limit, or before the first product. Another BLAS, or none: nothing is done.
void reserve_blas_buffers(int threads) {
  auto* const take = reinterpret_cast<void* (*)(int)>(dlsym(RTLD_DEFAULT, "blas_memory_alloc"));
  auto* const give_back = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "blas_memory_free"));
  if (!take || !give_back) return;
  const int number = std::min(threads, most_blas_buffers);
  if (!can_map_blas_buffers(number))
    throw std::runtime_error(
        "the memory does not suffice: OpenBLAS maps 128 MiB for each thread, and a limit on what "
        "a process maps (ulimit -d, ulimit -v) leaves less; must be more, or fewer --threads");
  std::vector<void*> buffers;
  for (int i = 0; i < number; ++i) buffers.push_back(take(0));
  for (void* const buffer : buffers)
    if (buffer) give_back(buffer);
}

}  // namespace

namespace {

constexpr const char* blas_threads = "OPENBLAS_NUM_THREADS";

// Loading goes on for a while beside an attempt of this thread's own that fails, but not for so long.
void end_where_blas_finds_no_room(const std::stop_token& is_loaded) {
  constexpr int attempts = 50;
  constexpr auto between = std::chrono::milliseconds(100);
  for (int failed = 0; failed < attempts && !is_loaded.stop_requested(); std::this_thread::sleep_for(between))
    failed = can_map_blas_buffers(1) ? 0 : failed + 1;
  if (is_loaded.stop_requested()) return;
  std::fputs(
      "syncopate: the memory does not suffice: OpenBLAS maps 128 MiB when it is loaded, and a limit on what a process "
      "maps (ulimit -d, ulimit -v) leaves less\n",
      stderr);
  std::_Exit(1);
}

}  // namespace

LimitedBlasLoading::LimitedBlasLoading() {
  if (!has_limit()) return;
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
  if (has_limit()) reserve_blas_buffers(threads);
}

void keep_to_memory_part(const MemoryPart& part) {
  reserve_blas_buffers(part.threads + 1);  // the main thread may compute too
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
