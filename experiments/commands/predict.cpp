#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "results/found_runs.hpp"
#include "results/result_table.hpp"
#include "results/text_table.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace {

// Returns the communication of the whole run. It is exact after a simulation of the whole run, and if the method's
// schedule determines it (scheduled_communication).
std::optional<PredictedCommunication> communication_of(const Run& run, const std::optional<SimulatedTime>& simulated) {
  if (simulated && simulated->whole) return PredictedCommunication{simulated->rounds, simulated->bytes, true};
  if (const auto all = scheduled_communication(run))
    return PredictedCommunication{static_cast<double>(all->rounds), static_cast<double>(all->bytes.value()), true};
  if (!simulated || !simulated->total_time_s) return std::nullopt;
  return PredictedCommunication{simulated->rounds, simulated->bytes, false};
}

PredictedMethod simulated_and_communicated(const Run& run, const Simulation& simulation) {
  PredictedMethod method;
  static_cast<RunName&>(method) = static_cast<const RunName&>(run);
  const TomlNode configuration = parse_toml(run.resolved_toml, run.experiment);
  method.algorithm = text_in(found_at(configuration, {"methods", "0", "algorithm"}));
  method.planned_steps = planned_steps(run);
  method.solved = run.solved;
  method.has_unshared_links = run.cluster.network->has_unshared_links();
  method.simulated = simulation.time;
  method.not_simulated = simulation.why_none;
  method.failed = simulation.failed;
  method.remark = run.algorithm->remark(run.cluster.workers);
  method.communicated = communication_of(run, method.simulated);
  return method;
}

bool is_baseline(const Run& run) { return run.algorithm->traits().is_baseline; }

Run as_baseline(Run run) {
  run.algorithm = make_baseline();
  return run;
}

// Whether the run is at the sweep point of `other`. Only the swept keys that apply to `run` count.
bool is_at_point_of(const Run& run, const Run& other) {
  return std::ranges::all_of(
      run.sweep, [&](const auto& swept) { return std::ranges::find(other.sweep, swept) != other.sweep.end(); });
}

// Returns for each run the index of the run with this label with which it is compared. That is the run itself if it has
// the label, or else the best match by setting and sweep point.
std::vector<std::size_t> find_labelled(const std::vector<Run>& runs, const std::string& label) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto fit = [&](std::size_t other) {
      if (other == i) return 4;
      return 2 * is_at_point_of(runs[other], runs[i]) + (runs[other].setting == runs[i].setting);
    };
    std::optional<std::size_t> best;
    for (std::size_t other = 0; other < runs.size(); ++other)
      if (runs[other].method == label && (!best || fit(other) > fit(*best))) best = other;
    chosen.push_back(best.value());
  }
  return chosen;
}

// Returns the index of each run's baseline. That is the first baseline with the run's setting, or else the first one at
// its sweep point, because a baseline that a swept key does not affect has one run for all values. If there is none,
// appends a baseline that is trained like the first run of the setting.
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

// Returns everything that determines sampled compute times. A method's own training keys may change the number of steps
// and, if compute times depend on lengths or are measured, these times.
auto drawn_by(const Run& run) {
  return std::tuple(run.setting, run.own_training, planned_steps(run), run.cluster.measured_micro_batch_s);
}

// Makes a method's formulas relative to the baseline, which may be trained differently. `trained_alike`: the formulas
// of synchronous SGD trained like the method. Multiplies each formula's time of synchronous SGD by the ratio of the
// baseline's step time to that of `trained_alike`, for the distribution whose time is nearest to the formula's.
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

// Makes each formula relative to a formula of another method. Prefers one with the same distribution, then one that is
// sampled if and only if this one is. If the other method has no formulas, there is no S_eff.
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

// Returns the name of `other`, followed by its swept values that differ from those of `run`.
std::string named(const Run& other, const Run& run) {
  std::string values;
  for (const auto& swept : other.sweep)
    if (std::ranges::find(run.sweep, swept) == run.sweep.end())
      values += fmt::format(", {} = {}", swept.first, swept.second);
  return fmt::format("\"{}\"{}", other.method, values);
}

std::string named(const Run& baseline, bool is_of_file) {
  return is_of_file ? fmt::format("\"{}\", the file's first sync-sgd", baseline.method)
                    : fmt::format("sync-sgd, trained like \"{}\" (the file contains no sync-sgd)", baseline.method);
}

// Sets S_eff: the method's micro-batches per second, divided by the baseline's.
void compare_with(const SimulatedTime& baseline, bool is_baseline, PredictedMethod& method) {
  method.simulated_speedup = method.simulated->micro_batches_per_s / baseline.micro_batches_per_s;
  const auto own = method.simulated->pace_error, other = baseline.pace_error;
  if (is_baseline || !own || !other) return;
  const double relative =
      std::hypot(*own / method.simulated->micro_batches_per_s, *other / baseline.micro_batches_per_s);
  method.simulated_speedup_error = *method.simulated_speedup * relative;
}

constexpr std::size_t leading_columns = 2;  // method and source

// Returns seconds as text. Omits an error that would not be visible in six digits.
std::string seconds(std::optional<double> value, double error = 0) {
  if (!value) return "-";
  return mean_and_deviation({1, *value, error > 1e-6 * *value ? error : 0});
}

std::string percent(std::optional<double> share) { return share ? with_decimals(100 * *share, 1) : "-"; }

// Returns a speed-up with as many digits as its error justifies.
std::string speedup(std::optional<double> value, double error) {
  if (!value) return "-";
  if (error > 1e-6 * *value) return mean_and_deviation({1, *value, error});
  return with_decimals(*value, 3);
}

// Returns the rounds and the bytes as texts. Marks numbers that are not exact with "~".
std::pair<std::string, std::string> texts_of(const std::optional<PredictedCommunication>& communicated) {
  if (!communicated) return {"-", "-"};
  const char* const mark = communicated->is_exact ? "" : "~";
  double bytes = communicated->bytes;
  const char* prefix = "";
  for (const char* const next : {"k", "M", "G", "T", "P", "E"}) {
    if (bytes < 1000) break;
    bytes /= 1000;
    prefix = next;
  }
  return {fmt::format("{}{:.0f}", mark, communicated->rounds), fmt::format("{}{:.4g}{}", mark, bytes, prefix)};
}

// Returns, for example, "simulation, 200 of 1000 steps".
std::string source_of(const PredictedMethod& method) {
  const SimulatedTime& simulated = *method.simulated;
  if (simulated.whole) return "simulation";
  const std::string all = method.planned_steps ? fmt::format(" of {}", method.planned_steps->value()) : "";
  return fmt::format("simulation, {}{}{} steps", simulated.is_sampled ? "a sample of " : "", simulated.steps.value(),
                     all);
}

std::vector<std::string> row_of_simulation(const PredictedMethod& method) {
  const auto [rounds, bytes] = texts_of(method.communicated);
  if (!method.simulated) return {short_reason(method.not_simulated), "-", "-", "-", "-", "-", rounds, bytes};
  const SimulatedTime& simulated = *method.simulated;
  return {source_of(method),
          seconds(simulated.step_time_s, simulated.error_s.value_or(0)),
          speedup(method.simulated_speedup, method.simulated_speedup_error),
          percent(simulated.drop_rate),
          percent(simulated.communication_share),
          seconds(simulated.total_time_s),
          rounds,
          bytes};
}

std::vector<std::string> row_of_formula(const FormulaTime& formula) {
  const Prediction& prediction = formula.prediction;
  return {prediction.formula,
          seconds(prediction.step_time_s, prediction.step_error_s),
          speedup(unless_nan(prediction.effective_speedup()), prediction.effective_speedup_error()),
          percent(prediction.drop_rate),
          percent(prediction.communication_share()),
          seconds(formula.total_time_s),
          "",
          ""};
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json json_of(const PredictedMethod& method) {
  Json simulated = nullptr;
  if (method.simulated) {
    const SimulatedTime& time = *method.simulated;
    simulated = {{"steps", time.steps.value()},
                 {"whole", time.whole},
                 {"sampled", time.is_sampled},
                 {"step_time_s", time.step_time_s},
                 {"step_time_standard_error_s", time.error_s},
                 {"effective_speedup", method.simulated_speedup},
                 {"effective_speedup_standard_error", json_of_error(method.simulated_speedup_error)},
                 {"drop_rate", time.drop_rate},
                 {"communication_share", time.communication_share},
                 {"total_time_s", time.total_time_s}};
  }
  Json formulas = Json::array();
  for (const FormulaTime& formula : method.formulas) formulas.push_back(json_with_errors(formula));
  return {{"method", method.method},
          {"algorithm", method.algorithm},
          {"sweep", method.sweep},
          {"seed", method.seed},
          {"planned_steps", method.planned_steps ? Json(method.planned_steps->value()) : Json(nullptr)},
          {"rounds", method.communicated ? Json(std::llround(method.communicated->rounds)) : Json(nullptr)},
          {"communicated_bytes", method.communicated ? Json(std::llround(method.communicated->bytes)) : Json(nullptr)},
          {"communication_is_exact", method.communicated ? Json(method.communicated->is_exact) : Json(nullptr)},
          {"to_target", method.target ? Json{{"batch", method.target->batch},
                                             {"steps", method.target->steps},
                                             {"step_time_s", method.target->step_time_s},
                                             {"time_s", method.target->time_s},
                                             {"is_bound", method.target->is_bound}}
                                      : Json(nullptr)},
          {"solved", text_or_null(method.solved)},
          {"against", text_or_null(method.compared_with)},
          {"links", method.has_unshared_links ? Json(unshared_links) : Json(nullptr)},
          {"simulated", std::move(simulated)},
          {"not_simulated", text_or_null(method.not_simulated)},
          {"formulas", std::move(formulas)},
          {"no_formula", text_or_null(method.why_no_formula)},
          {"remark", text_or_null(method.remark)}};
}

// Returns "an accuracy of 0.55", "a loss of 0.4", or both.
std::string target_text(std::optional<double> accuracy, std::optional<double> loss) {
  std::string text;
  if (accuracy) text = fmt::format("an accuracy of {:.6g}", *accuracy);
  if (loss) text += fmt::format("{}a loss of {:.6g}", text.empty() ? "" : " and ", *loss);
  return text;
}

// Returns a line for each number of the best setting that is at the edge of its sweep.
std::string edges_of(const PredictedMethod& best, std::span<const PredictedMethod> methods) {
  std::string text;
  for (const auto& [key, value] : best.sweep) {
    const std::optional<double> own = number_in(value);
    bool is_least = own.has_value(), is_most = own.has_value(), is_alone = true;
    for (const PredictedMethod& other : methods)
      for (const auto& [other_key, other_value] : other.sweep) {
        const auto number = number_in(other_value);
        if (!own || !number || other_key != key || other.method != best.method) continue;
        is_least &= *own <= *number;
        is_most &= *own >= *number;
        is_alone &= *own == *number;
      }
    if (!is_alone && (is_least || is_most))
      text += fmt::format("{} = {} is the {} swept value: a better one may be beyond it\n", printable(key),
                          printable(value), is_least ? "smallest" : "largest");
  }
  return text;
}

// Predicts steps and time to the target. If the whole run is too long to simulate, or differs in pace or batch from its
// first steps, simulates only the steps to the target. Returns nullopt if even these steps are too many.
std::optional<PredictedTarget> way_to_target(const Run& run, const std::optional<SimulatedTime>& whole,
                                             const StepsByBatch& target) {
  constexpr int most_rounds = 4;  // iterations in which the number of steps is improved
  constexpr Step first_guess = 100;
  const ScheduledRounds rounds(run);
  std::optional<SimulatedTime> time = whole ? whole : simulate_first_steps(run, first_guess);
  if (!time) return std::nullopt;
  PredictedTarget predicted;
  for (int round = 0;; ++round) {
    const Step last = std::llround(std::ceil(predicted.steps));
    predicted.batch =
        time->micro_batches_per_s * time->step_time_s * static_cast<double>(run.training.samples_per_micro_batch);
    if (!(predicted.batch > 0)) return std::nullopt;
    predicted.steps = target.steps(predicted.batch);
    predicted.step_time_s = time->step_time_s;
    predicted.time_s = predicted.steps * predicted.step_time_s;
    if (whole && !whole->total_time_s) return predicted;
    const Step needed = std::llround(std::ceil(predicted.steps));
    if (needed == last || round == most_rounds) return predicted;
    if (whole) {
      const Step all = std::llround(*whole->total_time_s / whole->step_time_s);
      if (needed >= all || (settles_after(run) == 0 && rounds.stand_for_all(needed, all))) return predicted;
    }
    time = simulate_first_steps(run, needed);
    if (!time) return std::nullopt;
  }
}

}  // namespace

void check_against(const Experiment& experiment, const std::string& against) {
  if (against.empty() || std::ranges::find(experiment.methods, against) != experiment.methods.end()) return;
  throw ConfigurationFault(fmt::format("--against {}: {} has no such method; {}", against, experiment.file,
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
    const auto [sample, is_new] = samples.try_emplace(drawn_by(run));
    if (is_new) sample->second = sample_times(run);
    return sample->second;
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    methods.push_back(simulated_and_communicated(runs[i], simulations[i]));
    if (!runs[i].algorithm->traits().has_formulas) continue;
    FormulaTimes formulas = predict_by_formula(runs[i], sample_of(runs[i]));
    methods.back().formulas = std::move(formulas.all);
    methods.back().why_no_formula = std::move(formulas.why_none);
  }
  std::vector<std::vector<FormulaTime>> by_formula;  // by method: its formulas before they are made relative
  for (const PredictedMethod& method : methods) by_formula.push_back(method.formulas);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t baseline = baselines[i];
    if (against.empty()) {
      methods[i].compared_with = named(runs[baseline], baseline < shown);
      if (!methods[i].formulas.empty())
        relate(methods[i].formulas, predict_by_formula(as_baseline(runs[i]), sample_of(runs[i])).all,
               by_formula[baseline]);
    } else {
      methods[i].compared_with = named(runs[baseline], runs[i]);
      relate_to_method(methods[i].formulas, by_formula[baseline]);
    }
    if (!methods[baseline].simulated)
      methods[i].compared_with += ", which cannot be simulated";
    else if (methods[i].simulated)
      compare_with(*methods[baseline].simulated, baseline == i, methods[i]);
  }
  methods.resize(shown);
  return methods;
}

std::string prediction_table(std::span<const PredictedMethod> methods, std::size_t width) {
  TextTable table({{"method", Align::left}, {"by", Align::left}});
  for (const char* heading : {"s/step", "S_eff", "dropped\n%", "communication\n%", "total\ns", "rounds", "sent\nbytes"})
    table.add_column(heading, Align::right);
  const auto add = [&](const std::string& label, std::vector<std::string> cells) {
    cells.insert(cells.begin(), label);
    table.add_row(std::move(cells));
  };
  std::string notes;
  bool is_sampled = false, has_bounds = false;
  std::vector<std::string> compared_with;
  for (const PredictedMethod& method : methods) {
    add(run_label(method), row_of_simulation(method));
    if (!method.compared_with.empty() && std::ranges::find(compared_with, method.compared_with) == compared_with.end())
      compared_with.push_back(method.compared_with);
    notes += note_of_reason(run_label(method), method.not_simulated);
    if (!method.solved.empty()) notes += fmt::format("{}: {}\n", run_label(method), method.solved);
    for (const FormulaTime& formula : method.formulas) {
      add("", row_of_formula(formula));
      is_sampled |= formula.prediction.is_sampled;
      has_bounds |= formula.prediction.formula.ends_with("(lower bound)");
    }
    if (!method.why_no_formula.empty())
      add("", {"no formula: " + method.why_no_formula, "-", "-", "-", "-", "-", "", ""});
    if (!method.remark.empty()) notes += fmt::format("{}: {}\n", run_label(method), method.remark);
  }
  if (std::ranges::any_of(methods,
                          [](const PredictedMethod& m) { return m.communicated && !m.communicated->is_exact; }))
    notes += "~: extrapolated from the simulated steps\n";
  for (const std::string& baseline : compared_with) notes += fmt::format("S_eff: relative to {}\n", baseline);
  std::vector<std::pair<std::string, bool>> links;
  for (const PredictedMethod& method : methods) links.emplace_back(run_label(method), method.has_unshared_links);
  notes += unshared_links_text(links);
  if (has_bounds) notes += "Lower bound: a step takes at least this time, so S_eff is at most this large.\n";
  if (is_sampled) notes += note_of_sampled();
  const std::string text =
      width == 0 || table.width() <= width ? table.text() : table.squeezed().folded_text(width, leading_columns);
  return notes.empty() ? text : text + "\n" + fold_lines(notes, width);
}

std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods) {
  Json list = Json::array();
  for (const PredictedMethod& method : methods) list.push_back(json_of(method));
  const Json json = {{"experiment", experiment}, {"predictions", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

TargetRuns read_target_runs(const std::string& directory, const Experiment& experiment) {
  const auto fault = [&](const std::string& why) {
    return ConfigurationFault(fmt::format("--to-target {}: {}", directory, why));
  };
  const auto runs = configured<ResultsDirectoryFault>("--to-target ", [&] { return find_runs(directory); });
  TargetRuns target;
  std::set<std::string> methods;
  for (const FoundRun& run : runs) methods.insert(run.summary.method);
  if (methods.size() > 1) throw fault("contains runs of several methods; must be the directory of one method's runs");
  target.method = *methods.begin();
  std::set<std::string> targets;
  for (const FoundRun& run : runs) {
    if (!run.summary.time_to_target)
      throw fault("its runs have no target; set evaluation.target_accuracy or evaluation.target_loss");
    target.accuracy = run.summary.time_to_target->target_accuracy;
    target.loss = run.summary.time_to_target->target_loss;
    targets.insert(target_text(target.accuracy, target.loss));
    if (!run.summary.steps_by_batch) continue;
    ++target.count;
    target.steps.least += run.summary.steps_by_batch->least;
    target.steps.times_batch += run.summary.steps_by_batch->times_batch;
    target.steps.mean_noise_scale += run.summary.steps_by_batch->mean_noise_scale;
  }
  if (targets.size() > 1)
    throw fault(fmt::format("its runs have different targets, {}; all must have the same", fmt::join(targets, ", ")));
  if (target.count == 0)
    throw fault(
        fmt::format("none of its {} runs has reached its target and measured noise scales before that; set "
                    "measurements.noise_scale = true",
                    runs.size()));
  target.steps.least /= target.count;
  target.steps.times_batch /= target.count;
  target.steps.mean_noise_scale /= target.count;
  for (const Run& run : experiment.runs) {
    const EvaluationPlan& plan = run.evaluation;
    const bool is_other = plan.target_accuracy != target.accuracy || plan.target_loss != target.loss;
    if (!is_other || (!plan.target_accuracy && !plan.target_loss)) continue;
    throw ConfigurationFault(fmt::format(
        "--to-target: {} has a target of {}, but the runs of \"{}\" had {}: use the same target, or leave it "
        "out of the file (~evaluation.target_accuracy, ~evaluation.target_loss)",
        experiment.file, target_text(plan.target_accuracy, plan.target_loss), printable(target.method),
        target_text(target.accuracy, target.loss)));
  }
  return target;
}

void predict_target(std::span<PredictedMethod> methods, const Experiment& experiment, const TargetRuns& target) {
  for (PredictedMethod& method : methods) {
    const Run& run = *std::ranges::find(experiment.runs, method.hash, &Run::hash);
    const Traits traits = run.algorithm->traits();
    if (!traits.steps_along_fresh_mean && !traits.publishes_rounds) continue;
    method.target = way_to_target(run, method.simulated, target.steps);
    if (method.target) method.target->is_bound = !traits.steps_along_fresh_mean;
  }
}

std::string target_table(std::span<const PredictedMethod> methods, const TargetRuns& target, std::size_t width) {
  std::vector<const PredictedMethod*> known;
  std::vector<std::string> unknown;
  for (const PredictedMethod& method : methods) {
    if (method.target)
      known.push_back(&method);
    else
      unknown.push_back(run_label(method));
  }
  std::ranges::stable_sort(known, {}, [](const PredictedMethod* method) { return method->target->time_s; });
  TextTable table;
  table.add_column("method", Align::left);
  for (const char* const heading : {"batch\nsamples", "steps", "s/step", "to target\ns"})
    table.add_column(heading, Align::right);
  bool has_bound = false;
  for (const PredictedMethod* method : known) {
    const PredictedTarget& to_target = *method->target;
    const char* const mark = to_target.is_bound ? ">= " : "";
    has_bound |= to_target.is_bound;
    table.add_row({run_label(*method), fmt::format("{:.1f}", to_target.batch),
                   fmt::format("{}{:.0f}", mark, to_target.steps), shown_number(to_target.step_time_s),
                   mark + shown_number(to_target.time_s)});
  }
  const std::string heading = fmt::format(
      "To {}, the target of \"{}\": {:.0f} + {:.0f} / B steps with a batch of B samples,\n"
      "from a mean noise scale of {:.0f} samples ({})\n\n",
      target_text(target.accuracy, target.loss), printable(target.method), target.steps.least, target.steps.times_batch,
      target.steps.mean_noise_scale, counted(target.count, "run"));
  std::string text;
  const auto best =
      std::ranges::find_if(known, [](const PredictedMethod* method) { return !method->target->is_bound; });
  if (best != known.end())
    text += fmt::format("Best: {}, {} s\n{}", run_label(**best), shown_number((*best)->target->time_s),
                        edges_of(**best, methods));
  if (has_bound) text += ">=: lower bound, as if local steps were as good as steps along the mean of all gradients\n";
  for (const std::string& label : unknown)
    text += fmt::format(
        "{}: not predicted, because it uses stale gradients (which the noise scale does not cover) or is not "
        "simulated\n",
        label);
  return fold_lines(heading, width) + (width > 0 ? table.folded_text(width) : table.text()) + "\n" +
         fold_lines(text, width);
}

}  // namespace syncopate
