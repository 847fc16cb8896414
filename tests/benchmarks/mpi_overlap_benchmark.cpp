// How much communication overlapping hides under MPI, without a model:
//   mpirun -n 2 bin/mpi_overlap_benchmark [megabytes]
// The default size is one whose blocking sum takes 0.8 of a step's computing. Bar: with sleeping micro-batches, an
// overlapped step takes at most 5 % longer than its computing or its blocking sum, whichever is longer. Steps have four
// micro-batches. In one case a step's sum ends before the next step begins; in the other case the sum is under way
// while the next step is computed. Micro-batches sleep or spin. Like arithmetic, spinning lets MPI progress only
// between micro-batches.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace {

using namespace syncopate;

constexpr int steps = 50, micro_batches = 4;  // the last sum overlaps with nothing
constexpr double micro_batch_s = 0.02;

Place here(SourceLine at = SourceLine::current()) { return {"benchmark", at}; }

struct Measured {
  double step_s = 0;
  double communicate_s = 0;  // per step, on worker 0
  double wait_s = 0;
};

class Steps {
 public:
  Steps(const MpiSession& session, Bytes payload) : session_(session) { training_.set_parameter_bytes(payload); }

  Measured run(bool overlaps, bool spins) {
    const ComputeTime compute_time(1, spins ? 1e-9 : micro_batch_s, {}, {});
    const auto made = make_mpi_cluster(
        {.workers = session_.size(), .compute_time = compute_time, .training = training_, .session = session_});
    Cluster& cluster = *made;
    const RunTotals totals = cluster.run(
        [&](Rank self) {
          std::optional<StartedCollective> before;
          for (int s = 0; s < steps; ++s) {
            for (int m = 0; m < micro_batches; ++m) {
              cluster.compute_gradient(self, nullptr, {self, s, m}, {self, s, m}, {});
              const std::int64_t end = monotonic_ns() + (spins ? static_cast<std::int64_t>(1e9 * micro_batch_s) : 0);
              while (monotonic_ns() < end) continue;
            }
            if (before) cluster.finish(self, std::move(*before), here());
            before.reset();
            if (overlaps)
              before.emplace(cluster.start(self, Collective::all_reduce({}), {}, here()));
            else
              cluster.perform(self, Collective::all_reduce({}), {}, here());
          }
          if (before) cluster.finish(self, std::move(*before), here());
        },
        nullptr);
    const Account& account = totals.accounts.front();
    return {.step_s = to_seconds(totals.end - start_time) / steps,
            .communicate_s = to_seconds(account[Activity::communicate]) / steps,
            .wait_s = to_seconds(account[Activity::wait]) / steps};
  }

 private:
  const MpiSession& session_;
  Executor executor_{0};
  Training training_{nullptr, nullptr, {}, executor_};
};

}  // namespace

int main(int argc, char** argv) {
  constexpr double computing_s = micro_batches * micro_batch_s, share = 0.8, first_megabytes = 150;
  const MpiSession session;
  const auto with = [&](double megabytes) {
    return std::make_unique<Steps>(session, Bytes{static_cast<Bytes::Rep>(1e6 * megabytes)});
  };
  double megabytes = argc > 1 ? std::atof(argv[1]) : 0;
  if (megabytes == 0) {
    const auto first = with(first_megabytes);
    first->run(false, false);  // allocates memory
    megabytes = first_megabytes * share * computing_s / (first->run(false, false).step_s - computing_s);
    MPI_Bcast(&megabytes, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  const auto measured = with(megabytes);
  measured->run(false, false);
  if (session.rank() == 0) std::printf("%.0f MB\n", megabytes);
  for (int repeat = 0; repeat < 3; ++repeat)
    for (const bool spins : {false, true}) {
      double blocking_s = 0;
      for (const bool overlaps : {false, true}) {
        const Measured result = measured->run(overlaps, spins);
        if (!overlaps) blocking_s = result.step_s;
        if (session.rank() > 0) continue;
        std::printf("%s, %s: %.1f ms per step, of which %.1f ms communicate and %.1f ms wait", spins ? "spun" : "slept",
                    overlaps ? "overlapped" : "blocking  ", 1e3 * result.step_s, 1e3 * result.communicate_s,
                    1e3 * result.wait_s);
        if (overlaps)
          std::printf("; %.3f of the longer of both", result.step_s / std::max(computing_s, blocking_s - computing_s));
        std::printf("\n");
      }
    }
}
