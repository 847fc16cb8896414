// Networks saved as TorchScript modules, compared with the same networks in C++: 16 workers on a simulated cluster.
// Both sides are measured in turn within one run, each equally often first, on Fashion-MNIST.
#include <unistd.h>

#include <filesystem>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/base/machine.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/network.hpp"

namespace syncopate {
namespace {

constexpr int workers = 16;
constexpr SampleShape image{.channels = 1, .height = 28, .width = 28};

struct Pair {
  std::shared_ptr<const Objective> script;
  std::shared_ptr<const Objective> layers;
};

std::shared_ptr<const Objective> objective_with(std::vector<std::string> keys, int micro_batch_size) {
  for (const auto& [key, value] : {std::pair{"cluster.workers", workers},
                                   {"cluster.micro_batches", 1},
                                   {"training.micro_batch_size", micro_batch_size}})
    keys.push_back(std::string(key) + "=" + std::to_string(value));
  const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", keys);
  return experiment.runs.front().training.make_objective();
}

Pair both(const Network& network, const std::vector<std::string>& keys, int chunk_samples, int micro_batch_size) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("syncopate-script-benchmark-" + std::to_string(getpid()) + ".pt");
  save_script(file, network, initial_parameters(network, 1));
  Pair pair{objective_with({"training.model=torchscript", "models.torchscript.file=" + file,
                            "models.torchscript.chunk_samples=" + std::to_string(chunk_samples)},
                           micro_batch_size),
            objective_with(keys, micro_batch_size)};
  std::filesystem::remove(file);
  return pair;
}

Pair mlp_pair(int micro_batch_size) {
  const Network network = mlp_network(image, 10, {256});
  const auto chunk = objective_with({"training.model=mlp"}, micro_batch_size)->chunk_samples();
  return both(network, {"training.model=mlp"}, static_cast<int>(chunk), micro_batch_size);
}

Pair resnet_pair(ResnetOptions::Norm norm, int micro_batch_size) {
  const std::string name = norm == ResnetOptions::Norm::group ? "group" : "batch";
  return both(resnet_network(image, 10, {.norm = norm}), {"training.model=resnet", "models.resnet.norm=" + name}, 32,
              micro_batch_size);
}

void ScriptAgainstLayers(benchmark::State& state, const Pair& pair, const Algorithm& algorithm, int steps) {
  double script_s = 0, layers_s = 0;
  set_threads(1, 1);
  for (const auto& objective : {pair.script, pair.layers}) simulate(algorithm, objective, workers, 1, 1);
  bool is_first = false;
  for (auto _ : state) {
    is_first = !is_first;
    if (is_first) script_s += simulate(algorithm, pair.script, workers, 1, steps);
    layers_s += simulate(algorithm, pair.layers, workers, 1, steps);
    if (!is_first) script_s += simulate(algorithm, pair.script, workers, 1, steps);
  }
  const auto samples =
      static_cast<double>(state.iterations() * steps * workers * pair.layers->samples_per_micro_batch());
  report(state, samples / script_s, samples / layers_s, 0.95);
}

void MlpSync(benchmark::State& state) { ScriptAgainstLayers(state, mlp_pair(32), SyncSgd(), 40); }
void MlpLocal(benchmark::State& state) {
  ScriptAgainstLayers(state, mlp_pair(32), LocalSgd(make_constant_period(8), {}), 40);
}
void Resnet8GroupNormSync(benchmark::State& state) {
  ScriptAgainstLayers(state, resnet_pair(ResnetOptions::Norm::group, 32), SyncSgd(), 4);
}
void Resnet8BatchNormSync(benchmark::State& state) {
  ScriptAgainstLayers(state, resnet_pair(ResnetOptions::Norm::batch, 32), SyncSgd(), 4);
}
void Resnet8BatchNormLocal(benchmark::State& state) {
  ScriptAgainstLayers(state, resnet_pair(ResnetOptions::Norm::batch, 32), LocalSgd(make_constant_period(8), {}), 4);
}
#define MEASURE(function) BENCHMARK(function)->Iterations(8)->Unit(benchmark::kMillisecond)->UseRealTime()
MEASURE(MlpSync);
MEASURE(MlpLocal);
MEASURE(Resnet8GroupNormSync);
MEASURE(Resnet8BatchNormSync);
MEASURE(Resnet8BatchNormLocal);

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
