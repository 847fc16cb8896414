// The processor as another device (training.device = "cpu:copy") compared with the processor: simulated synchronous SGD
// of ResNet-8 on images, and of a GPT of 10 million parameters on bytes of texts. The difference is the copies of
// states, batches and gradients.
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

void CopyingPath(benchmark::State& state, const std::string& example, std::vector<std::string> overrides, int steps) {
  constexpr int workers = 8;
  const auto objective_on = [&](const char* device) {
    std::vector<std::string> keys = overrides;
    keys.push_back(std::string("training.device=") + device);
    keys.push_back("cluster.workers=" + std::to_string(workers));
    const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/examples/" + example, keys);
    return experiment.runs.front().training.make_objective();
  };
  const auto direct = objective_on("cpu"), copying = objective_on("cpu:copy");
  set_threads(1, 1);
  simulate(SyncSgd(), direct, workers, 1, 1);  // the first call chooses kernels
  double copied_s = 0, direct_s = 0;
  for (auto _ : state) {
    copied_s += simulate(SyncSgd(), copying, workers, 1, steps);
    direct_s += simulate(SyncSgd(), direct, workers, 1, steps);
  }
  const auto samples = static_cast<double>(state.iterations() * steps * workers * direct->samples_per_micro_batch());
  report(state, samples / copied_s, samples / direct_s, 0.9);
}

BENCHMARK_CAPTURE(CopyingPath, resnet_8, "resnet8.toml", {}, 4)->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(CopyingPath, gpt_of_10_million, "gpt_diloco.toml",
                  {"models.gpt={width=320,depth=8,heads=8,context=256}", "datasets.tokens.context=256"}, 1)
    ->Iterations(4)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
