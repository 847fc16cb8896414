#include "workers/models/script_call.hpp"

#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <sstream>
#include <vector>

#include "workers/models/script_options.hpp"

namespace syncopate {

std::string reason_of(const std::exception& problem) {
  const std::string whole = problem.what();
  const std::string mark = "\nRuntimeError: ";
  const auto at = whole.rfind(mark);
  std::istringstream lines(at == std::string::npos ? whole : whole.substr(at + mark.size()));
  std::string first;
  std::getline(lines, first);
  // What a module raises itself comes last: "builtins.ValueError: ...".
  if (first.starts_with("The following operation failed"))
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) first = line;
  return first;
}

torch::jit::Module load_module(const std::filesystem::path& file) {
  try {
    torch::jit::Module module = torch::jit::load(file.string(), at::kCPU);
    if (module.find_method("forward")) return module;
  } catch (const std::exception& problem) {
    throw ScriptFault(
        fmt::format("is no module that torch.jit.script or torch.jit.trace has saved: {}", reason_of(problem)));
  }
  throw ScriptFault("is a module without forward");
}

bool takes_lengths(const torch::jit::Module& module) {
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();  // the first is the module
  return arguments.size() > 2 && at::TensorType::get()->isSubtypeOf(*arguments[2].type());
}

at::Tensor call(torch::jit::Module& module, const at::Tensor& inputs, const at::Tensor& lengths) {
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);  // of this thread
  std::vector<c10::IValue> arguments{inputs};
  if (lengths.defined()) arguments.emplace_back(lengths);
  c10::IValue output;
  try {
    output = module.forward(std::move(arguments));
  } catch (const std::exception& problem) {
    throw ScriptFault(
        fmt::format("its forward fails on inputs of shape {}: {}", c10::str(inputs.sizes()), reason_of(problem)));
  }
  if (!output.isTensor())
    throw ScriptFault(fmt::format("its forward returns {}; must return a tensor of logits", output.tagKind()));
  return output.toTensor();
}

at::Tensor call_on_copies(torch::jit::Module& module, const at::Tensor& inputs, const at::Tensor& lengths) {
  return call(module, inputs.clone(), lengths.defined() ? lengths.clone() : lengths);
}

}  // namespace syncopate
