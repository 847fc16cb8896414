// Optimizer steps of whole runs, from an experiment file to the last model, compared with torch::optim on modules in
// double precision. Each step takes every sample exactly once, so the order of samples has no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/experiments/key_walk.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/images.hpp"

namespace syncopate {
namespace {

using Values = std::vector<double>;

constexpr int steps = 6;
constexpr double rate = 0.05;

// The keys of [training.optimizer] and clip_norm.
struct Declared {
  std::string name = "sgd";
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::string decay = "weights";
  bool decoupled = false;
  double clip_norm = 0;

  std::vector<std::string> overrides() const {
    std::string keys = fmt::format("name='{}',weight_decay={},decay='{}'", name, weight_decay, decay);
    keys += name == "sgd" ? fmt::format(",momentum={},nesterov={},decoupled={}", momentum, nesterov, decoupled)
                          : fmt::format(",beta1={},beta2={},epsilon={}", beta1, beta2, epsilon);
    return {"training.optimizer={" + keys + "}", fmt::format("training.clip_norm={}", clip_norm)};
  }
};

// The mean of all gradients has a norm of about 1, and their sum a norm of about 4.
const std::vector<Declared> declared = {
    {},
    {.momentum = 0.9},
    {.momentum = 0.9, .nesterov = true},
    {.weight_decay = 0.5},
    {.weight_decay = 0.5, .decay = "all"},
    {.momentum = 0.9, .weight_decay = 0.5, .decoupled = true},
    {.momentum = 0.9, .weight_decay = 0.5, .decay = "all", .decoupled = true},
    {.clip_norm = 0.1},
    {.clip_norm = 0.2},
    {.momentum = 0.9, .weight_decay = 0.5, .clip_norm = 0.1},
    {.name = "adamw"},
    {.name = "adamw", .beta1 = 0.5},
    {.name = "adamw", .beta2 = 0.9},
    {.name = "adamw", .epsilon = 0.01},
    {.name = "adamw", .weight_decay = 0.5},
    {.name = "adamw", .weight_decay = 0.5, .decay = "all"},
    {.name = "adamw", .epsilon = 0.01, .clip_norm = 0.1},
};

struct Data {
  at::Tensor inputs;  // in double precision
  at::Tensor labels;
};

Data all_of(const Dataset& dataset) {
  const auto samples = dataset.size().train;
  const SampleShape shape = dataset.size().shape;
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(samples));
  std::iota(numbers.begin(), numbers.end(), 0u);
  Data data{torch::empty({samples, shape.channels, shape.height, shape.width}), torch::empty({samples}, torch::kLong)};
  dataset.gather(Split::train, numbers, data.inputs.data_ptr<float>(), data.labels.data_ptr<std::int64_t>());
  data.inputs = data.inputs.to(torch::kDouble);
  return data;
}

// Weights of matrices and filters always decay; biases and normalisations decay only if `decay` is "all".
std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const Declared& options, const torch::nn::Sequential& module,
                                                         std::vector<at::Tensor>& decayed_by_hand) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& layer : module->modules(false)) {
    const bool is_normalisation = layer->as<torch::nn::BatchNorm2d>() != nullptr;
    for (const auto& parameter : layer->named_parameters(false)) {
      const bool is_weight = !is_normalisation && parameter.key() == "weight";
      const bool decays = options.weight_decay > 0 && (is_weight || options.decay == "all");
      if (decays && options.decoupled) decayed_by_hand.push_back(parameter.value());
      const double decay = decays && !options.decoupled ? options.weight_decay : 0;
      std::unique_ptr<torch::optim::OptimizerOptions> group;
      if (options.name == "sgd") {
        auto sgd = std::make_unique<torch::optim::SGDOptions>(rate);
        sgd->momentum(options.momentum).nesterov(options.nesterov).weight_decay(decay);
        group = std::move(sgd);
      } else {
        auto adamw = std::make_unique<torch::optim::AdamWOptions>(rate);
        adamw->betas({options.beta1, options.beta2}).eps(options.epsilon).weight_decay(decay);
        group = std::move(adamw);
      }
      groups.emplace_back(std::vector{parameter.value()}, std::move(group));
    }
  }
  if (options.name == "sgd") return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(rate));
  return std::make_unique<torch::optim::AdamW>(groups);
}

Values flat(const torch::nn::Sequential& module) {
  Values values;
  for (const at::Tensor& parameter : reference::flat_order(module)) {
    const at::Tensor part = parameter.detach().contiguous();
    values.insert(values.end(), part.data_ptr<double>(), part.data_ptr<double>() + part.numel());
  }
  return values;
}

// Returns the parameters after `steps` steps along the mean gradient of all samples.
Values trained_by_torch(const Declared& options, torch::nn::Sequential module, const Data& data) {
  std::vector<at::Tensor> decayed_by_hand;  // torch::optim::SGD has no decoupled decay
  const auto optimizer = torch_optimizer(options, module, decayed_by_hand);
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    torch::nn::functional::cross_entropy(module->forward(data.inputs), data.labels).backward();
    if (options.clip_norm > 0) torch::nn::utils::clip_grad_norm_(module->parameters(), options.clip_norm);
    {
      torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : decayed_by_hand) parameter.mul_(1 - rate * options.weight_decay);
    }
    optimizer->step();
  }
  return flat(module);
}

double distance(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

class OptimizerSteps : public KeyWalk {
 protected:
  // Two workers with two micro-batches of 8 samples take all 32 samples in a step.
  static constexpr const char* mlp = R"(
seeds = [3]
[cluster]
workers = 2
micro_batch_s = 1
micro_batches = 2
[network]
kind = "free"
[training]
model = "mlp"
dataset = "gaussian-mixture"
micro_batch_size = 8
[training.learning_rate]
schedule = "constant"
peak = 0.05
[models.mlp]
hidden = [5]
[datasets.gaussian-mixture]
classes = 3
dimension = 4
train = 32
test = 6
[budget]
steps = 6
[[methods]]
algorithm = "sync-sgd"
)";
  static torch::nn::Sequential mlp_module() {
    return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(4, 5), torch::nn::ReLU(),
                                 torch::nn::Linear(5, 3));
  }
  static Data mixture() {
    return all_of(*make_gaussian_mixture({.classes = 3, .dimension = 4, .train = 32, .test = 6}, 3));
  }

  // Trains with each of the declared optimizers, by runs and by torch::optim, and compares the results.
  void compare(const std::string& toml, const std::vector<std::string>& overrides,
               const std::function<torch::nn::Sequential()>& make_module, const Data& data) {
    write("experiment.toml", toml);
    std::vector<Values> results;
    for (const Declared& options : declared) {
      auto all = options.overrides();
      SCOPED_TRACE(fmt::format("{} {}", testing::PrintToString(all), testing::PrintToString(overrides)));
      all.insert(all.end(), overrides.begin(), overrides.end());
      syncopate::Run run = load_experiment(folder_ / "experiment.toml", all).runs.front();
      run.recording.parameters = true;
      const Outcome outcome = outcome_of(run);
      ASSERT_EQ(outcome.failure, "");
      const auto& last = outcome.recording.parameters.front();

      auto module = make_module();
      reference::set_parameters(module, run.training.make_objective()->initial_parameters(run.seed));
      const Values start = flat(module);
      results.push_back(trained_by_torch(options, module, data));
      const double moved = distance(results.back(), start);
      EXPECT_LE(distance(Values(last.begin(), last.end()), results.back()), 1e-5 * moved);
      // Each option changes the result by much more than the tolerance.
      for (std::size_t other = 0; other + 1 < results.size(); ++other)
        EXPECT_GT(distance(results[other], results.back()), 1e-3 * moved) << "as " << other;
    }
  }
};

TEST_F(OptimizerSteps, OfSynchronousSgdAreThoseOfTorchAlongTheMeanGradient) { compare(mlp, {}, mlp_module, mixture()); }

TEST_F(OptimizerSteps, OfAServerAreThoseOfTorchAlongTheMeanGradient) {
  // A worker clips its own mean gradient. With one worker, that is the gradient of the step.
  compare(mlp, {"cluster.workers=1", "cluster.micro_batches=4", "methods=[{algorithm='backup-workers',backups=0}]"},
          mlp_module, mixture());
}

TEST_F(OptimizerSteps, OfALocalWorkerAreThoseOfTorchAlongTheMeanOfItsMicroBatches) {
  compare(mlp,
          {"cluster.workers=1", "cluster.micro_batches=4",
           "methods=[{algorithm='local-sgd',period={rule='constant',steps=2}}]"},
          mlp_module, mixture());
}

// One micro-batch contains all samples, so the normalisation's statistics are those of all samples.
TEST_F(OptimizerSteps, LeaveNormalisationsAndBiasesUndecayedUnlessToldOtherwise) {
  write_images("images", 3);
  const auto module = [] {
    return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).bias(false)),
                                 torch::nn::BatchNorm2d(2), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                 torch::nn::Flatten(), torch::nn::Linear(8, 4), torch::nn::ReLU(),
                                 torch::nn::Linear(4, 10));
  };
  compare(mlp,
          {"cluster.workers=1", "cluster.micro_batches=1", "training.micro_batch_size=240", "training.model='cnn'",
           "models.cnn={channels=[2],kernel=3,dense=4,batch_norm=true}", "training.dataset='fashion-mnist'",
           fmt::format("datasets.fashion-mnist.directory='{}'", (folder_ / "images").string())},
          module, all_of(*idx_images().load(folder_ / "images")));
}

}  // namespace
}  // namespace syncopate
