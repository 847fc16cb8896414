#include "experiments/execution/chosen_machinery.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "experiments/execution/participants.hpp"
#include "results/formats/output.hpp"
#include "workers/mpi/mpi_process_group.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/process/exit_status.hpp"

namespace syncopate {

std::string why_not_under_mpi(const Experiment& experiment) {
  const bool has_pauses =
      std::ranges::any_of(experiment.runs, [](const Run& run) { return run.cluster.pauses != nullptr; });
  if (has_pauses) return "delays that are sleeps, and cluster.trailing_s, are for the simulated cluster alone";
  const bool overlaps =
      std::ranges::any_of(experiment.runs, [](const Run& run) { return run.cluster.network->overlap().has_value(); });
  if (overlaps)
    return "network.overlap is for the simulated cluster alone: under MPI a gradient is exchanged once it is whole";
  const bool measures_workers = std::ranges::any_of(experiment.runs, [](const Run& run) {
    return run.measurements.step_gradient_norm || run.measurements.consensus_distance;
  });
  if (measures_workers)
    return "measurements.step_gradient_norm and measurements.consensus_distance are for the simulated cluster alone";
  return {};
}

namespace {

using Make = std::function<int(const Machinery&)>;

// Empty if the experiment can run under MPI, and the ranks that mpirun started are those that it needs.
std::string wrong_for_mpi(const Experiment& experiment, const MpiSession& session) {
  if (std::string why = why_not_under_mpi(experiment); !why.empty()) return why;
  const auto [workers, servers] = participants(experiment);
  return wrong_number_of_ranks(session.size(), workers, servers);
}

// Processes of one machine divide its cores, if a launcher has not.
int threads_of(const RunOptions& options, int processes_here) {
  if (options.threads > 0) return options.threads;
  const int allowed = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int all = std::max(allowed, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return std::max(1, std::min(allowed, all / processes_here));
}

int on_simulated_cluster(const RunOptions& options, const MpiSession* session, const Make& make) {
  Machinery machinery{.threads = threads_of(options, 1), .call = options.sharing ? options.sharing->call : ""};
  const bool divides = session && session->size() > 1 && !options.sharing;
  if (!divides) return make(machinery);
  if (const std::string wrong = why_not_divided(*session); !wrong.empty()) {
    if (session->rank() == 0) standard_error.write(wrong + "\n");
    return exit_usage;
  }
  session->expect_to_stay();
  MpiProcessGroup processes(*session);
  machinery.threads = threads_of(options, session->ranks_on_node());
  machinery.processes = &processes;
  machinery.divided_by = session;
  return make(machinery);
}

int on_mpi_cluster(const Experiment& experiment, const RunOptions& options, const MpiSession& session,
                   const Make& make) {
  if (!session.active()) {
    standard_error.write("the MPI cluster needs a launcher: start the program with mpirun or srun\n");
    return exit_usage;
  }
  if (const std::string wrong = wrong_for_mpi(experiment, session); !wrong.empty()) {
    if (session.rank() == 0) standard_error.write(wrong + "\n");
    return exit_usage;
  }
  session.expect_to_stay();
  constexpr int alone = 1;
  return make({.threads = threads_of(options, alone), .mpi = &session});
}

}  // namespace

int on_chosen_machinery(const Experiment& experiment, const RunOptions& options, const Make& make) {
  const MpiSession* const mpi = options.mpi;
  const bool wants_mpi = options.cluster == ClusterChoice::mpi ||
                         (options.cluster == ClusterChoice::automatic && (mpi ? mpi->active() : launched_by_mpi()));
  if (!wants_mpi) return on_simulated_cluster(options, mpi && mpi->active() ? mpi : nullptr, make);
  if (mpi) return on_mpi_cluster(experiment, options, *mpi, make);
  const MpiSession own_session;
  return on_mpi_cluster(experiment, options, own_session, make);
}

}  // namespace syncopate
