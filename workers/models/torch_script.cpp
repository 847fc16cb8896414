#include "workers/models/script_module.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cassert>
#include <mutex>
#include <optional>
#include <utility>

#include "workers/models/script_call.hpp"
#include "workers/models/script_probe.hpp"
#include "workers/models/seeded_draws.hpp"

namespace syncopate {
namespace {

using torch::jit::Module;

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
  bool takes_lengths = false;
  bool mixes_samples = false;
  bool draws = false;
  bool bears_padding = true;
  bool changes_inputs = false;  // in place
  std::string note{};           // what the user should know and is no fault
  std::int64_t outputs = 0;
  std::string why_no_derivative{};
  std::mutex mutex;
  std::vector<std::unique_ptr<Copy>> free_copies{};

  explicit Tensors(const Module& loaded) : module(loaded) {}
  void add(const std::string& name, const at::Tensor& value, bool is_parameter, const Place& place);
  // Of all that is not trained, what training has changed stays a buffer; the rest is fixed.
  void sort_buffers(const std::vector<torch::jit::ObjectPtr>& parts_after_training);
  std::vector<at::Tensor> parameters_of(const std::vector<torch::jit::ObjectPtr>& parts) const;
  std::unique_ptr<Copy> take();
  void give_back(std::unique_ptr<Copy> copy);
};

// One thread's, for as long as it needs it.
class ScriptModule::Copy {
 public:
  explicit Copy(const Module& original) : module_(copy_of(original._ivalue())), parts_(parts_of(module_)) {}

  void bind(const std::vector<Named>& named, const std::vector<at::Tensor>& values) {
    for (std::size_t i = 0; i < named.size(); ++i)
      for (const Place& place : named[i].places) {
        const c10::IValue value(values[i]);
        parts_[place.module]->setSlot(place.slot, value);
      }
  }
  at::Tensor value(const Named& named) const {
    const Place& place = named.places.front();
    return parts_[place.module]->getSlot(place.slot).toTensor();
  }
  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& lengths, bool in_training) {
    if (is_training_ != in_training) module_.train(in_training);
    is_training_ = in_training;
    return call(module_, inputs, lengths);
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

ScriptModule::ScriptModule(const std::filesystem::path& file) : tensors_(std::make_unique<Tensors>(load_module(file))) {
  const Module& module = tensors_->module;
  tensors_->takes_lengths = takes_lengths(module);
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
                                 const at::Tensor& inputs, Mode mode, const at::Tensor* lengths) const {
  std::unique_ptr<Copy> copy = tensors_->take();
  std::vector<at::Tensor> bound;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const auto type = tensors_->buffers[b].value.scalar_type();
    bound.push_back(type == at::kFloat ? buffers[b] : buffers[b].round().to(type));
  }
  copy->bind(tensors_->parameters, parameters);
  copy->bind(tensors_->buffers, bound);
  // What nobody trains is as precise as what is trained.
  const bool in_doubles = parameters.front().scalar_type() == at::kDouble;
  std::vector<at::Tensor> fixed;
  std::vector<std::uint32_t> versions;
  for (const Named& each : tensors_->fixed) {
    const bool is_converted = in_doubles && each.value.scalar_type() == at::kFloat;
    fixed.push_back(is_converted ? each.value.to(at::kDouble) : each.value);
    versions.push_back(fixed.back()._version());
  }
  if (in_doubles) copy->bind(tensors_->fixed, fixed);
  const bool with_lengths = tensors_->takes_lengths && lengths != nullptr;
  // An ensemble's members, and measured statistics, take the same inputs one after another.
  const auto own = [&](const at::Tensor& given) { return tensors_->changes_inputs ? given.clone() : given; };
  at::Tensor outputs = copy->forward(own(inputs), with_lengths ? own(*lengths) : at::Tensor(), mode != Mode::evaluate);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const at::Tensor after = copy->value(tensors_->buffers[b]);
    if (!after.is_same(buffers[b])) at::Tensor(buffers[b]).copy_(after.detach());
  }
  for (std::size_t f = 0; f < fixed.size(); ++f)
    if (fixed[f]._version() != versions[f] || !copy->value(tensors_->fixed[f]).is_same(fixed[f]))
      throw ScriptFault(
          fmt::format("its tensor {} changes, which it did not when the file was read", tensors_->fixed[f].name));
  if (!in_doubles) tensors_->give_back(std::move(copy));
  return outputs;
}

ScriptContents ScriptModule::contents(const ScriptOptions& options) const {
  ScriptContents contents{.parameters = {},
                          .buffers = {},
                          .mixes_samples = !options.fused || tensors_->mixes_samples,
                          .draws = tensors_->draws,
                          .why_no_derivative = tensors_->why_no_derivative,
                          .note = tensors_->note};
  for (const Named& parameter : tensors_->parameters)
    contents.parameters.push_back(description_of(parameter, options.drawn));
  for (const Named& buffer : tensors_->buffers)
    contents.buffers.push_back({.size = static_cast<std::size_t>(buffer.value.numel()),
                                .shape = buffer.value.sizes().vec(),
                                .counts = buffer.value.scalar_type() != at::kFloat,
                                .given = given(buffer.value)});
  return contents;
}

void ScriptModule::Tensors::sort_buffers(const std::vector<torch::jit::ObjectPtr>& parts_after_training) {
  for (Named& tensor : std::exchange(buffers, {})) {
    const Place& place = tensor.places.front();
    const bool changes = !parts_after_training[place.module]->getSlot(place.slot).toTensor().equal(tensor.value);
    const auto type = tensor.value.scalar_type();
    if (changes && type != at::kFloat && !at::isIntegralType(type, /*includeBool=*/true))
      throw ScriptFault(
          fmt::format("its buffer {}, which training changes, has elements of type {}; must have float32 or integers",
                      tensor.name, at::toString(type)));
    (changes ? buffers : fixed).push_back(std::move(tensor));
  }
}

std::vector<at::Tensor> ScriptModule::Tensors::parameters_of(const std::vector<torch::jit::ObjectPtr>& parts) const {
  std::vector<at::Tensor> result;
  for (const Named& parameter : parameters) {
    const Place& place = parameter.places.front();
    result.push_back(parts[place.module]->getSlot(place.slot).toTensor());
  }
  return result;
}

namespace {

at::Tensor first_call(Module& module, const ProbeInputs& samples, const SampleShape& shape) {
  try {
    return call_on_copies(module, samples.inputs, samples.lengths);
  } catch (const ScriptFault& problem) {
    if (!shape.has_tokens()) throw;
    throw ScriptFault(fmt::format("{}; the {} tokens of the data set are below {}, and its longest sequence has {}",
                                  problem.what(), shape.vocabulary, shape.vocabulary, shape.width));
  }
}

bool gives_numbers(Module& module, const ProbeInputs& samples) {
  try {
    return call_on_copies(module, samples.inputs, samples.lengths).isfinite().all().item<bool>();
  } catch (const ScriptFault&) {
    return false;
  }
}

}  // namespace

void ScriptModule::probe(const ScriptDemand& demand) {
  Module trial = tensors_->module.deepcopy();
  const ProbeInputs samples = probe_inputs(demand, tensors_->takes_lengths);
  const SeededDraws draws(0);
  std::string why_traced = fixed_by_trace(tensors_->module, /*in_training=*/true);
  if (!why_traced.empty()) why_traced = ": " + why_traced;
  trial.eval();
  const auto drawn_before = SeededDraws::drawn();
  const at::Tensor first = first_call(trial, samples, demand.shape);
  check_outputs(first, samples.inputs, demand);
  tensors_->outputs = first.size(-1);
  check_finite(first, samples.inputs);
  if (SeededDraws::drawn() > drawn_before)
    throw ScriptFault("its forward draws random numbers in evaluation; it may in training alone" + why_traced);
  Module moved = tensors_->module.deepcopy();
  moved.eval();
  move_parameters(tensors_->parameters_of(parts_of(moved)));
  if (!gives_numbers(moved, samples)) moved = trial.deepcopy();
  tensors_->changes_inputs = changes_inputs(moved, samples);
  if (mixes(moved, samples))
    throw ScriptFault((demand.shape.has_tokens()
                           ? "its outputs for a sequence depend on those that stand beside it; they must not"
                           : "its outputs for a sample depend in evaluation on those that stand beside it; they may in "
                             "training alone") +
                      why_traced);
  if (demand.shape.has_tokens()) {
    if (demand.task.kind == TextTask::Kind::causal_lm) check_causality(moved, samples);
    tensors_->bears_padding = syncopate::bears_padding(moved, demand, samples);
  }

  trial.train();
  moved.train();
  const auto drawn = SeededDraws::drawn();
  const at::Tensor outputs = call_on_copies(trial, samples.inputs, samples.lengths);
  check_outputs(outputs, samples.inputs, demand);
  tensors_->draws = SeededDraws::drawn() > drawn;
  std::vector<std::string> names;
  for (const Named& parameter : tensors_->parameters) names.push_back(parameter.name);
  check_gradients(outputs, tensors_->parameters_of(parts_of(trial)), names);
  check_scalars(tensors_->module, trial);
  tensors_->sort_buffers(parts_of(trial));
  if (demand.shape.has_tokens() && !tensors_->buffers.empty())
    throw ScriptFault(fmt::format("its buffer {} changes in training; a module of tokens must have none that does",
                                  tensors_->buffers.front().name));
  tensors_->changes_inputs = changes_inputs(moved, samples) || tensors_->changes_inputs;
  tensors_->note = fixed_by_trace(tensors_->module, /*in_training=*/false);
  tensors_->mixes_samples = tensors_->draws || !tensors_->buffers.empty() || mixes(moved, samples);
  if (demand.shape.has_tokens()) {
    tensors_->why_no_derivative = "those of a module of one's own are not there for texts";
    return;
  }

  Module doubles = tensors_->module.deepcopy();
  doubles.to(at::kDouble);
  doubles.eval();
  tensors_->why_no_derivative = why_no_derivative(doubles, tensors_->parameters_of(parts_of(doubles)), samples);
}

void ScriptModule::try_batches(const ScriptDemand& demand, const ScriptOptions::Trial& trial) const {
  const SeededDraws draws(0);
  const auto with = [&](std::int64_t samples, bool in_training, const char* meaning) {
    if (samples == 0) return;
    const at::NoGradGuard no_gradients;
    const ProbeInputs inputs = repeated_inputs(demand, tensors_->takes_lengths, samples);
    Module module = tensors_->module.deepcopy();
    module.train(in_training);
    try {
      check_outputs(call_on_copies(module, inputs.inputs, inputs.lengths), inputs.inputs, demand);
    } catch (const ScriptFault& problem) {
      throw ScriptFault(fmt::format("{}; {}", problem.what(), fmt::format(fmt::runtime(meaning), samples)));
    }
  };
  with(trial.trained, true, "in training a micro-batch has as many samples, training.micro_batch_size = {}");
  with(trial.evaluated, false, "so many samples are evaluated together, chunk_samples = {}");
}

std::int64_t ScriptModule::outputs() const { return tensors_->outputs; }

bool ScriptModule::bears_padding() const { return tensors_->bears_padding; }

Network script_network(const std::filesystem::path& file, const std::string& hash, const DatasetSize& data,
                       const ScriptOptions& options) {
  struct Loaded {
    std::string what;
    std::shared_ptr<const ScriptModule> module{};
  };
  // Runs of one experiment follow each other with the same file.
  static std::mutex mutex;
  static Loaded last;
  const std::lock_guard lock(mutex);
  ScriptDemand demand{.shape = data.shape,
                      .outputs = options.squared_error ? data.targets : data.classes,
                      .squared_error = options.squared_error,
                      .task = options.task,
                      .has_padding = data.marks.padding >= 0,
                      .shortest = data.shortest};
  demand.task.padding = data.marks.padding;
  demand.task.own_labels = data.token_classes > 0;
  if (demand.asks_for_tokens()) demand.outputs = demand.task.own_labels ? data.token_classes : data.shape.vocabulary;
  const std::string what =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", hash, data.shape.channels, data.shape.height, data.shape.width,
                  data.shape.vocabulary, demand.outputs, demand.squared_error, static_cast<int>(demand.task.kind),
                  demand.task.own_labels, demand.task.longest, demand.task.padding, demand.shortest);
  if (!last.module || last.what != what) {
    const auto module = std::make_shared<ScriptModule>(file);
    module->probe(demand);
    last = {what, module};
  }
  last.module->try_batches(demand, options.trial);
  demand.task.pads = last.module->bears_padding();
  Network network(data.shape);
  network.script(last.module, last.module->contents(options), last.module->outputs());
  return network.asks(demand.task).lay_out();
}

}  // namespace syncopate
