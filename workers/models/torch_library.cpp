#include "workers/models/torch_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <torch/version.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/models/models.hpp"

namespace syncopate {

namespace {

constexpr const char* library_name = "syncopate_torch.so";

std::atomic<bool> loaded = false;

// The full path, because sanitizers intercept dlopen and would search a bare name in their own directory.
std::string path_of_library() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).replace_filename(library_name);
}

// The library is never unloaded, because objectives and LibTorch's threads exist until the end.
TorchFunctions load() {
  // RTLD_GLOBAL, so that machine.hpp finds the BLAS that comes with LibTorch.
  void* const library = [] {
    const LimitedBlasLoading limited;
    return dlopen(path_of_library().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }();
  if (!library) {
    const std::string why = dlerror();
    const bool has_no_room = why.find("failed to map") != why.npos || why.find("annot allocate memory") != why.npos;
    throw std::runtime_error(
        has_no_room
            ? fmt::format(
                  "the memory does not suffice: a limit on the memory that a process maps (ulimit -v, ulimit -d) "
                  "leaves no room for LibTorch: {}",
                  why)
            : fmt::format("cannot load {}, which is built with the program and needs LibTorch: {}", library_name, why));
  }
  void* const entry = dlsym(library, torch_entry_name);
  if (!entry) throw std::runtime_error(fmt::format("{} does not belong to this program: {}", library_name, dlerror()));
  use_one_blas_thread();
  reserve_blas_memory(1);
  loaded = true;
  TorchFunctions functions{};
  reinterpret_cast<TorchEntry>(entry)(interrupted, functions);
  return functions;
}

// Loads LibTorch and, for a GPU, libtorch_cuda.so. That library is in the same folder, but nothing is linked with it.
// Returns why it cannot be loaded; empty: it is loaded, or LibTorch was built without it.
std::string load_torch_of(const std::string& device) {
  torch_functions();
  if (!device.starts_with("cuda")) return "";
  static const std::string why = [] {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // cuBLAS needs it for reproducible results
    const auto file = std::filesystem::path(loaded_torch_file()).replace_filename("libtorch_cuda.so");
    std::error_code unknown;
    if (!std::filesystem::exists(file, unknown)) return std::string();
    return dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)
               ? std::string()
               : fmt::format("{} cannot be loaded: {}", file.string(), dlerror());
  }();
  return why;
}

}  // namespace

const TorchFunctions& torch_functions() {
  static const TorchFunctions functions = load();
  return functions;
}

void load_torch() { torch_functions(); }
bool torch_is_loaded() { return loaded; }
std::string torch_kernels(const std::string& device) {
  if (!torch_is_loaded()) return "none loaded";
  const std::string kernels = torch_functions().kernels(), name = torch_functions().name_of_device(device);
  return name.empty() ? kernels : fmt::format("{}, {}", kernels, name);
}

std::string torch_device(const std::string& device) {
  const std::string name = torch_is_loaded() ? torch_functions().name_of_device(device) : "";
  return name.empty() ? device : name;
}

std::string loaded_torch_file() {
  std::string file;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        if (std::string_view(library->dlpi_name).find("/libtorch_cpu.") == std::string_view::npos) return 0;
        *static_cast<std::string*>(found) = library->dlpi_name;
        return 1;
      },
      &file);
  return file;
}

// The variables are read when libraries are loaded: the first by glog, which writes the warnings of Debian's LibTorch
// 1, the second by LibTorch itself.
void silence_torch_warnings() {
  for (const char* const level : {"GLOG_minloglevel", "TORCH_CPP_LOG_LEVEL"}) setenv(level, "2", /*overwrite=*/0);
}

std::shared_ptr<const Objective> make_torch_objective(const TorchRequest& request) {
  if (request.arithmetic != Arithmetic{})
    if (const std::string why = why_no_arithmetic(request.arithmetic); !why.empty())
      throw RunFailure(fmt::format("training.device = \"{}\": {}", request.arithmetic.device, why));
  return torch_functions().make_objective(request);
}

std::string why_no_arithmetic(const Arithmetic& arithmetic) {
  const std::string why = load_torch_of(arithmetic.device);
  return why.empty() ? torch_functions().why_no_arithmetic(arithmetic) : why;
}

std::string gpus_of_torch() {
  std::string names;
  for (int number = 0;; ++number) {
    const std::string device = fmt::format("cuda:{}", number);
    if (const std::string why = why_no_arithmetic({.device = device}); !why.empty())
      return names.empty() ? "none: " + why : names;
    names += (names.empty() ? "" : ", ") + torch_functions().name_of_device(device);
  }
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace syncopate
