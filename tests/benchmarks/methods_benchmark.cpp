// The throughput of synchronous SGD, and of methods whose workers have their own models or take a step along each
// gradient, as a share of the throughput of independent plain loops, one per core. Both sides are measured in turn
// within one run.
#include <ctime>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

constexpr int workers = 16;

// `batch`: batch size of the plain loops.
void against_plain_loops(benchmark::State& state, const Algorithm& algorithm, int micro_batches, int size, int batch,
                         double bar) {
  const int steps = 32 * 1024 / (workers * micro_batches * size) * 2;
  const int samples_per_run = steps * workers * micro_batches * size;
  const auto objective = mlp(workers, micro_batches, size);
  set_threads(1, 1);
  double ours = 0, theirs = 0;
  std::clock_t our_cpu = 0, their_cpu = 0;
  for (auto _ : state) {
    const std::clock_t begin = std::clock();
    ours += simulate(algorithm, objective, workers, micro_batches, steps);
    const std::clock_t middle = std::clock();
    theirs += run_plain_loops(batch, samples_per_run / batch / cores);
    our_cpu += middle - begin;
    their_cpu += std::clock() - middle;
  }
  const double samples = static_cast<double>(state.iterations()) * samples_per_run;
  report(state, samples / ours, samples / theirs, bar);
  // The ratio of processor times, which is the ratio of throughputs if no thread ever waited.
  state.counters["busy_ratio"] = static_cast<double>(their_cpu) / static_cast<double>(our_cpu);
}

void AsyncSgdAgainstPlainLoops(benchmark::State& state) { against_plain_loops(state, AsyncSgd({}), 1, 32, 32, 0.85); }
void DecentralizedSgdAgainstPlainLoops(benchmark::State& state) {
  against_plain_loops(state, DecentralizedSgd(), 1, 32, 32, 0.85);
}
void GradientPushAgainstPlainLoops(benchmark::State& state) {
  against_plain_loops(state, StochasticGradientPush({.overlap_steps = 0}), 1, 32, 32, 0.85);
}
// An exchange every `range` steps.
void ElasticAveragingAgainstPlainLoops(benchmark::State& state) {
  against_plain_loops(state, ElasticAveraging({.alpha = 0.9 / workers, .period = state.range(0)}), 1, 32, 32, 0.85);
}
// Loops with 512 samples per step, the total of all workers.
void SyncSgdAgainstIndependentLoops(benchmark::State& state) { against_plain_loops(state, SyncSgd(), 4, 8, 512, 0.97); }

BENCHMARK(AsyncSgdAgainstPlainLoops)->Iterations(10)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(DecentralizedSgdAgainstPlainLoops)->Iterations(10)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(GradientPushAgainstPlainLoops)->Iterations(10)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(ElasticAveragingAgainstPlainLoops)
    ->Arg(1)
    ->Arg(4)
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(SyncSgdAgainstIndependentLoops)->Iterations(20)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
