// The machine that a run uses: names, BLAS library, memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

namespace syncopate {

std::string host_name();
std::string distribution_name();  // "Debian GNU/Linux 13 (trixie)"
std::string operating_system();   // "Linux 6.1.0 x86_64"
std::string processor_name();     // or "unknown"
// The mean number of processes, over the last minute, that run or wait for a processor or a disk; 0 if unknown.
double load_average();

// ISO 8601 in UTC to the second: "2024-05-01T12:00:00Z".
std::string iso_time(std::chrono::system_clock::time_point time);

// Names the BLAS kernel in use: "SkylakeX", "Haswell", ... for OpenBLAS, "MKL 2024.2" for Intel's MKL (which PyTorch
// from pip contains), or "not OpenBLAS". An OpenBLAS that is older than the CPU falls back to SSE3 kernels, which are
// three times slower than the best kernels for that CPU. OpenBLAS chooses its kernel once, when it is loaded.
std::string blas_kernel();
bool blas_says_its_kernel();  // false if BLAS is not OpenBLAS, so that its kernel is unknown

// Whether BLAS is the reference library, which is slower than OpenBLAS by an order of magnitude.
bool blas_is_reference();

// Restricts OpenBLAS, if it is loaded, to one thread, because independent gradients are computed in parallel.
void use_one_blas_thread();

// Call it first in main. Sets OPENBLAS_CORETYPE to the best kernel for this CPU, unless the user has set it. If
// OpenBLAS is already loaded with a slow kernel, as in a program linked with it, the program re-executes itself once
// with `argv`. Calls use_one_blas_thread().
void use_best_blas_kernel(char** argv);

// Memory that this process can still allocate: the smallest of the machine's free memory with swap space, and of what
// control groups, ulimit -v (address space) and ulimit -d (data) leave. The largest std::int64_t if none of these is
// known.
std::int64_t free_memory_bytes();

// The memory that this process's control group and the groups above it still allow (cgroups version 1 or 2). Any of
// these groups can have the limit: a Slurm job's, a systemd service's or a container's. Cached files that were not used
// recently count as free. `root` is the folder that contains proc and sys; tests pass other folders than "/".
std::int64_t left_by_control_groups(const std::filesystem::path& root = "/");

struct MemoryPart {
  std::int64_t bytes = 0;
  int threads = 1;               // computing threads
  std::int64_t hardly_held = 0;  // bytes that will be mapped, but mostly not touched
};
// Limits this process to its part of the machine's memory (`run --jobs`). The process keeps the memory that it holds,
// but allocations beyond the part fail (std::bad_alloc). The kernel can only limit mapped memory, not resident memory.
// The limit therefore also includes memory that is mapped but not resident: mappings that exist now, thread stacks, and
// `hardly_held`. Call it after LibTorch has been loaded. Throws std::runtime_error if BLAS would not get its buffers.
void keep_to_memory_part(const MemoryPart& part);

// If mapped memory is limited (ulimit -v, ulimit -d), maps BLAS's buffers for this many computing threads in advance.
// Later, OpenBLAS would retry a failed allocation forever. Call it after LibTorch has been loaded, before the first
// product. Throws std::runtime_error if the limit leaves too little.
void reserve_blas_memory(int threads);

// Create this guard before LibTorch is loaded, and destroy it afterwards. It does nothing without a limit on mapped
// memory. When OpenBLAS is loaded, it maps a buffer for each of its threads. The guard therefore sets OpenBLAS's number
// of threads to one. Without room for one buffer OpenBLAS would retry forever; the guard then ends the process with a
// message and status 1.
class LimitedBlasLoading {
 public:
  LimitedBlasLoading();
  ~LimitedBlasLoading();
  LimitedBlasLoading(const LimitedBlasLoading&) = delete;
  LimitedBlasLoading& operator=(const LimitedBlasLoading&) = delete;

 private:
  std::optional<std::string> threads_before_;  // OPENBLAS_NUM_THREADS of the user
  std::jthread watch_;                         // not started if there is no limit
};

}  // namespace syncopate
