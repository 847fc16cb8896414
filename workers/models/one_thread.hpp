// For sources with LibTorch alone.
#pragma once

#include <ATen/Parallel.h>

namespace syncopate {

// One intra-op thread per thread of ours: parallelism comes from independent gradients.
inline void use_one_thread() {
  thread_local const bool done = (at::set_num_threads(1), true);
  static_cast<void>(done);
}

}  // namespace syncopate
