// What drawing costs, per micro-batch: each delay family, the whole duration, and as the yardstick a
// plain loop over std::lognormal_distribution. One worker's step of 12 micro-batches at a time, as the
// simulated cluster asks. Compare ratios within one run.
#include <benchmark/benchmark.h>

#include <array>
#include <random>

#include "workers/delays/bounded_lognormal.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/delays/gamma.hpp"
#include "workers/delays/normal.hpp"
#include "workers/delays/uniform.hpp"

namespace syncopate {
namespace {

constexpr std::size_t micro_batches = 12;

void per_micro_batch(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(micro_batches));
  state.counters["per_draw"] = benchmark::Counter(static_cast<double>(state.iterations()) * micro_batches,
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void uniform_numbers(benchmark::State& state) {
  std::array<double, micro_batches> out{};
  RandomStream stream{.seed = 1};
  for (auto _ : state) {
    ++stream.worker.value;
    stream.fill_uniform(0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  per_micro_batch(state);
}
BENCHMARK(uniform_numbers);

void standard_library_lognormal(benchmark::State& state) {
  std::array<double, micro_batches> out{};
  std::mt19937_64 engine(1);
  std::lognormal_distribution<double> lognormal(4, 1);
  for (auto _ : state) {
    for (double& value : out) value = lognormal(engine);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  per_micro_batch(state);
}
BENCHMARK(standard_library_lognormal);

void delay(benchmark::State& state, const std::shared_ptr<const DelayProcess>& process) {
  std::array<double, micro_batches> out{};
  RandomStream stream{.seed = 1};
  for (auto _ : state) {
    ++stream.worker.value;
    process->add(stream, 0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  per_micro_batch(state);
}
BENCHMARK_CAPTURE(delay, uniform, uniform_delay(0, 1));
BENCHMARK_CAPTURE(delay, normal, normal_delay(1, 0.1));
BENCHMARK_CAPTURE(delay, exponential, exponential_delay(0.5));
BENCHMARK_CAPTURE(delay, gamma, gamma_delay(0.74, 0.675));
BENCHMARK_CAPTURE(delay, bounded_lognormal_table, tabulated_lognormal_delay(0.5));
BENCHMARK_CAPTURE(delay, bounded_lognormal_formula, bounded_lognormal_delay({}, 1));

void duration(benchmark::State& state, const std::shared_ptr<const DelayProcess>& process) {
  const ComputeTime compute_time(1, 0.010, {}, {process});
  std::array<Duration, micro_batches> out{};
  Rank worker{0};
  for (auto _ : state) {
    ++worker.value;
    compute_time.durations(worker, Step{7}, 0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  per_micro_batch(state);
}
BENCHMARK_CAPTURE(duration, bounded_lognormal_table, tabulated_lognormal_delay(0.005));
BENCHMARK_CAPTURE(duration, bounded_lognormal_formula, bounded_lognormal_delay({}, 0.010));

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
