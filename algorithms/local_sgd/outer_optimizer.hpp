// Outer optimizers: what the average becomes at a synchronisation of Local SGD. With x, the model of the last
// synchronisation, and a, the average of the workers, x - a acts as a gradient.
// Source:  Wang et al. 2020, "SlowMo", Algorithm 1; Douillard et al. 2023, "DiLoCo", Algorithm 1.
// Shapes:  parameters, outer momentum: (P,) flat float32.   Units: outer rate and momentum have none.
// Cost:    three vectors of P floats read and two written per synchronisation; nothing is sent.
// Differs: SlowMo's inner rate (gamma) is the mean over the round's steps, which is the same if it does not change
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

// The input of one outer step. All workers have the same, so all get the same model.
struct OuterStep {
  ModelStatePtr last;     // x: model after the last synchronisation
  ModelStatePtr average;  // a: mean of the workers' current models
  double inner_rate = 0;  // mean learning rate of the local steps between the two
};

class OuterOptimizer {
 public:
  virtual ~OuterOptimizer() = default;
  // Returns the new model. `momentum` is this worker's own: null before the first step; afterwards the outer momentum.
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
  std::string_view sentence;  // one-sentence description
  std::unique_ptr<const OuterOptimizer> (*make)(Settings& settings);
};
std::span<const OuterOptimizerRow> outer_optimizers();

// Reads a table such as { name = "diloco", rate = 0.7, momentum = 0.9 }. Never null.
std::unique_ptr<const OuterOptimizer> make_outer_optimizer(Settings settings);

// How several workers' outer gradients are merged before an outer step along them.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo": `rda` (workers/training/model_average.hpp), weights of quantity
//          times quality, k (k / s) for k micro-batches in s steps.
// Differs: the paper counts tokens; here equal micro-batches are counted, so that a weight is proportional to s. Under
//          `rda`, the default, embeddings have their weighted mean, as others report of the paper; under `rda-of-all`
//          they are treated like other tensors. If fragments cut a tensor, each part counts as a tensor, with its own
//          length and direction.
// Checks:  golden tables; `rda` of one or of equal differences is that difference; weights by formula.
enum class MergeRule {
  mean,  // weighted
  rda,   // mean length along the mean direction, by tensor of the slice; embeddings: the mean
  rda_of_all,
};
MergeRule read_merge_rule(Settings& settings);

// A difference's weight; 0 if no step was taken.
constexpr double weight_of(std::int64_t micro_batches, Step steps) {
  if (steps.value() == 0) return 0;
  const auto k = static_cast<double>(micro_batches);
  return k * (k / static_cast<double>(steps.value()));
}

// The weights are positive, and are divided by their sum. Null in time-only runs. Undefined outside the slice.
ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice = {});

}  // namespace syncopate
