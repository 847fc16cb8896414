#include "workers/models/script_probe.hpp"

#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "workers/models/script_call.hpp"
#include "workers/models/script_module.hpp"
#include "workers/models/script_options.hpp"
#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

// Enough to see whether samples disturb each other.
constexpr std::int64_t probed_samples = 4;
constexpr RandomStream probe_stream{.purpose = Purpose::module_draws};

bool are_finite(const at::Tensor& numbers) { return numbers.isfinite().all().item<bool>(); }

bool are_near(const at::Tensor& one, const at::Tensor& other) {
  // Kernels for other sizes of batches round otherwise.
  constexpr double rounding = 1e-4;
  if (!are_finite(one) || !are_finite(other)) return false;
  return one.allclose(other, rounding, rounding * one.abs().max().item<double>());
}

// Of a sequence of `length` tokens, as it comes to forward.
std::int64_t shown_of(std::int64_t length, const TextTask& task) {
  if (task.longest > 0) length = std::min(length, task.longest);
  if (task.kind == TextTask::Kind::causal_lm) --length;  // the last token is only an answer
  return std::max<std::int64_t>(length, 1);
}

at::Tensor random_tokens(const ScriptDemand& demand) {
  const std::int64_t length = shown_of(demand.shape.width, demand.task), vocabulary = demand.shape.vocabulary;
  std::vector<double> uniform(static_cast<std::size_t>(probed_samples * length));
  probe_stream.fill_uniform(0, uniform);
  const at::Tensor tokens = at::empty({probed_samples, length}, at::kLong);
  std::ranges::transform(uniform, tokens.data_ptr<std::int64_t>(), [&](double value) {
    const auto token = static_cast<std::int64_t>(value * static_cast<double>(vocabulary));
    const bool is_padding = demand.has_padding && token == demand.task.padding;
    return is_padding ? (token + 1) % vocabulary : token;
  });
  const bool is_last_padding = demand.has_padding && demand.task.padding == vocabulary - 1;
  *tokens.data_ptr<std::int64_t>() = std::max<std::int64_t>(vocabulary - (is_last_padding ? 2 : 1), 0);  // the last row
  return tokens;
}

at::Tensor random_numbers(const SampleShape& shape) {
  std::vector<double> values(static_cast<std::size_t>(probed_samples * shape.features()));
  fill_standard_normal(probe_stream, 0, values);
  const at::Tensor inputs = at::empty(static_cast<std::int64_t>(values.size()), at::kFloat);
  std::ranges::transform(values, inputs.data_ptr<float>(), [](double value) { return static_cast<float>(value); });
  return inputs.view(script_input_sizes(probed_samples, shape));
}

at::Tensor lengths_of(bool wanted, std::int64_t length) {
  return wanted ? at::full({probed_samples}, length, at::kLong) : at::Tensor();
}

// What a module keeps besides tensors: numbers and flags.
std::vector<std::pair<std::string, c10::IValue>> scalars_of(const torch::jit::Module& module) {
  std::vector<std::pair<std::string, c10::IValue>> scalars;
  for (const auto& attribute : module.named_attributes()) {
    const bool is_mode = attribute.name == "training" || attribute.name.ends_with(".training");
    if (!is_mode && (attribute.value.isScalar() || attribute.value.isBool()))
      scalars.emplace_back(attribute.name, attribute.value);
  }
  return scalars;
}

at::Tensor call_on_shorter(torch::jit::Module& module, const at::Tensor& tokens, const at::Tensor& lengths,
                           const ScriptDemand& demand) {
  try {
    return call_on_copies(module, tokens, lengths);
  } catch (const ScriptFault& problem) {
    if (demand.shortest == 0) throw;
    throw ScriptFault(
        fmt::format("{}; the data set's shortest sequence has {} tokens", problem.what(), demand.shortest));
  }
}

}  // namespace

ProbeInputs probe_inputs(const ScriptDemand& demand, bool with_lengths) {
  if (!demand.shape.has_tokens()) return {.inputs = random_numbers(demand.shape), .lengths = {}};
  const at::Tensor tokens = random_tokens(demand);
  return {.inputs = tokens, .lengths = lengths_of(with_lengths, tokens.size(1))};
}

ProbeInputs repeated_inputs(const ScriptDemand& demand, bool with_lengths, std::int64_t samples) {
  at::Tensor few = probe_inputs(demand, /*with_lengths=*/false).inputs;
  if (demand.shape.has_tokens() && demand.shortest > 0)
    few = few.narrow(1, 0, std::min(shown_of(demand.shortest, demand.task), few.size(1)));
  const at::Tensor numbers = at::arange(samples, at::kLong).remainder(probed_samples);
  const bool are_sequences = demand.shape.has_tokens();
  return {.inputs = few.index_select(0, numbers),
          .lengths = are_sequences && with_lengths ? at::full({samples}, few.size(1), at::kLong) : at::Tensor()};
}

bool changes_inputs(torch::jit::Module& module, const ProbeInputs& samples) {
  // Whatever writes to a tensor counts its version up, also where these samples stay as they are.
  const at::Tensor inputs = samples.inputs.clone();
  const at::Tensor lengths = samples.lengths.defined() ? samples.lengths.clone() : at::Tensor();
  const auto version_of = [](const at::Tensor& tensor) { return tensor.defined() ? tensor._version() : 0; };
  const auto of_inputs = version_of(inputs), of_lengths = version_of(lengths);
  call(module, inputs, lengths);
  return version_of(inputs) != of_inputs || version_of(lengths) != of_lengths;
}

namespace {

// Operators that do something else in training than in evaluation, and which of their inputs says so.
struct ModalOperator {
  const char* name;
  const char* says_training;
};
constexpr ModalOperator dropouts[] = {{"aten::dropout", "train"},
                                      {"aten::dropout_", "train"},
                                      {"aten::feature_dropout", "train"},
                                      {"aten::feature_dropout_", "train"},
                                      {"aten::alpha_dropout", "train"},
                                      {"aten::alpha_dropout_", "train"},
                                      {"aten::feature_alpha_dropout", "train"},
                                      {"aten::feature_alpha_dropout_", "train"}};
constexpr ModalOperator normalisations[] = {{"aten::batch_norm", "training"},
                                            {"aten::native_batch_norm", "training"},
                                            {"aten::instance_norm", "use_input_stats"}};

// Whether a constant has one of these operators always act as in training, or always as in evaluation.
bool is_fixed(const torch::jit::Node& node, std::span<const ModalOperator> operators, bool in_training) {
  const std::string name = node.kind().toQualString();
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

std::int64_t count_fixed(const torch::jit::Module& module, std::span<const ModalOperator> operators, bool in_training) {
  std::int64_t count = 0;
  for (const torch::jit::Module& part : module.modules())
    for (const torch::jit::Method& method : part.get_methods())
      count += count_fixed(*method.graph()->block(), operators, in_training);
  return count;
}

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string fixed_by_trace(const torch::jit::Module& module, bool in_training) {
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
      "its code has {}, in training and in evaluation alike, as torch.jit.trace of a module in {}() writes "
      "it; torch.jit.script keeps both modes",
      fmt::join(parts, " and "), in_training ? "train" : "eval");
}

void check_outputs(const at::Tensor& outputs, const at::Tensor& inputs, const ScriptDemand& demand) {
  const std::int64_t samples = inputs.size(0);
  std::vector<std::int64_t> right = {samples, demand.outputs};
  std::string needed = fmt::format("({}, {}), ", samples, demand.outputs);
  if (demand.asks_for_tokens()) {
    right = {samples, inputs.size(1), demand.outputs};
    needed = fmt::format("({}, {}, {}), logits of all tokens at each place", samples, inputs.size(1), demand.outputs);
    if (demand.task.own_labels) {
      needed = fmt::format("({}, {}, {} or more), logits of the classes at each place", samples, inputs.size(1),
                           demand.outputs);
      if (outputs.dim() == 3) right.back() = std::max(demand.outputs, outputs.size(2));
    }
  } else {
    needed += demand.squared_error ? "as many numbers as y has" : "logits of the classes";
  }
  if (outputs.sizes() != right)
    throw ScriptFault(fmt::format("its forward returns shape {} for inputs of shape {}; must return {}",
                                  c10::str(outputs.sizes()), c10::str(inputs.sizes()), needed));
  if (outputs.scalar_type() != at::kFloat)
    throw ScriptFault(fmt::format("its forward returns elements of type {}; must return float32",
                                  at::toString(outputs.scalar_type())));
}

void check_finite(const at::Tensor& outputs, const at::Tensor& inputs) {
  if (!are_finite(outputs))
    throw ScriptFault(fmt::format("its forward gives numbers that are not finite for random inputs of shape {}",
                                  c10::str(inputs.sizes())));
}

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

void check_gradients(const at::Tensor& outputs, const std::vector<at::Tensor>& parameters,
                     const std::vector<std::string>& names) {
  if (!outputs.requires_grad())
    throw ScriptFault("its forward in training does not depend on its parameters in a way that has gradients");
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
          fmt::format("its parameter {} has a gradient that is sparse; must be dense, as "
                      "torch.nn.Embedding's is without sparse=True",
                      names[p]));
}

void check_scalars(const torch::jit::Module& before, const torch::jit::Module& after) {
  const auto old = scalars_of(before), now = scalars_of(after);
  for (std::size_t i = 0; i < old.size(); ++i)
    if (old[i].second != now[i].second)
      throw ScriptFault(fmt::format("its forward changes the number {}; it may change buffers alone", old[i].first));
}

bool mixes(torch::jit::Module& module, const ProbeInputs& samples) {
  const at::Tensor together = call_on_copies(module, samples.inputs, samples.lengths);
  std::vector<at::Tensor> apart;
  for (const std::int64_t begin : {std::int64_t{0}, probed_samples / 2}) {
    const auto half = [&](const at::Tensor& of) {
      return of.defined() ? of.narrow(0, begin, probed_samples / 2) : at::Tensor();
    };
    apart.push_back(call_on_copies(module, half(samples.inputs), half(samples.lengths)));
  }
  return !are_near(together, at::cat(apart));
}

void check_causality(torch::jit::Module& module, const ProbeInputs& longest) {
  const std::int64_t length = longest.inputs.size(1), earlier = (length + 1) / 2;
  if (earlier == length) return;
  // Other tokens, not fewer: what needs all sequences to be as long as each other may be causal.
  const at::Tensor later = longest.inputs.narrow(1, earlier, length - earlier).flip({0});
  const at::Tensor changed = at::cat({longest.inputs.narrow(1, 0, earlier), later}, 1);
  const at::Tensor before = call_on_copies(module, longest.inputs, longest.lengths).narrow(1, 0, earlier);
  if (!are_near(before, call_on_copies(module, changed, longest.lengths).narrow(1, 0, earlier)))
    throw ScriptFault(
        "its logits at a place depend on later tokens; with loss = \"causal\" they must follow from those up to it");
}

bool bears_padding(torch::jit::Module& module, const ScriptDemand& demand, const ProbeInputs& longest) {
  const std::int64_t length = longest.inputs.size(1);
  std::set<std::int64_t> shorter;
  if (demand.shortest > 0) shorter.insert(shown_of(demand.shortest, demand.task));
  if (demand.has_padding) shorter.insert((length + 1) / 2);
  bool bears = true;
  for (const std::int64_t own : shorter) {
    if (own >= length) continue;
    const at::Tensor lengths = lengths_of(longest.lengths.defined(), own);
    const at::Tensor tokens = longest.inputs.narrow(1, 0, own).contiguous();
    const at::Tensor alone = call_on_shorter(module, tokens, lengths, demand);
    check_outputs(alone, tokens, demand);
    if (!demand.has_padding) continue;
    const at::Tensor padding = at::full({probed_samples, length - own}, std::int64_t{demand.task.padding}, at::kLong);
    const at::Tensor padded = call_on_copies(module, at::cat({tokens, padding}, 1), lengths);
    bears = bears && are_near(alone, demand.asks_for_tokens() ? padded.narrow(1, 0, own) : padded);
  }
  return bears;
}

std::string why_no_derivative(torch::jit::Module& module, const std::vector<at::Tensor>& parameters,
                              const ProbeInputs& samples) {
  try {
    const at::Tensor loss = call_on_copies(module, samples.inputs.to(at::kDouble)).square().sum();
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

}  // namespace syncopate
