// The cost per micro-batch of drawing each delay family, and of drawing the whole duration. Yardsticks are a plain loop
// over std::lognormal_distribution and numpy's generator. Draws one worker's step of 12 micro-batches at a time, like
// the simulated cluster. Compare ratios within one run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

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
BENCHMARK_CAPTURE(delay, weibull, weibull_delay(1.5, 0.5));
BENCHMARK_CAPTURE(delay, pareto, pareto_delay(2.5, 0.3));
BENCHMARK_CAPTURE(delay, bernoulli, bernoulli_delay(0.1, 0.5));
BENCHMARK_CAPTURE(delay, lognormal, lognormal_delay(-1, 1, 1));
BENCHMARK_CAPTURE(delay, histogram,
                  histogram_delay(std::make_shared<const Histogram>("", embedded_histograms()[0].content), 1, 0));
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

// The cost of the whole duration for many steps at once: of 32 workers, as in the simulated cluster, or of one worker.
void duration_rows(benchmark::State& state, RandomRows::Along along, const std::shared_ptr<const DelayProcess>& process,
                   std::size_t rows, std::size_t length) {
  const ComputeTime compute_time(1, 0.010, {}, {process});
  std::vector<Duration> out(rows * length);
  ComputeTime::Steps steps{.along = along, .count = rows};
  for (auto _ : state) {
    ++steps.step;
    compute_time.durations(steps, 0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.counters["per_draw"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(rows * length),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(duration_rows, of_workers_table, RandomRows::Along::workers, tabulated_lognormal_delay(0.005), 32,
                  micro_batches);
BENCHMARK_CAPTURE(duration_rows, of_workers_formula, RandomRows::Along::workers, bounded_lognormal_delay({}, 0.010), 32,
                  micro_batches);
BENCHMARK_CAPTURE(duration_rows, of_steps_exponential, RandomRows::Along::steps, exponential_delay(0.005), 8, 1);

// Delays in bursts, drawn for the steps of one worker in order.
void bursts(benchmark::State& state) {
  const DelayReach reach{.bursts = BurstLengths{10, 90}, .cluster_size = 1};
  const auto process = scoped_delay(exponential_delay(0.5), reach);
  std::array<double, micro_batches> out{};
  RandomStream stream{.seed = 1};
  for (auto _ : state) {
    ++stream.step;
    process->add(stream, 0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  per_micro_batch(state);
}
BENCHMARK(bursts);

// Nanoseconds per draw of numpy.random.Generator.lognormal: the best of 20 runs of 100,000 draws. nullopt without
// numpy.
std::optional<double> numpy_ns() {
  const char* const code =
      "import numpy, time; g = numpy.random.default_rng(1); t = []\n"
      "for _ in range(20):\n"
      " s = time.perf_counter_ns(); g.lognormal(4, 1, 100000); t.append(time.perf_counter_ns() - s)\n"
      "print(min(t) / 100000)";
  const char* const named = std::getenv("PYTHON");
  for (const std::string python : {named ? named : "python3", "python3", "/usr/bin/python3"}) {
    std::FILE* const child = popen((python + " -c '" + code + "' 2>/dev/null").c_str(), "r");
    double ns = 0;
    const bool measured = child && std::fscanf(child, "%lf", &ns) == 1;
    if (child && pclose(child) == 0 && measured) return ns;
  }
  return std::nullopt;
}

// Nanoseconds per draw of `process`, the best of 20 runs. Each run fills an array, as numpy does.
double best_ns(const DelayProcess& process) {
  constexpr std::size_t draws = 100'000;
  std::vector<double> out(draws);
  RandomStream stream{.seed = 1};
  double best = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < 20; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    ++stream.worker.value;
    process.add(stream, 0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / draws);
  }
  return best;
}

// Measures numpy and the process in turn, seven times, and reports the median of the ratios.
void against_numpy(benchmark::State& state, const std::shared_ptr<const DelayProcess>& process) {
  std::vector<double> ours, numpys, ratios;
  for (auto _ : state) {
    for (int round = 0; round < 7; ++round) {
      const auto numpy = numpy_ns();
      if (!numpy) return state.SkipWithError("no Python with numpy; name one with PYTHON=...");
      numpys.push_back(*numpy);
      ours.push_back(best_ns(*process));
      ratios.push_back(*numpy / ours.back());
    }
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  state.counters["ns"] = median(ours);
  state.counters["bar_ns"] = 6;
  state.counters["numpy_ns"] = median(numpys);
  state.counters["ratio"] = median(ratios);
  state.counters["bar"] = 6;
}
BENCHMARK_CAPTURE(against_numpy, bounded_lognormal_table, tabulated_lognormal_delay(0.5))
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(against_numpy, bounded_lognormal_formula, bounded_lognormal_delay({}, 1))
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
