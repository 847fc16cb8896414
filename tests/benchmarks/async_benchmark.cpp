// What an event of a method with a server costs on the simulated cluster, without any arithmetic.
#include <benchmark/benchmark.h>

#include <memory>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/bounded_delay.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t gradients = 2'000'000;

// Events are deliveries: a gradient to the server, a model to a worker. Exponential delays, fixed network costs.
void simulate(benchmark::State& state, const Algorithm& algorithm) {
  const auto workers = static_cast<int>(state.range(0));
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  training.set_parameter_bytes(1'000'000);
  const ComputeTime compute_time(1, 0.010, {}, {exponential_delay(0.005)});
  const auto network = make_fixed_network(0.001);
  const LearningRate rate(LearningRate::Options{.peak = 0.01});
  std::int64_t events = 0;
  for (auto _ : state) {
    SimulatedCluster cluster({.workers = workers,
                              .servers = 1,
                              .micro_batches = 1,
                              .compute_time = compute_time,
                              .network = *network,
                              .training = training});
    events +=
        run_algorithm(
            algorithm,
            {.cluster = cluster, .training = training, .learning_rate = rate, .budget = {.steps = gradients / workers}})
            .messages;
  }
  state.counters["events_per_s"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
  state.counters["bar_per_s"] = 5e6;
}

void TimeOnlyAsyncSgd(benchmark::State& state) { simulate(state, AsyncSgd({})); }
BENCHMARK(TimeOnlyAsyncSgd)->Arg(64)->Arg(1024)->Arg(4096)->Arg(16384)->Unit(benchmark::kMillisecond);

void TimeOnlySoftsync(benchmark::State& state) { simulate(state, Softsync(8)); }
BENCHMARK(TimeOnlySoftsync)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyStaleSynchronous(benchmark::State& state) { simulate(state, StaleSynchronous(4)); }
BENCHMARK(TimeOnlyStaleSynchronous)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyBoundedDelay(benchmark::State& state) { simulate(state, BoundedDelay(16384)); }
BENCHMARK(TimeOnlyBoundedDelay)->Arg(4096)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
