// Loops over flat vectors are compiled once per instruction set and chosen when the program loads, so that a build
// without -march flags is fast and still runs everywhere. The clones give equal bits if their file is compiled with
// -ffp-contract=off (workers/CMakeLists.txt): the wide ones would otherwise fuse a multiplication and an addition into
// one rounding.
#pragma once

#include <cstddef>  // tells which C library this is

// Elsewhere the loop is compiled once, for the baseline: other processors, systems without indirect functions, and
// ThreadSanitizer, which is not ready when the choice is made.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define SYNCOPATE_VECTOR_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define SYNCOPATE_VECTOR_CLONES
#endif

// Put it before a loop that never reads what earlier iterations wrote.
#if defined(__clang__)
#define SYNCOPATE_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define SYNCOPATE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif
