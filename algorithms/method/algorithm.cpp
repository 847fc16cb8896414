#include "algorithms/method/algorithm.hpp"

#include <stdexcept>

#include "workers/compression/compressor.hpp"

namespace syncopate {

void Algorithm::serve(Server&) const { throw std::logic_error("this algorithm has no server"); }

RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& given) {
  RunContext context = given;
  context.average = algorithm.average();
  if (const auto& compression = algorithm.compression()) {
    const auto compressor = make_compressor(*compression, given.training, given.seed, given.cluster.workers());
    (compression->of_averages ? context.average_compressor : context.compressor) = compressor;
  }
  const Cluster::Program work = [&](Rank rank) {
    Worker worker(context, rank);
    algorithm.run(worker);
    if (context.observer) context.observer->on_own_models_end(rank);
  };
  Cluster::Program serve;
  if (algorithm.traits().servers > 0)
    serve = [&](Rank rank) { run_server(context, rank, [&](Server& server) { algorithm.serve(server); }); };
  return context.cluster.run(work, serve);
}

}  // namespace syncopate
