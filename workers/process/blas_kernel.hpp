// OpenBLAS older than the CPU falls back to SSE3 kernels, three times slower than those the CPU can
// run. The choice is fixed when the library loads, so the program sets it and re-executes itself once.
#pragma once

#include <string>

namespace syncopate {

// Name of the kernel in use: "SkylakeX", "Haswell", ... or "not OpenBLAS".
std::string blas_kernel();

// Whether BLAS is the reference library, slower by an order of magnitude: worth a warning.
bool blas_is_reference();

// Call first in main. Re-executes the program with OPENBLAS_CORETYPE set if a better kernel exists and
// the user has not chosen one; sets BLAS to one thread (parallelism comes from independent gradients).
void use_best_blas_kernel(char** argv);

}  // namespace syncopate
