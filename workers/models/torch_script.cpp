// Loads a module saved by torch.jit.script or torch.jit.trace, tests it before a training, and evaluates it.
//
// Operators run one by one as in C++. LibTorch's executors would optimise a module for the shapes and gradients seen so
// far. That costs more than it gains here, and would change the arithmetic of each thread in the middle of a run.

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/data/dataset.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/script_model.hpp"

namespace syncopate {

namespace {

using torch::jit::Module;

// The reason given in LibTorch's message, without its traceback.
std::string reason_of(const std::exception& problem) {
  const std::string whole = problem.what();
  const std::string mark = "\nRuntimeError: ";
  const auto at = whole.rfind(mark);
  std::istringstream lines(at == std::string::npos ? whole : whole.substr(at + mark.size()));
  std::string first;
  std::getline(lines, first);
  // If the module itself raised an exception, the last line names it: "builtins.ValueError: ...".
  if (first.starts_with("The following operation failed"))
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) first = line;
  return first;
}

// Throws ScriptFault if the file is not a module with a forward.
Module load_module(const std::filesystem::path& file) {
  try {
    Module module = torch::jit::load(file.string(), at::kCPU);
    if (module.find_method("forward")) return module;
  } catch (const std::exception& problem) {
    throw ScriptFault(
        fmt::format("is not a module saved by torch.jit.script or torch.jit.trace: {}", reason_of(problem)));
  }
  throw ScriptFault("is a module without a forward");
}

// Whether forward has a second argument for the lengths of sequences: a tensor, or a tensor that may be None.
bool takes_lengths(const Module& module) {
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();  // the first is the module
  return arguments.size() > 2 && at::TensorType::get()->isSubtypeOf(*arguments[2].type());
}

// The arguments of forward.
struct Arguments {
  at::Tensor inputs;
  at::Tensor lengths{};  // undefined: forward takes no lengths

  Arguments copies() const { return {inputs.clone(), lengths.defined() ? lengths.clone() : lengths}; }
};

// Returns the tensor that forward returns. Throws ScriptFault.
at::Tensor call(Module& module, const Arguments& given) {
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);  // this thread does not optimise the graph
  const at::Tensor& inputs = given.inputs;
  std::vector<c10::IValue> arguments{inputs};
  if (given.lengths.defined()) arguments.emplace_back(given.lengths);
  c10::IValue output;
  try {
    output = module.forward(std::move(arguments));
  } catch (const std::exception& problem) {
    // TorchScript's interpreter hides the type of the exception.
    const bool lacks_memory = std::string_view(problem.what()).find("out of memory") != std::string_view::npos;
    if (lacks_memory && !inputs.is_cpu())
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, reason_of(problem));
    throw ScriptFault(
        fmt::format("its forward fails on inputs of shape {}: {}", c10::str(inputs.sizes()), reason_of(problem)));
  }
  if (!output.isTensor())
    throw ScriptFault(fmt::format("its forward returns {}; must return a tensor of logits", output.tagKind()));
  return output.toTensor();
}

// Forward may change its arguments in place.
at::Tensor call_on_copies(Module& module, const Arguments& given) { return call(module, given.copies()); }

// The requirements that the data and the loss impose on a module.
struct ScriptDemand {
  SampleShape shape;
  // Number of outputs per sample, or per token for language models; for labels of tokens it is a minimum.
  std::int64_t outputs = 0;
  bool squared_error = false;  // the loss; outputs are then not logits
  TextTask task{};             // for tokens
  bool has_padding = false;    // shorter sequences may be padded
  std::int64_t shortest = 0;   // number of tokens of the shortest sequence; 0: unknown

  bool asks_for_tokens() const { return shape.has_tokens() && task.kind != TextTask::Kind::classification; }
};

// Returns the result of `compute`. Adds a hint to its ScriptFault, unless the hint is empty.
template <typename Compute>
auto with_hint(const std::string& hint, const Compute& compute) {
  try {
    return compute();
  } catch (const ScriptFault& problem) {
    if (hint.empty()) throw;
    throw ScriptFault(fmt::format("{}; {}", problem.what(), hint));
  }
}

// Enough samples to see whether samples affect each other.
constexpr std::int64_t probed_samples = 4;
constexpr RandomStream probe_stream{.purpose = Purpose::module_draws};

bool are_finite(const at::Tensor& numbers) { return numbers.isfinite().all().item<bool>(); }

bool are_near(const at::Tensor& one, const at::Tensor& other) {
  // Kernels for different batch sizes round differently.
  constexpr double rounding = 1e-4;
  if (!are_finite(one) || !are_finite(other)) return false;
  return one.allclose(other, rounding, rounding * one.abs().max().item<double>());
}

at::Tensor random_tokens(const ScriptDemand& demand) {
  const std::int64_t length = computed_by(demand.task).of(demand.shape.width), vocabulary = demand.shape.vocabulary;
  std::vector<double> uniform(static_cast<std::size_t>(probed_samples * length));
  probe_stream.fill_uniform(0, uniform);
  const at::Tensor tokens = at::empty({probed_samples, length}, at::kLong);
  std::ranges::transform(uniform, tokens.data_ptr<std::int64_t>(), [&](double value) {
    const auto token = static_cast<std::int64_t>(value * static_cast<double>(vocabulary));
    const bool is_padding = demand.has_padding && token == demand.task.padding;
    return is_padding ? (token + 1) % vocabulary : token;
  });
  const bool is_last_padding = demand.has_padding && demand.task.padding == vocabulary - 1;
  // The first token is the highest that is not padding, so that an embedding table without a row for it fails.
  *tokens.data_ptr<std::int64_t>() = std::max<std::int64_t>(vocabulary - (is_last_padding ? 2 : 1), 0);
  return tokens;
}

// The sizes of a batch of inputs: vectors are (n, features), images (n, channels, height, width).
std::vector<std::int64_t> input_sizes(std::int64_t samples, const SampleShape& shape) {
  if (shape.channels == 1 && shape.height == 1) return {samples, shape.width};
  return {samples, shape.channels, shape.height, shape.width};
}

at::Tensor random_numbers(const SampleShape& shape) {
  std::vector<double> values(static_cast<std::size_t>(probed_samples * shape.features()));
  fill_standard_normal(probe_stream, 0, values);
  const at::Tensor inputs = at::empty(static_cast<std::int64_t>(values.size()), at::kFloat);
  std::ranges::transform(values, inputs.data_ptr<float>(), [](double value) { return static_cast<float>(value); });
  return inputs.view(input_sizes(probed_samples, shape));
}

// The lengths of sequences without padding, (n,); undefined unless they are wanted.
at::Tensor lengths_of(bool wanted, const at::Tensor& tokens) {
  return wanted ? at::full({tokens.size(0)}, tokens.size(1), at::kLong) : at::Tensor();
}

// Random samples. Sequences have the length of the data's longest one.
Arguments probe_inputs(const ScriptDemand& demand, bool with_lengths) {
  if (!demand.shape.has_tokens()) return {.inputs = random_numbers(demand.shape)};
  const at::Tensor tokens = random_tokens(demand);
  return {.inputs = tokens, .lengths = lengths_of(with_lengths, tokens)};
}

// Repeats a few random samples to get `samples` of them. Sequences have the length of the data's shortest sequence, if
// it is known.
Arguments repeated_inputs(const ScriptDemand& demand, bool with_lengths, std::int64_t samples) {
  at::Tensor few = probe_inputs(demand, /*with_lengths=*/false).inputs;
  if (demand.shape.has_tokens() && demand.shortest > 0)
    few = few.narrow(1, 0, std::min<std::int64_t>(computed_by(demand.task).of(demand.shortest), few.size(1)));
  const at::Tensor inputs = few.index_select(0, at::arange(samples, at::kLong).remainder(probed_samples));
  return {.inputs = inputs, .lengths = lengths_of(with_lengths && demand.shape.has_tokens(), inputs)};
}

// Whether forward writes to its inputs or to the lengths.
bool changes_inputs(Module& module, const Arguments& samples) {
  // Any write to a tensor increments its version, even if these samples do not change.
  const Arguments own = samples.copies();
  const auto versions = [&] {
    return std::pair(own.inputs._version(), own.lengths.defined() ? own.lengths._version() : 0);
  };
  const auto before = versions();
  call(module, own);
  return versions() != before;
}

// An operator that behaves differently in training and evaluation, and the input that tells it which of them runs.
struct ModalOperator {
  const char* name;
  const char* says_training;
};
constexpr ModalOperator dropouts[] = {{"aten::dropout", "train"},
                                      {"aten::feature_dropout", "train"},
                                      {"aten::alpha_dropout", "train"},
                                      {"aten::feature_alpha_dropout", "train"}};
constexpr ModalOperator normalisations[] = {{"aten::batch_norm", "training"},
                                            {"aten::native_batch_norm", "training"},
                                            {"aten::instance_norm", "use_input_stats"}};

// Whether a constant makes one of these operators always behave as in training, or always as in evaluation.
bool is_fixed(const torch::jit::Node& node, std::span<const ModalOperator> operators, bool in_training) {
  std::string name = node.kind().toQualString();
  if (name.ends_with('_')) name.pop_back();  // the same operator in place
  const auto found = std::ranges::find_if(operators, [&](const ModalOperator& one) { return name == one.name; });
  if (found == operators.end()) return false;
  const auto says = torch::jit::toIValue(node.namedInput(found->says_training));
  return says && says->isBool() && says->toBool() == in_training;
}

std::int64_t count_fixed(const torch::jit::Block& block, std::span<const ModalOperator> operators, bool in_training) {
  std::int64_t count = 0;
  for (const torch::jit::Node* node : block.nodes()) {
    if (is_fixed(*node, operators, in_training)) ++count;
    for (const torch::jit::Block* inner : node->blocks()) count += count_fixed(*inner, operators, in_training);
  }
  return count;
}

std::int64_t count_fixed(const Module& module, std::span<const ModalOperator> operators, bool in_training) {
  std::int64_t count = 0;
  for (const Module& part : module.modules())
    for (const torch::jit::Method& method : part.get_methods())
      count += count_fixed(*method.graph()->block(), operators, in_training);
  return count;
}

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// For messages: dropouts and normalisation statistics that torch.jit.trace has fixed in one mode; empty: none.
std::string fixed_by_trace(const Module& module, bool in_training) {
  const std::int64_t of_dropouts = count_fixed(module, dropouts, in_training);
  const std::int64_t of_norms = count_fixed(module, normalisations, in_training);
  std::vector<std::string> parts;
  if (of_dropouts > 0)
    parts.push_back(counted(of_dropouts, "dropout") + (in_training ? " in effect" : " without effect"));
  if (of_norms > 0)
    parts.push_back(counted(of_norms, "normalisation") +
                    (in_training ? " by each batch's statistics" : " by the file's statistics"));
  if (parts.empty()) return {};
  return fmt::format(
      "its code has {}, both in training and in evaluation, because torch.jit.trace saved it in {}() mode; "
      "torch.jit.script keeps both modes",
      fmt::join(parts, " and "), in_training ? "train" : "eval");
}

// Throws ScriptFault if outputs do not have the shape or type that the demand requires.
void check_outputs(const at::Tensor& outputs, const at::Tensor& inputs, const ScriptDemand& demand) {
  const std::int64_t samples = inputs.size(0);
  std::vector<std::int64_t> right = {samples, demand.outputs};
  std::string needed = fmt::format("({}, {}), {}", samples, demand.outputs,
                                   demand.squared_error ? "as many numbers as y has" : "logits of the classes");
  if (demand.asks_for_tokens()) {
    const bool more_suit = demand.task.own_labels;
    right = {samples, inputs.size(1), demand.outputs};
    if (more_suit && outputs.dim() == 3) right.back() = std::max(demand.outputs, outputs.size(2));
    needed = fmt::format("({}, {}, {}{}), logits of {} at each position", samples, inputs.size(1), demand.outputs,
                         more_suit ? " or more" : "", more_suit ? "the classes" : "all tokens");
  }
  if (outputs.sizes() != right)
    throw ScriptFault(fmt::format("its forward returns shape {} for inputs of shape {}; must return {}",
                                  c10::str(outputs.sizes()), c10::str(inputs.sizes()), needed));
  if (outputs.scalar_type() != at::kFloat)
    throw ScriptFault(fmt::format("its forward returns elements of type {}; must return float32",
                                  at::toString(outputs.scalar_type())));
}

// Adds random numbers to parameters in place, because a layer that starts at zero hides how a module uses its samples.
void move_parameters(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_gradients;
  constexpr RandomStream stream{.seed = 1, .purpose = Purpose::module_draws};
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::vector<double> values(static_cast<std::size_t>(parameters[p].numel()));
    RandomStream own = stream;
    own.step = Step{static_cast<Step::Rep>(p)};
    fill_standard_normal(own, 0, values);
    const auto inputs_of_each = parameters[p].dim() < 2 ? 100 : parameters[p].numel() / parameters[p].size(0);
    const double deviation = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(inputs_of_each, 1)));
    const at::Tensor moves = at::from_blob(values.data(), parameters[p].sizes(), at::kDouble) * deviation;
    parameters[p].add_(moves.to(parameters[p].scalar_type()));
  }
}

// Throws ScriptFault if a parameter's gradient is sparse, and thus cannot be summed.
void check_gradients(const at::Tensor& outputs, const std::vector<at::Tensor>& parameters,
                     const std::vector<std::string>& names) {
  if (!outputs.requires_grad())
    throw ScriptFault("in training its forward has no gradient with respect to any parameter");
  std::vector<at::Tensor> gradients;
  try {
    gradients = torch::autograd::grad({outputs.sum()}, parameters, {}, {}, /*create_graph=*/false,
                                      /*allow_unused=*/true);
  } catch (const std::exception& problem) {
    throw ScriptFault(fmt::format("the backward pass of its forward fails: {}", reason_of(problem)));
  }
  for (std::size_t p = 0; p < gradients.size(); ++p)
    if (gradients[p].defined() && gradients[p].layout() != at::kStrided)
      throw ScriptFault(
          fmt::format("its parameter {} has a sparse gradient; must be dense, as that of "
                      "torch.nn.Embedding without sparse=True",
                      names[p]));
}

// Numbers and flags that a module stores in addition to tensors.
std::vector<std::pair<std::string, c10::IValue>> scalars_of(const Module& module) {
  std::vector<std::pair<std::string, c10::IValue>> scalars;
  for (const auto& attribute : module.named_attributes()) {
    const bool is_mode = attribute.name == "training" || attribute.name.ends_with(".training");
    if (!is_mode && (attribute.value.isScalar() || attribute.value.isBool()))
      scalars.emplace_back(attribute.name, attribute.value);
  }
  return scalars;
}

// Throws ScriptFault if numbers or flags that are not tensors have changed.
void check_scalars(const Module& before, const Module& after) {
  const auto old = scalars_of(before), now = scalars_of(after);
  for (std::size_t i = 0; i < old.size(); ++i)
    if (old[i].second != now[i].second)
      throw ScriptFault(fmt::format("its forward changes the number {}; it may change only buffers", old[i].first));
}

// Whether samples affect each other: whether evaluating all four together differs from evaluating two at a time.
bool mixes(Module& module, const Arguments& samples) {
  const at::Tensor together = call_on_copies(module, samples);
  std::vector<at::Tensor> apart;
  for (const std::int64_t begin : {std::int64_t{0}, probed_samples / 2}) {
    const auto half = [&](const at::Tensor& of) {
      return of.defined() ? of.narrow(0, begin, probed_samples / 2) : at::Tensor();
    };
    apart.push_back(call_on_copies(module, {half(samples.inputs), half(samples.lengths)}));
  }
  return !are_near(together, at::cat(apart));
}

// For causal tasks, in evaluation: throws ScriptFault if outputs depend on later tokens.
void check_causality(Module& module, const Arguments& longest) {
  const std::int64_t length = longest.inputs.size(1), earlier = (length + 1) / 2;
  if (earlier == length) return;
  // Later tokens are changed, not removed, because a module that needs sequences of equal length may still be causal.
  const at::Tensor later = longest.inputs.narrow(1, earlier, length - earlier).flip({0});
  const at::Tensor changed = at::cat({longest.inputs.narrow(1, 0, earlier), later}, 1);
  const at::Tensor before = call_on_copies(module, longest).narrow(1, 0, earlier);
  if (!are_near(before, call_on_copies(module, {changed, longest.lengths}).narrow(1, 0, earlier)))
    throw ScriptFault("its logits at a position depend on later tokens; with loss = \"causal\" they must not");
}

// For sequences, in evaluation: throws ScriptFault if forward fails on shorter sequences, down to the shortest. Returns
// whether padding after a sequence leaves its outputs unchanged.
bool bears_padding(Module& module, const ScriptDemand& demand, const Arguments& longest) {
  const std::int64_t length = longest.inputs.size(1);
  std::set<std::int64_t> shorter;
  if (demand.shortest > 0) shorter.insert(computed_by(demand.task).of(demand.shortest));
  if (demand.has_padding) shorter.insert((length + 1) / 2);
  const std::string hint =
      demand.shortest > 0 ? fmt::format("the data set's shortest sequence has {} tokens", demand.shortest) : "";
  bool bears = true;
  for (const std::int64_t own : shorter) {
    if (own >= length) continue;
    const at::Tensor tokens = longest.inputs.narrow(1, 0, own).contiguous();
    const at::Tensor lengths = lengths_of(longest.lengths.defined(), tokens);
    const at::Tensor alone = with_hint(hint, [&] { return call_on_copies(module, {tokens, lengths}); });
    check_outputs(alone, tokens, demand);
    if (!demand.has_padding) continue;
    const at::Tensor padding = at::full({probed_samples, length - own}, std::int64_t{demand.task.padding}, at::kLong);
    const at::Tensor padded = call_on_copies(module, {at::cat({tokens, padding}, 1), lengths});
    bears = bears && are_near(alone, demand.asks_for_tokens() ? padded.narrow(1, 0, own) : padded);
  }
  return bears;
}

// Returns why a module in evaluation, in float64, has no gradient or no Hessian product; empty: it has both.
std::string why_no_derivative(Module& module, const std::vector<at::Tensor>& parameters, const Arguments& samples) {
  try {
    const at::Tensor loss = call_on_copies(module, {samples.inputs.to(at::kDouble)}).square().sum();
    const auto gradients = torch::autograd::grad({loss}, parameters, {}, {}, /*create_graph=*/true,
                                                 /*allow_unused=*/true);
    at::Tensor product = at::zeros({}, at::kDouble);
    for (const at::Tensor& gradient : gradients)
      if (gradient.defined()) product = product + gradient.square().sum();
    if (product.requires_grad())
      torch::autograd::grad({product}, parameters, {}, {}, /*create_graph=*/false, /*allow_unused=*/true);
    return "";
  } catch (const std::exception& problem) {
    return reason_of(problem);
  }
}

bool gives_numbers(Module& module, const Arguments& samples) {
  try {
    return are_finite(call_on_copies(module, samples));
  } catch (const ScriptFault&) {
    return false;
  }
}

using Parts = std::vector<torch::jit::ObjectPtr>;  // a module and all its submodules

// The location of a tensor in a module: attribute `slot` of part number `part`.
struct Place {
  std::size_t part = 0;
  std::size_t slot = 0;
};

struct NamedTensor {
  std::string name;
  at::Tensor value;
  std::vector<Place> places;  // more than one if parts share the tensor

  at::Tensor in(const Parts& parts) const {
    return parts[places.front().part]->getSlot(places.front().slot).toTensor();
  }
};

// A copy of a module and its submodules that shares their tensors. LibTorch's copy() would also share the submodules.
torch::jit::ObjectPtr copy_of(const torch::jit::ObjectPtr& original) {
  torch::jit::ObjectPtr copy = original->copy();
  for (std::size_t slot = 0; slot < copy->slots().size(); ++slot) {
    const c10::IValue value = copy->getSlot(slot);
    if (value.isModule()) copy->setSlot(slot, copy_of(value.toObject()));
  }
  return copy;
}

Parts parts_of(const Module& module) {
  Parts parts;
  for (const Module& part : module.modules()) parts.push_back(part._ivalue());
  return parts;
}

std::vector<at::Tensor> tensors_in(const Parts& parts, const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& each : named) tensors.push_back(each.in(parts));
  return tensors;
}

std::shared_ptr<const std::vector<float>> values_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kFloat).contiguous();
  const float* const begin = values.data_ptr<float>();
  return std::make_shared<const std::vector<float>>(begin, begin + values.numel());
}

Parameter description_of(const NamedTensor& parameter, bool drawn) {
  const at::Tensor value = parameter.value.detach();
  Parameter result{
      .name = parameter.name, .shape = value.sizes().vec(), .size = static_cast<std::size_t>(value.numel())};
  if (drawn && value.dim() >= 2)
    result.initial = {.centre = value.to(at::kDouble).mean().item<double>(),
                      .spread = value.to(at::kDouble).std(/*unbiased=*/false).item<double>(),
                      .law = Initial::Law::normal};
  else
    result.given = values_of(value);
  return result;
}

// A copy of the module that one thread uses at a time.
class ModuleCopy {
 public:
  explicit ModuleCopy(const Module& original) : module_(copy_of(original._ivalue())), parts_(parts_of(module_)) {}

  void bind(const std::vector<NamedTensor>& named, const std::vector<at::Tensor>& values) {
    for (std::size_t i = 0; i < named.size(); ++i)
      for (const Place& place : named[i].places) {
        const c10::IValue value(values[i]);
        parts_[place.part]->setSlot(place.slot, value);
      }
  }
  at::Tensor value(const NamedTensor& named) const { return named.in(parts_); }
  at::Tensor forward(const Arguments& arguments, bool in_training) {
    if (is_training_ != in_training) module_.train(in_training);
    is_training_ = in_training;
    return call(module_, arguments);
  }

 private:
  Module module_;
  Parts parts_;
  std::optional<bool> is_training_;
};

// Computes the batch's own statistics s. A module moves a buffer from v to (1 - m) v + m s, with its own momentum m.
// Starting at 0 the buffer becomes m s, and starting at 1 it becomes 1 - m + m s: the difference gives m.
void measure(const std::function<void()>& forward, const Network& network, const std::vector<at::Tensor>& buffers) {
  const auto start_from = [&](float value) {
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const Buffer& buffer = network.buffers()[b];
      if (buffer.counts)
        at::Tensor(buffers[b]).copy_(at::from_blob(const_cast<float*>(buffer.initial->data()), buffers[b].sizes()));
      else
        at::Tensor(buffers[b]).fill_(value);
    }
    SeededDraws::repeat();
    forward();
  };
  start_from(0);
  std::vector<at::Tensor> from_0;
  for (const at::Tensor& buffer : buffers) from_0.push_back(buffer.clone());
  start_from(1);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (network.buffers()[b].counts || buffers[b].numel() == 0) continue;
    const at::Tensor of_0 = from_0[b].flatten();
    // The difference is most accurate where the statistic is smallest.
    const auto place = of_0.abs().argmin();
    const double momentum = 1 - (buffers[b].flatten()[place] - of_0[place]).item<double>();
    at::Tensor(buffers[b]).copy_(from_0[b] / momentum);
  }
}

// A group's tokens as (texts, longest) int64.
at::Tensor tokens_of(const TextGroup& group, const SequenceBatch& texts, std::int32_t padding) {
  const at::Tensor tokens = texts.tokens.narrow(0, group.begin, group.tokens);
  if (!group.slots_of_tokens.defined()) return tokens.view({group.texts, group.longest});
  at::Tensor slots = at::full({group.texts * group.longest}, std::int64_t{padding}, tokens.options());
  return slots.scatter_(0, group.slots_of_tokens, tokens).view({group.texts, group.longest});
}

at::Tensor lengths_of(const TextGroup& group, const SequenceBatch& texts) {
  return group.lengths.defined() ? group.lengths : at::full({group.texts}, group.longest, texts.tokens.options());
}

// Selects the rows of texts.asked from a group's outputs (texts, longest, outputs), in the order of the group's tokens.
at::Tensor asked_of(const TextGroup& group, const SequenceBatch& texts, const at::Tensor& outputs) {
  const at::Tensor in_memory = texts.asked.to(at::kCPU);
  const std::span<const std::int64_t> asked(in_memory.data_ptr<std::int64_t>(),
                                            static_cast<std::size_t>(in_memory.numel()));
  const auto begin = std::ranges::lower_bound(asked, group.begin) - asked.begin();
  const auto end = std::ranges::lower_bound(asked, group.begin + group.tokens) - asked.begin();
  at::Tensor places = texts.asked.narrow(0, begin, end - begin) - group.begin;
  if (group.slots_of_tokens.defined()) places = group.slots_of_tokens.index_select(0, places);
  return at::embedding(outputs.reshape({group.texts * group.longest, -1}), places);
}

}  // namespace

// Threads use copies, which share untrained tensors. Parameters and buffers are views of flat memory, or of its copy on
// a device. Thread-safe after probe().
class ScriptModule {
 public:
  // Loads the module with its values. Throws ScriptFault if the file is not a module, or if its tensors cannot be
  // trained.
  explicit ScriptModule(const std::filesystem::path& file)
      : module_(load_module(file)), takes_lengths_(takes_lengths(module_)) {
    std::size_t number = 0;
    for (const auto& part : module_.named_modules()) {
      const auto& type = *part.value.type();
      for (std::size_t slot = 0; slot < type.numAttributes(); ++slot) {
        const c10::IValue value = part.value._ivalue()->getSlot(slot);
        if (!value.isTensor() || !value.toTensor().defined()) continue;
        const std::string name = (part.name.empty() ? "" : part.name + ".") + type.getAttributeName(slot);
        add(name, value.toTensor(), type.is_parameter(slot), {number, slot});
      }
      ++number;
    }
    if (parameters_.empty())
      throw ScriptFault("has no trainable parameters (modules frozen by torch.jit.freeze have none)");
  }

  // Returns the outputs for these inputs. In training it writes the module's new values to `buffers`; in evaluation it
  // may write there, too. Parameters and buffers are in the order of contents(). If they are float64, the whole module
  // is evaluated in float64. `lengths`: (n,) int64, for a forward that takes lengths. All tensors are on one device,
  // where the module is evaluated. Throws ScriptFault.
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                     const at::Tensor& inputs, Mode mode, const at::Tensor* lengths = nullptr) const {
    auto [here, copy] = take_copy(inputs.device());
    std::vector<at::Tensor> bound;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const auto type = buffers_[b].value.scalar_type();
      bound.push_back(type == at::kFloat ? buffers[b] : buffers[b].round().to(type));
    }
    copy->bind(parameters_, parameters);
    copy->bind(buffers_, bound);
    // Untrained tensors get the precision of the parameters.
    const bool in_doubles = parameters.front().scalar_type() == at::kDouble;
    std::vector<at::Tensor> fixed;
    std::vector<std::uint32_t> versions;
    for (const at::Tensor& value : here.fixed) {
      const bool is_converted = in_doubles && value.scalar_type() == at::kFloat;
      fixed.push_back(is_converted ? value.to(at::kDouble) : value);
      versions.push_back(fixed.back()._version());
    }
    if (in_doubles) copy->bind(fixed_, fixed);
    const bool with_lengths = takes_lengths_ && lengths != nullptr;
    // Members of an ensemble and measurements of statistics use the same inputs again.
    const auto own = [&](const at::Tensor& given) { return changes_inputs_ ? given.clone() : given; };
    at::Tensor outputs =
        copy->forward({own(inputs), with_lengths ? own(*lengths) : at::Tensor()}, mode != Mode::evaluate);
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const at::Tensor after = copy->value(buffers_[b]);
      if (!after.is_same(buffers[b])) at::Tensor(buffers[b]).copy_(after.detach());
    }
    for (std::size_t f = 0; f < fixed.size(); ++f)
      if (fixed[f]._version() != versions[f] || !copy->value(fixed_[f]).is_same(fixed[f]))
        throw ScriptFault(
            fmt::format("its forward changes tensor {}, but did not when the file was checked", fixed_[f].name));
    if (in_doubles) return outputs;
    const std::lock_guard lock(mutex_);
    here.free_copies.push_back(std::move(copy));
    return outputs;
  }

  // Evaluates a few random samples, and throws ScriptFault if they do not meet the demand. Call it once, before all
  // forwards.
  void probe(const ScriptDemand& demand) {
    Module trial = module_.deepcopy();
    const Arguments samples = probe_inputs(demand, takes_lengths_);
    const SeededDraws draws(0);
    std::string why_traced = fixed_by_trace(module_, /*in_training=*/true);
    if (!why_traced.empty()) why_traced = ": " + why_traced;
    trial.eval();
    const auto drawn_before = SeededDraws::drawn();
    const std::string hint =
        demand.shape.has_tokens()
            ? fmt::format(
                  "the data set has {0} different tokens, numbered from 0, and its longest sequence has {1} tokens",
                  demand.shape.vocabulary, demand.shape.width)
            : "";
    const at::Tensor first = with_hint(hint, [&] { return call_on_copies(trial, samples); });
    check_outputs(first, samples.inputs, demand);
    outputs_ = first.size(-1);
    if (!are_finite(first))
      throw ScriptFault(fmt::format("its forward returns numbers that are not finite for random inputs of shape {}",
                                    c10::str(samples.inputs.sizes())));
    if (SeededDraws::drawn() > drawn_before)
      throw ScriptFault("its forward draws random numbers in evaluation; it may do so only in training" + why_traced);
    Module moved = module_.deepcopy();
    moved.eval();
    move_parameters(tensors_in(parts_of(moved), parameters_));
    if (!gives_numbers(moved, samples)) moved = trial.deepcopy();
    changes_inputs_ = changes_inputs(moved, samples);
    if (mixes(moved, samples))
      throw ScriptFault(
          (demand.shape.has_tokens()
               ? "its outputs for a sequence depend on the other sequences of the batch; they must not"
               : "in evaluation its outputs for a sample depend on the other samples of the batch; they may do so "
                 "only in training") +
          why_traced);
    if (demand.shape.has_tokens()) {
      if (demand.task.kind == TextTask::Kind::causal_lm) check_causality(moved, samples);
      bears_padding_ = syncopate::bears_padding(moved, demand, samples);
    }

    trial.train();
    moved.train();
    const auto drawn = SeededDraws::drawn();
    const at::Tensor outputs = call_on_copies(trial, samples);
    check_outputs(outputs, samples.inputs, demand);
    contents_.draws = SeededDraws::drawn() > drawn;
    std::vector<std::string> names;
    for (const NamedTensor& parameter : parameters_) names.push_back(parameter.name);
    check_gradients(outputs, tensors_in(parts_of(trial), parameters_), names);
    check_scalars(module_, trial);
    sort_buffers(parts_of(trial));
    if (demand.shape.has_tokens() && !buffers_.empty())
      throw ScriptFault(fmt::format("its buffer {} changes in training; a module for tokens must not have such buffers",
                                    buffers_.front().name));
    changes_inputs_ = changes_inputs(moved, samples) || changes_inputs_;
    contents_.note = fixed_by_trace(module_, /*in_training=*/false);
    contents_.mixes_samples = contents_.draws || !buffers_.empty() || mixes(moved, samples);
    if (demand.shape.has_tokens()) {
      contents_.why_no_derivative = "derivatives of your own modules are not available for texts";
      return;
    }

    Module doubles = module_.deepcopy();
    doubles.to(at::kDouble);
    doubles.eval();
    contents_.why_no_derivative = why_no_derivative(doubles, tensors_in(parts_of(doubles), parameters_), samples);
  }

  // Evaluates batches of the sizes of a run, without gradients. Call it after probe(). Throws ScriptFault.
  void try_batches(const ScriptDemand& demand, const ScriptOptions::Trial& trial) const {
    const SeededDraws draws(0);
    const auto with = [&](std::int64_t samples, bool in_training, const char* meaning) {
      if (samples == 0) return;
      const at::NoGradGuard no_gradients;
      const Arguments inputs = repeated_inputs(demand, takes_lengths_, samples);
      Module module = module_.deepcopy();
      module.train(in_training);
      with_hint(fmt::format("{} = {}", meaning, samples),
                [&] { check_outputs(call_on_copies(module, inputs), inputs.inputs, demand); });
    };
    with(trial.trained, true, "the number of samples in a micro-batch, training.micro_batch_size");
    with(trial.evaluated, false, "the number of samples that are evaluated together, chunk_samples");
  }

  // The number of outputs per sample or per token. Call it after probe().
  std::int64_t outputs() const { return outputs_; }

  // Whether padding after a sequence leaves its outputs unchanged. Call it after probe().
  bool bears_padding() const { return bears_padding_; }

  // Before probe() the contents have no buffers.
  NetworkContents contents(const ScriptOptions& options) const {
    NetworkContents contents = contents_;
    if (!options.fused) contents.mixes_samples = true;
    for (const NamedTensor& parameter : parameters_)
      contents.parameters.push_back(description_of(parameter, options.drawn));
    for (const NamedTensor& buffer : buffers_)
      contents.buffers.push_back({.size = static_cast<std::size_t>(buffer.value.numel()),
                                  .shape = buffer.value.sizes().vec(),
                                  .counts = buffer.value.scalar_type() != at::kFloat,
                                  .initial = values_of(buffer.value)});
    return contents;
  }

 private:
  void add(const std::string& name, const at::Tensor& value, bool is_parameter, const Place& place) {
    if (is_parameter && value.scalar_type() != at::kFloat)
      throw ScriptFault(
          fmt::format("its parameter {} has elements of type {}; must have float32 (call module.float() before saving)",
                      name, at::toString(value.scalar_type())));
    auto& list = is_parameter && value.requires_grad() ? parameters_ : buffers_;
    const auto known = std::ranges::find_if(list, [&](const NamedTensor& other) {
      return value.numel() > 0 && other.value.data_ptr() == value.data_ptr() && other.value.sizes() == value.sizes();
    });
    if (known != list.end())
      known->places.push_back(place);
    else
      list.push_back({name, value, {place}});
  }

  // Buffers that training has changed remain buffers; all others become fixed tensors.
  void sort_buffers(const Parts& parts_after_training) {
    for (NamedTensor& tensor : std::exchange(buffers_, {})) {
      const bool changes = !tensor.in(parts_after_training).equal(tensor.value);
      const auto type = tensor.value.scalar_type();
      if (changes && type != at::kFloat && !at::isIntegralType(type, /*includeBool=*/true))
        throw ScriptFault(fmt::format(
            "its buffer {}, which changes in training, has elements of type {}; must have float32 or integers",
            tensor.name, at::toString(type)));
      (changes ? buffers_ : fixed_).push_back(std::move(tensor));
    }
  }

  // The module with all its tensors on one device.
  struct OnDevice {
    Module module;
    std::vector<at::Tensor> fixed;  // in the order of fixed_
    std::vector<std::unique_ptr<ModuleCopy>> free_copies{};
  };

  // Loading is LibTorch's only function that also moves the constants of the code, which traced modules have.
  OnDevice moved_to(const at::Device& device) const {
    Module module = module_;
    if (!device.is_cpu()) {
      const c10::InferenceMode usable_in_training(false);  // the first pass may be an evaluation's
      std::stringstream bytes;
      module_.save(bytes);
      module = torch::jit::load(bytes, device);
    }
    return {.module = module, .fixed = tensors_in(parts_of(module), fixed_)};
  }

  // Returns the module on the device, and a copy of it that no other thread uses.
  std::pair<OnDevice&, std::unique_ptr<ModuleCopy>> take_copy(const at::Device& device) const {
    const std::lock_guard lock(mutex_);
    auto found = devices_.find(device.str());
    if (found == devices_.end()) found = devices_.emplace(device.str(), moved_to(device)).first;
    OnDevice& here = found->second;
    if (here.free_copies.empty()) return {here, std::make_unique<ModuleCopy>(here.module)};
    auto copy = std::move(here.free_copies.back());
    here.free_copies.pop_back();
    return {here, std::move(copy)};
  }

  Module module_;
  std::vector<NamedTensor> parameters_;  // trained tensors
  std::vector<NamedTensor> buffers_;     // tensors that training changes; before probe(): all that are not trained
  std::vector<NamedTensor> fixed_;       // all other tensors
  bool takes_lengths_;
  bool bears_padding_ = true;
  bool changes_inputs_ = false;  // forward changes its inputs in place
  std::int64_t outputs_ = 0;
  NetworkContents contents_;  // the results of probe(), without parameters and buffers
  mutable std::mutex mutex_;
  mutable std::map<std::string, OnDevice> devices_;  // by the device's name
};

at::Tensor forward_script(const ScriptModule& module, const Network& network, const std::vector<at::Tensor>& parameters,
                          const std::vector<at::Tensor>& buffers, const at::Tensor& inputs, const SequenceBatch* texts,
                          Mode mode) {
  if (!texts) {
    const at::Tensor samples = inputs.view(input_sizes(inputs.size(0), network.input()));
    at::Tensor outputs;
    const auto forward = [&] { outputs = module.forward(parameters, buffers, samples, mode); };
    if (mode == Mode::measure && !buffers.empty())
      measure(forward, network, buffers);
    else
      forward();
    return outputs;
  }
  std::vector<at::Tensor> parts;
  for (const TextGroup& group : texts->groups) {
    const at::Tensor lengths = lengths_of(group, *texts);
    const at::Tensor outputs =
        module.forward(parameters, {}, tokens_of(group, *texts, network.task().padding), mode, &lengths);
    parts.push_back(texts->asked.defined() ? asked_of(group, *texts, outputs) : outputs);
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

Network script_network(const std::filesystem::path& file, const std::string& hash, const DatasetSize& data,
                       const ScriptOptions& options) {
  struct Loaded {
    std::string what;
    std::shared_ptr<const ScriptModule> module{};
  };
  // The last module is kept, because consecutive runs of an experiment use the same file.
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
