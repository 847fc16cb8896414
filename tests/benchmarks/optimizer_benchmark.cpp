// One optimizer step on the 203,530 parameters of the MLP 784-256-10 as one flat vector, against
// torch::optim on one thread. Bytes per second count each vector that is read or written once.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "workers/training/optimizer.hpp"

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
      optimizer.update(block, {.learning_rate = 1e-3, .step = step, .decay = optimizer.weight_decay().rate});
    }
    benchmark::ClobberMemory();
  }
  count(state, optimizer.moments());
}

template <typename TorchOptimizer, typename Options>
void torch_step(benchmark::State& state, const Options& options, int moments) {
  at::set_num_threads(1);
  // Lets the heap keep torch's temporaries: returned to the system after each step they would cost more in
  // page faults than the arithmetic.
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
