#include "results/tables/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "results/formats/build_info.hpp"
#include "results/formats/host.hpp"
#include "results/formats/json.hpp"
#include "results/formats/optional_json.hpp"
#include "results/tables/mean_errors.hpp"
#include "results/tables/result_table.hpp"
#include "results/tables/text_table.hpp"
#include "workers/process/printable.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

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

// Those of models that depend on who comes first stand in brackets.
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
  std::string label = row_label(run.simulated);
  if (with_seed) label += fmt::format(", seed {}", run.simulated.seed);
  return label;
}

// Of an absolute error.
std::string largest_text(double error) { return error_text(error).substr(1); }

// By how much communication alone moves the time per step, relative to MPI's; none where it is not known.
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
    text += "No run reached the target, neither simulated nor under MPI: times to it are not compared.\n";
  if (std::ranges::any_of(runs, [](const auto& run) { return run.depends_on_clock && run.parameter_error; }))
    text +=
        "Parameters in brackets: what the method computes depends on who comes first, so that two runs differ "
        "rightly.\n";
  return text;
}

// The worst that there is, over the runs that can be compared.
double largest(std::span<const ComparedRun> runs, double (*error)(const ComparedRun&)) {
  double worst = 0;
  for (const ComparedRun& run : runs)
    if (run.failure.empty()) worst = std::max(worst, std::abs(error(run)));
  return worst;
}

Json json_of(const RunSummary& run) {
  return {{"step_time_s", run.step_time_s()},
          {"drop_rate", run.drop_rate()},
          {"mean_staleness", or_null(run.mean_staleness())},
          {"time_to_target_s", or_null(seconds_to_target(run))},
          {"end_time_s", run.end_time_s},
          {"steps", run.steps},
          {"final_test_loss", or_null(run.final_test_loss)},
          {"overruns", run.overruns},
          {"emulated_micro_batches", run.emulated_micro_batches},
          {"communication_s", or_null(run.communication_s())},
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
  json["parameter_error"] = or_null(run.parameter_error);
  json["depends_on_clock"] = run.depends_on_clock;
  json["replaced_micro_batch_s"] = or_null(run.replaced_micro_batch_s);
  json["simulated"] = json_of(run.simulated);
  json["mpi"] = json_of(run.mpi);
  return json;
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

Verdict verdict(const ComparedRun& run, const Tolerances& tolerances) {
  if (!run.failure.empty()) return {.failed = true};
  return {.step_time_is_off = !(std::abs(step_time_error(run)) <= tolerances.step_time),
          .drop_rate_is_off = !(std::abs(drop_rate_error(run)) <= tolerances.drop_rate)};
}

std::string Verdict::text() const {
  if (failed) return "failed";
  if (step_time_is_off) return drop_rate_is_off ? "step time, drop rate" : "step time";
  return drop_rate_is_off ? "drop rate" : "within";
}

bool all_within(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  const auto means = mean_errors(runs);
  return std::ranges::all_of(runs, [&](const ComparedRun& run) {
    const auto mean = std::ranges::find(means, row_label(run.simulated), &MeanError::label);
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
      "With cluster.pace = \"inject\" a micro-batch takes under MPI what its arithmetic takes; the simulation alone "
      "goes by\nthe declared cluster.micro_batch_s{}. Set cluster.pace = \"emulate\", so that MPI sleeps up to it, or\n"
      "cluster.micro_batch_s = \"measured\", so that what the arithmetic takes is simulated.\n",
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
      simulated_s > 0 ? "Set network.kind = \"free\" to compare\nall but communication, or declare" : "Declare";
  return fmt::format(
      "MPI's ranks do not have the declared [network], by which only the simulation goes:\n{} communicates for {} s "
      "per step simulated, for {} s under MPI. {} in [network] the latency and bandwidth that the ranks have.\n",
      printable(label_of(*most, several_seeds(runs))), shown_number(simulated_s),
      shown_number(*most->mpi.communication_s()), advice);
}

std::string comparison_table(std::span<const ComparedRun> runs, const Tolerances& tolerances) {
  TextTable table;
  table.add_column("method", Align::left);
  table.add_column("", Align::left);
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
  if (const auto means = mean_errors(runs); !means.empty()) text += "\n" + mean_errors_text(means, tolerances);
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
      "load {:.1f} when it began.\nErrors are those of the simulation, relative to MPI (drop rates: in percentage "
      "points). Bars: {:.3g} % and {:.3g} points.\n\n",
      experiment, file, build_info().commit, iso_time(std::chrono::system_clock::now()), machine.cores,
      machine.processor, machine.load, 100 * tolerances.step_time, 100 * tolerances.drop_rate);
  text +=
      "| method | s/step simulated | MPI | error % | dropped % simulated | MPI | error | staleness simulated | MPI | "
      "test loss simulated | MPI | parameters | verdict |\n|---|" +
      std::string("---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n");
  const bool with_seed = several_seeds(runs);
  for (const ComparedRun& run : runs) {
    const std::string label = label_of(run, with_seed);
    if (!run.failure.empty()) {
      text += fmt::format("| {} | - | - | - | - | - | - | - | - | - | - | - | failed |\n", label);
      continue;
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", label,
                        with_decimals(run.simulated.step_time_s(), 6), with_decimals(run.mpi.step_time_s(), 6),
                        error_text(100 * step_time_error(run)), with_decimals(100 * run.simulated.drop_rate(), 2),
                        with_decimals(100 * run.mpi.drop_rate(), 2), error_text(100 * drop_rate_error(run)),
                        decimals(run.simulated.mean_staleness(), 3), decimals(run.mpi.mean_staleness(), 3),
                        number(run.simulated.final_test_loss), number(run.mpi.final_test_loss), parameters(run),
                        verdict(run, tolerances).text());
  }
  if (const auto means = mean_errors(runs); !means.empty()) text += "\n" + mean_errors_markdown(means, tolerances);
  return text + "\n" + notes(runs, tolerances);
}

}  // namespace syncopate
