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
// The mean number of processes ready to run over the last minute; 0 if unknown.
double load_average();

// ISO 8601 in UTC to the second: "2024-05-01T12:00:00Z".
std::string iso_time(std::chrono::system_clock::time_point time);

// The BLAS kernel in use: OpenBLAS's "SkylakeX", "Haswell", ...; "MKL 2024.2" (part of PyTorch from pip); or "not
// OpenBLAS". An OpenBLAS older than the CPU falls back to SSE3 kernels, three times slower than those the CPU can run.
// The choice is fixed when the library loads.
std::string blas_kernel();
bool blas_says_its_kernel();  // false: not OpenBLAS; the choice of kernel is unknown

// Whether BLAS is the reference library, which is slower by an order of magnitude.
bool blas_is_reference();

// Restricts BLAS, if it is loaded, to one thread: parallelism comes from independent gradients.
void use_one_blas_thread();

// Call it first in main. Unless the user has chosen a kernel, sets OPENBLAS_CORETYPE to the best one for this CPU. If
// OpenBLAS is already loaded with a slow kernel, as in a program linked with it, the program re-executes itself once.
// Calls use_one_blas_thread().
void use_best_blas_kernel(char** argv);

// Memory that this process can still allocate. It is the least of: the machine's free memory (with swap space), and
// what its control groups and its limits on address space (ulimit -v) and data (ulimit -d) leave. The largest number if
// nothing is known.
std::int64_t free_memory_bytes();

// Memory left by the control group of this process and those above it, of version 1 or 2. The limit of a Slurm job, a
// systemd service or a container can be in any of them. Cached files count as free. `root`: the folder that contains
// proc and sys; tests use others than "/".
std::int64_t left_by_control_groups(const std::filesystem::path& root = "/");

struct MemoryPart {
  std::int64_t bytes = 0;
  int threads = 1;               // computing threads
  std::int64_t hardly_held = 0;  // bytes that will be mapped but hardly touched
};
// Limits this process to its part of the machine's memory (`run --jobs`): further allocations fail (std::bad_alloc).
// What it holds already stays. The system limits mapped memory, not held memory. So memory that is mapped but not held
// is allowed in addition: what is mapped now, thread stacks, and `hardly_held`. Call it after LibTorch has been loaded.
// Throws std::runtime_error if BLAS would not get its buffers.
void keep_to_memory_part(const MemoryPart& part);

// Under a limit on mapped memory (ulimit -v, ulimit -d): maps BLAS's buffers for this many computing threads, which
// BLAS would otherwise try to allocate for ever. Call it after LibTorch has been loaded, before the first product.
// Throws std::runtime_error if the limit leaves too little.
void reserve_blas_memory(int threads);

// Exists while LibTorch is loaded under such a limit. OpenBLAS then maps a buffer per thread before it can be told to
// take fewer threads: it gets one. Without room for that thread's buffer it would try for ever: the process ends with
// status 1 and the reason.
class LimitedBlasLoading {
 public:
  LimitedBlasLoading();
  ~LimitedBlasLoading();
  LimitedBlasLoading(const LimitedBlasLoading&) = delete;
  LimitedBlasLoading& operator=(const LimitedBlasLoading&) = delete;

 private:
  std::optional<std::string> threads_before_;  // value of the environment variable
  std::jthread watch_;                         // none without a limit
};

}  // namespace syncopate
