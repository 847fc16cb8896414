// Which kernels LibTorch has chosen for this processor: they decide the last bits of what it computes.
#pragma once

#include <string>

namespace syncopate {

// Of ATen, and of oneDNN where it is found: "AVX512, oneDNN avx512_core". $ATEN_CPU_CAPABILITY and $ONEDNN_MAX_CPU_ISA
// change them. In the library that has LibTorch; the program asks by torch_library.hpp.
std::string kernels_of_torch();

}  // namespace syncopate
