// Comparisons paired by seed: the simulation with MPI, and all methods with one method.
#pragma once

#include "results/found_runs.hpp"
#include "results/text_table.hpp"

namespace syncopate {

// A run on the simulated cluster, and the same run under MPI.
struct ComparedRun {
  RunSummary simulated;  // also names the run
  RunSummary mpi;
  std::string failure{};  // the cluster that failed, and why; empty if both runs can be compared
  // ||a - b|| / ||b|| for the parameters of the last models, a of the simulation and b of MPI; none without a model.
  std::optional<double> parameter_error{};
  // Whether the computation depends on the order of arrivals. If it does, the two runs may end with different models
  // although both clusters are correct.
  bool depends_on_clock = false;
  // The declared cluster.micro_batch_s if pace = "inject", because real arithmetic takes its place under MPI. None if
  // it was measured, or if micro-batches are stretched to their drawn durations (pace = "emulate").
  std::optional<double> replaced_micro_batch_s{};
};

struct Tolerances {
  double step_time = 0.03;  // relative
  double drop_rate = 0.01;  // absolute
};

// (simulated - MPI) / MPI; 0 if both are 0, infinite if only the value under MPI is 0.
double relative_error(double simulated, double mpi);
double step_time_error(const ComparedRun& run);
double drop_rate_error(const ComparedRun& run);  // simulated - MPI

// Whether a run failed, and which errors exceed their tolerances.
struct Agreement {
  bool failed = false;
  bool step_time_is_off = false;
  bool drop_rate_is_off = false;

  bool is_within() const { return !failed && !step_time_is_off && !drop_rate_is_off; }
  std::string text() const;  // "within", "failed", or the errors: "step time, drop rate"
};
Agreement verdict(const ComparedRun& run, const Tolerances& tolerances);
// Whether all rows are within the tolerances. A row with several seeds is judged by its mean errors.
bool all_within(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// The machine on which runs were compared, and its load at the start.
struct ComparisonMachine {
  std::string processor;
  int cores = 1;
  double load = 0;  // mean number of ready processes over the previous minute
};

// Notes on keys to set. pace_note: for runs whose micro-batches take different times on the two clusters. network_note:
// for runs whose communication under MPI takes another time than the declared [network]. Empty without such runs.
std::string pace_note(std::span<const ComparedRun> runs, const Tolerances& tolerances);
std::string network_note(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// Three rows per run (simulated, MPI, error), with failed runs and notes below them.
std::string comparison_table(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// The text of compare.json.
std::string comparison_json(const std::string& experiment, std::span<const ComparedRun> runs,
                            const Tolerances& tolerances, const ComparisonMachine& machine);

std::string comparison_markdown(const std::string& experiment, const std::string& file,
                                std::span<const ComparedRun> runs, const Tolerances& tolerances,
                                const ComparisonMachine& machine);

// A measure of a row and of another row, over their common seeds.
struct PairedMeasure {
  const Measure* measure = nullptr;
  Statistics own{};
  Statistics other{};
  PairedDifference difference{};            // own - other
  std::optional<PairedDifference> ratio{};  // as in Measure::compared_by, minus 1; none unless all numbers are above 0
  // For times to a target: the horizon, and how many of the row's runs reached the target by the horizon.
  std::optional<double> horizon_s{};
  std::size_t reached = 0;
  // Whether no run of the row reached the target. `own` is then the earliest end of its runs, and `difference` is a
  // lower bound without an interval or p.
  bool is_bound = false;
};

// Common horizon of rows whose times to a target are compared (common_horizon_s). Ignores rows that never reached the
// target; nullopt if all rows are of this kind.
std::optional<double> target_horizon_s(std::span<const ResultRow* const> rows);

// nullopt if there are no common seeds, or a run lacks the measure, or for times to a target if no run of `other`
// reached it. `horizon_s`: horizon of times to a target, the same for all rows of a table.
std::optional<PairedMeasure> paired_measure(const Measure& measure, const ResultRow& row, const ResultRow& other,
                                            std::optional<double> horizon_s);

struct PairedRow {
  const ResultRow* row = nullptr;
  const ResultRow* other = nullptr;
  std::vector<PairedMeasure> measures;  // the requested measures that both rows have
  bool has_common_seed = true;          // false: there are no measures
  // Whether no run of either row, or no run of `other`, reached the target. Then `measures` lacks the time to target.
  bool nobody_reached = false, other_missed = false;
};

// Compares every row of another method with the row of the method `against` at the same point, if there is one. A row
// without a common seed gets no measures. Rows compared with the same row share a horizon.
// Throws std::invalid_argument if `against` has no row or several that match, or no row has a common seed.
std::vector<PairedRow> paired_rows(std::span<const ResultRow> rows, const std::string& against,
                                   std::span<const Measure* const> measures);

// Whether the difference is equal for all seeds up to rounding. Student's t does not apply to it.
bool is_exact(const PairedDifference& found);

// A cell contains the row's mean, and the mean difference with its 95 % interval. * marks a significant difference;
// "(exact)" replaces the interval if is_exact. For measures compared by ratios (S_eff, speed-up, bytes) a cell contains
// only the mean ratio with its interval.
TextTable paired_table(std::span<const PairedRow> rows);

// The difference in the displayed unit: "+0.10 [+0.02, +0.18]*" with * if it is significant, "+0.10 (exact)" or, for a
// lower bound, "> +0.10".
std::string difference_text(const PairedMeasure& paired);

// Explains the table's marks, and names the rows and measures that the table leaves out.
std::string paired_notes(std::span<const PairedRow> rows, const std::string& against);

}  // namespace syncopate
