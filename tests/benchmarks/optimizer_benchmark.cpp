// One optimizer step on the 203,530 parameters of the MLP 784-256-10 as one flat vector, compared with torch::optim on
// one thread. Bytes per second count each vector that is read or written once. Layer-wise steps and RMSProp's follow
// below.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "workers/models/matrix_steps.hpp"
#include "workers/training/optimizers.hpp"
#include "workers/training/training.hpp"

namespace syncopate {
namespace {

constexpr std::size_t parameters = 784 * 256 + 256 + 256 * 10 + 10;

void count(benchmark::State& state, int moments) {
  const auto vectors = 3 + 2 * moments;  // gradient in; parameters and moments in and out
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(parameters));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(parameters * sizeof(float)) * vectors);
}

// In place, in blocks of state.range(0) parameters.
void flat_step(benchmark::State& state, const Optimizer& optimizer) {
  const auto block_size = static_cast<std::size_t>(state.range(0));
  std::vector<float> gradient(parameters, 1e-3F);
  std::vector<float> theta(parameters, 0.5F);
  std::vector<float> moments[2] = {std::vector<float>(parameters), std::vector<float>(parameters)};
  std::int64_t step = 0;
  for (auto _ : state) {
    ++step;
    for (std::size_t begin = 0; begin < parameters; begin += block_size) {
      const OptimizerBlock block{.size = std::min(block_size, parameters - begin),
                                 .gradient = gradient.data() + begin,
                                 .before = theta.data() + begin,
                                 .after = theta.data() + begin,
                                 .moments_before = {moments[0].data() + begin, moments[1].data() + begin},
                                 .moments_after = {moments[0].data() + begin, moments[1].data() + begin}};
      optimizer.update(block, {.learning_rate = 1e-3,
                               .ages = {MomentAge{.steps = step}, MomentAge{.steps = step}},
                               .decay = optimizer.weight_decay().rate});
    }
    benchmark::ClobberMemory();
  }
  count(state, optimizer.moments());
}

template <typename TorchOptimizer, typename Options>
void torch_step(benchmark::State& state, const Options& options, int moments) {
  at::set_num_threads(1);
  // Lets the heap keep torch's temporaries. If they were returned to the system after each step, page faults would cost
  // more than the arithmetic.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  auto theta = torch::full({static_cast<std::int64_t>(parameters)}, 0.5F).requires_grad_();
  theta.mutable_grad() = torch::full({static_cast<std::int64_t>(parameters)}, 1e-3F);
  TorchOptimizer optimizer({theta}, options);
  for (auto _ : state) optimizer.step();
  count(state, moments);
}

const WeightDecay decay{.rate = 1e-4, .scope = DecayScope::all};

void flat_sgd(benchmark::State& state) { flat_step(state, *make_sgd({.weight_decay = decay})); }
void flat_sgd_momentum(benchmark::State& state) {
  flat_step(state, *make_sgd({.momentum = 0.9, .weight_decay = decay}));
}
void flat_sgd_nesterov(benchmark::State& state) {
  flat_step(state, *make_sgd({.momentum = 0.9, .nesterov = true, .weight_decay = decay}));
}
void flat_adamw(benchmark::State& state) { flat_step(state, *make_adamw({})); }

void torch_sgd(benchmark::State& state) {
  torch_step<torch::optim::SGD>(state, torch::optim::SGDOptions(1e-3).weight_decay(1e-4), 0);
}
void torch_sgd_momentum(benchmark::State& state) {
  torch_step<torch::optim::SGD>(state, torch::optim::SGDOptions(1e-3).momentum(0.9).weight_decay(1e-4), 1);
}
void torch_sgd_nesterov(benchmark::State& state) {
  torch_step<torch::optim::SGD>(state, torch::optim::SGDOptions(1e-3).momentum(0.9).nesterov(true).weight_decay(1e-4),
                                1);
}
void torch_adamw(benchmark::State& state) {
  torch_step<torch::optim::AdamW>(state, torch::optim::AdamWOptions(1e-3), 2);
}

// Whole steps of the training engine on the tensors of ResNet-20 (270,410 parameters in 65 tensors), on one thread.
// They are compared with the same formulas in PyTorch's for-each operators, which its own optimizers use with foreach =
// true.
std::vector<std::size_t> resnet20_tensors() {
  std::vector<std::size_t> sizes = {3 * 16 * 9};
  std::vector<std::size_t> norms = {16, 16};
  std::size_t channels = 16;
  for (const std::size_t width : {16u, 32u, 64u})
    for (int convolution = 0; convolution < 6; ++convolution) {
      sizes.push_back(channels * width * 9);
      channels = width;
      norms.insert(norms.end(), {width, width});
    }
  sizes.push_back(64 * 10);
  norms.push_back(10);
  sizes.insert(sizes.end(), norms.begin(), norms.end());
  return sizes;
}

// Shapes (rows, columns) of the matrices: ResNet-20's flattened filters, or the matrices of a transformer of four
// blocks of width 64.
using Shapes = std::vector<std::pair<std::size_t, std::size_t>>;
Shapes matrices_of_resnet20() {
  Shapes shapes = {{16, 27}};
  std::size_t channels = 16;
  for (const std::size_t width : {16u, 32u, 64u})
    for (int convolution = 0; convolution < 6; ++convolution) {
      shapes.emplace_back(width, 9 * channels);
      channels = width;
    }
  shapes.emplace_back(10, 64);
  return shapes;
}
Shapes matrices_of_transformer() {
  Shapes shapes = {{1000, 64}, {64, 64}};
  for (int block = 0; block < 4; ++block) {
    for (int projection = 0; projection < 4; ++projection) shapes.emplace_back(64, 64);
    shapes.emplace_back(256, 64);
    shapes.emplace_back(64, 256);
  }
  shapes.emplace_back(10, 64);
  return shapes;
}

// The gradient is always the same, and costs nothing.
class GivenGradient final : public Objective {
 public:
  GivenGradient() {
    std::size_t offset = 0;
    for (const std::size_t size : resnet20_tensors()) {
      tensors_.push_back({.name = "tensor", .offset = offset, .size = size});
      offset += size;
      if (tensors_.size() == 20) weights_ = offset;
    }
    gradient_ = std::make_shared<const std::vector<float>>(offset, 1e-3F);
  }
  explicit GivenGradient(const Shapes& shapes) {
    for (const auto& [rows, columns] : shapes) {
      tensors_.push_back(
          {.name = "tensor", .offset = weights_, .size = rows * columns, .place = tensors_.size(), .rows = rows});
      weights_ += rows * columns;
    }
    std::vector<float> values(weights_);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
    gradient_ = std::make_shared<const std::vector<float>>(std::move(values));
  }
  std::size_t parameters() const override { return gradient_->size(); }
  std::size_t weights() const override { return weights_; }
  std::vector<ParameterTensor> tensors() const override { return tensors_; }
  std::vector<float> initial_parameters(std::uint64_t) const override {
    return std::vector<float>(gradient_->size(), 0.5F);
  }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch>) const override {
    return {.segments = {{.offset = 0, .size = gradient_->size(), .data = gradient_->data(), .owner = gradient_}},
            .loss_sum = 0,
            .buffers_sum = {}};
  }
  std::int64_t chunk_samples() const override { return 64; }
  std::int64_t samples_per_micro_batch() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float*, const float*, Split, std::int64_t, std::int64_t) const override { return {}; }

 private:
  std::vector<ParameterTensor> tensors_;
  std::size_t weights_ = 0;
  std::shared_ptr<const std::vector<float>> gradient_;
};

void engine_step(benchmark::State& state, std::shared_ptr<const Optimizer> optimizer,
                 std::shared_ptr<const Objective> objective = std::make_shared<GivenGradient>()) {
  Executor executor(1);
  Training training(std::move(objective), std::move(optimizer), {}, executor);
  ModelStatePtr model = training.initial_state();
  constexpr int together = 16;  // steps that are submitted before a wait, as by a worker that runs ahead
  for (auto _ : state) {
    for (int i = 0; i < together; ++i) {
      const Gradient gradient(model, {Rank{0}, i, 0}, Duration{1});
      model = training.descend(std::move(model), gradient, 1e-3);
    }
    executor.wait(model->parameters->producer);
  }
  state.SetItemsProcessed(state.iterations() * together * static_cast<std::int64_t>(training.objective().parameters()));
}

struct ForEach {
  std::vector<at::Tensor> theta, g, m, s;
  double step = 0;

  ForEach() {
    at::set_num_threads(1);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    for (const std::size_t size : resnet20_tensors()) {
      const auto elements = static_cast<std::int64_t>(size);
      theta.push_back(at::full({elements}, 0.5F));
      g.push_back(at::full({elements}, 1e-3F));
      m.push_back(at::zeros({elements}));
      s.push_back(at::zeros({elements}));
    }
  }
  static std::vector<double> norms(const std::vector<at::Tensor>& tensors) {
    std::vector<double> values;
    for (const at::Tensor& norm : at::_foreach_norm(tensors)) values.push_back(norm.item<float>());
    return values;
  }
  static std::vector<at::Scalar> ratios(const std::vector<double>& above, const std::vector<double>& below,
                                        double factor) {
    std::vector<at::Scalar> scalars;
    for (std::size_t i = 0; i < above.size(); ++i) scalars.emplace_back(factor * above[i] / below[i]);
    return scalars;
  }
  // Updates the moments with these gradients, and returns sqrt(s / c2) + epsilon.
  std::vector<at::Tensor> adam_moments(const std::vector<at::Tensor>& gradients) {
    ++step;
    at::_foreach_mul_(m, 0.9);
    at::_foreach_add_(m, gradients, 0.1);
    at::_foreach_mul_(s, 0.999);
    at::_foreach_addcmul_(s, gradients, gradients, 0.001);
    auto root = at::_foreach_sqrt(s);
    at::_foreach_div_(root, std::sqrt(1 - std::pow(0.999, step)));
    at::_foreach_add_(root, 1e-6);
    return root;
  }

  void rmsprop() {  // PyTorch's form
    at::_foreach_mul_(s, 0.9);
    at::_foreach_addcmul_(s, g, g, 0.1);
    auto root = at::_foreach_sqrt(s);
    at::_foreach_add_(root, 1.0);
    at::_foreach_mul_(m, 0.9);
    at::_foreach_addcdiv_(m, g, root, 1.0);
    at::_foreach_add_(theta, m, -1e-3);
  }
  void lars() {
    auto below = norms(g);
    const auto above = norms(theta);
    for (std::size_t i = 0; i < below.size(); ++i) below[i] += 5e-5 * above[i];
    auto d = at::_foreach_add(g, theta, 5e-5);
    at::_foreach_mul_(d, ratios(above, below, 1e-6));
    at::_foreach_mul_(m, 0.9);
    at::_foreach_add_(m, d);
    at::_foreach_sub_(theta, m);
  }
  void lamb() {
    double squares = 0;
    for (const double norm : norms(g)) squares += norm * norm;
    const auto clipped = at::_foreach_div(g, std::max(1.0, std::sqrt(squares)));
    const auto root = adam_moments(clipped);
    auto u = at::_foreach_div(m, root);
    at::_foreach_div_(u, 1 - std::pow(0.9, step));
    at::_foreach_add_(u, theta, 0.01);
    at::_foreach_mul_(u, ratios(norms(theta), norms(u), -1e-3));
    at::_foreach_add_(theta, u);
  }
  void lans() {
    std::vector<at::Scalar> inverse;
    for (const double norm : norms(g)) inverse.emplace_back(1 / (norm + 1e-6));
    const auto h = at::_foreach_mul(g, inverse);
    const auto root = adam_moments(h);
    auto r = at::_foreach_div(m, root);
    at::_foreach_div_(r, 1 - std::pow(0.9, step));
    at::_foreach_add_(r, theta, 0.01);
    auto c = at::_foreach_div(h, root);
    at::_foreach_add_(c, theta, 0.01);
    const auto length = norms(theta);
    at::_foreach_mul_(r, ratios(length, norms(r), -1e-3 * 0.9));
    at::_foreach_mul_(c, ratios(length, norms(c), -1e-3 * 0.1));
    at::_foreach_add_(theta, r);
    at::_foreach_add_(theta, c);
  }
};

void foreach_step(benchmark::State& state, void (ForEach::*step)()) {
  const at::NoGradGuard no_grad;
  ForEach optimizer;
  std::int64_t parameters_of_all = 0;
  for (const at::Tensor& tensor : optimizer.theta) parameters_of_all += tensor.numel();
  for (auto _ : state) (optimizer.*step)();
  state.SetItemsProcessed(state.iterations() * parameters_of_all);
}

void foreach_rmsprop(benchmark::State& state) { foreach_step(state, &ForEach::rmsprop); }
void foreach_lars(benchmark::State& state) { foreach_step(state, &ForEach::lars); }
void foreach_lamb(benchmark::State& state) { foreach_step(state, &ForEach::lamb); }
void foreach_lans(benchmark::State& state) { foreach_step(state, &ForEach::lans); }
void engine_rmsprop(benchmark::State& state) {
  engine_step(state, make_rmsprop({.form = RmsPropForm::pytorch, .mean_square_start = 0}));
}
void engine_lars(benchmark::State& state) { engine_step(state, make_lars({})); }
void engine_lamb(benchmark::State& state) { engine_step(state, make_lamb({})); }
void engine_lans(benchmark::State& state) { engine_step(state, make_lans({})); }

// Muon's step of every matrix, written in PyTorch's operators as in Jordan's code, in single precision.
void torch_muon(benchmark::State& state, const Shapes& shapes) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::vector<at::Tensor> theta, g, m;
  std::int64_t parameters_of_all = 0;
  for (const auto& [rows, columns] : shapes) {
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
    theta.push_back(at::full(shape, 0.5F));
    g.push_back(at::randn(shape));
    m.push_back(at::zeros(shape));
    parameters_of_all += theta.back().numel();
  }
  for (auto _ : state)
    for (std::size_t i = 0; i < theta.size(); ++i) {
      m[i].lerp_(g[i], 0.05);
      at::Tensor x = g[i].lerp(m[i], 0.95);
      const bool is_tall = x.size(0) > x.size(1);
      if (is_tall) x = x.t();
      x = x / (x.norm() + 1e-7);
      for (int iteration = 0; iteration < 5; ++iteration) {
        const at::Tensor a = at::mm(x, x.t());
        x = 3.4445 * x + at::mm(-4.7750 * a + 2.0315 * at::mm(a, a), x);
      }
      if (is_tall) x = x.t();
      const double scale = std::sqrt(std::max(1.0, static_cast<double>(theta[i].size(0)) / theta[i].size(1)));
      theta[i].add_(x, -0.02 * scale);
    }
  state.SetItemsProcessed(state.iterations() * parameters_of_all);
}
void engine_muon(benchmark::State& state, const Shapes& shapes) {
  at::set_num_threads(1);
  engine_step(state, make_muon({.all_matrices = true}, orthogonalise_by_torch),
              std::make_shared<GivenGradient>(shapes));
}
void torch_muon_resnet20(benchmark::State& state) { torch_muon(state, matrices_of_resnet20()); }
void engine_muon_resnet20(benchmark::State& state) { engine_muon(state, matrices_of_resnet20()); }
void torch_muon_transformer(benchmark::State& state) { torch_muon(state, matrices_of_transformer()); }
void engine_muon_transformer(benchmark::State& state) { engine_muon(state, matrices_of_transformer()); }

// Bar of each pair: the engine's items per second are at least PyTorch's.
BENCHMARK(torch_muon_resnet20);
BENCHMARK(engine_muon_resnet20)->UseRealTime();
BENCHMARK(torch_muon_transformer);
BENCHMARK(engine_muon_transformer)->UseRealTime();

// Bar of each pair: the engine's items per second are at least twice PyTorch's.
BENCHMARK(foreach_rmsprop);
BENCHMARK(engine_rmsprop)->UseRealTime();
BENCHMARK(foreach_lars);
BENCHMARK(engine_lars)->UseRealTime();
BENCHMARK(foreach_lamb);
BENCHMARK(engine_lamb)->UseRealTime();
BENCHMARK(foreach_lans);
BENCHMARK(engine_lans)->UseRealTime();

BENCHMARK(torch_sgd);
BENCHMARK(flat_sgd)->Arg(2048)->Arg(parameters);
BENCHMARK(torch_sgd_momentum);
BENCHMARK(flat_sgd_momentum)->Arg(2048)->Arg(parameters);
BENCHMARK(torch_sgd_nesterov);
BENCHMARK(flat_sgd_nesterov)->Arg(2048)->Arg(parameters);
BENCHMARK(torch_adamw);
BENCHMARK(flat_adamw)->Arg(2048)->Arg(parameters);

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
