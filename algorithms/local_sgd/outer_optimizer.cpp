#include "algorithms/local_sgd/outer_optimizer.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "workers/training/model_average.hpp"

namespace syncopate {

namespace {

double next_second(const AdaptiveOuter& o, double v, double square) {
  if (o.second == AdaptiveOuter::Second::adagrad) return v + square;
  const double rest = (1 - o.beta2) * square;
  if (o.second == AdaptiveOuter::Second::adam) return o.beta2 * v + rest;
  return v > square ? v - rest : v < square ? v + rest : v;
}

// m <- momentum m + factor (x - a).
const ModelStatePtr& update_momentum(const Participant& worker, const OuterStep& at, double factor, double momentum,
                                     ModelStatePtr& m) {
  std::vector<WeightedState> sum = {{factor, at.last}, {-factor, at.average}};
  if (m) sum.push_back({momentum, m});
  return m = worker.combine(sum, at.average);
}

const Key outer_rate{"rate", "Outer learning rate: how far a step goes towards the average."};
const Key outer_momentum{"momentum", "Outer momentum: share of the last outer step that the next one keeps."};

template <AdaptiveOuter::Second second>
OuterOptimizer read_adaptive(Settings& s) {
  AdaptiveOuter options{.second = second};
  const bool is_adagrad = second == AdaptiveOuter::Second::adagrad;
  options.rate = s.number(outer_rate, Range::finite_positive());
  options.beta1 = s.number({"beta1", "Decay of the running mean of progress."}, Range::below_one(),
                           is_adagrad ? 0.0 : options.beta1);
  if (!is_adagrad)
    options.beta2 =
        s.number({"beta2", "Decay of the running mean of squared progress."}, Range::below_one(), options.beta2);
  options.tau = s.number({"tau", "Added to the root of the second moment, which starts at tau^2."},
                         Range::finite_positive(), options.tau);
  return make_adaptive_outer(options);
}

constexpr std::array outer_rows = {
    OuterOptimizerRow{
        "plain", "a step of `rate` from the last model towards the average; rate 1 is Local SGD",
        [](Settings& s) { return make_plain_outer(s.number(outer_rate, Range::finite_positive(), 1.0)); }},
    OuterOptimizerRow{"slowmo", "slow momentum over the averages, in units of the inner learning rate (SlowMo)",
                      [](Settings& s) {
                        const double rate = s.number(outer_rate, Range::finite_positive(), 1.0);
                        return make_slowmo(rate, s.number(outer_momentum, Range::below_one()));
                      }},
    OuterOptimizerRow{"diloco", "SGD with Nesterov's momentum along (last model - average) (DiLoCo)",
                      [](Settings& s) {
                        const double rate = s.number(outer_rate, Range::finite_positive());
                        return make_diloco(rate, s.number(outer_momentum, Range::below_one()));
                      }},
    OuterOptimizerRow{"heavy-ball", "SGD with heavy-ball momentum along (last model - average) (CO2)",
                      [](Settings& s) {
                        const double rate = s.number(outer_rate, Range::finite_positive(), 1.0);
                        return make_heavy_ball(rate, s.number(outer_momentum, Range::below_one()));
                      }},
    OuterOptimizerRow{"adagrad", "mean progress divided by the root of all squares' sum (FedAdagrad)",
                      read_adaptive<AdaptiveOuter::Second::adagrad>},
    OuterOptimizerRow{"adam", "mean progress divided by the root of its mean square (FedAdam)",
                      read_adaptive<AdaptiveOuter::Second::adam>},
    OuterOptimizerRow{"yogi", "as adam, but the mean square changes by a bounded amount (FedYogi)",
                      read_adaptive<AdaptiveOuter::Second::yogi>},
};

}  // namespace

OuterOptimizer make_plain_outer(double rate) {
  return [=](const Participant& worker, const OuterStep& at, OuterState&) {
    return worker.combine({{rate, at.average}, {1 - rate, at.last}}, at.average);
  };
}

OuterOptimizer make_slowmo(double rate, double momentum) {
  return [=](const Participant& worker, const OuterStep& at, OuterState& state) {
    // At an inner rate of 0 no worker has moved, and the division by it would give 0 / 0.
    const double per_rate = std::isfinite(1 / at.inner_rate) ? 1 / at.inner_rate : 0;
    const ModelStatePtr& u = update_momentum(worker, at, per_rate, momentum, state.first);
    return worker.combine({{1, at.last}, {-rate * at.inner_rate, u}}, at.average);
  };
}

OuterOptimizer make_diloco(double rate, double momentum) {
  return [=](const Participant& worker, const OuterStep& at, OuterState& state) {
    const ModelStatePtr& v = update_momentum(worker, at, 1, momentum, state.first);
    return worker.combine({{1 - rate, at.last}, {rate, at.average}, {-rate * momentum, v}}, at.average);
  };
}

OuterOptimizer make_heavy_ball(double rate, double momentum, double gap) {
  return [=](const Participant& worker, const OuterStep& at, OuterState& state) {
    const ModelStatePtr& m = update_momentum(worker, at, 1 / gap, momentum, state.first);
    return worker.combine({{1, at.last}, {-rate, m}}, at.average);
  };
}

OuterOptimizer make_adaptive_outer(const AdaptiveOuter& o) {
  const std::uint64_t second_rule = new_state_id(), step_rule = new_state_id();
  return [=](const Participant& worker, const OuterStep& at, OuterState& state) {
    const double rest = 1 - o.beta1;
    std::vector<WeightedState> first = {{rest, at.average}, {-rest, at.last}};
    if (state.first) first.push_back({o.beta1, state.first});
    state.first = worker.combine(first, at.average);
    std::vector<ModelStatePtr> of_second = {at.average, at.last};
    if (state.second) of_second.push_back(state.second);
    state.second = worker.elementwise(of_second, second_rule, [o](auto inputs, float* out, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i) {
        const double d = static_cast<double>(inputs[0][i]) - inputs[1][i], square = d * d;
        const double v = inputs.size() > 2 ? inputs[2][i] : o.tau * o.tau;
        out[i] = static_cast<float>(next_second(o, v, square));
      }
    });
    const ModelStatePtr of_step[] = {at.average, at.last, state.first, state.second};
    return worker.elementwise(of_step, step_rule, [o](auto inputs, float* out, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i)
        out[i] = static_cast<float>(inputs[1][i] + o.rate * inputs[2][i] / (std::sqrt(inputs[3][i]) + o.tau));
    });
  };
}

ModelStatePtr FragmentMoments::step(const Participant& worker, const OuterOptimizer& outer, const OuterStep& at,
                                    Slice fragment) {
  has_stepped_.resize(static_cast<std::size_t>(fragment.count));
  const bool has_stepped = std::exchange(has_stepped_[static_cast<std::size_t>(fragment.index)], true);
  OuterState moved = has_stepped ? moments_ : OuterState();
  const ModelStatePtr next = outer(worker, at, moved);
  const auto updated = [&](const ModelStatePtr& whole, const ModelStatePtr& part) {
    return whole && part ? worker.with_slice(whole, part, fragment) : part;
  };
  moments_ = {updated(moments_.first, moved.first), updated(moments_.second, moved.second)};
  return worker.with_slice(at.last, next, fragment);
}

std::span<const OuterOptimizerRow> outer_optimizers() { return outer_rows; }

OuterOptimizer make_outer_optimizer(Settings settings) {
  const auto* const row = settings.row({"name", "Which outer optimizer."}, outer_rows);
  if (!row)  // the name is missing or unknown: keys of optimizers are not reported as unknown, too
    for (const std::string_view key : {"rate", "momentum", "beta1", "beta2", "tau"})
      static_cast<void>(settings.has(key));
  return row ? row->make(settings) : make_plain_outer(1);
}

ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice) {
  if (rule != MergeRule::mean)
    return by.norm_preserving_mean(differences, slice,
                                   rule == MergeRule::rda ? OfEmbeddings::mean : OfEmbeddings::alike);
  return weighted_mean(by, std::move(differences)).state;
}

MergeRule read_merge_rule(Settings& settings) {
  return settings.choice(
      {"merge", "Mean of outer gradients, or its direction with their mean length. rda takes the mean for embeddings."},
      {{"mean", MergeRule::mean}, {"rda", MergeRule::rda}, {"rda-of-all", MergeRule::rda_of_all}}, MergeRule::rda);
}

}  // namespace syncopate
