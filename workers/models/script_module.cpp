#include "workers/models/script_module.hpp"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "workers/models/seeded_draws.hpp"
#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

using torch::jit::Module;

// Of what LibTorch says: the reason, without the way that the program took.
std::string reason_of(const std::exception& problem) {
  const std::string whole = problem.what();
  const std::string mark = "\nRuntimeError: ";
  const auto at = whole.rfind(mark);
  std::istringstream lines(at == std::string::npos ? whole : whole.substr(at + mark.size()));
  std::string first;
  std::getline(lines, first);
  return first;
}

// Operators run one by one as in C++. The executor that records shapes and then compiles would change the arithmetic in
// the middle of a run, thread by thread.
void run_operators_as_they_are() {
  static const bool done = [] {
    torch::jit::getExecutorMode() = false;
    torch::jit::getProfilingMode() = false;
    return true;
  }();
  (void)done;
}

Module load(const std::filesystem::path& file) {
  run_operators_as_they_are();
  try {
    return torch::jit::load(file.string(), at::kCPU);
  } catch (const std::exception& problem) {
    throw ScriptFault(
        fmt::format("is no module that torch.jit.script or torch.jit.trace has saved: {}", reason_of(problem)));
  }
}

at::Tensor run(Module& module, const at::Tensor& inputs) {
  c10::IValue output;
  try {
    output = module.forward({inputs});
  } catch (const std::exception& problem) {
    throw ScriptFault(
        fmt::format("its forward fails on inputs of shape {}: {}", c10::str(inputs.sizes()), reason_of(problem)));
  }
  if (!output.isTensor())
    throw ScriptFault(fmt::format("its forward returns {}; must return a tensor of logits", output.tagKind()));
  return output.toTensor();
}

// A tensor of the module: attribute `slot` of its `module`-th part.
struct Place {
  std::size_t module = 0;
  std::size_t slot = 0;
};

// With parts of its own and the same tensors: LibTorch's copy() would share the parts too.
torch::jit::ObjectPtr copy_of(const torch::jit::ObjectPtr& original) {
  torch::jit::ObjectPtr copy = original->copy();
  for (std::size_t slot = 0; slot < copy->slots().size(); ++slot) {
    const c10::IValue value = copy->getSlot(slot);
    if (value.isModule()) copy->setSlot(slot, copy_of(value.toObject()));
  }
  return copy;
}

struct Named {
  std::string name;
  at::Tensor value;
  std::vector<Place> places;  // more than one where parts share it
};

std::vector<torch::jit::ObjectPtr> parts_of(const Module& module) {
  std::vector<torch::jit::ObjectPtr> parts;
  for (const Module& part : module.modules()) parts.push_back(part._ivalue());
  return parts;
}

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kFloat).contiguous();
  return {values.data_ptr<float>(), values.data_ptr<float>() + values.numel()};
}

std::shared_ptr<const std::vector<float>> given(const at::Tensor& tensor) {
  return std::make_shared<const std::vector<float>>(floats_of(tensor));
}

Parameter description_of(const Named& parameter, bool drawn) {
  const at::Tensor value = parameter.value.detach();
  Parameter result{
      .name = parameter.name, .shape = value.sizes().vec(), .size = static_cast<std::size_t>(value.numel())};
  if (drawn && value.dim() >= 2)
    result.initial = {.centre = value.to(at::kDouble).mean().item<double>(),
                      .spread = value.to(at::kDouble).std(/*unbiased=*/false).item<double>(),
                      .law = Initial::Law::normal};
  else
    result.given = given(value);
  return result;
}

}  // namespace

struct ScriptModule::Tensors {
  Module module;
  std::vector<Named> parameters;  // that are trained
  std::vector<Named> buffers;     // that training changes; before the probe all that are not trained
  std::vector<Named> fixed;       // the others
  bool mixes_samples = false;
  bool draws = false;
  std::mutex mutex;
  std::vector<std::unique_ptr<Copy>> free_copies{};

  explicit Tensors(const Module& loaded) : module(loaded) {}
  void add(const std::string& name, const at::Tensor& value, bool is_parameter, const Place& place);
  std::unique_ptr<Copy> take();
  void give_back(std::unique_ptr<Copy> copy);
};

// One thread's, for as long as it needs it.
class ScriptModule::Copy {
 public:
  explicit Copy(const Module& original) : module_(copy_of(original._ivalue())), parts_(parts_of(module_)) {}

  void bind(const std::vector<Named>& named, const std::vector<at::Tensor>& values) {
    for (std::size_t i = 0; i < named.size(); ++i)
      for (const Place& place : named[i].places) parts_[place.module]->setSlot(place.slot, values[i]);
  }
  at::Tensor value(const Named& named) const {
    const Place& place = named.places.front();
    return parts_[place.module]->getSlot(place.slot).toTensor();
  }
  at::Tensor forward(const at::Tensor& inputs, bool in_training) {
    if (is_training_ != in_training) module_.train(in_training);
    is_training_ = in_training;
    return run(module_, inputs);
  }

 private:
  Module module_;
  std::vector<torch::jit::ObjectPtr> parts_;
  std::optional<bool> is_training_;
};

void ScriptModule::Tensors::add(const std::string& name, const at::Tensor& value, bool is_parameter,
                                const Place& place) {
  if (is_parameter && value.scalar_type() != at::kFloat)
    throw ScriptFault(
        fmt::format("its parameter {} has elements of type {}; must have float32, as module.float() gives", name,
                    at::toString(value.scalar_type())));
  auto& list = is_parameter && value.requires_grad() ? parameters : buffers;
  const auto known = std::ranges::find_if(list, [&](const Named& other) {
    return value.numel() > 0 && other.value.data_ptr() == value.data_ptr() && other.value.sizes() == value.sizes();
  });
  if (known != list.end())
    known->places.push_back(place);
  else
    list.push_back({name, value, {place}});
}

std::unique_ptr<ScriptModule::Copy> ScriptModule::Tensors::take() {
  {
    const std::lock_guard lock(mutex);
    if (!free_copies.empty()) {
      auto copy = std::move(free_copies.back());
      free_copies.pop_back();
      return copy;
    }
  }
  return std::make_unique<Copy>(module);
}

void ScriptModule::Tensors::give_back(std::unique_ptr<Copy> copy) {
  const std::lock_guard lock(mutex);
  free_copies.push_back(std::move(copy));
}

ScriptModule::ScriptModule(const std::filesystem::path& file) : tensors_(std::make_unique<Tensors>(load(file))) {
  const Module& module = tensors_->module;
  if (!module.find_method("forward")) throw ScriptFault("is a module without forward");
  std::size_t number = 0;
  for (const auto& part : module.named_modules()) {
    const auto& type = *part.value.type();
    for (std::size_t slot = 0; slot < type.numAttributes(); ++slot) {
      const c10::IValue value = part.value._ivalue()->getSlot(slot);
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const std::string name = (part.name.empty() ? "" : part.name + ".") + type.getAttributeName(slot);
      tensors_->add(name, value.toTensor(), type.is_parameter(slot), {number, slot});
    }
    ++number;
  }
  if (tensors_->parameters.empty())
    throw ScriptFault("has no parameters that are trained (frozen modules have none, torch.jit.freeze)");
}

ScriptModule::~ScriptModule() = default;

at::Tensor ScriptModule::forward(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                                 const at::Tensor& inputs, Mode mode) const {
  std::unique_ptr<Copy> copy = tensors_->take();
  std::vector<at::Tensor> bound;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const auto type = tensors_->buffers[b].value.scalar_type();
    bound.push_back(type == at::kFloat ? buffers[b] : buffers[b].round().to(type));
  }
  copy->bind(tensors_->parameters, parameters);
  copy->bind(tensors_->buffers, bound);
  std::vector<std::uint32_t> versions;
  for (const Named& fixed : tensors_->fixed) versions.push_back(fixed.value._version());
  at::Tensor outputs = copy->forward(inputs, mode != Mode::evaluate);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const at::Tensor after = copy->value(tensors_->buffers[b]);
    if (!after.is_same(buffers[b])) at::Tensor(buffers[b]).copy_(after.detach());
  }
  for (std::size_t f = 0; f < versions.size(); ++f) {
    const Named& fixed = tensors_->fixed[f];
    if (fixed.value._version() != versions[f] || !copy->value(fixed).is_same(fixed.value))
      throw ScriptFault(fmt::format("its tensor {} changes, which it did not when the file was read", fixed.name));
  }
  tensors_->give_back(std::move(copy));
  return outputs;
}

ScriptContents ScriptModule::contents(const ScriptOptions& options) const {
  ScriptContents contents{.parameters = {},
                          .buffers = {},
                          .mixes_samples = !options.fused || tensors_->mixes_samples,
                          .draws = tensors_->draws};
  for (const Named& parameter : tensors_->parameters)
    contents.parameters.push_back(description_of(parameter, options.drawn));
  for (const Named& buffer : tensors_->buffers)
    contents.buffers.push_back({.size = static_cast<std::size_t>(buffer.value.numel()),
                                .shape = buffer.value.sizes().vec(),
                                .counts = buffer.value.scalar_type() != at::kFloat,
                                .given = given(buffer.value)});
  return contents;
}

namespace {

// Enough to see whether samples disturb each other.
constexpr std::int64_t probed_samples = 4;

at::Tensor probe_inputs(const SampleShape& shape) {
  std::vector<double> values(static_cast<std::size_t>(probed_samples * shape.features()));
  fill_standard_normal({.purpose = Purpose::module_draws}, 0, values);
  const at::Tensor inputs = at::empty(static_cast<std::int64_t>(values.size()), at::kFloat);
  std::ranges::transform(values, inputs.data_ptr<float>(), [](double value) { return static_cast<float>(value); });
  return inputs.view(script_input_sizes(probed_samples, shape));
}

void check_outputs(const at::Tensor& logits, const at::Tensor& inputs, std::int64_t classes) {
  const std::vector<std::int64_t> right = {probed_samples, classes};
  if (logits.sizes() != right)
    throw ScriptFault(
        fmt::format("its forward returns shape {} for inputs of shape {}; must return ({}, {}), logits of "
                    "the classes",
                    c10::str(logits.sizes()), c10::str(inputs.sizes()), probed_samples, classes));
  if (logits.scalar_type() != at::kFloat)
    throw ScriptFault(fmt::format("its forward returns elements of type {}; must return float32",
                                  at::toString(logits.scalar_type())));
}

// What a module keeps besides tensors: numbers and flags.
std::vector<std::pair<std::string, c10::IValue>> scalars_of(const Module& module) {
  std::vector<std::pair<std::string, c10::IValue>> scalars;
  for (const auto& attribute : module.named_attributes()) {
    const bool is_mode = attribute.name == "training" || attribute.name.ends_with(".training");
    if (!is_mode && (attribute.value.isScalar() || attribute.value.isBool()))
      scalars.emplace_back(attribute.name, attribute.value);
  }
  return scalars;
}

void check_scalars(const Module& before, const Module& after) {
  const auto old = scalars_of(before), now = scalars_of(after);
  for (std::size_t i = 0; i < old.size(); ++i)
    if (old[i].second != now[i].second)
      throw ScriptFault(fmt::format("its forward changes the number {}; it may change buffers alone", old[i].first));
}

bool mixes(Module& trial, const at::Tensor& inputs) {
  const at::Tensor together = run(trial, inputs);
  const auto halves = inputs.chunk(2);
  const at::Tensor apart = at::cat({run(trial, halves[0]), run(trial, halves[1])});
  // Kernels for other sizes of batches round otherwise.
  constexpr double rounding = 1e-4;
  return !together.allclose(apart, rounding, rounding * together.abs().max().item<double>());
}

}  // namespace

void ScriptModule::probe(const SampleShape& shape, std::int64_t classes) {
  Module trial = tensors_->module.deepcopy();
  const at::Tensor inputs = probe_inputs(shape);
  const SeededDraws draws(0);
  trial.eval();
  check_outputs(run(trial, inputs), inputs, classes);
  trial.train();
  const auto drawn = SeededDraws::drawn();
  const at::Tensor logits = run(trial, inputs);
  check_outputs(logits, inputs, classes);
  if (!logits.requires_grad())
    throw ScriptFault("its forward in training does not depend on its parameters in a way that has gradients");
  check_scalars(tensors_->module, trial);

  const auto parts = parts_of(trial);
  auto all = std::exchange(tensors_->buffers, {});
  for (Named& tensor : all) {
    const Place& place = tensor.places.front();
    const bool changes = !parts[place.module]->getSlot(place.slot).toTensor().equal(tensor.value);
    const auto type = tensor.value.scalar_type();
    if (changes && type != at::kFloat && !at::isIntegralType(type, /*includeBool=*/true))
      throw ScriptFault(
          fmt::format("its buffer {}, which training changes, has elements of type {}; must have float32 "
                      "or integers",
                      tensor.name, at::toString(type)));
    (changes ? tensors_->buffers : tensors_->fixed).push_back(std::move(tensor));
  }
  tensors_->draws = SeededDraws::drawn() > drawn;
  tensors_->mixes_samples = tensors_->draws || !tensors_->buffers.empty() || mixes(trial, inputs);
}

Network script_network(const std::filesystem::path& file, const std::string& hash, const SampleShape& shape,
                       std::int64_t classes, const ScriptOptions& options) {
  struct Loaded {
    std::string hash;
    SampleShape shape;
    std::int64_t classes = 0;
    std::shared_ptr<const ScriptModule> module{};
  };
  // Runs of one experiment follow each other with the same file.
  static std::mutex mutex;
  static Loaded last;
  const std::lock_guard lock(mutex);
  if (!last.module || last.hash != hash || last.shape != shape || last.classes != classes) {
    const auto module = std::make_shared<ScriptModule>(file);
    module->probe(shape, classes);
    last = {hash, shape, classes, module};
  }
  Network network(shape);
  return network.script(last.module, last.module->contents(options), classes).lay_out();
}

}  // namespace syncopate
