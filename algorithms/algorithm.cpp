#include "algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "algorithms/backup_workers.hpp"
#include "algorithms/drop_compute.hpp"
#include "algorithms/local_sgd.hpp"
#include "algorithms/sync_sgd.hpp"

namespace syncopate {

void Algorithm::serve(Server&) const { throw std::logic_error("this algorithm has no server"); }

std::span<const AlgorithmRow> algorithms() {
  static constexpr AlgorithmRow rows[] = {
      {"sync-sgd", "Synchronous SGD: all gradients are averaged at every step; the slowest worker sets the pace.",
       "Chen et al. 2016 (b = 0)", make_sync_sgd},
      {"dropcompute", "Synchronous SGD in which each worker stops accumulating micro-batches after a threshold.",
       "Giladi et al. 2023, Algorithm 1", make_drop_compute},
      {"backup-workers", "Synchronous SGD with a server that takes the first N of N + b gradients and drops the late.",
       "Chen et al. 2016, Algorithms 3 and 4", make_backup_workers},
      {"local-sgd", "Local steps with the models averaged every H steps: constant, post-local, power rules (QSR).",
       "Lin et al. 2020; Gu et al. 2024", make_local_sgd},
  };
  return rows;
}

std::unique_ptr<Algorithm> make_algorithm(Settings& settings, const AlgorithmContext& context) {
  std::vector<std::string_view> names;
  for (const AlgorithmRow& row : algorithms()) names.push_back(row.name);
  const std::string name = settings.choice("algorithm", names);
  for (const AlgorithmRow& row : algorithms())
    if (row.name == name) return row.make(settings, context);
  return nullptr;
}

RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& context) {
  const Cluster::Program work = [&](Rank rank) {
    Worker worker(context, rank);
    algorithm.run(worker);
  };
  Cluster::Program serve;
  if (algorithm.has_server())
    serve = [&](Rank rank) {
      Server server(context, rank);
      algorithm.serve(server);
    };
  return context.cluster.run(work, serve);
}

}  // namespace syncopate
