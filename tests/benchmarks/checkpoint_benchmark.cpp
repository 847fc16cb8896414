// The cost of a checkpoint: its bytes, how long the run waits for it, and how long a replay without arithmetic takes.
// The model is the MLP of the quick start, on 64 workers. At a round's end (synchronous SGD and Local SGD) one replica
// and the workers' own state are alive. In the middle of a round of Local SGD all replicas are alive.
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/execution.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

constexpr int workers = 64;
constexpr std::int64_t rounds = 10, period = 8;

struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped") {}
};

Outcome run(const Run& run, const CheckpointUse& use) {
  Progress silent(Progress::Style::silent, 1, 1);
  return execute(run, {.threads = cores}, silent, {}, &use);
}

// Writes a checkpoint before step `at`, where steps of all models are counted together.
void checkpoint(benchmark::State& state, const std::string& method, std::int64_t at) {
  const auto experiment = load_experiment(
      SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml",
      {"seeds=[1]", "cluster.workers=" + std::to_string(workers), "budget.epochs=20", "methods=[" + method + "]"});
  const Run& of = experiment.runs.front();
  const auto file = std::filesystem::temp_directory_path() / ("syncopate-checkpoint-" + std::to_string(getpid()));
  double waited_s = 0, computed_s = 0, replayed_s = 0, bytes = 0;
  for (auto _ : state) {
    remove_checkpoint(file);
    std::optional<double> until;
    const auto begin = std::chrono::steady_clock::now();
    const auto since = [begin] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    computed_s = run(of, {.file = file,
                          .due =
                              [&](std::int64_t step) {
                                if (step == at) waited_s = -since();
                                if (step <= at) return step == at;
                                waited_s += since();
                                throw Stopped();
                              }})
                     .host_s;
    const double half_s = since();
    bytes = static_cast<double>(std::filesystem::file_size(file));
    run(of, {.file = file, .due = [&](std::int64_t) -> bool {
               until = since();
               throw Stopped();
             }});
    replayed_s = until.value_or(0) - half_s;
  }
  remove_checkpoint(file);
  state.counters["MB"] = 1e-6 * bytes;
  state.counters["waited_s"] = waited_s;  // includes submitted tasks and one more worker's step
  state.counters["computed_s"] = computed_s;
  state.counters["taken_up_s"] = replayed_s;
}

const std::string local = "{label='m',algorithm='local-sgd',period={rule='constant',steps=8}}";

void OfSynchronousSgd(benchmark::State& state) {
  checkpoint(state, "{label='m',algorithm='sync-sgd'}", rounds * workers + 1);
}
void OfLocalSgdBetweenRounds(benchmark::State& state) { checkpoint(state, local, rounds * period * workers + 1); }
void OfLocalSgdWithinARound(benchmark::State& state) {
  checkpoint(state, local, rounds * period * workers + period * workers / 2);
}
BENCHMARK(OfSynchronousSgd)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(OfLocalSgdBetweenRounds)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(OfLocalSgdWithinARound)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
