// Measures the host time per event of methods with a server, on the simulated cluster and without arithmetic.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/halos.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/ringmaster.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/k_batch_sync.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#ifdef SYNCOPATE_WITH_SIMGRID
#include "tests/benchmarks/simgrid_actors.hpp"
#endif

namespace syncopate {
namespace {

constexpr std::int64_t gradients = 2'000'000;

constexpr double message_s = 0.001;
const ComputeTime compute_time(1, 0.010, {}, {exponential_delay(0.005)});

// An event is the arrival of a gradient at the server or of a model at a worker. If work may be cancelled, the end of
// each piece of work is an event, too: no worker may run ahead of it.
struct Handled {
  std::int64_t events = 0;
  std::int64_t messages = 0;
};

Handled simulate(int workers, const Algorithm& algorithm, const NetworkModel& network) {
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  training.set_parameter_bytes(1'000'000);
  const LearningRate rate(LearningRate::Options{.peak = 0.01});
  SimulatedCluster cluster({.workers = workers,
                            .servers = algorithm.traits().servers,
                            .micro_batches = 1,
                            .compute_time = compute_time,
                            .network = network,
                            .training = training,
                            .only_servers_send_to_workers = algorithm.traits().has_servers_alone()});
  const RunTotals totals = run_algorithm(
      algorithm,
      {.cluster = cluster, .training = training, .learning_rate = rate, .budget = {.steps = gradients / workers}});
  return {cluster.events(), totals.messages};
}

void simulate(benchmark::State& state, const Algorithm& algorithm, const NetworkModel& network) {
  std::int64_t events = 0, messages = 0;
  for (auto _ : state) {
    const Handled handled = simulate(static_cast<int>(state.range(0)), algorithm, network);
    events += handled.events;
    messages += handled.messages;
  }
  state.counters["events_per_s"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
  state.counters["messages_per_s"] = benchmark::Counter(static_cast<double>(messages), benchmark::Counter::kIsRate);
  state.counters["bar_per_s"] = 5e6;
}

void simulate(benchmark::State& state, const Algorithm& algorithm) {
  simulate(state, algorithm, *make_fixed_network(message_s));
}

void TimeOnlyAsyncSgd(benchmark::State& state) { simulate(state, AsyncSgd({})); }
BENCHMARK(TimeOnlyAsyncSgd)->Arg(64)->Arg(1024)->Arg(4096)->Arg(16384)->Unit(benchmark::kMillisecond);

// The cost of an event with 16,384 workers compared with 1,024, measured in turn.
void TimeOnlyAsyncSgdAtManyWorkers(benchmark::State& state) {
  constexpr int few = 1024, many = 16384;
  const auto network = make_fixed_network(message_s);
  const auto seconds_per_event = [&](int workers) {
    const auto start = std::chrono::steady_clock::now();
    const auto events = static_cast<double>(simulate(workers, AsyncSgd({}), *network).events);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / events;
  };
  double among_few = 0, among_many = 0;
  for (auto _ : state) {
    among_few += seconds_per_event(few);
    among_many += seconds_per_event(many);
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["few_ns_per_event"] = 1e9 * among_few / iterations;
  state.counters["many_ns_per_event"] = 1e9 * among_many / iterations;
  state.counters["ratio"] = among_many / among_few;
  state.counters["bar_ratio"] = 1.3;
}
BENCHMARK(TimeOnlyAsyncSgdAtManyWorkers)->Iterations(5)->Unit(benchmark::kMillisecond);

// The server's link carries a model in 4 us; 4,096 workers wait for it.
void TimeOnlyAsyncSgdOnASharedLink(benchmark::State& state) {
  const auto workers = static_cast<int>(state.range(0));
  simulate(state, AsyncSgd({}), *make_parameter_server_network(workers, {message_s, 250e9}));
}
BENCHMARK(TimeOnlyAsyncSgdOnASharedLink)->Arg(1024)->Arg(4096)->Unit(benchmark::kMillisecond);

// The cost of a gradient's round trip on a ring with shared links, compared with a ring without shared links and
// measured in turn. A model takes 40 ns, so nobody waits long and both rings handle the same arrivals.
void TimeOnlyAsyncSgdWithAndWithoutContention(benchmark::State& state) {
  const auto workers = static_cast<int>(state.range(0));
  const auto shared = make_ring_network(message_s, 25e12),
             unshared = make_ring_network(message_s, 25e12, {.contention = false});
  const auto seconds_per_gradient = [&](const NetworkModel& network) {
    const auto start = std::chrono::steady_clock::now();
    const auto messages = static_cast<double>(simulate(workers, AsyncSgd({}), network).messages);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / messages;
  };
  double with = 0, without = 0;
  for (auto _ : state) {
    without += seconds_per_gradient(*unshared);
    with += seconds_per_gradient(*shared);
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["shared_ns_per_gradient"] = 1e9 * with / iterations;
  state.counters["unshared_ns_per_gradient"] = 1e9 * without / iterations;
  state.counters["ratio"] = with / without;
  state.counters["bar_ratio"] = 1.25;
}
BENCHMARK(TimeOnlyAsyncSgdWithAndWithoutContention)->Arg(4096)->Iterations(5)->Unit(benchmark::kMillisecond);

void TimeOnlySoftsync(benchmark::State& state) { simulate(state, Softsync(4096 / 8)); }
BENCHMARK(TimeOnlySoftsync)->Arg(4096)->Unit(benchmark::kMillisecond);

// Methods whose server works in rounds.
void TimeOnlyKAsync(benchmark::State& state) { simulate(state, KAsync(1024)); }
BENCHMARK(TimeOnlyKAsync)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyKBatchAsync(benchmark::State& state) { simulate(state, Softsync(1024)); }
BENCHMARK(TimeOnlyKBatchAsync)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyKSync(benchmark::State& state) { simulate(state, BackupWorkers(3072, {.late = LateWork::cancel})); }
BENCHMARK(TimeOnlyKSync)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyKBatchSync(benchmark::State& state) { simulate(state, KBatchSync(4096)); }
BENCHMARK(TimeOnlyKBatchSync)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyBackupTimeout(benchmark::State& state) {
  simulate(state, BackupWorkers(4096, {.late = LateWork::cancel, .timeout = from_seconds(0.002)}));
}
BENCHMARK(TimeOnlyBackupTimeout)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyRingmaster(benchmark::State& state) { simulate(state, Ringmaster(4096)); }
BENCHMARK(TimeOnlyRingmaster)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlyStaleSynchronous(benchmark::State& state) { simulate(state, StaleSynchronous(4)); }
BENCHMARK(TimeOnlyStaleSynchronous)->Arg(4096)->Unit(benchmark::kMillisecond);

void TimeOnlySlidingWindow(benchmark::State& state) { simulate(state, SlidingWindow(16384)); }
BENCHMARK(TimeOnlySlidingWindow)->Arg(4096)->Unit(benchmark::kMillisecond);

// Between two local steps a worker also checks whether the server has ended.
void TimeOnlyAsyncLocalSgd(benchmark::State& state) {
  simulate(state, AsyncLocalSgd({.rounds = {.local_steps = static_cast<int>(state.range(1))}}));
}
BENCHMARK(TimeOnlyAsyncLocalSgd)->Args({4096, 1})->Args({4096, 8})->Unit(benchmark::kMillisecond);

// Asynchronous Local SGD in four regions, which exchange models now and then.
void TimeOnlyHalos(benchmark::State& state) {
  const DeltaExchange rounds{.local_steps = static_cast<int>(state.range(1))};
  simulate(state, Halos({.regions = 4, .rounds = rounds, .merge_every = 1024, .mixing = 0.25}));
}
BENCHMARK(TimeOnlyHalos)->Args({4096, 1})->Args({4096, 8})->Unit(benchmark::kMillisecond);

#ifdef SYNCOPATE_WITH_SIMGRID
// The ratio of events per second to SimGrid's, both measured in this run.
void TimeOnlyAsyncSgdAgainstSimGrid(benchmark::State& state) {
  constexpr int workers = 4096;
  constexpr std::int64_t gradients_on_simgrid = 50'000;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const auto events = static_cast<double>(simulate(workers, AsyncSgd({}), *make_fixed_network(message_s)).events);
    const double ours = events / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double host_s = run_on_simgrid(workers, gradients_on_simgrid, compute_time, message_s);
    const double simgrids = 2 * static_cast<double>(gradients_on_simgrid) / host_s;
    state.counters["events_per_s"] = ours;
    state.counters["simgrid_events_per_s"] = simgrids;
    state.counters["ratio"] = ours / simgrids;
    state.counters["bar_ratio"] = 3;
  }
}
BENCHMARK(TimeOnlyAsyncSgdAgainstSimGrid)->Iterations(1)->Unit(benchmark::kMillisecond);
#endif

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
