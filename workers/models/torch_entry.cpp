// The library's side of torch_library.hpp. The library contains its own copies of the few sources that TorchObjective
// calls; these have no state that affects results. Only the interruption flag is shared with the program.

#include <ATen/Version.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "workers/base/process.hpp"
#include "workers/models/matrix_steps.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {

namespace {

// The name of ATen's kernels. LibTorch 1.13 reveals it in no other function.
std::string capability_of_aten() {
  constexpr std::string_view before = "CPU capability usage: ";
  const std::string configuration = at::show_config();
  const std::size_t found = configuration.find(before);
  if (found == std::string::npos) return "unknown";
  const std::size_t begin = found + before.size();
  return configuration.substr(begin, configuration.find_first_of("\n,", begin) - begin);
}

// oneDNN's instruction set; empty if LibTorch has no oneDNN or hides it.
std::string instructions_of_onednn() {
  using Effective = int();
  using Name = const char*(int);
  auto* const effective = reinterpret_cast<Effective*>(dlsym(RTLD_DEFAULT, "dnnl_get_effective_cpu_isa"));
  auto* const name = reinterpret_cast<Name*>(dlsym(RTLD_DEFAULT, "dnnl_cpu_isa2str"));
  if (!effective || !name) return "";
  std::string_view text = name(effective());
  constexpr std::string_view prefix = "cpu_isa_";
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return std::string(text);
}

// The kernels that ATen, and oneDNN if found, have chosen for this processor, for example "AVX512, oneDNN avx512_core".
// They determine the last bits of results. $ATEN_CPU_CAPABILITY and $ONEDNN_MAX_CPU_ISA change them.
std::string kernels_of_torch() {
  const std::string onednn = instructions_of_onednn();
  return capability_of_aten() + (onednn.empty() ? "" : fmt::format(", oneDNN {}", onednn));
}

std::string why_torch_cannot(const Arithmetic& arithmetic) {
  std::string why = why_no_device(arithmetic.device);
  return why.empty() && arithmetic.bfloat16 ? why_no_bfloat16(arithmetic.device) : why;
}

std::atomic<bool (*)()> interrupted_program = nullptr;

}  // namespace

bool interrupted() { return interrupted_program.load(std::memory_order_relaxed)(); }

}  // namespace syncopate

extern "C" [[gnu::visibility("default")]] void syncopate_torch_functions(bool (*interrupted)(),
                                                                         syncopate::TorchFunctions& functions) {
  using namespace syncopate;  // NOLINT: their own namespace
  interrupted_program = interrupted;
  c10::initLogging();  // reads which warnings are wanted (silence_torch_warnings)
  // Starts the threads of LibTorch's pool before machine.hpp limits memory. If a thread could not start later, LibTorch
  // would wait for it forever.
  use_one_thread();
  functions = {.make_objective = [](const TorchRequest& request) -> std::shared_ptr<const Objective> {
                 return std::make_shared<TorchObjective>(request.network, request.dataset, request.sampling,
                                                         request.chunk_samples, request.label_smoothing, request.mixup,
                                                         request.arithmetic);
               },
               .load_script = script_network,
               .orthogonalise = orthogonalise_by_torch,
               .iterate_power = iterate_power_by_torch,
               .kernels = kernels_of_torch,
               .why_no_arithmetic = why_torch_cannot,
               .name_of_device = device_name_by_torch};
}
