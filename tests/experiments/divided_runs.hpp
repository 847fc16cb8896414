// Runs that several processes divide, as threads of this one.
#pragma once

#include <mutex>
#include <vector>

#include "experiments/execution/checkpointing.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/threads_as_processes.hpp"

namespace syncopate {

// What each of them comes to. `use`: of checkpoints, called by all of them.
inline std::vector<Outcome> divided_outcomes(const syncopate::Run& run, int processes, int threads = 1,
                                             std::size_t* moved_floats = nullptr, const CheckpointUse* use = nullptr) {
  if (run.training.make_objective) run.training.make_objective();  // reads data, once
  ThreadsAsProcesses all(processes);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(processes));
  all.run([&](ProcessGroup& group) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    outcomes[static_cast<std::size_t>(group.self())] = execute(
        run, {.threads = threads, .processes = &group}, progress, [](const Outcome&) {}, use);
  });
  if (moved_floats) *moved_floats = all.moved_floats();
  return outcomes;
}

}  // namespace syncopate
