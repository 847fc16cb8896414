// Methods against one of them, paired by seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/result_rows.hpp"
#include "results/statistics.hpp"
#include "results/summary.hpp"
#include "results/text_table.hpp"

namespace syncopate {

// The same runs on the simulated cluster and under MPI, side by side: what the simulation promises, what the wall
// clock shows, and the error of the first measured by the second.
struct ComparedRun {
  RunSummary simulated;  // also names the run
  RunSummary mpi;
  std::string failure{};  // why there is nothing to compare: which cluster, and its reason; empty if there is
  // ||a - b|| / ||b|| of the last models' parameters, b being MPI's; none without a model.
  std::optional<double> parameter_error{};
  // What is computed depends on who comes first, so that the models differ although both clusters are right.
  bool depends_on_clock = false;
  // What cluster.micro_batch_s declares, where pace = "inject" puts real arithmetic in its place under MPI; none where
  // that was measured, or micro-batches are stretched to what was drawn.
  std::optional<double> replaced_micro_batch_s{};
};

struct Tolerances {
  double step_time = 0.03;  // relative
  double drop_rate = 0.01;  // absolute
};

// (simulated - MPI) / MPI; 0 where both are 0, infinite where only MPI's is.
double relative_error(double simulated, double mpi);
double step_time_error(const ComparedRun& run);
double drop_rate_error(const ComparedRun& run);  // simulated - MPI

// Which errors are beyond their tolerances.
struct Agreement {
  bool failed = false;
  bool step_time_is_off = false;
  bool drop_rate_is_off = false;

  bool is_within() const { return !failed && !step_time_is_off && !drop_rate_is_off; }
  std::string text() const;  // "within", "failed", or what is off: "step time, drop rate"
};
Agreement verdict(const ComparedRun& run, const Tolerances& tolerances);
bool all_within(std::span<const ComparedRun> runs, const Tolerances& tolerances);  // rows of several seeds by means

// Where, and how busy the machine was when it began.
struct ComparisonMachine {
  std::string processor;
  int cores = 1;
  double load = 0;  // mean number of processes that were ready to run, over the minute before
};

// A note where runs differ because micro-batches take different times on the two clusters, with the keys to set. Empty
// where there is no such run.
std::string pace_note(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// A note where runs differ because the declared [network] does not cost what communication costs MPI's ranks: both
// costs of the run that differs most, and what to set. Empty where there is no such run.
std::string network_note(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// Three rows per run (simulated, MPI, error); below them the runs that failed, and notes.
std::string comparison_table(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// compare.json.
std::string comparison_json(const std::string& experiment, std::span<const ComparedRun> runs,
                            const Tolerances& tolerances, const ComparisonMachine& machine);

// The same for readers: one row per run.
std::string comparison_markdown(const std::string& experiment, const std::string& file,
                                std::span<const ComparedRun> runs, const Tolerances& tolerances,
                                const ComparisonMachine& machine);

// One number of a row beside the same of the row that it is compared with, over the seeds that both have.
struct PairedMeasure {
  const Measure* measure = nullptr;
  Statistics own{};
  Statistics other{};
  PairedDifference difference{};            // own - other
  std::optional<PairedDifference> ratio{};  // less 1: as the measure is compared; where all numbers are above 0
  // Of times to a target: up to when they count (TargetHorizon), and how many of the row's runs reached it by then.
  std::optional<double> horizon_s{};
  std::size_t reached = 0;
  // Of times to a target that no run of the row reached: `own` is when the first of them ended, and the difference the
  // least that it can be, without an interval or p.
  bool is_bound = false;
};

// Up to when times to a target count that are compared with one another: the earliest end of a run that missed it, or
// else the latest time at which one reached it. Rows of which no run reached it have no time, and no part in this. None
// where all rows are such.
std::optional<double> target_horizon_s(std::span<const ResultRow* const> rows);

// Over the seeds that both rows have; nothing where there are none, or a run lacks the measure. `horizon_s`: of times
// to a target; one for all rows that a table compares. Such times are nothing where no run of `other` reached it.
std::optional<PairedMeasure> paired_measure(const Measure& measure, const ResultRow& row, const ResultRow& other,
                                            std::optional<double> horizon_s);

struct PairedRow {
  const ResultRow* row = nullptr;
  const ResultRow* other = nullptr;
  std::vector<PairedMeasure> measures;  // those that both have, of those that are asked for
  bool has_common_seed = true;          // otherwise no measure
  // Of the target, to which times are asked for: no run of either side, or of the other, reached it; they are no
  // measure then.
  bool nobody_reached = false, other_missed = false;
};

// Every row but those of `against` itself. Rows for which there is none to compare with are left out; those without a
// common seed are there without a measure. Rows that are compared with the same other have one horizon. Throws
// std::invalid_argument: no such method, several rows are meant, no row has a seed in common with its other.
std::vector<PairedRow> paired_rows(std::span<const ResultRow> rows, const std::string& against,
                                   std::span<const Measure* const> measures);

// Whether the difference is the same for every seed, but for rounding: Student's t has nothing to say of it.
bool is_exact(const PairedDifference& found);

// Own means, and the mean difference with its 95 % interval; * where it is significant, (exact) where it is so. What is
// compared by ratios (S_eff, speed-up, bytes) has the mean ratio alone, with its interval.
TextTable paired_table(std::span<const PairedRow> rows);

// "+0.10 [+0.02, +0.18]*", as the measure is shown; * where it is significant. "+0.10 (exact)". "> +0.10" of a bound.
std::string difference_text(const PairedMeasure& paired);

// What the table's marks mean, and what was left out.
std::string paired_notes(std::span<const PairedRow> rows, const std::string& against);

}  // namespace syncopate
