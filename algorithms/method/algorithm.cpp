#include "algorithms/method/algorithm.hpp"

#include <stdexcept>

#include "workers/compression/compressor.hpp"

namespace syncopate {

void Algorithm::serve(Server&) const { throw std::logic_error("this algorithm has no server"); }

void compress(RunContext& context, const Algorithm& algorithm) {
  const auto& compression = algorithm.compression();
  if (!compression) return;
  const int workers = context.cluster.workers(), slices = algorithm.traits().compressed_slices();
  if (compression->of_averages)
    context.average_compressors = make_compressors(*compression, context.training, context.seed, workers, slices);
  else if (compression->of_messages)
    context.message_compressors = make_compressors(*compression, context.training, context.seed, workers, slices);
  else
    context.compressor = make_compressor(*compression, context.training, context.seed, workers);
}

RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& given) {
  RunContext context = given;
  context.average = algorithm.average();
  compress(context, algorithm);
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
