// The cost of the quick start's evaluations: their share of the time of all cores, over all its runs of one seed.
#include <atomic>

#include "experiments/execution/execution.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

using Seconds = std::atomic<double>;

// Adds up the durations of evaluations over all threads.
class WithTimedEvaluations : public Objective {
 public:
  WithTimedEvaluations(std::shared_ptr<const Objective> inner, Seconds& spent)
      : inner_(std::move(inner)), spent_(spent) {}
  std::size_t parameters() const override { return inner_->parameters(); }
  std::size_t weights() const override { return inner_->weights(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override { return inner_->initial_parameters(seed); }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    return inner_->gradient(parameters, buffers, micro_batches);
  }
  std::int64_t chunk_samples() const override { return inner_->chunk_samples(); }
  std::int64_t samples_per_micro_batch() const override { return inner_->samples_per_micro_batch(); }
  std::int64_t steps_per_epoch() const override { return inner_->steps_per_epoch(); }
  std::int64_t evaluation_samples(Split split) const override { return inner_->evaluation_samples(split); }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    EvaluationSums sums;
    spent_ += seconds_of([&] { sums = inner_->evaluate(parameters, buffers, split, begin, end); });
    return sums;
  }

 private:
  std::shared_ptr<const Objective> inner_;
  Seconds& spent_;
};

void QuickStartEvaluations(benchmark::State& state) {
  auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", {"seeds=[1]"});
  set_threads(1, 1);
  Seconds evaluating = 0;
  double total = 0;
  for (Run& run : experiment.runs)
    run.training.make_objective = [load = run.training.make_objective, &evaluating] {
      return std::make_shared<WithTimedEvaluations>(load(), evaluating);
    };
  for (auto _ : state)
    for (const Run& run : experiment.runs) {
      Progress silent(Progress::Style::silent, 1, 1);
      total += execute(run, {.threads = cores}, silent, {}).host_s;
    }
  state.counters["host_s"] = total;
  state.counters["share"] = evaluating / (total * cores);
  state.counters["bar_share"] = 0.10;
}
BENCHMARK(QuickStartEvaluations)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();

// Samples per second on one core: evaluating the test set and 10,000 training samples, compared with gradients of 512
// samples per step.
void EvaluationAgainstGradients(benchmark::State& state) {
  const auto objective = mlp(16, 4, 8);
  const auto parameters = objective->initial_parameters(1);
  set_threads(1, 1);
  std::vector<MicroBatch> step;
  for (int worker = 0; worker < 16; ++worker)
    for (int m = 0; m < 4; ++m) step.push_back({Rank{worker}, Step{0}, m});
  constexpr int steps = 20;
  double evaluating = 0, training = 0;
  for (auto _ : state) {
    for (const Split split : {Split::test, Split::train})
      evaluating += seconds_of([&] { objective->evaluate(parameters.data(), nullptr, split, 0, 10'000); });
    training += seconds_of([&] {
      for (int i = 0; i < steps; ++i) benchmark::DoNotOptimize(objective->gradient(parameters.data(), nullptr, step));
    });
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["evaluated_per_s"] = 20'000 * iterations / evaluating;
  state.counters["differentiated_per_s"] = steps * 512 * iterations / training;
}
BENCHMARK(EvaluationAgainstGradients)->Iterations(10)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
