// The time to read windows of token files, as a share of the time of a small transformer's gradient on them. Windows
// lie at random positions of a file of 256 MiB.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"
#include "workers/data/token_stream.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

// A folder with training and test files of pseudo-random bytes, which is removed at the end.
class TokenFolder {
 public:
  TokenFolder() : path_(fs::temp_directory_path() / fmt::format("syncopate_tokens_{}", getpid())) {
    fs::create_directories(path_);
    std::vector<double> uniform(1 << 16);
    RandomStream{.seed = 1, .purpose = Purpose::synthetic_data}.fill_uniform(0, uniform);
    std::vector<std::uint16_t> tokens;
    for (const double number : uniform) tokens.push_back(static_cast<std::uint16_t>(256 * number));
    constexpr int pieces = 2048;
    for (const auto& [name, count] : {std::pair{"train.bin", pieces}, {"test.bin", 1}}) {
      std::ofstream file(path_ / name, std::ios::binary);
      for (int i = 0; i < count; ++i)
        file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
    }
  }
  ~TokenFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void WindowsAgainstGradient(benchmark::State& state) {
  const TokenFolder folder;
  constexpr std::int64_t context = 256;
  const auto data = token_stream({.context = context, .vocabulary = 256, .random = true}).load(folder.path());
  constexpr std::int64_t batch = 8;
  const SamplerOptions sampling{.samples = data->size().train, .micro_batch_size = batch, .seed = 1};
  const Network network = text_transformer_network(data->size().shape, 0,
                                                   {.task = {.kind = TextTask::Kind::causal_lm},
                                                    .width = 64,
                                                    .depth = 2,
                                                    .heads = 2,
                                                    .mlp_width = 256,
                                                    .positions = context});
  set_threads(1, 1);
  const auto objective = make_torch_objective({.network = network,
                                               .dataset = data,
                                               .sampling = sampling,
                                               .chunk_samples = batch,
                                               .label_smoothing = 0,
                                               .mixup = 0});
  const std::vector<float> parameters = objective->initial_parameters(1);
  const Sampler sampler(sampling);
  double reading_s = 0, gradient_s = 0;
  std::int64_t step = 0;
  for (auto _ : state) {
    // Each side has its own steps, so neither finds the other's windows in the caches of the processor.
    std::vector<std::uint32_t> samples;
    sampler.append_samples({.worker = Rank{0}, .step = step++, .index = 0}, samples);
    std::int64_t sum = 0;
    reading_s += seconds_of([&] {
      for (const std::uint32_t sample : samples) {
        std::vector<std::int32_t> space;
        for (const std::int32_t token : data->tokens(Split::train, sample, {.seed = 1}, space)) sum += token;
      }
    });
    benchmark::DoNotOptimize(sum);
    const MicroBatch micro_batch{.worker = Rank{0}, .step = step++, .index = 0};
    gradient_s += seconds_of([&] { objective->gradient(parameters.data(), nullptr, {&micro_batch, 1}); });
  }
  state.counters["read_us_per_window"] = 1e6 * reading_s / static_cast<double>(state.iterations() * batch);
  state.counters["gradient_us_per_window"] = 1e6 * gradient_s / static_cast<double>(state.iterations() * batch);
  state.counters["share"] = reading_s / gradient_s;
  state.counters["bar_share"] = 0.01;
}
BENCHMARK(WindowsAgainstGradient)->Iterations(50)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
