#include "algorithms/local_sgd/outer_optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "workers/training/model_average.hpp"

namespace syncopate {

namespace {

class PlainOuter final : public OuterOptimizer {
 public:
  explicit PlainOuter(double rate) : rate_(rate) {}
  ModelStatePtr step(const Participant& worker, const OuterStep& at, ModelStatePtr&) const override {
    return worker.combine({{rate_, at.average}, {1 - rate_, at.last}}, at.average);
  }

 private:
  double rate_;
};

class SlowMo final : public OuterOptimizer {
 public:
  SlowMo(double rate, double momentum) : rate_(rate), momentum_(momentum) {}

  ModelStatePtr step(const Participant& worker, const OuterStep& at, ModelStatePtr& momentum) const override {
    // At rate 0 no worker has moved; the division would make 0 / 0 of it.
    const double per_rate = std::isfinite(1 / at.inner_rate) ? 1 / at.inner_rate : 0;
    std::vector<WeightedState> sum = {{per_rate, at.last}, {-per_rate, at.average}};
    if (momentum) sum.push_back({momentum_, momentum});
    momentum = worker.combine(sum, at.average);
    return worker.combine({{1, at.last}, {-rate_ * at.inner_rate, momentum}}, at.average);
  }

 private:
  double rate_;      // alpha
  double momentum_;  // beta
};

class DiLoCo final : public OuterOptimizer {
 public:
  DiLoCo(double rate, double momentum) : rate_(rate), momentum_(momentum) {}

  ModelStatePtr step(const Participant& worker, const OuterStep& at, ModelStatePtr& momentum) const override {
    std::vector<WeightedState> sum = {{1, at.last}, {-1, at.average}};
    if (momentum) sum.push_back({momentum_, momentum});
    momentum = worker.combine(sum, at.average);
    return worker.combine({{1 - rate_, at.last}, {rate_, at.average}, {-rate_ * momentum_, momentum}}, at.average);
  }

 private:
  double rate_;
  double momentum_;
};

}  // namespace

// The card.
namespace {

constexpr Range below_one{.low = 0, .high = 1, .low_open = false, .high_open = true};
constexpr Range finite_rates{.low = 0, .low_open = true, .high_open = true};

const Key outer_rate{"rate", "How far a step goes along the average."};
const Key outer_momentum{"momentum", "Share of the last outer step that the next one keeps."};

constexpr std::array rows = {
    OuterOptimizerRow{"plain", "a step of `rate` from the last model towards the average; rate 1 is Local SGD",
                      [](Settings& s) { return make_plain_outer(s.number(outer_rate, finite_rates, 1.0)); }},
    OuterOptimizerRow{"slowmo", "slow momentum over the averages, in units of the inner learning rate (SlowMo)",
                      [](Settings& s) {
                        const double rate = s.number(outer_rate, finite_rates, 1.0);
                        return make_slowmo(rate, s.number(outer_momentum, below_one));
                      }},
    OuterOptimizerRow{"diloco", "SGD with Nesterov's momentum along (last model - average) (DiLoCo)",
                      [](Settings& s) {
                        const double rate = s.number(outer_rate, finite_rates);
                        return make_diloco(rate, s.number(outer_momentum, below_one));
                      }},
};

}  // namespace

std::unique_ptr<const OuterOptimizer> make_plain_outer(double rate) { return std::make_unique<PlainOuter>(rate); }

std::unique_ptr<const OuterOptimizer> make_slowmo(double rate, double momentum) {
  return std::make_unique<SlowMo>(rate, momentum);
}

std::unique_ptr<const OuterOptimizer> make_diloco(double rate, double momentum) {
  return std::make_unique<DiLoCo>(rate, momentum);
}

std::span<const OuterOptimizerRow> outer_optimizers() { return rows; }

std::unique_ptr<const OuterOptimizer> make_outer_optimizer(Settings& settings) {
  const auto* const row = settings.row({"name", "Which outer optimizer."}, rows);
  if (!row)  // their keys follow from it, and are no faults of their own
    for (const std::string_view key : {"rate", "momentum"}) static_cast<void>(settings.has(key));
  return row ? row->make(settings) : make_plain_outer(1);
}

ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice) {
  if (rule != MergeRule::mean)
    return by.norm_preserving_mean(differences, slice,
                                   rule == MergeRule::rda ? OfEmbeddings::mean : OfEmbeddings::alike);
  double total = 0;
  for (const WeightedState& difference : differences) total += difference.weight;
  for (WeightedState& difference : differences) difference.weight /= total;
  return by.combine(differences);
}

MergeRule read_merge_rule(Settings& settings) {
  return settings.choice(
      {"merge", "Outer gradients' mean, or its direction with their mean length (rda: embeddings have the mean)."},
      {{"mean", MergeRule::mean}, {"rda", MergeRule::rda}, {"rda-of-all", MergeRule::rda_of_all}}, MergeRule::rda);
}

}  // namespace syncopate
