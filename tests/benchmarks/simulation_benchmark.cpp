// The cost of a simulated cluster beyond its arithmetic: the host time of time-only runs, and memory per worker.
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "experiments/sections/experiment.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "workers/base/machine.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

const Run& quickstart() {
  static const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", {});
  return experiment.runs.front();
}

struct Scale {
  int workers;
  int micro_batches;
  int steps;
};

void simulate(const Algorithm& algorithm, const Scale& scale, Training& training, bool in_lockstep) {
  const Run& run = quickstart();
  const auto cluster = make_simulated_cluster({.workers = scale.workers,
                                               .servers = algorithm.traits().servers,
                                               .micro_batches = scale.micro_batches,
                                               .compute_time = *run.cluster.compute_time,
                                               .network = *run.cluster.network,
                                               .training = training},
                                              in_lockstep ? algorithm.traits().lockstep_under({}) : std::nullopt);
  const LearningRate rate(LearningRate::Options{.peak = 0.01});
  run_algorithm(algorithm, {.cluster = *cluster,
                            .training = training,
                            .learning_rate = rate,
                            .budget = {.steps = scale.steps},
                            .micro_batches = scale.micro_batches,
                            .initial_model = training.initial_state()});
  training.executor().wait_all();
}

// Nanoseconds of host time per micro-batch duration drawn, on one core, without any tensors. The delays are the quick
// start's: bounded log-normal, table form.
void simulate_time(benchmark::State& state, const Algorithm& algorithm, bool in_lockstep) {
  const Scale scale{static_cast<int>(state.range(0)), 12, static_cast<int>(2'048'000 / state.range(0))};
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  for (auto _ : state) simulate(algorithm, scale, training, in_lockstep);
  const double drawn = static_cast<double>(state.iterations()) * scale.workers * scale.micro_batches * scale.steps;
  state.counters["s_per_micro_batch"] =
      benchmark::Counter(drawn, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// In lockstep, as the program runs these methods. The bar applies to 2,048 workers. From 64 to 16,384 workers the cost
// may grow by 20 %.
void TimeOnlySyncSgd(benchmark::State& state) {
  simulate_time(state, SyncSgd(), true);
  state.counters["bar_ns"] = 10;
}
BENCHMARK(TimeOnlySyncSgd)->Arg(64)->Arg(2048)->Arg(16384)->Unit(benchmark::kMillisecond);

// With the best threshold for many workers under these delays: 16.4 base times of a micro-batch.
DropCompute drop_compute() { return {from_seconds(16.4 * 0.010), Preempt::discard, 1}; }

void TimeOnlyDropCompute(benchmark::State& state) {
  simulate_time(state, drop_compute(), true);
  state.counters["bar_ns"] = 10;
}
BENCHMARK(TimeOnlyDropCompute)->Arg(64)->Arg(2048)->Arg(16384)->Unit(benchmark::kMillisecond);

// With a threshold that is found on fibers in 50 steps, and enforced in lockstep.
void TimeOnlyAutomaticDropCompute(benchmark::State& state) {
  simulate_time(state, DropCompute({.threshold = make_automatic_threshold({})}), true);
  state.counters["bar_ns"] = 10;
}
BENCHMARK(TimeOnlyAutomaticDropCompute)->Arg(64)->Arg(2048)->Unit(benchmark::kMillisecond);

// Synchronous SGD with a fiber for each worker. Methods whose workers do not act alike need fibers, and so does
// recording a trace.
void TimeOnlySyncSgdOnFibers(benchmark::State& state) { simulate_time(state, SyncSgd(), false); }
BENCHMARK(TimeOnlySyncSgdOnFibers)->Arg(64)->Arg(2048)->Arg(16384)->Unit(benchmark::kMillisecond);

void TimeOnlyDropComputeOnFibers(benchmark::State& state) { simulate_time(state, drop_compute(), false); }
BENCHMARK(TimeOnlyDropComputeOnFibers)->Arg(64)->Arg(2048)->Arg(16384)->Unit(benchmark::kMillisecond);

std::int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  return 0;
}

// Peak resident memory of a run, in a separate process.
std::int64_t peak_bytes_of(const Algorithm& algorithm, int workers) {
  int channel[2];
  if (pipe(channel) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml",
                                            {"cluster.workers=" + std::to_string(workers), "cluster.micro_batches=1"});
    Executor executor(2);
    Training training(experiment.runs.front().training.make_objective(), make_sgd({.momentum = 0.9}), {}, executor);
    simulate(algorithm, {workers, 1, 6}, training, false);
    const std::int64_t peak = peak_bytes();
    if (write(channel[1], &peak, sizeof peak) != sizeof peak) std::abort();
    _exit(0);
  }
  std::int64_t peak = 0;
  if (read(channel[0], &peak, sizeof peak) != sizeof peak) std::abort();
  waitpid(child, nullptr, 0);
  close(channel[0]);
  close(channel[1]);
  return peak;
}

constexpr double mlp_parameters = 784 * 256 + 256 + 256 * 10 + 10;

void memory_growth(benchmark::State& state, const Algorithm& algorithm, double bar_bytes) {
  double growth = 0;
  for (auto _ : state)
    growth = static_cast<double>(peak_bytes_of(algorithm, 1024) - peak_bytes_of(algorithm, 64)) / 960;
  state.counters["bytes_per_worker"] = growth;
  state.counters["bar_bytes"] = bar_bytes;
}

void MemoryOfSyncSgd(benchmark::State& state) { memory_growth(state, SyncSgd(), 64 * 1024); }
BENCHMARK(MemoryOfSyncSgd)->Iterations(1)->Unit(benchmark::kMillisecond);

void MemoryOfLocalSgdWithMomentum(benchmark::State& state) {
  memory_growth(state, LocalSgd(make_constant_period(2), {}), 8 * mlp_parameters + 64 * 1024);
}
BENCHMARK(MemoryOfLocalSgdWithMomentum)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
