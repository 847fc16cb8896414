// Outer optimizers: how the next model follows from the average a of the workers' models at a synchronisation of Local
// SGD. With the model x after the last synchronisation, x - a is used like a gradient.
// Source:  Wang et al. 2020, "SlowMo", Algorithm 1; Douillard et al. 2023, "DiLoCo", Algorithm 1; Reddi et al. 2021,
//          "Adaptive Federated Optimization" (FedAdagrad, FedAdam, FedYogi).
// Shapes:  parameters, outer moments: (P,) flat float32.   Units: tau has the unit of the parameters, because it is
//          compared with the distance that a round moves them; outer rate and momentum have no unit.
// Cost:    three vectors of P floats read and two written per synchronisation (adaptive: eight and three); nothing is
//          sent.
// Differs: SlowMo's inner rate (gamma) is the mean learning rate of the round's steps, in case it changes within the
//          round. A round at rate 0 adds nothing to the momentum. BatchNorm statistics are the average's. It is not
//          established with which numbers the paper of the adaptive optimizers begins and which it recommends: here the
//          second moment starts at tau^2, and there is no bias correction.
// Checks:  closed forms in double precision over several rounds; DiLoCo's step against the rule of torch.optim.SGD; the
//          adaptive ones against an independent reference, and for a large tau against momentum.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct OuterStep {
  ModelStatePtr last;     // x: model after the last synchronisation
  ModelStatePtr average;  // a: mean of the workers' current models
  double inner_rate = 0;  // mean learning rate of the local steps since `last`
};

// A worker's outer moments. Each is null before the first step, and if the optimizer does not use it.
struct OuterState {
  ModelStatePtr first{};   // the momentum
  ModelStatePtr second{};  // the second moment; adaptive optimizers only
};

// Returns the new model, and updates the worker's outer moments. Empty: there is no outer step.
using OuterOptimizer = std::function<ModelStatePtr(const Participant& worker, const OuterStep& at, OuterState& state)>;

// The outer moments of a model whose fragments take outer steps separately.
class FragmentMoments {
 public:
  // Takes an outer step from `at.last` that changes only one fragment of the model and of the moments. A fragment's
  // first step begins without moments.
  ModelStatePtr step(const Participant& worker, const OuterOptimizer& outer, const OuterStep& at, Slice fragment);

 private:
  OuterState moments_{};  // undefined in fragments that have not stepped
  std::vector<char> has_stepped_{};
};

// The next model is x - rate (x - a), which is a for a rate of 1.
OuterOptimizer make_plain_outer(double rate);
// u <- momentum u + (x - a) / gamma; the next model is x - rate gamma u.
OuterOptimizer make_slowmo(double rate, double momentum);
// v <- momentum v + (x - a); the next model is x - rate ((x - a) + momentum v): SGD with Nesterov's momentum.
OuterOptimizer make_diloco(double rate, double momentum);
// m <- momentum m + (x - a) / gap; the next model is x - rate m.
OuterOptimizer make_heavy_ball(double rate, double momentum, double gap = 1);

// With the round's progress d = a - x:  m <- beta1 m + (1 - beta1) d;  the next model is x + rate m / (sqrt(v) + tau).
struct AdaptiveOuter {
  enum class Second {
    adagrad,  // v <- v + d^2
    adam,     // v <- beta2 v + (1 - beta2) d^2
    yogi,     // v <- v - (1 - beta2) d^2 sign(v - d^2)
  };
  Second second = Second::adam;
  double rate = 1;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double tau = 1e-3;
};
OuterOptimizer make_adaptive_outer(const AdaptiveOuter& options);

using OuterOptimizerRow = RuleRow<OuterOptimizer(Settings&)>;
std::span<const OuterOptimizerRow> outer_optimizers();

// Reads a table such as { name = "diloco", rate = 0.7, momentum = 0.9 }. Never returns an empty one.
OuterOptimizer make_outer_optimizer(Settings settings);

// How several workers' outer gradients are merged before an outer step along them.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo": `rda` (workers/training/model_average.hpp), and weights k
//          (k / s), quantity times quality, for a worker with k tokens in s steps.
// Differs: here k counts micro-batches of equal size, so that a weight is proportional to s. With `rda`, the default,
//          embeddings get their weighted mean, as others report about the paper; with `rda-of-all` they are treated
//          like other tensors. If fragments cut a tensor, each part counts as a tensor, with its own length and
//          direction.
// Checks:  golden tables; `rda` of one difference, or of equal ones, is that difference; weights by formula.
enum class MergeRule {
  mean,        // the weighted mean
  rda,         // for each tensor of the slice, a vector of mean direction and mean length; for embeddings the mean
  rda_of_all,  // as rda, also for embeddings
};
MergeRule read_merge_rule(Settings& settings);

// The weight of a worker's outer gradient; 0 if the worker has taken no step.
constexpr double weight_of(std::int64_t micro_batches, Step steps) {
  if (steps.value() == 0) return 0;
  const auto k = static_cast<double>(micro_batches);
  return k * (k / static_cast<double>(steps.value()));
}

// Merges outer gradients, whose weights must be positive and are divided by their sum. The result is null in time-only
// runs, and undefined outside the slice.
ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice = {});

}  // namespace syncopate
