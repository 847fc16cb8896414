// ResNet-8 and the transformers of images and of texts on a simulated cluster of 16 workers, compared with plain
// LibTorch loops over modules of torch::nn. Both sides are measured in turn within one run, on Fashion-MNIST and
// WordNet's definitions.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/benchmarks/padded_text_loop.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "tests/workers/reference_resnet.hpp"
#include "tests/workers/reference_vision_transformer.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/base/machine.hpp"
#include "workers/data/text_dataset.hpp"

namespace syncopate {
namespace {

constexpr int workers = 16;
constexpr SampleShape image{.channels = 1, .height = 28, .width = 28};

// A typical training loop in LibTorch: SGD with momentum 0.9, batches drawn from a shuffled epoch.
class ModuleLoop {
 public:
  template <typename Module>
  ModuleLoop(std::shared_ptr<Module> module, std::int64_t batch)
      : forward_([module](const torch::Tensor& x) { return module->forward(x); }),
        optimizer_(module->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        batch_(batch) {}

  void step() {
    const TensorData& data = tensors();
    if (!order_.defined() || position_ + batch_ > order_.size(0)) {
      order_ = torch::randperm(data.inputs.size(0));
      position_ = 0;
    }
    const auto indices = order_.narrow(0, position_, batch_);
    position_ += batch_;
    optimizer_.zero_grad();
    const auto inputs = data.inputs.index_select(0, indices).view({batch_, 1, 28, 28});
    torch::nn::functional::cross_entropy(forward_(inputs), data.labels.index_select(0, indices)).backward();
    optimizer_.step();
  }

 private:
  std::function<torch::Tensor(const torch::Tensor&)> forward_;
  torch::optim::SGD optimizer_;
  std::int64_t batch_;
  torch::Tensor order_;
  std::int64_t position_ = 0;
};

using Step = std::function<void()>;

struct Architecture {
  std::vector<std::string> keys;
  std::function<Step(std::int64_t batch)> loop;
  std::function<void()> prepare = [] {};  // prepares the data that both sides read
};

template <typename Loop>
Step step_of(std::shared_ptr<Loop> loop) {
  return [loop] { loop->step(); };
}

Architecture resnet(ResnetOptions::Norm norm) {
  const std::string name = norm == ResnetOptions::Norm::group ? "group" : "batch";
  return {.keys = {"training.model=resnet", "models.resnet.norm=" + name}, .loop = [norm](std::int64_t batch) {
            return step_of(std::make_shared<ModuleLoop>(
                std::make_shared<reference::ResnetModule>(1, 10, ResnetOptions{.norm = norm}), batch));
          }};
}

Architecture vision_transformer() {
  return {.keys = {"training.model=vit"}, .loop = [](std::int64_t batch) {
            return step_of(std::make_shared<ModuleLoop>(
                std::make_shared<reference::VisionTransformerModule>(image, 10, VisionTransformerOptions{}), batch));
          }};
}

const Dataset& glosses() {
  static const auto dataset = text_dataset(wordnet_glosses(), {}).load(wordnet_glosses().files.usual());
  return *dataset;
}

const TextTensors& texts() {
  static const TextTensors data(glosses());
  return data;
}

Architecture text_transformer() {
  return {
      .keys = {"training.model=text-transformer", "training.dataset=wordnet-glosses"}, .loop = [](std::int64_t batch) {
        return step_of(std::make_shared<PaddedTextLoop>(texts(), glosses().size(), TextTransformerOptions{}, batch));
      }};
}

const std::filesystem::path& lines_of_one_length() {
  static const auto file =
      std::filesystem::temp_directory_path() / fmt::format("syncopate_one_length_{}.txt", getpid());
  return file;
}

// Writes only the definitions of 16 tokens, with a word for each token. Nothing is padded, so the measured difference
// is the cost of a step beyond its arithmetic.
void write_lines_of_one_length() {
  if (std::filesystem::exists(lines_of_one_length())) return;
  constexpr std::ptrdiff_t length = 16;
  std::ofstream lines(lines_of_one_length());
  for (std::uint32_t i = 0; i < glosses().size().train; ++i) {
    const auto text = sample_tokens(glosses(), Split::train, i);
    if (std::ssize(text) != length) continue;
    std::int64_t label = 0;
    glosses().gather(Split::train, {&i, 1}, nullptr, &label);
    lines << 'c' << label << '\t';
    for (const std::int32_t token : text.subspan(1, length - 2))
      lines << " w" << token;  // all but the first and the last token
    lines << '\n';
  }
}

const Dataset& glosses_of_one_length() {
  static const auto dataset = text_dataset(text_lines(true), {}).load(lines_of_one_length());
  return *dataset;
}

const TextTensors& texts_of_one_length() {
  static const TextTensors data(glosses_of_one_length());
  if (data.differ) throw std::logic_error("texts differ in length");
  return data;
}

Architecture text_transformer_of_one_length() {
  return {
      .keys = {"training.model=text-transformer", "training.dataset=text-lines", "datasets.text-lines.labelled=true",
               fmt::format("datasets.text-lines.file='{}'", lines_of_one_length().string())},
      .loop =
          [](std::int64_t batch) {
            return step_of(std::make_shared<PaddedTextLoop>(texts_of_one_length(), glosses_of_one_length().size(),
                                                            TextTransformerOptions{}, batch));
          },
      .prepare = write_lines_of_one_length};
}

std::shared_ptr<const Objective> objective_of(const Architecture& architecture, int micro_batch_size) {
  architecture.prepare();
  std::vector<std::string> keys = {"cluster.workers=" + std::to_string(workers), "cluster.micro_batches=1",
                                   "training.micro_batch_size=" + std::to_string(micro_batch_size)};
  keys.insert(keys.end(), architecture.keys.begin(), architecture.keys.end());
  return load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", keys)
      .runs.front()
      .training.make_objective();
}

double seconds_of_steps(const Step& step, int steps) {
  return seconds_of([&] {
    for (int i = 0; i < steps; ++i) step();
  });
}

// One plain loop at a time, with the threading that makes it fastest.
double fastest_loop_s(const Architecture& architecture, std::int64_t batch, int steps) {
  double best = HUGE_VAL;
  for (const auto& [torch_threads, blas_threads] : {std::pair{1, 1}, {cores, 1}, {1, cores}, {cores, cores}}) {
    set_threads(torch_threads, blas_threads);
    const Step step = architecture.loop(batch);
    step();
    best = std::min(best, seconds_of_steps(step, steps));
  }
  set_threads(1, 1);
  return best;
}

// One independent loop per core.
double loops_per_core_s(const Architecture& architecture, std::int64_t batch, int steps_of_each) {
  architecture.loop(batch)();  // reads the data
  std::vector<std::thread> threads;
  return seconds_of([&] {
    for (int i = 0; i < cores; ++i)
      threads.emplace_back([&] {
        set_threads(1, 1);
        seconds_of_steps(architecture.loop(batch), steps_of_each);
      });
    for (auto& thread : threads) thread.join();
  });
}

void SyncSgdAgainstFusedLoop(benchmark::State& state, const Architecture& architecture, int size, int steps) {
  const auto objective = objective_of(architecture, size);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    set_threads(1, 1);
    ours += simulate(SyncSgd(), objective, workers, 1, steps);
    theirs += fastest_loop_s(architecture, workers * size, steps);
  }
  const double samples = static_cast<double>(state.iterations()) * steps * workers * size;
  report(state, samples / ours, samples / theirs, 0.95);
}

// Each micro-batch has its own batch statistics, so each is evaluated separately, on all cores.
void SyncSgdAgainstLoopsOfMicroBatches(benchmark::State& state, const Architecture& architecture, int size, int steps) {
  const auto objective = objective_of(architecture, size);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    set_threads(1, 1);
    ours += simulate(SyncSgd(), objective, workers, 1, steps);
    theirs += loops_per_core_s(architecture, size, steps * workers / cores);
  }
  const double samples = static_cast<double>(state.iterations()) * steps * workers * size;
  report(state, samples / ours, samples / theirs, 0.95);
}

using Method = std::shared_ptr<const Algorithm>;

// Methods whose workers have their own models, or take a step along each gradient. No micro-batches can be evaluated
// together.
void MethodAgainstLoops(benchmark::State& state, const Method& method, const Architecture& architecture, int size,
                        int steps) {
  const auto objective = objective_of(architecture, size);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    set_threads(1, 1);
    ours += simulate(*method, objective, workers, 1, steps);
    theirs += loops_per_core_s(architecture, size, steps * workers / cores);
  }
  const double samples = static_cast<double>(state.iterations()) * steps * workers * size;
  report(state, samples / ours, samples / theirs, 0.95);
}

Method local_sgd() { return std::make_shared<LocalSgd>(make_constant_period(8), StatePolicies{}); }
Method elastic(ElasticOptions::Exchange exchange) {
  return std::make_shared<ElasticAveraging>(ElasticOptions{.exchange = exchange, .alpha = 0.9 / workers, .period = 4});
}

const auto batch = ResnetOptions::Norm::batch;
const auto group = ResnetOptions::Norm::group;
#define MEASURE(function, name, ...) \
  BENCHMARK_CAPTURE(function, name, __VA_ARGS__)->Iterations(3)->Unit(benchmark::kMillisecond)->UseRealTime()
MEASURE(SyncSgdAgainstFusedLoop, resnet8_group_norm, resnet(group), 32, 4);
MEASURE(SyncSgdAgainstFusedLoop, vision_transformer, vision_transformer(), 8, 2);
MEASURE(SyncSgdAgainstFusedLoop, text_transformer, text_transformer(), 16, 8);
MEASURE(SyncSgdAgainstFusedLoop, text_transformer_one_length, text_transformer_of_one_length(), 16, 8);
MEASURE(SyncSgdAgainstLoopsOfMicroBatches, resnet8_batch_norm, resnet(batch), 32, 6);
MEASURE(MethodAgainstLoops, local_sgd_resnet8_group_norm, local_sgd(), resnet(group), 32, 8);
MEASURE(MethodAgainstLoops, local_sgd_resnet8_batch_norm, local_sgd(), resnet(batch), 32, 8);
MEASURE(MethodAgainstLoops, local_sgd_vision_transformer, local_sgd(), vision_transformer(), 8, 2);
MEASURE(MethodAgainstLoops, local_sgd_text_transformer, local_sgd(), text_transformer(), 16, 8);
MEASURE(MethodAgainstLoops, local_sgd_text_transformer_one_length, local_sgd(), text_transformer_of_one_length(), 16,
        8);
MEASURE(MethodAgainstLoops, async_sgd, std::make_shared<AsyncSgd>(AsyncSgd::Options{}), resnet(group), 32, 8);
MEASURE(MethodAgainstLoops, decentralized_sgd, std::make_shared<DecentralizedSgd>(), resnet(group), 32, 8);
MEASURE(MethodAgainstLoops, stochastic_gradient_push, std::make_shared<StochasticGradientPush>(), resnet(group), 32, 8);
MEASURE(MethodAgainstLoops, elastic_averaging, elastic(ElasticOptions::Exchange::synchronous), resnet(group), 32, 8);
MEASURE(MethodAgainstLoops, elastic_averaging_asynchronous, elastic(ElasticOptions::Exchange::asynchronous),
        resnet(group), 32, 8);

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove(syncopate::lines_of_one_length());
}
