// How much memory this process can still take.
#pragma once

#include <cstdint>

namespace syncopate {

// The least of what the machine has free (with swap space), what the control group of a container leaves, and what a
// limit on the address space (ulimit -v) or on data (ulimit -d) leaves. As large as possible where nothing is known.
std::int64_t free_memory_bytes();

}  // namespace syncopate
