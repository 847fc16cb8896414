// OpenBLAS older than the CPU falls back to SSE3 kernels, three times slower than those the CPU can
// run. The choice is fixed when the library loads.
#pragma once

#include <string>

namespace syncopate {

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

}  // namespace syncopate
