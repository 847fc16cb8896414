// The library's side of torch_library.hpp. The library has copies of its own of the few sources that TorchObjective
// calls, no state of which decides what they return; the flag of an interruption is the program's.
#include <c10/util/Logging.h>

#include <atomic>
#include <memory>

#include "workers/models/one_thread.hpp"
#include "workers/models/script_module.hpp"
#include "workers/models/text_objective.hpp"
#include "workers/models/torch_kernels.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

std::atomic<bool (*)()> interrupted_program = nullptr;

}  // namespace

bool interrupted() { return interrupted_program.load(std::memory_order_relaxed)(); }

}  // namespace syncopate

extern "C" [[gnu::visibility("default")]] void syncopate_torch_functions(bool (*interrupted)(),
                                                                         syncopate::TorchFunctions& functions) {
  using namespace syncopate;  // NOLINT: their own namespace
  interrupted_program = interrupted;
  c10::initLogging();  // looks at which warnings are wanted (silence_torch_warnings)
  // LibTorch then starts a pool's threads, and waits for ever for one that a limit on memory does not let begin: so now,
  // as memory_part.hpp limits it later.
  use_one_thread();
  functions = {.make_objective = [](const TorchRequest& request) -> std::shared_ptr<const Objective> {
                 if (request.network.input().has_tokens())
                   return std::make_shared<TextObjective>(request.network, request.dataset, request.sampling,
                                                          request.chunk_samples, request.label_smoothing);
                 return std::make_shared<TorchObjective>(request.network, request.dataset, request.sampling,
                                                         request.chunk_samples, request.label_smoothing, request.mixup);
               },
               .load_script = script_network,
               .kernels = kernels_of_torch};
}
