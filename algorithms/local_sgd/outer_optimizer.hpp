// Outer optimizers: what becomes of the average at a synchronisation of Local SGD. Both the model of the last
// synchronisation, x, and the average of the workers, a, are at hand; x - a acts as a gradient.
// Source:  Wang et al. 2020, "SlowMo", Algorithm 1; Douillard et al. 2023, "DiLoCo", Algorithm 1.
// Shapes:  parameters, outer momentum: (P,) flat float32.   Units: outer rate and momentum without one.
// Cost:    three vectors of P floats read and two written per synchronisation; nothing is sent.
// Differs: SlowMo's inner rate (gamma) is the mean over the round's steps, the same thing where it does not change
//          within a round; a round at rate 0 adds nothing. BatchNorm statistics are the average's.
// Checks:  closed forms in double precision over several rounds; DiLoCo's step against the rule of torch.optim.SGD.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// The start of one outer step. All workers have the same, so that all get the same model.
struct OuterStep {
  ModelStatePtr last;     // x: after the last synchronisation
  ModelStatePtr average;  // a: of the workers, now
  double inner_rate = 0;  // mean learning rate of the local steps between the two
};

class OuterOptimizer {
 public:
  virtual ~OuterOptimizer() = default;
  // The new model. `momentum` is this worker's own: null before the first step; the outer momentum afterwards.
  virtual ModelStatePtr step(const Participant& worker, const OuterStep& at, ModelStatePtr& momentum) const = 0;
};

// x - rate (x - a): the average itself for a rate of 1.
std::unique_ptr<const OuterOptimizer> make_plain_outer(double rate);
// u = momentum u + (x - a) / gamma;  x - rate gamma u.
std::unique_ptr<const OuterOptimizer> make_slowmo(double rate, double momentum);
// v = momentum v + (x - a);  x - rate ((x - a) + momentum v): SGD with Nesterov's momentum.
std::unique_ptr<const OuterOptimizer> make_diloco(double rate, double momentum);
// m = momentum m + (x - a) / gap;  x - rate m.
std::unique_ptr<const OuterOptimizer> make_heavy_ball(double rate, double momentum, double gap = 1);

// The registry: one row per outer optimizer.
struct OuterOptimizerRow {
  std::string_view name;      // `name = ...` in TOML
  std::string_view sentence;  // what it does
  std::unique_ptr<const OuterOptimizer> (*make)(Settings& settings);
};
std::span<const OuterOptimizerRow> outer_optimizers();

// Reads a table such as { name = "diloco", rate = 0.7, momentum = 0.9 }. Never null.
std::unique_ptr<const OuterOptimizer> make_outer_optimizer(Settings settings);

// How several workers' outer gradients are merged before an outer optimizer steps along them.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo": `rda` (workers/training/model_average.hpp), weights of quantity
//          times quality, k (k / s) for k micro-batches in s steps.
// Differs: the paper counts tokens; here equal micro-batches count, so that a weight is in proportion to s. Under
//          `rda`, the default, embeddings have their weighted mean, as others tell of the paper; under `rda-of-all`
//          they are as other tensors. Each part of a tensor that fragments cut counts as a tensor, with its own length
//          and direction.
// Checks:  golden tables; `rda` of one or of equal differences is themselves; weights by formula.
enum class MergeRule {
  mean,  // weighted
  rda,   // the mean length along the mean direction, tensor by tensor of the slice; of embeddings the mean
  rda_of_all,
};
MergeRule read_merge_rule(Settings& settings);

// 0 where no step was taken.
constexpr double weight_of(std::int64_t micro_batches, Step steps) {
  if (steps.value() == 0) return 0;
  const auto k = static_cast<double>(micro_batches);
  return k * (k / static_cast<double>(steps.value()));
}

// The weights are positive, and are divided by their sum; null in time-only runs. Outside the slice it is undefined.
ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice = {});

}  // namespace syncopate
