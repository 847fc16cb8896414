#include "experiments/commands/predict.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "algorithms/registry.hpp"
#include "workers/process/run_failure.hpp"

namespace syncopate {
namespace {

// In the units of work_of: all simulations together, and one that needs more to show anything.
constexpr std::int64_t most_work = 8'000'000;
constexpr std::int64_t most_work_of_one = 12'000'000;
constexpr std::int64_t fewest_steps = 8;
constexpr std::int64_t steps_after_settling = 30;

// How many steps each run is simulated for: all that it plans where the bound on work allows; what the short ones
// do not need goes to the long ones.
std::vector<Step> shared_out(const std::vector<Run>& runs) {
  constexpr std::int64_t unplanned = std::numeric_limits<std::int32_t>::max();
  const auto needed = [&](std::size_t i) { return planned_steps(runs[i]).value_or(unplanned); };
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return work_of(runs[i], needed(i)); });
  std::vector<Step> steps(runs.size());
  std::int64_t left = most_work;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Run& run = runs[order[k]];
    const std::int64_t share = left / static_cast<std::int64_t>(order.size() - k);
    std::int64_t affordable = std::max(fewest_steps, share / work_of(run, 1));
    const Step settled = run.algorithm->traits().settles_after;
    if (settled > 0) affordable = std::max(affordable, settled.value() + steps_after_settling);
    steps[order[k]] = std::min(needed(order[k]), Step{affordable});
    left = std::max<std::int64_t>(0, left - work_of(run, steps[order[k]]));
  }
  return steps;
}

std::string why_not_simulated(const Run& run, Step steps) {
  if (run.algorithm->traits().follows_values) return "needs training";
  if (run.algorithm->traits().settles_after > 0 && work_of(run, steps) > most_work_of_one)
    return "too long to simulate";
  return "";
}

PredictedMethod simulated(const Run& run, Step steps) {
  PredictedMethod method;
  method.method = run.method;
  method.sweep = run.sweep;
  method.seed = run.seed;
  method.planned_steps = planned_steps(run);
  method.not_simulated = why_not_simulated(run, steps);
  if (!method.not_simulated.empty()) return method;
  try {
    method.simulated = simulate_time(run, steps);
  } catch (const RunFailure& failure) {
    method.failed = true;
    method.not_simulated = failure.what();
  }
  return method;
}

bool is_baseline(const Run& run) { return run.algorithm->traits().is_baseline; }

// The baseline, in the settings whose methods it is not among.
std::vector<Run> missing_baselines(const std::vector<Run>& runs) {
  std::map<std::string, bool> has_one;
  for (const Run& run : runs) has_one[run.setting] |= is_baseline(run);
  std::vector<Run> baselines;
  for (const Run& run : runs) {
    if (std::exchange(has_one[run.setting], true)) continue;
    baselines.push_back(run);
    baselines.back().algorithm = make_baseline();
  }
  return baselines;
}

// What compute times are drawn by. A method with training keys of its own may have other numbers of steps, and, where
// times follow lengths, other times.
auto drawn_by(const Run& run) { return std::tuple(run.setting, run.own_training, planned_steps(run)); }

// What goes into the model in a second, against the baseline; of that itself exactly 1.
void compare_with(const SimulatedTime& baseline, bool is_baseline, PredictedMethod& method) {
  method.simulated_speedup = method.simulated->micro_batches_per_s / baseline.micro_batches_per_s;
  const auto own = method.simulated->pace_error, other = baseline.pace_error;
  if (is_baseline || !own || !other) return;
  const double relative =
      std::hypot(*own / method.simulated->micro_batches_per_s, *other / baseline.micro_batches_per_s);
  method.simulated_speedup_error = *method.simulated_speedup * relative;
}

}  // namespace

std::vector<PredictedMethod> predict(const Experiment& experiment) {
  std::vector<Run> runs;
  for (const Run& run : experiment.runs)
    if (run.seed == experiment.seeds.front()) runs.push_back(run);
  const std::size_t shown = runs.size();
  for (Run& baseline : missing_baselines(runs)) runs.push_back(std::move(baseline));

  const std::vector<Step> steps = shared_out(runs);
  std::vector<PredictedMethod> methods;
  std::map<decltype(drawn_by(runs.front())), std::optional<SampledTimes>> samples;
  std::map<std::string, std::size_t> baselines;  // the first of each setting
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    methods.push_back(simulated(run, steps[i]));
    if (is_baseline(run) && methods.back().simulated) baselines.try_emplace(run.setting, i);
    if (i >= shown) continue;
    auto key = drawn_by(run);
    auto sample = samples.find(key);
    if (sample == samples.end()) sample = samples.emplace(std::move(key), sample_times(run)).first;
    FormulaTimes formulas = predict_by_formula(run, sample->second);
    methods.back().formulas = std::move(formulas.all);
    methods.back().why_no_formula = std::move(formulas.why_none);
  }
  for (std::size_t i = 0; i < shown; ++i) {
    const auto baseline = baselines.find(runs[i].setting);
    if (methods[i].simulated && baseline != baselines.end())
      compare_with(*methods[baseline->second].simulated, baseline->second == i, methods[i]);
  }
  methods.resize(shown);
  return methods;
}

}  // namespace syncopate
