#include "experiments/execution/final_tables.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "experiments/execution/judged_claims.hpp"
#include "experiments/execution/magnitude_notes.hpp"
#include "experiments/execution/saved_tables.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/output.hpp"
#include "results/rows/summary.hpp"
#include "results/tables/folded_text.hpp"
#include "results/tables/result_table.hpp"
#include "workers/process/exit_status.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

// A directory that cannot be written is worth a word only where there is something new to write.
void leave_tables(const Experiment& experiment, const RunOptions& options, const std::vector<RunSummary>& runs,
                  bool under_mpi, bool are_new) {
  const auto directory = experiment_directory(options.results_directory, experiment.name);
  const std::string fault = save_tables(directory, runs, under_mpi, experiment.notes);
  if (!fault.empty() && are_new)
    standard_error.write(fmt::format("warning: the table is not saved: {}\n", printable_lines(fault)));
}

}  // namespace

int print_final_tables(const Experiment& experiment, const RunOptions& options, const RunsSoFar& made, bool under_mpi) {
  std::vector<RunSummary> runs;
  for (const auto& summary : made.summaries()) {
    if (summary) runs.push_back(*summary);
  }
  const std::string failures = failure_table(runs, options.table_width);
  if (options.tables) {
    const std::string results = result_table(runs, under_mpi ? "wall" : "virtual", options.table_width);
    const std::string magnitudes = under_mpi ? "" : magnitude_notes(experiment.runs, made.summaries());
    if (!results.empty())
      standard_output.write(
          "\n" + results +
          fold_lines(overrun_warnings(runs) + printable_lines(magnitudes + experiment.notes), options.table_width));
    leave_tables(experiment, options, runs, under_mpi, made.number_to_do() > 0);
    if (!failures.empty())
      standard_output.write(fmt::format("\nRuns that did not finish; they are repeated next time:\n\n{}", failures));
    if (!under_mpi)
      if (const std::string claims = judge_claims(experiment, options.results_directory, options.table_width);
          !claims.empty())
        standard_output.write("\n" + printable_lines(claims));
  }
  return failures.empty() ? exit_success : exit_failure;
}

}  // namespace syncopate
