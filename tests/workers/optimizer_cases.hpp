// Shared by the tests of optimizers: every combination of options, and a training of 50 steps. Its gradients are fixed,
// so that a difference in one step does not change later gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "workers/training/optimizers.hpp"

namespace syncopate {

using Vector = std::vector<float>;

inline constexpr int steps = 50;
inline constexpr std::size_t parameters = 1003;  // not a multiple of any vector length
inline constexpr std::size_t weights = 700;      // the first 700 decay; the others only with DecayScope::all

inline Vector normal(std::size_t size, std::uint64_t seed, double scale = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> draw(0, scale);
  Vector values(size);
  for (float& value : values) value = static_cast<float>(draw(engine));
  return values;
}

inline Vector start() { return normal(parameters, 7); }
inline Vector gradient_of(int step) { return normal(parameters, 1000 + static_cast<std::uint64_t>(step), 0.3); }
inline double rate_of(int step) { return 0.1 * (1 - 0.01 * step); }

struct Case {
  std::string name;
  std::optional<SgdOptions> sgd;  // exactly one of the three is set
  std::optional<AdamWOptions> adamw;
  std::optional<RmsPropOptions> rmsprop;
  std::shared_ptr<const Optimizer> optimizer;

  // Whether torch has this variant. Momentum of torch's SGD adds up gradients; the mean square of torch's RMSprop
  // starts at 0.
  bool torch_has_it() const {
    if (rmsprop) return rmsprop->form == RmsPropForm::pytorch && rmsprop->mean_square_start == 0;
    return !sgd || sgd->momentum_of == MomentumOf::gradients;
  }
};

inline std::vector<Case> optimizer_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const auto& options) {
    const WeightDecay& decay = options.weight_decay;
    Case& added = cases.emplace_back();
    added.name = name;
    if (decay.rate > 0) {
      added.name += decay.form == DecayForm::coupled ? ", coupled decay of " : ", decoupled decay of ";
      added.name += decay.scope == DecayScope::all ? "all" : "weights";
    }
    if constexpr (std::is_same_v<std::decay_t<decltype(options)>, SgdOptions>) {
      added.sgd = options;
      added.optimizer = make_sgd(options);
    } else if constexpr (std::is_same_v<std::decay_t<decltype(options)>, RmsPropOptions>) {
      added.rmsprop = options;
      added.optimizer = make_rmsprop(options);
    } else {
      added.adamw = options;
      added.optimizer = make_adamw(options);
    }
  };
  for (const double rate : {0.0, 0.01}) {
    for (const DecayForm form : {DecayForm::coupled, DecayForm::decoupled}) {
      for (const DecayScope scope : {DecayScope::weights, DecayScope::all}) {
        const WeightDecay decay{.rate = rate, .scope = scope, .form = form};
        if (rate == 0 && (form == DecayForm::decoupled || scope == DecayScope::all)) continue;
        add("SGD", SgdOptions{.weight_decay = decay});
        add("SGD momentum", SgdOptions{.momentum = 0.9, .weight_decay = decay});
        add("SGD Nesterov", SgdOptions{.momentum = 0.9, .nesterov = true, .weight_decay = decay});
        add("SGD momentum of updates",
            SgdOptions{.momentum = 0.9, .momentum_of = MomentumOf::updates, .weight_decay = decay});
        add("SGD Nesterov of updates",
            SgdOptions{.momentum = 0.9, .momentum_of = MomentumOf::updates, .nesterov = true, .weight_decay = decay});
        add(form == DecayForm::coupled ? "Adam" : "AdamW", AdamWOptions{.weight_decay = decay});
        add(form == DecayForm::coupled ? "Adam (0.8, 0.95)" : "AdamW (0.8, 0.95)",
            AdamWOptions{.beta1 = 0.8, .beta2 = 0.95, .weight_decay = decay});
      }
    }
  }
  for (const double rate : {0.0, 0.01}) {
    const WeightDecay decay{.rate = rate};
    add("RMSProp", RmsPropOptions{.weight_decay = decay});
    add("RMSProp from 0", RmsPropOptions{.mean_square_start = 0, .weight_decay = decay});
    add("RMSProp without momentum", RmsPropOptions{.momentum = 0, .epsilon = 1e-3, .weight_decay = decay});
    for (const double momentum : {0.0, 0.5})
      add(momentum > 0 ? "RMSProp (PyTorch's)" : "RMSProp (PyTorch's) without momentum",
          RmsPropOptions{.form = RmsPropForm::pytorch,
                         .rho = 0.95,
                         .momentum = momentum,
                         .epsilon = 0.01,
                         .mean_square_start = 0,
                         .weight_decay = decay});
  }
  return cases;
}

// Parameters and moments, stored as in the training engine.
struct State {
  Vector theta;
  Vector moments[2];
  int optimizer_steps = 0;
};

// The block [begin, end) of a step from `before` to `after`. Moments before are null in the first step.
inline OptimizerBlock block_of(const State& before, State& after, const Vector& gradient, std::size_t begin,
                               std::size_t end) {
  OptimizerBlock block;
  block.size = end - begin;
  block.gradient = gradient.data() + begin;
  block.before = before.theta.data() + begin;
  block.after = after.theta.data() + begin;
  for (int i = 0; i < 2; ++i) {
    if (after.moments[i].empty()) continue;
    block.moments_after[i] = after.moments[i].data() + begin;
    if (before.optimizer_steps > 0) block.moments_before[i] = before.moments[i].data() + begin;
  }
  return block;
}

// One step, block by block. Blocks end at `cuts` and at the end of the weights.
inline void step_between(const Optimizer& optimizer, const State& before, State& after, const Vector& gradient,
                         double rate, std::vector<std::size_t> cuts = {}) {
  const WeightDecay& decay = optimizer.weight_decay();
  const int step = before.optimizer_steps + 1;  // read first: `before` and `after` may be the same object
  cuts.insert(cuts.end(), {0, weights, parameters});
  std::sort(cuts.begin(), cuts.end());
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const bool decays = decay.scope == DecayScope::all || cuts[i] < weights;
    optimizer.update(block_of(before, after, gradient, cuts[i], cuts[i + 1]),
                     {.learning_rate = rate,
                      .ages = {MomentAge{.steps = step}, MomentAge{.steps = step}},
                      .decay = decays ? decay.rate : 0});
  }
  after.optimizer_steps = step;
}

// The initial state. A moment's memory contains NaN until the first step writes it, so reading it earlier fails a test.
inline State initial(const Optimizer& optimizer) {
  State state{.theta = start(), .moments = {}};
  for (int i = 0; i < optimizer.moments(); ++i) state.moments[i].assign(parameters, std::nanf(""));
  return state;
}

inline State trained(const Optimizer& optimizer, bool in_place, const std::vector<std::size_t>& cuts = {},
                     int count = steps) {
  State state = initial(optimizer);
  for (int step = 0; step < count; ++step) {
    if (in_place) {
      step_between(optimizer, state, state, gradient_of(step), rate_of(step), cuts);
      continue;
    }
    State next = initial(optimizer);
    next.theta.assign(parameters, std::nanf(""));
    step_between(optimizer, state, next, gradient_of(step), rate_of(step), cuts);
    state = std::move(next);
  }
  return state;
}

// The largest |a - b| relative to the largest |b|. For a single parameter near zero, a relative error is meaningless.
inline double largest_relative_difference(const Vector& a, const Vector& b) {
  double difference = 0;
  double scale = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a.at(i)) - b[i]));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return difference / scale;
}

}  // namespace syncopate
