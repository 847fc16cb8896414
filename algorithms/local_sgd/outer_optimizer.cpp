#include "algorithms/local_sgd/outer_optimizer.hpp"

#include <array>
#include <cmath>

#include "workers/training/model_average.hpp"

namespace syncopate {

namespace {

template <typename Formula>
class OuterFormula final : public OuterOptimizer {
 public:
  explicit OuterFormula(const Formula& formula) : formula_(formula) {}
  ModelStatePtr step(const Participant& worker, const OuterStep& at, ModelStatePtr& momentum) const override {
    return formula_(worker, at, momentum);
  }

 private:
  Formula formula_;
};

template <typename Formula>
std::unique_ptr<const OuterOptimizer> make_outer(const Formula& formula) {
  return std::make_unique<OuterFormula<Formula>>(formula);
}

constexpr Range below_one{.low = 0, .high = 1, .low_open = false, .high_open = true};
constexpr Range finite_rates{.low = 0, .low_open = true, .high_open = true};

const Key outer_rate{"rate", "Outer learning rate: how far a step goes towards the average."};
const Key outer_momentum{"momentum", "Outer momentum: share of the last outer step that the next one keeps."};

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
    OuterOptimizerRow{"heavy-ball", "SGD with heavy-ball momentum along (last model - average) (CO2)",
                      [](Settings& s) {
                        const double rate = s.number(outer_rate, finite_rates, 1.0);
                        return make_heavy_ball(rate, s.number(outer_momentum, below_one));
                      }},
};

}  // namespace

std::unique_ptr<const OuterOptimizer> make_plain_outer(double rate) {
  return make_outer([=](const Participant& worker, const OuterStep& at, ModelStatePtr&) {
    return worker.combine({{rate, at.average}, {1 - rate, at.last}}, at.average);
  });
}

std::unique_ptr<const OuterOptimizer> make_slowmo(double rate, double momentum) {
  return make_outer([=](const Participant& worker, const OuterStep& at, ModelStatePtr& u) {
    // At an inner rate of 0 no worker has moved, and the division by it would give 0 / 0.
    const double per_rate = std::isfinite(1 / at.inner_rate) ? 1 / at.inner_rate : 0;
    std::vector<WeightedState> sum = {{per_rate, at.last}, {-per_rate, at.average}};
    if (u) sum.push_back({momentum, u});
    u = worker.combine(sum, at.average);
    return worker.combine({{1, at.last}, {-rate * at.inner_rate, u}}, at.average);
  });
}

std::unique_ptr<const OuterOptimizer> make_diloco(double rate, double momentum) {
  return make_outer([=](const Participant& worker, const OuterStep& at, ModelStatePtr& v) {
    std::vector<WeightedState> sum = {{1, at.last}, {-1, at.average}};
    if (v) sum.push_back({momentum, v});
    v = worker.combine(sum, at.average);
    return worker.combine({{1 - rate, at.last}, {rate, at.average}, {-rate * momentum, v}}, at.average);
  });
}

std::unique_ptr<const OuterOptimizer> make_heavy_ball(double rate, double momentum, double gap) {
  return make_outer([=](const Participant& worker, const OuterStep& at, ModelStatePtr& m) {
    std::vector<WeightedState> sum = {{1 / gap, at.last}, {-1 / gap, at.average}};
    if (m) sum.push_back({momentum, m});
    m = worker.combine(sum, at.average);
    return worker.combine({{1, at.last}, {-rate, m}}, at.average);
  });
}

std::span<const OuterOptimizerRow> outer_optimizers() { return rows; }

std::unique_ptr<const OuterOptimizer> make_outer_optimizer(Settings settings) {
  const auto* const row = settings.row({"name", "Which outer optimizer."}, rows);
  if (!row)  // without a known name no key of an optimizer is reported as unknown
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
      {"merge", "Mean of outer gradients, or their mean length in its direction (rda: plain mean for embeddings)."},
      {{"mean", MergeRule::mean}, {"rda", MergeRule::rda}, {"rda-of-all", MergeRule::rda_of_all}}, MergeRule::rda);
}

}  // namespace syncopate
