// The part of a machine's memory that is this process's own, where several divide it (`run --jobs`).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

namespace syncopate {

// Where and when a run takes place.
std::string host_name();
std::string distribution_name();  // "Debian GNU/Linux 13 (trixie)"
std::string operating_system();   // "Linux 6.1.0 x86_64"
// As the system names it; "unknown" where it does not.
std::string processor_name();
// Mean number of processes that were ready to run, over the last minute; 0 where that is not known.
double load_average();

// ISO 8601 in UTC to the second: "2024-05-01T12:00:00Z".
std::string iso_time(std::chrono::system_clock::time_point time);

// OpenBLAS older than the CPU falls back to SSE3 kernels, three times slower than those the CPU can
// run. The choice is fixed when the library loads.
// Name of the kernel in use: "SkylakeX", "Haswell", ... of OpenBLAS; "MKL 2024.2", which PyTorch from pip has inside;
// or "not OpenBLAS".
std::string blas_kernel();
bool blas_says_its_kernel();  // false: it is not OpenBLAS, and what it chooses is not known

// Whether BLAS is the reference library, slower by an order of magnitude: worth a warning.
bool blas_is_reference();

// BLAS on one thread, if it is loaded: parallelism comes from independent gradients.
void use_one_blas_thread();

// Call first in main. Unless the user has chosen a kernel, sets OPENBLAS_CORETYPE to the one for this CPU's vectors,
// for when OpenBLAS is loaded. A program that is linked with it has loaded it already: where its kernel is one of the
// slow ones, the program re-executes itself, once. Calls use_one_blas_thread().
void use_best_blas_kernel(char** argv);

// How much memory this process can still take.
// The least of what the machine has free (with swap space), what this process's control groups leave, and what a limit
// on the address space (ulimit -v) or on data (ulimit -d) leaves. As large as possible where nothing is known.
std::int64_t free_memory_bytes();

// What the control group of this process and those above it leave, of version 1 or 2: a job of Slurm's, a service of
// systemd's or a container has its limit in any of them. What files take in memory counts as free where it can go.
// `root`: where proc and sys lie, other than "/" in tests.
std::int64_t left_by_control_groups(const std::filesystem::path& root = "/");

struct MemoryPart {
  std::int64_t bytes = 0;
  int threads = 1;               // that compute
  std::int64_t hardly_held = 0;  // bytes that are going to be mapped, and of which little is touched
};
// What this process takes beyond its part is refused from now on (std::bad_alloc); what it holds already stays. The
// system limits what is mapped, not what is held, so what is mapped and not held is allowed on top: by now, for stacks
// of threads, and `hardly_held`. Called when LibTorch has been loaded. Throws std::runtime_error where BLAS would not
// get what it maps.
void keep_to_memory_part(const MemoryPart& part);

// Where there is a limit on what this process maps (ulimit -v, ulimit -d): what BLAS maps for so many threads that
// compute, which it would else try to get for ever. Called when LibTorch has been loaded, before the first product.
// Throws std::runtime_error where the limit leaves less.
void reserve_blas_memory(int threads);

// While LibTorch is loaded where there is such a limit. OpenBLAS maps a buffer for each of its threads then, before
// anybody can ask it for less: it gets one thread, and where it finds no room for that one's buffer, and so would go on
// for ever, the process ends with status 1 and the reason.
class LimitedBlasLoading {
 public:
  LimitedBlasLoading();
  ~LimitedBlasLoading();
  LimitedBlasLoading(const LimitedBlasLoading&) = delete;
  LimitedBlasLoading& operator=(const LimitedBlasLoading&) = delete;

 private:
  std::optional<std::string> threads_before_;  // as the environment says
  std::jthread watch_;                         // none where there is no limit
};

}  // namespace syncopate
