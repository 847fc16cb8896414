// The time to read and change training images (crop, flip, mixup), as a share of the time of ResNet-8's gradients. Both
// are measured in turn on one core, over the same micro-batches. They are processor times, which other work does not
// stretch.
#include <algorithm>
#include <ctime>
#include <utility>

#include "tests/benchmarks/simulated_training.hpp"
#include "workers/base/machine.hpp"
#include "workers/data/augmentation.hpp"
#include "workers/data/dataset.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t batch = 32;
constexpr std::int64_t steps = 60;

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The work of an objective before its forward pass.
struct Reader {
  Reader(std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling, double mixup)
      : dataset(std::move(dataset)),
        sampler(sampling),
        mixup(mixup),
        numbers(batch),
        epochs(batch),
        labels(batch),
        inputs(static_cast<std::size_t>(batch * this->dataset->size().shape.features())) {}

  std::shared_ptr<const Dataset> dataset;
  Sampler sampler;
  double mixup;
  std::vector<std::uint32_t> numbers;
  std::vector<std::int64_t> epochs, labels;
  std::vector<float> inputs;

  void read(const MicroBatch& micro_batch) {
    numbers.clear();
    sampler.append_samples(micro_batch, numbers);
    std::ranges::fill(epochs, sampler.epoch(micro_batch));
    dataset->gather_training({.seed = 1, .samples = numbers, .epochs = epochs}, inputs.data(), labels.data());
    if (mixup > 0) mix(drawn_mixture(1, micro_batch, batch, mixup), inputs);
  }
};

void ShareOfReading(benchmark::State& state, const Augmentation& augmentation, double bar) {
  set_threads(1, 1);
  const auto dataset = augmented(idx_images().load(idx_images().usual()), augmentation);
  const DatasetSize& size = dataset->size();
  const SamplerOptions sampling{.samples = size.train, .micro_batch_size = batch, .seed = 1};
  const Network network = resnet_network(size.shape, size.classes, {.norm = ResnetOptions::Norm::group});
  const TorchObjective objective(network, dataset, sampling, batch, 0, augmentation.mixup);
  const auto parameters = objective.initial_parameters(1);
  Reader reader(dataset, sampling, augmentation.mixup);
  double reading = 0, training = 0;
  std::int64_t step = 0;
  for (auto _ : state) {
    const std::int64_t first = step;
    const auto over_steps = [&](const auto& work) {
      const double begin = processor_s();
      for (step = first; step < first + steps; ++step) work(MicroBatch{.worker = Rank{0}, .step = step, .index = 0});
      return processor_s() - begin;
    };
    training += over_steps([&](const MicroBatch& micro_batch) {
      benchmark::DoNotOptimize(objective.gradient(parameters.data(), nullptr, {&micro_batch, 1}));
    });
    reading += over_steps([&](const MicroBatch& micro_batch) { reader.read(micro_batch); });
  }
  const auto samples = static_cast<double>(state.iterations() * steps * batch);
  state.counters["us_per_sample_read"] = 1e6 * reading / samples;
  state.counters["us_per_sample_trained"] = 1e6 * training / samples;
  state.counters["share"] = reading / training;
  state.counters["bar_share"] = bar;
}

const Augmentation usual{.crop = 2, .flip = true, .mixup = 0.2};
const Augmentation warped{.crop = 2, .flip = true, .rotate_degrees = 10, .zoom = 0.1, .mixup = 0.2};
const Augmentation nearest{.randaugment = RandAugment{}};
const Augmentation bilinear{.randaugment = RandAugment{.form = RandAugment::Form::composer, .strength = 10}};
#define MEASURE(name, ...) \
  BENCHMARK_CAPTURE(ShareOfReading, name, __VA_ARGS__)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime()
MEASURE(nothing, Augmentation{}, 0.05);
MEASURE(crop_flip_mixup, usual, 0.05);
MEASURE(rotation_and_zoom_too, warped, 0.05);
MEASURE(randaugment_of_torchvision, nearest, 0.05);
MEASURE(randaugment_of_composer, bilinear, 0.05);

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
