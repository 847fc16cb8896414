#include "results/paired_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "results/build_info.hpp"
#include "results/result_table.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace {

Agreement agreement(double step_time_error, double drop_rate_error, const Tolerances& tolerances) {
  return {.step_time_is_off = !(std::abs(step_time_error) <= tolerances.step_time),
          .drop_rate_is_off = !(std::abs(drop_rate_error) <= tolerances.drop_rate)};
}

// The simulation's errors, as means over the seeds of a row. If a method's computation depends on the clock, single
// runs may differ by more than the tolerances, and only the mean shows whether the simulation is wrong.
struct MeanError {
  std::string label;             // method and sweep point
  PairedDifference step_time{};  // relative errors
  PairedDifference drop_rate{};  // differences of drop rates

  Agreement verdict(const Tolerances& tolerances) const {
    return agreement(step_time.mean, drop_rate.mean, tolerances);
  }
};

// Mean errors of the rows with at least two seeds whose runs could all be compared, in the order of their first runs.
std::vector<MeanError> mean_errors(std::span<const ComparedRun> runs) {
  std::vector<MeanError> errors;
  for (const auto& [label, seeds] : grouped_by([](const ComparedRun& run) { return run_label(run.simulated); }, runs)) {
    const auto has_failed = [](const ComparedRun& run) { return !run.failure.empty(); };
    if (seeds.size() < 2 || std::ranges::any_of(seeds, has_failed)) continue;
    std::vector<double> step_times, drop_rates;
    for (const ComparedRun& run : seeds) {
      step_times.push_back(step_time_error(run));
      drop_rates.push_back(drop_rate_error(run));
    }
    errors.push_back({label, paired_difference(step_times), paired_difference(drop_rates)});
  }
  return errors;
}

std::string cell(const PairedDifference& errors, const char* unit) {
  std::string text = error_text(100 * errors.mean) + unit;
  if (errors.interval)
    text += fmt::format(" [{}, {}]", error_text(100 * errors.interval->low), error_text(100 * errors.interval->high));
  return text;
}

TextTable table_of(std::span<const MeanError> errors, const Tolerances& tolerances) {
  TextTable table({{"over seeds", Align::left},
                   {"seeds", Align::right},
                   {"error of\ns/step", Align::right},
                   {"error of dropped\npoints", Align::right},
                   {"verdict", Align::left}});
  for (const MeanError& error : errors)
    table.add_row({error.label, std::to_string(error.step_time.n), cell(error.step_time, " %"),
                   cell(error.drop_rate, ""), error.verdict(tolerances).text()});
  return table;
}

const char* const mean_errors_note = "Means over seeds, with their 95 % intervals in brackets (Student's t).\n";

std::optional<double> seconds_to_target(const RunSummary& run) {
  return run.time_to_target ? run.time_to_target->time_s : std::nullopt;
}

std::optional<double> error_of(std::optional<double> simulated, std::optional<double> mpi) {
  if (!simulated || !mpi) return {};
  return relative_error(*simulated, *mpi);
}

std::string number(std::optional<double> value) { return value ? shown_number(*value) : "-"; }

std::string decimals(std::optional<double> value, int decimals) {
  return value ? with_decimals(*value, decimals) : "-";
}

std::string percent(std::optional<double> error) { return error ? error_text(100 * *error) + " %" : "-"; }

std::vector<std::string> cells_of(const RunSummary& run) {
  return {with_decimals(run.step_time_s(), 6),
          with_decimals(100 * run.drop_rate(), 2),
          decimals(run.mean_staleness(), 3),
          decimals(seconds_to_target(run), 3),
          with_decimals(run.end_time_s, 3),
          number(run.final_test_loss),
          std::string{}};
}

// The relative error of the parameters, in brackets if the model depends on the order of arrivals.
std::string parameters(const ComparedRun& run) {
  if (!run.parameter_error) return "-";
  return fmt::format(fmt::runtime(run.depends_on_clock ? "({:.1e})" : "{:.1e}"), *run.parameter_error);
}

std::vector<std::string> cells_of_error(const ComparedRun& run) {
  const auto staleness = run.simulated.mean_staleness();
  const auto staleness_mpi = run.mpi.mean_staleness();
  std::optional<double> staleness_error;
  if (staleness && staleness_mpi) staleness_error = *staleness - *staleness_mpi;
  return {percent(step_time_error(run)),
          error_text(100 * drop_rate_error(run)),
          staleness_error ? error_text(*staleness_error, 3) : "-",
          percent(error_of(seconds_to_target(run.simulated), seconds_to_target(run.mpi))),
          percent(relative_error(run.simulated.end_time_s, run.mpi.end_time_s)),
          percent(error_of(run.simulated.final_test_loss, run.mpi.final_test_loss)),
          parameters(run)};
}

bool several_seeds(std::span<const ComparedRun> runs) {
  return std::ranges::any_of(runs,
                             [&](const ComparedRun& run) { return run.simulated.seed != runs[0].simulated.seed; });
}

std::string label_of(const ComparedRun& run, bool with_seed) {
  return with_seed ? label_with_seed(run.simulated) : run_label(run.simulated);
}

std::string largest_text(double error) { return error_text(error).substr(1); }

// The relative error of the step time that the difference in communication time would cause; nullopt if unknown.
std::optional<double> communication_error(const ComparedRun& run) {
  const auto simulated = run.simulated.communication_s(), mpi = run.mpi.communication_s();
  if (!simulated || !mpi) return {};
  return std::abs(*simulated - *mpi) / run.mpi.step_time_s();
}

std::string notes(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  std::string text = pace_note(runs, tolerances) + network_note(runs, tolerances);
  std::vector<RunSummary> mpi;
  for (const ComparedRun& run : runs)
    if (run.failure.empty()) mpi.push_back(run.mpi);
  text += overrun_warnings(mpi);
  const auto has_missed = [](const RunSummary& run) { return run.time_to_target && !run.time_to_target->time_s; };
  const auto both_missed = [&](const ComparedRun& run) {
    return !run.failure.empty() || (has_missed(run.simulated) && has_missed(run.mpi));
  };
  if (!mpi.empty() && std::ranges::all_of(runs, both_missed))
    text += "No run reached the target, neither simulated nor under MPI, so times to the target are not compared.\n";
  if (std::ranges::any_of(runs, [](const auto& run) { return run.depends_on_clock && run.parameter_error; }))
    text +=
        "Parameters in brackets: the method's result depends on the order of arrivals, so correct runs differ, too.\n";
  return text;
}

double largest(std::span<const ComparedRun> runs, double (*error)(const ComparedRun&)) {
  double worst = 0;
  for (const ComparedRun& run : runs)
    if (run.failure.empty()) worst = std::max(worst, std::abs(error(run)));
  return worst;
}

Json json_of(const RunSummary& run) {
  return {{"step_time_s", run.step_time_s()},
          {"drop_rate", run.drop_rate()},
          {"mean_staleness", run.mean_staleness()},
          {"time_to_target_s", seconds_to_target(run)},
          {"end_time_s", run.end_time_s},
          {"steps", run.steps},
          {"final_test_loss", run.final_test_loss},
          {"overruns", run.overruns},
          {"emulated_micro_batches", run.emulated_micro_batches},
          {"communication_s", run.communication_s()},
          {"commit", run.commit}};
}

Json json_of(const ComparedRun& run, const Tolerances& tolerances) {
  Json json = {{"method", run.simulated.method},
               {"sweep", run.simulated.sweep},
               {"seed", run.simulated.seed},
               {"hash", run.simulated.hash},
               {"verdict", verdict(run, tolerances).text()}};
  if (!run.failure.empty()) {
    json["failure"] = run.failure;
    return json;
  }
  json["step_time_error"] = step_time_error(run);
  json["drop_rate_error"] = drop_rate_error(run);
  json["parameter_error"] = run.parameter_error;
  json["depends_on_clock"] = run.depends_on_clock;
  json["replaced_micro_batch_s"] = run.replaced_micro_batch_s;
  json["simulated"] = json_of(run.simulated);
  json["mpi"] = json_of(run.mpi);
  return json;
}

constexpr std::string_view time_to_target = "time_to_target_s";
constexpr std::string_view exact = "(exact)";  // shown instead of an interval

void set_numbers(PairedMeasure& result, const std::vector<double>& own, const std::vector<double>& other) {
  std::vector<double> differences, ratios;
  constexpr double rounding = 1e-12;  // because sums may be added up in another order
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double difference = own[i] - other[i];
    const bool are_alike = std::abs(difference) <= rounding * std::max(std::abs(own[i]), std::abs(other[i]));
    differences.push_back(are_alike ? 0 : difference);
    const bool inverse = result.measure->compared_by == ComparedBy::speed_up;
    if (own[i] > 0 && other[i] > 0) ratios.push_back((inverse ? other[i] / own[i] : own[i] / other[i]) - 1);
  }
  result.own = statistics(own);
  result.other = statistics(other);
  result.difference = paired_difference(differences);
  if (ratios.size() == own.size()) result.ratio = paired_difference(ratios);
}

bool have_target(const std::vector<const RunSummary*>& runs) {
  return std::ranges::all_of(runs, [](const RunSummary* run) { return run->time_to_target.has_value(); });
}

bool none_reached(const std::vector<const RunSummary*>& runs) {
  return std::ranges::all_of(
      runs, [](const RunSummary* run) { return run->time_to_target && !time_to_reach(*run).is_reached; });
}

// A lower bound of the difference, for a row whose runs all missed the target.
std::optional<PairedMeasure> least_difference(const Measure& measure, const Pairs& pairs) {
  PairedMeasure result{.measure = &measure, .is_bound = true};
  std::vector<double> differences;
  double until_s = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    const TimeToReach own = time_to_reach(*pairs.own[i]), other = time_to_reach(*pairs.other[i]);
    if (!other.is_reached) return {};
    differences.push_back(own.time_s - other.time_s);
    until_s = std::min(until_s, own.time_s);
  }
  result.horizon_s = until_s;
  result.own = {.n = pairs.own.size(), .mean = until_s};
  result.difference = {.n = differences.size(), .mean = statistics(differences).mean};
  return result;
}

std::optional<PairedMeasure> paired_times(const Measure& measure, const Pairs& pairs, std::optional<double> horizon_s) {
  if (!have_target(pairs.own) || !have_target(pairs.other) || none_reached(pairs.other)) return {};
  if (none_reached(pairs.own)) return least_difference(measure, pairs);
  std::vector<TimeToReach> own, other;
  for (const RunSummary* run : pairs.own) own.push_back(time_to_reach(*run));
  for (const RunSummary* run : pairs.other) other.push_back(time_to_reach(*run));
  const RestrictedTimes own_times = restricted_times(own, horizon_s.value()),
                        other_times = restricted_times(other, horizon_s.value());
  PairedMeasure result{.measure = &measure, .horizon_s = horizon_s, .reached = own_times.reached};
  set_numbers(result, own_times.times_s, other_times.times_s);
  return result;
}

double half_width(const PairedDifference& found) { return (found.interval->high - found.interval->low) / 2; }

std::string difference_text(const PairedDifference& found, double times) {
  const bool has_width = found.interval && !is_exact(found);
  const SamePlace text(times * found.mean, has_width ? times * half_width(found) : 0);
  if (is_exact(found) && found.mean == 0) return fmt::format("0 {}", exact);
  if (is_exact(found)) return fmt::format("{} {}", text(times * found.mean, true), exact);
  if (!found.interval) return text(times * found.mean, true);
  return fmt::format("{} [{}, {}]{}", text(times * found.mean, true), text(times * found.interval->low, true),
                     text(times * found.interval->high, true), found.is_significant() ? "*" : "");
}

std::string ratio_text(const PairedDifference& ratio) {
  if (!ratio.interval) return with_decimals(1 + ratio.mean, 4);
  const SamePlace text(1 + ratio.mean, is_exact(ratio) ? 0 : half_width(ratio));
  if (is_exact(ratio)) return fmt::format("{} {}", text(1 + ratio.mean), exact);
  return fmt::format("{} [{}, {}]{}", text(1 + ratio.mean), text(1 + ratio.interval->low),
                     text(1 + ratio.interval->high), ratio.is_significant() ? "*" : "");
}

std::string cell_of(const PairedMeasure& paired) {
  if (paired.measure->compared_by != ComparedBy::difference) return paired.ratio ? ratio_text(*paired.ratio) : "-";
  std::string own = (paired.is_bound ? "> " : "") + shown_number(paired.measure->shown_times * paired.own.mean);
  if (paired.horizon_s) own += fmt::format(" ({}/{})", paired.reached, paired.own.n);
  return fmt::format("{}  {}", own, difference_text(paired));
}

}  // namespace

double relative_error(double simulated, double mpi) {
  if (simulated == mpi) return 0;
  if (mpi == 0) return std::numeric_limits<double>::infinity();
  return (simulated - mpi) / mpi;
}

double step_time_error(const ComparedRun& run) {
  return relative_error(run.simulated.step_time_s(), run.mpi.step_time_s());
}

double drop_rate_error(const ComparedRun& run) { return run.simulated.drop_rate() - run.mpi.drop_rate(); }

Agreement verdict(const ComparedRun& run, const Tolerances& tolerances) {
  if (!run.failure.empty()) return {.failed = true};
  return agreement(step_time_error(run), drop_rate_error(run), tolerances);
}

std::string Agreement::text() const {
  if (failed) return "failed";
  if (step_time_is_off) return drop_rate_is_off ? "step time, drop rate" : "step time";
  return drop_rate_is_off ? "drop rate" : "within";
}

bool all_within(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  const auto means = mean_errors(runs);
  return std::ranges::all_of(runs, [&](const ComparedRun& run) {
    const auto mean = std::ranges::find(means, run_label(run.simulated), &MeanError::label);
    return (mean == means.end() ? verdict(run, tolerances) : mean->verdict(tolerances)).is_within();
  });
}

std::string pace_note(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  std::vector<ComparedRun> off;
  for (const ComparedRun& run : runs)
    if (run.failure.empty() && run.replaced_micro_batch_s && !verdict(run, tolerances).is_within()) off.push_back(run);
  if (off.empty()) return "";
  const double declared_s = *off.front().replaced_micro_batch_s;
  const bool one = std::ranges::all_of(off, [&](const auto& run) { return run.replaced_micro_batch_s == declared_s; });
  return fmt::format(
      "With cluster.pace = \"inject\", a micro-batch under MPI takes as long as its arithmetic; only the simulation "
      "uses\nthe declared cluster.micro_batch_s{}. Set cluster.pace = \"emulate\", so that MPI ranks sleep until that "
      "time,\n"
      "or cluster.micro_batch_s = \"measured\", so that the simulation uses the time of the arithmetic.\n",
      one ? " = " + shown_number(declared_s, 6) : "");
}

std::string network_note(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  const ComparedRun* most = nullptr;
  double largest_error = tolerances.step_time;
  for (const ComparedRun& run : runs) {
    if (!run.failure.empty() || verdict(run, tolerances).is_within()) continue;
    const double error = communication_error(run).value_or(0);
    if (!(error > largest_error)) continue;
    largest_error = error;
    most = &run;
  }
  if (!most) return "";
  const double simulated_s = *most->simulated.communication_s();
  const char* const advice =
      simulated_s > 0 ? "Set network.kind = \"free\" to compare\neverything but communication, or declare" : "Declare";
  return fmt::format(
      "Only the simulation uses the declared [network]; MPI ranks use the real one:\n{} communicates for {} s "
      "per step in the simulation, but {} s under MPI. {} in [network] the latency and bandwidth between the ranks.\n",
      printable(label_of(*most, several_seeds(runs))), shown_number(simulated_s),
      shown_number(*most->mpi.communication_s()), advice);
}

std::string comparison_table(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  TextTable table({{"method", Align::left}, {"", Align::left}});
  for (const char* heading :
       {"s/step", "dropped\n%", "staleness\nsteps", "to target\ns", "end\ns", "test\nloss", "parameters\nrel. error"})
    table.add_column(heading, Align::right);
  table.add_column("verdict", Align::left);
  const auto add = [&](const std::string& label, const char* side, std::vector<std::string> cells,
                       const std::string& end = {}) {
    cells.insert(cells.begin(), {label, side});
    cells.push_back(end);
    table.add_row(std::move(cells));
  };
  const bool with_seed = several_seeds(runs);
  std::string failures;
  for (const ComparedRun& run : runs) {
    const std::string label = label_of(run, with_seed);
    if (!run.failure.empty()) {
      failures += fmt::format("{}: {}\n", label, run.failure);
      continue;
    }
    add(label, "simulated", cells_of(run.simulated));
    add("", "MPI", cells_of(run.mpi));
    add("", "error", cells_of_error(run), verdict(run, tolerances).text());
  }
  std::string text = table.text() + notes(runs, tolerances);
  if (!failures.empty()) text += "\nNot compared:\n" + failures;
  const auto within =
      std::ranges::count_if(runs, [&](const ComparedRun& run) { return verdict(run, tolerances).is_within(); });
  text += fmt::format(
      "{} of {} within {:.3g} % of the time per step and {:.3g} percentage points of the drop rate; largest errors "
      "{} % and {} points\n",
      within, runs.size(), 100 * tolerances.step_time, 100 * tolerances.drop_rate,
      largest_text(100 * largest(runs, step_time_error)), largest_text(100 * largest(runs, drop_rate_error)));
  if (const auto means = mean_errors(runs); !means.empty())
    text += "\n" + table_of(means, tolerances).text() + mean_errors_note;
  return text;
}

std::string comparison_json(const std::string& experiment, std::span<const ComparedRun> runs,
                            const Tolerances& tolerances, const ComparisonMachine& machine) {
  Json list = Json::array();
  for (const ComparedRun& run : runs) list.push_back(json_of(run, tolerances));
  Json means = Json::array();
  for (const MeanError& mean : mean_errors(runs))
    means.push_back({{"row", mean.label},
                     {"seeds", mean.step_time.n},
                     {"step_time_error", mean.step_time.mean},
                     {"drop_rate_error", mean.drop_rate.mean},
                     {"verdict", mean.verdict(tolerances).text()}});
  const auto json_of_note = [](const std::string& note) { return note.empty() ? Json(nullptr) : Json(note); };
  const Json json = {
      {"experiment", experiment},
      {"commit", build_info().commit},
      {"time", iso_time(std::chrono::system_clock::now())},
      {"machine", {{"processor", machine.processor}, {"cores", machine.cores}, {"load_before", machine.load}}},
      {"tolerances", {{"step_time", tolerances.step_time}, {"drop_rate", tolerances.drop_rate}}},
      {"largest_errors",
       {{"step_time", largest(runs, step_time_error)}, {"drop_rate", largest(runs, drop_rate_error)}}},
      {"all_within", all_within(runs, tolerances)},
      {"pace_note", json_of_note(pace_note(runs, tolerances))},
      {"network_note", json_of_note(network_note(runs, tolerances))},
      {"runs", std::move(list)},
      {"over_seeds", std::move(means)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string comparison_markdown(const std::string& experiment, const std::string& file,
                                std::span<const ComparedRun> runs, const Tolerances& tolerances,
                                const ComparisonMachine& machine) {
  std::string text = fmt::format(
      "# {}: simulated against MPI\n\nWritten by `./dev compare {} --markdown ...`, commit {:.10}, {}; {} cores, {}, "
      "load {:.1f} at the start.\nErrors are those of the simulation, relative to MPI (drop rates: in percentage "
      "points). Tolerances: {:.3g} % and {:.3g} points.\n\n",
      experiment, file, build_info().commit, iso_time(std::chrono::system_clock::now()), machine.cores,
      machine.processor, machine.load, 100 * tolerances.step_time, 100 * tolerances.drop_rate);
  TextTable table({{"method", Align::left}});
  for (const char* heading : {"s/step simulated", "MPI", "error %", "dropped % simulated", "MPI", "error",
                              "staleness simulated", "MPI", "test loss simulated", "MPI", "parameters"})
    table.add_column(heading, Align::right);
  table.add_column("verdict", Align::left);
  const bool with_seed = several_seeds(runs);
  for (const ComparedRun& run : runs) {
    std::vector<std::string> cells(11, "-");
    if (run.failure.empty())
      cells = {with_decimals(run.simulated.step_time_s(), 6),
               with_decimals(run.mpi.step_time_s(), 6),
               error_text(100 * step_time_error(run)),
               with_decimals(100 * run.simulated.drop_rate(), 2),
               with_decimals(100 * run.mpi.drop_rate(), 2),
               error_text(100 * drop_rate_error(run)),
               decimals(run.simulated.mean_staleness(), 3),
               decimals(run.mpi.mean_staleness(), 3),
               number(run.simulated.final_test_loss),
               number(run.mpi.final_test_loss),
               parameters(run)};
    cells.insert(cells.begin(), label_of(run, with_seed));
    cells.push_back(verdict(run, tolerances).text());
    table.add_row(std::move(cells));
  }
  text += table.markdown();
  if (const auto means = mean_errors(runs); !means.empty())
    text += "\n" + table_of(means, tolerances).markdown() + "\n" + mean_errors_note;
  return text + "\n" + notes(runs, tolerances);
}

bool is_exact(const PairedDifference& found) {
  constexpr double rounding = 1e-9;
  return found.interval && found.interval->high - found.interval->low <= rounding * std::abs(found.mean);
}

std::optional<double> target_horizon_s(std::span<const ResultRow* const> rows) {
  std::vector<TimeToReach> all;
  for (const ResultRow* row : rows) {
    const std::vector<TimeToReach> times = times_to_target(row->runs);
    if (std::ranges::any_of(times, &TimeToReach::is_reached)) all.insert(all.end(), times.begin(), times.end());
  }
  return common_horizon_s(all);
}

std::optional<PairedMeasure> paired_measure(const Measure& measure, const ResultRow& row, const ResultRow& other,
                                            std::optional<double> horizon_s) {
  const Pairs pairs = pairs_of(row, other);
  if (pairs.own.empty()) return {};
  if (measure.name == time_to_target) return paired_times(measure, pairs, horizon_s);
  std::vector<double> own_values, other_values;
  for (std::size_t i = 0; i < pairs.own.size(); ++i) {
    const auto mine = measure.value(*pairs.own[i]), theirs = measure.value(*pairs.other[i]);
    if (!mine || !theirs) return {};
    own_values.push_back(*mine);
    other_values.push_back(*theirs);
  }
  PairedMeasure result{.measure = &measure};
  set_numbers(result, own_values, other_values);
  return result;
}

std::string difference_text(const PairedMeasure& paired) {
  const std::string text = difference_text(paired.difference, paired.measure->shown_times);
  return paired.is_bound ? "> " + text : text;
}

std::vector<PairedRow> paired_rows(std::span<const ResultRow> rows, const std::string& against,
                                   std::span<const Measure* const> measures) {
  const auto is_meant = [&](const ResultRow& row) { return row.method == against || row.label == against; };
  if (std::ranges::none_of(rows, is_meant)) {
    std::set<std::string> known;
    for (const ResultRow& row : rows) known.insert(row.method);
    throw std::invalid_argument(
        fmt::format("\"{}\" is not a method of these runs; {}", against,
                    must_be_one_of(against, std::vector<std::string>(known.begin(), known.end()))));
  }
  std::vector<PairedRow> result;
  for (const ResultRow& row : rows) {
    const ResultRow* other = is_meant(row) ? nullptr : row_to_compare_with(rows, row, against);
    if (!other) continue;
    const bool has_common_seed = !pairs_of(row, *other).own.empty();
    result.push_back({.row = &row, .other = other, .measures = {}, .has_common_seed = has_common_seed});
  }
  if (result.empty())
    throw std::invalid_argument(fmt::format("there is no other method to compare with \"{}\"", against));
  if (std::ranges::none_of(result, &PairedRow::has_common_seed))
    throw std::invalid_argument(fmt::format("no run has a seed in common with a run of \"{}\"", against));
  const bool asks_for_times = std::ranges::find(measures, time_to_target, &Measure::name) != measures.end();
  const auto horizon_of = [&](const ResultRow* other) {
    std::vector<const ResultRow*> compared{other};
    for (const PairedRow& row : result)
      if (row.other == other && row.has_common_seed) compared.push_back(row.row);
    return target_horizon_s(compared);
  };
  std::map<const ResultRow*, std::optional<double>> horizons;
  for (PairedRow& paired : result) {
    if (!paired.has_common_seed) continue;
    const Pairs pairs = pairs_of(*paired.row, *paired.other);
    const auto [horizon_s, is_new] = horizons.try_emplace(paired.other);
    if (is_new && asks_for_times) horizon_s->second = horizon_of(paired.other);
    for (const Measure* measure : measures)
      if (auto found = paired_measure(*measure, *paired.row, *paired.other, horizon_s->second))
        paired.measures.push_back(*found);
    paired.nobody_reached = asks_for_times && none_reached(pairs.own) && none_reached(pairs.other);
    paired.other_missed =
        asks_for_times && !paired.nobody_reached && have_target(pairs.own) && none_reached(pairs.other);
  }
  return result;
}

TextTable paired_table(std::span<const PairedRow> rows) {
  std::vector<const Measure*> shown;
  for (const Measure& measure : measures())
    if (std::ranges::any_of(rows, [&](const PairedRow& row) {
          return std::ranges::find(row.measures, &measure, &PairedMeasure::measure) != row.measures.end();
        }))
      shown.push_back(&measure);
  TextTable table({{"method", Align::left}});
  for (const Measure* measure : shown) {
    const bool is_difference = measure->compared_by == ComparedBy::difference;
    table.add_column(is_difference ? measure->heading : measure->compared_heading, Align::right);
  }
  table.add_column("n", Align::right);
  for (const PairedRow& row : rows) {
    std::vector<std::string> cells{row.row->label};
    for (const Measure* measure : shown) {
      const auto found = std::ranges::find(row.measures, measure, &PairedMeasure::measure);
      cells.push_back(found == row.measures.end() ? "-" : cell_of(*found));
    }
    cells.push_back(row.measures.empty() ? "-" : std::to_string(row.measures.front().difference.n));
    table.add_row(std::move(cells));
  }
  return table;
}

std::string paired_notes(std::span<const PairedRow> rows, const std::string& against) {
  std::string text = fmt::format(
      "Against \"{}\": the mean and the mean difference over common seeds; for S_eff, speed-up and bytes the mean "
      "ratio.\nIn brackets: the 95 % interval (Student's t). *: significant, that is, the interval excludes equality, "
      "and so does\nthe sign-flip test (with 6 to 20 seeds).\n",
      against);
  const auto has_one_seed = [](const PairedRow& row) {
    return !row.measures.empty() && row.measures.front().difference.n < 2;
  };
  if (std::ranges::any_of(rows, has_one_seed)) text += "Rows with one common seed have no interval.\n";
  const auto add_rows = [&](const std::string& what, const auto& concerns) {
    std::string labels;
    for (const PairedRow& row : rows)
      if (concerns(row)) labels += (labels.empty() ? "" : ", ") + row.row->label;
    if (!labels.empty()) text += fmt::format("{}: {}.\n", what, labels);
  };
  add_rows("No difference, because there is no common seed", std::not_fn(&PairedRow::has_common_seed));
  const std::string no_time = "Times to the target are not compared, because no run of ";
  add_rows(no_time + "either method reached it", std::mem_fn(&PairedRow::nobody_reached));
  add_rows(fmt::format("{}\"{}\" reached it", no_time, against), std::mem_fn(&PairedRow::other_missed));
  const auto has_exact = [](const PairedRow& row) {
    return std::ranges::any_of(row.measures, [](const PairedMeasure& measure) {
      return is_exact(measure.difference) || (measure.ratio && is_exact(*measure.ratio));
    });
  };
  if (std::ranges::any_of(rows, has_exact))
    text += "(exact): the difference is the same for every seed, so there is no interval.\n";
  std::set<double> horizons;
  bool has_bound = false;
  for (const PairedRow& row : rows)
    for (const PairedMeasure& measure : row.measures) {
      has_bound |= measure.is_bound;
      if (measure.horizon_s && !measure.is_bound) horizons.insert(*measure.horizon_s);
    }
  if (!horizons.empty()) {
    const std::string until = horizons.size() == 1
                                  ? shown_number(*horizons.begin()) + " s"
                                  : fmt::format("{} to {} s, point by point", shown_number(*horizons.begin()),
                                                shown_number(*horizons.rbegin()));
    text += fmt::format(
        "Times to the target are restricted means: a time that is later than the limit, or unknown, counts as the\n"
        "limit ({}). (k/n): k of n runs reached the target by then.\n",
        until);
  }
  if (has_bound)
    text +=
        "> T (0/n): no run reached the target, and the first of them ended at T. The difference is a lower bound\n"
        "without an interval or a star.\n";
  return text;
}

}  // namespace syncopate
