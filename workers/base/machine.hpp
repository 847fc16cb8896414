// The part of a machine's memory that is this process's own, where several divide it (`run --jobs`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace syncopate {

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
