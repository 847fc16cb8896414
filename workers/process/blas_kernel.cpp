#include "workers/process/blas_kernel.hpp"

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
  constexpr std::array<std::string_view, 21> old_kernels = {
      "Katmai", "Coppermine", "Northwood",  "Prescott",    "Banias",  "Core2",        "Penryn",
      "Atom",   "Dunnington", "Nehalem",    "Athlon",      "Opteron", "Opteron_SSE3", "Barcelona",
      "Bobcat", "Bulldozer",  "Piledriver", "Steamroller", "Nano",    "Sandybridge",  "Generic"};
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

bool blas_is_reference() {
  // The library that the loader takes matrix products from; another BLAS may be loaded as well.
  Dl_info info;
  void* const sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  if (!sgemm || dladdr(sgemm, &info) == 0 || !info.dli_fname) return false;
  std::error_code failed;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, failed);
  if (failed || !file.filename().string().starts_with("libblas")) return false;
  // Distributions keep a fast library's own libblas in a folder of its name.
  constexpr std::array<std::string_view, 4> fast_libraries = {"openblas", "blis", "atlas", "mkl"};
  return std::ranges::none_of(fast_libraries, [folder = file.parent_path().string()](std::string_view name) {
    return folder.find(name) != std::string::npos;
  });
}

namespace {

// Intel's MKL, which PyTorch from pip has inside: "MKL 2024.2"; empty where there is none.
std::string mkl_version() {
  auto* const version_string = loaded_function<void(char*, int)>("MKL_Get_Version_String");
  if (!version_string) return "";
  std::array<char, 200> text{};
  version_string(text.data(), static_cast<int>(text.size()));
  // "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for ..."
  const std::string version(text.data());
  const std::size_t begin = version.find_first_of("0123456789");
  return begin == std::string::npos ? "MKL"
                                    : "MKL " + version.substr(begin, version.find_first_of("- ", begin) - begin);
}

}  // namespace

bool blas_says_its_kernel() {
  return mkl_version().empty() && loaded_function<char*()>("openblas_get_corename") && !blas_is_reference();
}

std::string blas_kernel() {
  if (const std::string mkl = mkl_version(); !mkl.empty()) return mkl;
  return blas_says_its_kernel() ? loaded_function<char*()>("openblas_get_corename")() : "not OpenBLAS";
}

void use_one_blas_thread() {
  if (auto* const set_threads = loaded_function<void(int)>("openblas_set_num_threads")) set_threads(1);
}

void use_best_blas_kernel(char** argv) {
  use_one_blas_thread();
  const std::string better = best_kernel();
  if (better.empty() || std::getenv(kernel_variable) || std::getenv(guard_variable)) return;
  const bool is_loaded = loaded_function<char*()>("openblas_get_corename") != nullptr;
  if (is_loaded && !lacks_avx2(blas_kernel())) return;
  setenv(kernel_variable, better.c_str(), 1);
  if (!is_loaded) return;  // it will find the choice
  setenv(guard_variable, "1", 1);
  execv("/proc/self/exe", argv);
  // Still here: the program could not be started again, so it goes on with the slow kernel.
  unsetenv(kernel_variable);
}

}  // namespace syncopate
