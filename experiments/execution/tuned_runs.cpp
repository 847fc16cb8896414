#include "experiments/execution/tuned_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "experiments/execution/mpi_exchange.hpp"
#include "experiments/execution/tuner.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/directory/run_files.hpp"
#include "results/directory/tuning_json.hpp"
#include "results/formats/output.hpp"
#include "results/run/run_label.hpp"
#include "results/tables/tuning_lines.hpp"
#include "workers/files/own_file.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/process/exit_status.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

std::set<std::size_t> groups_of(const Experiment& experiment) {
  std::set<std::size_t> groups;
  for (const Run& run : experiment.runs) groups.insert(experiment.tuning->group_of_run.at(run.hash));
  return groups;
}

// Of all runs of the file those that the experiment has: --only leaves others out.
void keep_wanted(std::vector<Run>& runs, const Experiment& experiment) {
  const auto identity = [](const Run& run) { return std::tuple(run.method_index, run.sweep, run.seed); };
  std::set<decltype(identity(runs.front()))> wanted;
  for (const Run& run : experiment.runs) wanted.insert(identity(run));
  std::erase_if(runs, [&](const Run& run) { return !wanted.contains(identity(run)); });
}

class TunedExperiment {
 public:
  TunedExperiment(const Experiment& experiment, const RunOptions& options, const Machinery& machinery,
                  const MakeRuns& make)
      : experiment_(experiment),
        options_(options),
        machinery_(machinery),
        make_(make),
        tuner_(experiment.tuning, groups_of(experiment)) {}

  int run() {
    if (const int status = make_trials(); status != exit_success) return status;
    const bool all_are_tuned = report_untuned();
    const Tuning tuning = results();
    if (speaks()) replace_file(directory() / tuning_file(machinery_.mpi != nullptr), to_json(tuning));
    const Experiment tuned = with_best_settings(tuning_lines(tuning));
    if (tuned.runs.empty()) return exit_failure;
    const int status = make_(tuned, options_, {}).status;
    return status == exit_success && !all_are_tuned ? exit_failure : status;
  }

 private:
  bool speaks() const {
    const MpiSession* const all = machinery_.together();
    return (!all || all->rank() == 0) && (!options_.sharing || options_.sharing->speaks);
  }
  std::filesystem::path directory() const { return experiment_directory(options_.results_directory, experiment_.name); }

  // Until no grid grows. Trials that fail count; anything else that ends them ends all.
  int make_trials() {
    RunOptions options = options_;
    options.tables = false;
    do {
      const std::vector<Tuner::Trial> trials = tuner_.open();
      Experiment part;
      part.name = experiment_.name;
      part.file = experiment_.file;
      for (const Tuner::Trial& trial : trials) part.runs.push_back(trial.run);
      const RunsMade made = make_(part, options, experiment_.runs);
      if (made.status != exit_success && made.status != exit_failure) return made.status;
      for (std::size_t i = 0; i < trials.size(); ++i) take(trials[i], made.summaries[i]);
    } while (tuner_.extend());
    return exit_success;
  }

  // What rank 0 has found.
  std::optional<double> on_all_ranks(std::optional<double> number) const {
    const MpiSession* const all = machinery_.together();
    if (!all) return number;
    const double found = from_rank_0(*all, number.value_or(std::numeric_limits<double>::quiet_NaN()));
    return std::isnan(found) ? std::nullopt : std::optional(found);
  }

  void take(const Tuner::Trial& trial, const std::optional<RunSummary>& summary) {
    TrialValue value = summary ? value_of_trial(*summary, experiment_.tuning->measure) : TrialValue{};
    for (std::optional<double>* const number : {&value.value, &value.missed_by}) *number = on_all_ranks(*number);
    const std::string status = summary ? to_string(summary->status) : "";
    if (summary && !value.value) reasons_.emplace(trial.group, summary->reason.empty() ? status : summary->reason);
    tuner_.take(trial, status, value);
  }

  bool report_untuned() {
    const auto chosen = tuner_.chosen();
    bool all = true;
    for (const std::size_t group : groups_of(experiment_)) {
      if (chosen.contains(group)) continue;
      all = false;
      const TuningGroup& of = experiment_.tuning->groups[group];
      if (speaks())
        standard_error.write(printable_lines(
            fmt::format("{}: not tuned, and not run: of no setting have all trials a {}; the first that has none: {}\n",
                        run_label(of.method, of.point), experiment_.tuning->measure, reasons_[group])));
    }
    return all;
  }

  // What is kept of methods that --only leaves out stays.
  Tuning results() const {
    const TuningPlan& plan = *experiment_.tuning;
    Tuning tuning{.experiment = experiment_.name, .measure = plan.measure, .seeds = plan.seeds, .where = plan.where};
    const auto text = read_file(directory() / tuning_file(machinery_.mpi != nullptr));
    const std::optional<Tuning> before = text ? tuning_from_json(*text) : std::nullopt;
    std::vector<TunedMethod> known = tuner_.results();
    if (before && before->measure == tuning.measure && before->seeds == tuning.seeds && before->where == tuning.where)
      known.insert(known.end(), before->methods.begin(), before->methods.end());
    for (const TuningGroup& group : plan.groups) {
      const auto found = std::ranges::find_if(known, [&group](const TunedMethod& method) {
        return method.method == group.method && method.point == group.point;
      });
      if (found != known.end()) tuning.methods.push_back(*found);
    }
    return tuning;
  }

  Experiment with_best_settings(std::string notes) const {
    Experiment tuned = experiment_;
    tuned.tuning = nullptr;
    tuned.notes = std::move(notes);
    if (groups_of(experiment_).size() < experiment_.tuning->groups.size() && tuned.differs.empty())
      tuned.differs = "for some of its methods alone";
    tuned.runs = experiment_.tuning->runs(tuner_.chosen());
    tuned.hashes.clear();
    for (const Run& run : tuned.runs) tuned.hashes.push_back(run.hash);
    keep_wanted(tuned.runs, experiment_);
    return tuned;
  }

  const Experiment& experiment_;
  const RunOptions& options_;
  const Machinery& machinery_;
  const MakeRuns& make_;
  Tuner tuner_;
  std::map<std::size_t, std::string> reasons_;  // why a trial has no value; the first of each group
};

}  // namespace

int run_tuned(const Experiment& experiment, const RunOptions& options, const Machinery& machinery,
              const MakeRuns& make) {
  return TunedExperiment(experiment, options, machinery, make).run();
}

namespace {

// However it ended; nothing of files that are damaged or cannot be read.
std::optional<RunSummary> ended_in(const std::filesystem::path& directory, const Run& run) {
  try {
    return damage_of(directory).empty() ? summary_of(directory, run) : std::nullopt;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

TuningSoFar tuning_so_far(const Experiment& experiment, const std::string& results_directory) {
  Tuner tuner(experiment.tuning, groups_of(experiment));
  TuningSoFar so_far;
  bool have_all_ended = true;
  do {
    for (const Tuner::Trial& trial : tuner.open()) {
      so_far.trials.push_back(trial.run);
      const auto summary = ended_in(run_directory(results_directory, trial.run, false), trial.run);
      have_all_ended = have_all_ended && summary;
      if (summary) tuner.take(trial, to_string(summary->status), value_of_trial(*summary, experiment.tuning->measure));
    }
  } while (have_all_ended && tuner.extend());
  if (!have_all_ended) return so_far;
  so_far.runs = experiment.tuning->runs(tuner.chosen());
  keep_wanted(*so_far.runs, experiment);
  return so_far;
}

std::vector<Run> first_trials(const Experiment& experiment) {
  std::vector<Run> runs;
  for (Tuner::Trial& trial : Tuner(experiment.tuning, groups_of(experiment)).open())
    runs.push_back(std::move(trial.run));
  return runs;
}

}  // namespace syncopate
