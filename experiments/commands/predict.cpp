#include "experiments/commands/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "algorithms/registry.hpp"
#include "experiments/execution/scheduled_rounds.hpp"
#include "experiments/execution/simulations.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/settings/nearest_name.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

// Where only steps end a run, and nobody is missing in it, what it communicates may be known beforehand.
std::optional<PredictedCommunication> communication_of(const Run& run, const std::optional<SimulatedTime>& simulated) {
  if (simulated && simulated->whole) return PredictedCommunication{simulated->rounds, simulated->bytes, true};
  const Budget& budget = run.budget;
  if (ends_by_steps(budget) && run.cluster.data_of.empty() && !run.cluster.outages) {
    const ScheduledRounds rounds(run);
    if (rounds.are_known() && rounds.are_countable(*budget.steps)) {
      const Communicated all = rounds.until(*budget.steps);
      return PredictedCommunication{static_cast<double>(all.rounds), static_cast<double>(all.bytes.value()), true};
    }
  }
  if (!simulated || !simulated->total_time_s) return std::nullopt;
  return PredictedCommunication{simulated->rounds, simulated->bytes, false};
}

std::string algorithm_of(const Run& run) {
  const TomlNode configuration = parse_toml(run.resolved_toml, run.experiment);
  return std::get<std::string>(configuration.find("methods")->array().front().find("algorithm")->value);
}

PredictedMethod simulated_and_communicated(const Run& run, const Simulation& simulation) {
  PredictedMethod method;
  method.method = run.method;
  method.algorithm = algorithm_of(run);
  method.sweep = run.sweep;
  method.seed = run.seed;
  method.planned_steps = planned_steps(run);
  method.solved = run.solved;
  method.has_unshared_links = run.cluster.network->has_unshared_links();
  method.simulated = simulation.time;
  method.not_simulated = simulation.why_none;
  method.failed = simulation.failed;
  method.communicated = communication_of(run, method.simulated);
  return method;
}

bool is_baseline(const Run& run) { return run.algorithm->traits().is_baseline; }

// Synchronous SGD, trained as this run is.
Run as_baseline(Run run) {
  run.algorithm = make_baseline();
  return run;
}

// Whether the run stands at the other's point of a sweep, by those of its keys that concern it.
bool is_at_point_of(const Run& run, const Run& other) {
  return std::ranges::all_of(
      run.sweep, [&](const auto& swept) { return std::ranges::find(other.sweep, swept) != other.sweep.end(); });
}

// For each run the one of this label with which it is compared: itself, or the one of its setting and at its point of
// the sweep, as far as there is one.
std::vector<std::size_t> find_labelled(const std::vector<Run>& runs, const std::string& label) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto fit = [&](std::size_t other) {
      if (other == i) return 4;
      if (!is_at_point_of(runs[other], runs[i])) return runs[other].setting == runs[i].setting ? 1 : 0;
      return runs[other].setting == runs[i].setting ? 3 : 2;
    };
    std::optional<std::size_t> best;
    for (std::size_t other = 0; other < runs.size(); ++other)
      if (runs[other].method == label && (!best || fit(other) > fit(*best))) best = other;
    chosen.push_back(best.value());
  }
  return chosen;
}

// For each run the one with which it is compared: the first baseline of its setting; else, since one that a swept key
// does not concern stands once for all of its values, the first one at its point of the sweep. Where there is none, one
// trained as the first run of its setting is, which comes behind the runs.
std::vector<std::size_t> add_baselines(std::vector<Run>& runs) {
  std::map<std::string, std::size_t> of_setting;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!is_baseline(runs[i])) continue;
    of_setting.try_emplace(runs[i].setting, i);
    all.push_back(i);
  }
  std::vector<std::size_t> chosen;
  const std::size_t given = runs.size();
  for (std::size_t i = 0; i < given; ++i) {
    auto found = of_setting.find(runs[i].setting);
    if (found == of_setting.end()) {
      const auto other = std::ranges::find_if(all, [&](std::size_t b) { return is_at_point_of(runs[b], runs[i]); });
      if (other == all.end()) runs.push_back(as_baseline(runs[i]));
      found = of_setting.emplace(runs[i].setting, other == all.end() ? runs.size() - 1 : *other).first;
    }
    chosen.push_back(found->second);
  }
  return chosen;
}

// What compute times are drawn by. A method with training keys of its own may have other numbers of steps, and, where
// times follow lengths or are measured, other times.
auto drawn_by(const Run& run) {
  return std::tuple(run.setting, run.own_training, planned_steps(run), run.cluster.measured_micro_batch_s);
}

// By the laws by which synchronous SGD goes: a formula's own part in it is scaled by what a step of the baseline takes,
// against one of synchronous SGD trained as the method is, by the law that its part is nearest to. Where the two are
// trained alike, that is 1.
void relate(std::vector<FormulaTime>& formulas, const std::vector<FormulaTime>& trained_alike,
            const std::vector<FormulaTime>& baseline) {
  if (trained_alike.empty() || baseline.empty()) return;
  for (FormulaTime& formula : formulas) {
    Prediction& prediction = formula.prediction;
    const Prediction& own = std::ranges::min_element(trained_alike, {}, [&](const FormulaTime& law) {
                              return std::abs(law.prediction.step_time_s - prediction.sync_step_time_s);
                            })->prediction;
    const auto same =
        std::ranges::find(baseline, own.formula, [](const FormulaTime& law) { return law.prediction.formula; });
    const Prediction& other = (same == baseline.end() ? baseline.back() : *same).prediction;
    prediction.sync_step_time_s *= other.step_time_s / own.step_time_s;
    if (prediction.sync_step_error_s > 0) prediction.sync_step_error_s = other.step_error_s;
  }
}

// By the formula of the other that goes by the same law, or else by the one that assumes as much; none has no S_eff.
void relate_to_method(std::vector<FormulaTime>& formulas, const std::vector<FormulaTime>& of_other) {
  for (FormulaTime& formula : formulas) {
    Prediction& prediction = formula.prediction;
    const auto is_alike = [&](const FormulaTime& other) {
      return 2 * (other.prediction.formula == prediction.formula) +
             (other.prediction.is_sampled == prediction.is_sampled);
    };
    const auto nearest = std::ranges::max_element(of_other.rbegin(), of_other.rend(), {}, is_alike);
    if (nearest == of_other.rend()) {
      prediction.sync_step_time_s = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const Prediction& other = nearest->prediction;
    prediction.sync_step_time_s = other.step_time_s / other.kept;
    prediction.sync_step_error_s =
        prediction.sync_step_time_s * std::hypot(other.step_error_s / other.step_time_s, other.kept_error / other.kept);
  }
}

// The method, with those of its swept values that the run which is compared with it does not share.
std::string named(const Run& other, const Run& run) {
  std::string values;
  for (const auto& swept : other.sweep)
    if (std::ranges::find(run.sweep, swept) == run.sweep.end())
      values += fmt::format(", {} = {}", swept.first, swept.second);
  return fmt::format("\"{}\"{}", other.method, values);
}

std::string named(const Run& baseline, bool is_of_file) {
  return is_of_file ? fmt::format("\"{}\", the file's first sync-sgd", baseline.method)
                    : fmt::format("sync-sgd trained as \"{}\" is; the file has none", baseline.method);
}

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

void check_against(const Experiment& experiment, const std::string& against) {
  if (against.empty() || std::ranges::find(experiment.methods, against) != experiment.methods.end()) return;
  throw ConfigurationFault(fmt::format("--against {}: no method of {} is called so; {}", against, experiment.file,
                                       must_be_one_of(against, experiment.methods, "\"")));
}

std::vector<PredictedMethod> predict(const Experiment& experiment, const std::string& against) {
  std::vector<Run> runs;
  for (const Run& run : experiment.runs)
    if (run.seed == experiment.seeds.front()) runs.push_back(run);
  const std::size_t shown = runs.size();
  const std::vector<std::size_t> baselines = against.empty() ? add_baselines(runs) : find_labelled(runs, against);

  const std::vector<Simulation> simulations = simulate_all(runs);
  std::vector<PredictedMethod> methods;
  std::map<decltype(drawn_by(runs.front())), std::optional<SampledTimes>> samples;
  const auto sample_of = [&](const Run& run) -> const std::optional<SampledTimes>& {
    auto key = drawn_by(run);
    auto sample = samples.find(key);
    if (sample == samples.end()) sample = samples.emplace(std::move(key), sample_times(run)).first;
    return sample->second;
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    methods.push_back(simulated_and_communicated(runs[i], simulations[i]));
    FormulaTimes formulas = predict_by_formula(runs[i], sample_of(runs[i]));
    methods.back().formulas = std::move(formulas.all);
    methods.back().why_no_formula = std::move(formulas.why_none);
  }
  std::vector<std::vector<FormulaTime>> by_formula;  // of baselines, as they are by themselves
  for (const PredictedMethod& method : methods) by_formula.push_back(method.formulas);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t baseline = baselines[i];
    if (against.empty()) {
      methods[i].compared_with = named(runs[baseline], baseline < shown);
      relate(methods[i].formulas, predict_by_formula(as_baseline(runs[i]), sample_of(runs[i])).all,
             by_formula[baseline]);
    } else {
      methods[i].compared_with = named(runs[baseline], runs[i]);
      relate_to_method(methods[i].formulas, by_formula[baseline]);
    }
    if (!methods[baseline].simulated)
      methods[i].compared_with += ", which is not simulated";
    else if (methods[i].simulated)
      compare_with(*methods[baseline].simulated, baseline == i, methods[i]);
  }
  methods.resize(shown);
  return methods;
}

}  // namespace syncopate
