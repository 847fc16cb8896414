// Compiles loops over flat vectors once per instruction set. The loader chooses a clone when the program starts, so a
// build without -march flags is fast and still runs on every processor. The clones give equal bits if their file is
// compiled with -ffp-contract=off (workers/CMakeLists.txt). Without that flag the wide clones would fuse a
// multiplication and an addition, with a single rounding.
#pragma once

#include <cstddef>  // defines __GLIBC__

// Loops are compiled only once, for the baseline, in three cases: on other processors, on systems without indirect
// functions, and with ThreadSanitizer, which is not yet initialised when the loader chooses a clone.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define SYNCOPATE_VECTOR_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define SYNCOPATE_VECTOR_CLONES
#endif

// Put this macro before a loop whose iterations do not read what earlier iterations have written.
#if defined(__clang__)
#define SYNCOPATE_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define SYNCOPATE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif
