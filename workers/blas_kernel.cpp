#include "workers/blas_kernel.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace syncopate {
namespace {

constexpr const char* kernel_variable = "OPENBLAS_CORETYPE";
// Set before the program re-executes itself, so that it does so at most once.
constexpr const char* guard_variable = "SYNCOPATE_BLAS_KERNEL_CHOSEN";

// A function of the loaded libraries, null if none has it: OpenBLAS is no dependency of the build.
template <typename Function>
Function* loaded_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// OpenBLAS's x86 kernels without AVX2, by the names it gives them.
bool lacks_avx2(std::string_view kernel) {
  constexpr std::array<std::string_view, 19> old_kernels = {
      "Katmai",     "Coppermine", "Northwood", "Prescott",    "Banias",  "Core2",        "Penryn",
      "Dunnington", "Nehalem",    "Atom",      "Athlon",      "Opteron", "Opteron_SSE3", "Barcelona",
      "Bobcat",     "Bulldozer",  "Nano",      "Sandybridge", "Generic"};
  return std::ranges::find(old_kernels, kernel) != old_kernels.end();
}

// The best kernel that this CPU runs; empty if that is none with AVX2.
std::string best_kernel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

}  // namespace

std::string blas_kernel() {
  const auto* const kernel_name = loaded_function<char*()>("openblas_get_corename");
  return kernel_name ? kernel_name() : "not OpenBLAS";
}

bool blas_is_reference() {
  constexpr std::array<const char*, 3> fast_libraries = {"openblas_get_corename", "bli_info_get_version_str",
                                                         "MKL_Get_Version"};
  if (std::ranges::any_of(fast_libraries, [](const char* name) { return dlsym(RTLD_DEFAULT, name) != nullptr; })) {
    return false;
  }
  // LibTorch may carry a BLAS of its own; only a plain libblas is taken for the reference one.
  Dl_info info;
  void* const sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  if (!sgemm || dladdr(sgemm, &info) == 0 || !info.dli_fname) return false;
  std::error_code failed;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, failed);
  return !failed && file.filename().string().starts_with("libblas");
}

void use_best_blas_kernel(char** argv) {
  if (auto* const set_threads = loaded_function<void(int)>("openblas_set_num_threads")) set_threads(1);
  if (std::getenv(kernel_variable) || std::getenv(guard_variable) || !lacks_avx2(blas_kernel())) return;
  const std::string better = best_kernel();
  if (better.empty()) return;
  setenv(kernel_variable, better.c_str(), 1);
  setenv(guard_variable, "1", 1);
  execv("/proc/self/exe", argv);
  // Still here: the program could not be started again, so it goes on with the slow kernel.
  unsetenv(kernel_variable);
}

}  // namespace syncopate
