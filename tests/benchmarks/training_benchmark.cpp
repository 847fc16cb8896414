// The share of the machine's arithmetic that a simulated cluster gets: ratios to plain LibTorch loops. Both sides are
// measured in turn within one run. The model is the MLP 784-256-10 on Fashion-MNIST.
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

// Evaluates every micro-batch separately, like a simulator without fusion.
class WithoutFusion : public Objective {
 public:
  explicit WithoutFusion(std::shared_ptr<const Objective> inner) : inner_(std::move(inner)) {}
  std::size_t parameters() const override { return inner_->parameters(); }
  std::size_t weights() const override { return inner_->weights(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override { return inner_->initial_parameters(seed); }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    return inner_->gradient(parameters, buffers, micro_batches);
  }
  std::int64_t chunk_samples() const override { return 1; }  // so that every chunk is one micro-batch
  std::int64_t samples_per_micro_batch() const override { return inner_->samples_per_micro_batch(); }
  std::int64_t steps_per_epoch() const override { return inner_->steps_per_epoch(); }
  std::int64_t evaluation_samples(Split split) const override { return inner_->evaluation_samples(split); }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    return inner_->evaluate(parameters, buffers, split, begin, end);
  }

 private:
  std::shared_ptr<const Objective> inner_;
};

// Compared with one plain loop over the whole batch, with the threading that makes that loop fastest.
void SyncSgdAgainstPlainLoop(benchmark::State& state) {
  constexpr int workers = 64, micro_batches = 4, size = 8, steps = 30;
  constexpr int batch = workers * micro_batches * size;
  const auto objective = mlp(workers, micro_batches, size);
  const std::pair<int, int> threadings[] = {{1, 1}, {cores, 1}, {1, cores}, {cores, cores}};
  std::vector<double> plain(std::size(threadings), 0.0);
  double ours = 0;
  PlainLoop loop(tensors(), batch);
  for (auto _ : state) {
    for (std::size_t i = 0; i < plain.size(); ++i) {
      set_threads(threadings[i].first, threadings[i].second);
      loop.step();
      plain[i] += seconds_of([&] {
        for (int step = 0; step < steps; ++step) loop.step();
      });
    }
    set_threads(1, 1);
    ours += simulate(SyncSgd(), objective, workers, micro_batches, steps);
  }
  const double samples = static_cast<double>(state.iterations()) * steps * batch;
  report(state, samples / ours, samples / *std::min_element(plain.begin(), plain.end()), 0.90);
}
BENCHMARK(SyncSgdAgainstPlainLoop)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime();

void SyncSgdAgainstOneByOne(benchmark::State& state) {
  constexpr int workers = 64, micro_batches = 4, size = 8, steps = 20;
  const auto objective = mlp(workers, micro_batches, size);
  const auto one_by_one = std::make_shared<WithoutFusion>(objective);
  set_threads(1, 1);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    ours += simulate(SyncSgd(), objective, workers, micro_batches, steps);
    theirs += simulate(SyncSgd(), one_by_one, workers, micro_batches, steps);
  }
  const double samples = static_cast<double>(state.iterations()) * steps * workers * micro_batches * size;
  report(state, samples / ours, samples / theirs, 5);
}
BENCHMARK(SyncSgdAgainstOneByOne)->Iterations(3)->Unit(benchmark::kMillisecond)->UseRealTime();

// Compared with independent plain loops, one per core.
void LocalSgdAgainstPlainLoops(benchmark::State& state) {
  constexpr int workers = 64, size = 32, period = 8, steps = 32;
  const auto objective = mlp(workers, 1, size);
  const LocalSgd algorithm(make_constant_period(period), {});
  set_threads(1, 1);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    ours += simulate(algorithm, objective, workers, 1, steps);
    theirs += run_plain_loops(size, steps * workers / cores);
  }
  const double samples = static_cast<double>(state.iterations()) * steps * workers * size;
  report(state, samples / ours, samples / theirs, 0.90);
}
BENCHMARK(LocalSgdAgainstPlainLoops)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime();

// Dropped micro-batches are not computed. Measures the host time per step with drops, divided by the time without
// drops.
void DropComputeAgainstNoDrops(benchmark::State& state) {
  constexpr int workers = 64, micro_batches = 4, size = 8, steps = 60;
  const auto objective = mlp(workers, micro_batches, size);
  set_threads(1, 1);
  // With the quick start's delays (mean 15 ms per micro-batch of 10 ms) this drops about 30 %.
  const DropCompute dropping(from_seconds(0.0475), Preempt::discard, 1.0 / 3);
  const DropCompute keeping(from_seconds(HUGE_VAL), Preempt::discard, 1.0 / 3);
  double with = 0, without = 0;
  for (auto _ : state) {
    with += simulate(dropping, objective, workers, micro_batches, steps);
    without += simulate(keeping, objective, workers, micro_batches, steps);
  }
  struct Kept : RunObserver {
    std::int64_t kept = 0, dropped = 0;
    void on_row(const StepRow& round) override { kept += round.kept, dropped += round.dropped; }
    void on_publish(const Publication&) override {}
  } observer;
  {
    const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", {});
    const Run& run = experiment.runs.front();
    Executor executor(0);
    Training training(nullptr, nullptr, {}, executor);
    SimulatedCluster cluster({.workers = workers,
                              .micro_batches = micro_batches,
                              .compute_time = *run.cluster.compute_time,
                              .network = *run.cluster.network,
                              .training = training,
                              .observer = &observer});
    run_algorithm(dropping, {.cluster = cluster,
                             .training = training,
                             .learning_rate = *run.training.learning_rate,
                             .budget = {.steps = steps},
                             .micro_batches = micro_batches,
                             .observer = &observer});
  }
  state.counters["drop_rate"] =
      static_cast<double>(observer.dropped) / static_cast<double>(observer.kept + observer.dropped);
  state.counters["ratio"] = with / without;
  state.counters["bar"] = 0.75;
}
BENCHMARK(DropComputeAgainstNoDrops)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
