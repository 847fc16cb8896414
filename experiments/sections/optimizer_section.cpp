#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "experiments/sections/training_section.hpp"
#include "workers/training/lamb.hpp"
#include "workers/training/lans.hpp"
#include "workers/training/lars.hpp"
#include "workers/training/rmsprop.hpp"
#include "workers/training/stretches.hpp"

namespace syncopate {
namespace {

constexpr Range at_least_zero{.low = 0, .high_open = true};
constexpr Range above_zero{.low = 0, .low_open = true, .high_open = true};
constexpr Range share{.low = 0, .high = 1, .high_open = true};

WeightDecay read_weight_decay(Settings& optimizer, WeightDecay decay) {
  decay.rate = optimizer.number({"weight_decay", "Rate of the weight decay; 0: none."}, at_least_zero, decay.rate);
  decay.scope =
      optimizer.choice({"decay", "Which parameters decay: weights alone, or biases and normalisation as well."},
                       {{"weights", DecayScope::weights}, {"all", DecayScope::all}}, decay.scope);
  decay.exclude = optimizer.texts(
      {"exclude", "Tensors whose names contain one of these do not decay either; one at least must fit."},
      std::vector<std::string>{});
  return decay;
}

DecayForm read_decay_form(Settings& optimizer, DecayForm form) {
  const bool decoupled =
      optimizer.flag({"decoupled", "Whether weights decay beside the gradient (as in AdamW), not as a part of it."},
                     form == DecayForm::decoupled);
  return decoupled ? DecayForm::decoupled : DecayForm::coupled;
}

double read_momentum(Settings& optimizer, double momentum) {
  return optimizer.number({"momentum", "Share of the last update that the next one keeps; 0: none."}, share, momentum);
}

MomentumOf read_momentum_of(Settings& optimizer, MomentumOf of) {
  return optimizer.choice(
      {"momentum_of",
       "What it sums up: gradients (PyTorch), or gradients times the learning rate (TensorFlow, MLPerf)."},
      {{"gradients", MomentumOf::gradients}, {"updates", MomentumOf::updates}}, of);
}

TrustScope read_trust_scope(Settings& optimizer, TrustScope scope) {
  return optimizer.choice({"trust_ratio", "Which tensors are scaled by a trust ratio: those that decay, or all."},
                          {{"decayed", TrustScope::decayed}, {"all", TrustScope::all}}, scope);
}

double read_max_norm(Settings& optimizer, double norm) {
  return optimizer.number(
      {"max_norm", "Global norm to which larger gradients of all tensors together are scaled down; 0: none are."},
      at_least_zero, norm);
}

template <typename Options>
void read_betas(Settings& optimizer, Options& options) {
  options.beta1 = optimizer.number({"beta1", "Decay of the first moment."}, share, options.beta1);
  options.beta2 = optimizer.number({"beta2", "Decay of the second moment."}, share, options.beta2);
  options.epsilon =
      optimizer.number({"epsilon", "What is added to the root of the second moment."}, above_zero, options.epsilon);
}

bool read_bias_correction(Settings& optimizer, bool corrects) {
  return optimizer.flag({"bias_correction", "Whether moments, which begin at zero, are divided by 1 - beta^step."},
                        corrects);
}

std::unique_ptr<Optimizer> read_sgd(Settings& optimizer) {
  SgdOptions options;
  const std::size_t faults = optimizer.faults_so_far();
  options.momentum = read_momentum(optimizer, options.momentum);
  options.momentum_of = read_momentum_of(optimizer, options.momentum_of);
  options.nesterov = optimizer.flag({"nesterov", "Whether the momentum is Nesterov's."}, options.nesterov);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  options.weight_decay.form = read_decay_form(optimizer, options.weight_decay.form);
  if (options.nesterov && options.momentum == 0) {
    if (optimizer.faults_so_far() == faults) optimizer.fault("nesterov", "must be false without momentum");
    options.nesterov = false;
  }
  return make_sgd(options);
}

std::unique_ptr<Optimizer> read_adam(Settings& optimizer) {
  AdamWOptions options{.weight_decay = {.scope = DecayScope::all, .form = DecayForm::coupled}};
  read_betas(optimizer, options);
  options.corrects_bias = read_bias_correction(optimizer, options.corrects_bias);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_adamw(options);
}

std::unique_ptr<Optimizer> read_adamw(Settings& optimizer) {
  AdamWOptions options;
  read_betas(optimizer, options);
  options.corrects_bias = read_bias_correction(optimizer, options.corrects_bias);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_adamw(options);
}

std::unique_ptr<Optimizer> read_rmsprop(Settings& optimizer) {
  RmsPropOptions options;
  options.form = optimizer.choice(
      {"form", "Epsilon in the root and learning rate in the momentum (TensorFlow), or both outside (PyTorch)."},
      {{"tensorflow", RmsPropForm::tensorflow}, {"pytorch", RmsPropForm::pytorch}}, options.form);
  options.rho = optimizer.number({"rho", "Share of the mean square that a step keeps."}, share, options.rho);
  options.momentum = read_momentum(optimizer, options.momentum);
  options.epsilon =
      optimizer.number({"epsilon", "What is added to the mean square, or to its root."}, above_zero, options.epsilon);
  const bool is_of_pytorch = options.form == RmsPropForm::pytorch;
  options.mean_square_start =
      optimizer.number({"mean_square_start", "The mean square before the first step."}, at_least_zero,
                       Stated(is_of_pytorch ? 0.0 : 1.0, "1, or 0 with form = \"pytorch\""));
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_rmsprop(options);
}

std::unique_ptr<Optimizer> read_lars(Settings& optimizer) {
  LarsOptions options;
  options.momentum = read_momentum(optimizer, options.momentum);
  options.momentum_of = read_momentum_of(optimizer, options.momentum_of);
  options.trust_coefficient = optimizer.number({"trust_coefficient", "What the ratio of norms is multiplied by."},
                                               above_zero, options.trust_coefficient);
  options.epsilon = optimizer.number({"epsilon", "What is added to the norms below the fraction bar."}, at_least_zero,
                                     options.epsilon);
  options.trust = read_trust_scope(optimizer, options.trust);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_lars(options);
}

std::unique_ptr<Optimizer> read_lamb(Settings& optimizer) {
  LambOptions options;
  read_betas(optimizer, options);
  options.averages_gradients =
      optimizer.flag({"grad_averaging", "Whether a gradient joins the first moment times 1 - beta1, or whole."},
                     options.averages_gradients);
  options.max_norm = read_max_norm(optimizer, options.max_norm);
  options.trust = read_trust_scope(optimizer, options.trust);
  const std::size_t faults = optimizer.faults_so_far();
  options.ratio_min = optimizer.number({"ratio_min", "The smallest trust ratio."}, at_least_zero, options.ratio_min);
  options.ratio_max = optimizer.number({"ratio_max", "The largest."}, Range::positive(), options.ratio_max);
  if (options.ratio_max < options.ratio_min) {
    if (optimizer.faults_so_far() == faults) optimizer.fault("ratio_max", "must be at least ratio_min");
    options.ratio_max = options.ratio_min;
  }
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  options.weight_decay.form = read_decay_form(optimizer, options.weight_decay.form);
  return make_lamb(options);
}

std::unique_ptr<Optimizer> read_lans(Settings& optimizer) {
  LansOptions options;
  read_betas(optimizer, options);
  options.max_norm = read_max_norm(optimizer, options.max_norm);
  options.trust = read_trust_scope(optimizer, options.trust);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_lans(options);
}

constexpr std::array rows = {
    OptimizerRow{"sgd", "stochastic gradient descent, with momentum or Nesterov's, and weight decay", read_sgd},
    OptimizerRow{"adam", "Adam, with its weight decay, if any, in the gradient", read_adam},
    OptimizerRow{"adamw", "Adam with decoupled weight decay", read_adamw},
    OptimizerRow{"rmsprop",
                 "gradients divided by the root of their mean square, with momentum; TensorFlow's or PyTorch's",
                 read_rmsprop},
    OptimizerRow{"lars", "momentum SGD in which each tensor's step is in proportion to its norm", read_lars},
    OptimizerRow{"lamb", "Adam in which each tensor's step is in proportion to its norm", read_lamb},
    OptimizerRow{"lans", "LAMB on normalised gradients, with Nesterov's look-ahead", read_lans},
};

// "a, b and 7 others"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  if (names.size() <= most + 1) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} others", fmt::join(std::span(names).first(most), ", "), names.size() - most);
}

// Lists are published with the names of several codes, and are shared by models; but one that fits no tensor at all
// would exclude nothing, unseen.
void check_excluded(Settings& optimizer, const Optimizer& made, const std::vector<ParameterTensor>& tensors) {
  const std::vector<std::string>& parts = made.weight_decay().exclude;
  std::vector<std::string> names;
  for (const ParameterTensor& tensor : tensors) names.push_back(tensor.name);
  const auto fits = [&](const std::string& name) { return is_named(name, parts); };
  if (parts.empty() || names.empty() || std::ranges::any_of(names, fits)) return;
  optimizer.fault("exclude", fmt::format("{} in no tensor's name; one must be in one of {}",
                                         parts.size() == 1 ? "is" : "are all", some_of(names)));
}

}  // namespace

std::span<const OptimizerRow> optimizers() { return rows; }

std::unique_ptr<Optimizer> read_optimizer(Settings& training, const ObjectivePlan& objective) {
  Settings optimizer = training.section({"optimizer", "Which optimizer, and its settings."});
  const auto* const row = optimizer.row({"name", "Which optimizer."}, rows, objective.time_only ? "sgd" : "");
  auto made = row ? row->make(optimizer) : make_sgd({});  // a stand-in: the name is a fault
  check_excluded(optimizer, *made, objective.tensors);
  return made;
}

}  // namespace syncopate
