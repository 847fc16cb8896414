// First phases that runs have in common: each is computed once, as a run of its own in the results directory, and found
// there by the next start.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/runner.hpp"
#include "results/directory/runs_elsewhere.hpp"
#include "results/run/run.hpp"
#include "results/tables/progress.hpp"
#include "workers/training/starting_point.hpp"

namespace syncopate {

class CommonPhases {
 public:
  struct Phase {
    std::shared_ptr<const StartingPoint> end{};
    std::string failure{};  // empty: it is finished
  };

  // The arguments outlive it.
  CommonPhases(const RunOptions& options, const Machinery& machinery, RunsElsewhere& elsewhere)
      : options_(options), machinery_(machinery), elsewhere_(elsewhere) {}

  // Its end, for which it is run if it has not been, here or by another experiment; with --rerun once more:
  // `before_run` is the number of the run that needs it, for the progress. Under MPI all ranks call it, and all get the
  // same. Throws Interrupted.
  const Phase& phase(const Run& run, std::size_t before_run, Progress& progress);

  // For processes that share runs, step by step. What is known of it, or, if it may be looked for, found in its
  // directory; null: it is to be made.
  const Phase* find(const Run& run, bool may_be_there);
  // Copies it from another experiment, or runs it. `publish`: false where another process has done so; then, and where
  // it has failed, there is no end.
  using Publish = std::function<bool(const FileContents&)>;
  Phase make(const Run& run, std::size_t before_run, Progress& progress, const Publish& publish) const;
  // From now on it is known to have failed.
  const Phase& fail(const Run& run, const std::string& reason);

 private:
  bool is_rank_0() const { return !machinery_.together() || machinery_.together()->rank() == 0; }
  Phase found(const std::filesystem::path& directory, const Run& run) const;
  Phase found_elsewhere(const std::filesystem::path& directory, const Run& run, const Publish& publish) const;
  Phase made(const Run& run, std::size_t before_run, Progress& progress, const Publish& publish) const;
  Phase shared(Phase phase) const;

  const RunOptions& options_;
  const Machinery& machinery_;
  RunsElsewhere& elsewhere_;
  std::map<std::string, Phase> known_;  // by hash
};

// The run begins where the phase has ended.
void start_at(Run& run, const CommonPhases::Phase& phase);

}  // namespace syncopate
