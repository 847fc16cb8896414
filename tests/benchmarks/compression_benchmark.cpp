// Kernels of compression on flat vectors of 2^20 values, compared with the same kernels in LibTorch's operators, on one
// thread. Also simulated training with compressed sums, compared with training with dense sums, in pairs. Bars: kernels
// are at least twice as fast, and training takes at most 1.5 times the dense method's host time ("ratio"). "cpu_ratio"
// is the ratio of the processor time of all threads, which other processes disturb less.
//
// The rows `tiles`, `demo` and `muon` compare SparseLoCo, DeMo and Muon with dense AdamW, also in pairs. `tiles` has
// the bar for "ratio". DeMo's cosine transforms and Muon's Newton-Schulz iterations are arithmetic that these methods
// cannot avoid: "arithmetic_ms_per_step" is its processor time with LibTorch's operators on one thread. "beyond_ratio"
// is the processor time without it, relative to AdamW's; here the bar of 1.5 applies to `demo` and `muon`.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "tests/workers/compressions.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/models/matrix_steps.hpp"

namespace syncopate {
namespace {

constexpr std::size_t size = 1 << 20, rows = 1024, columns = size / rows, rank = 4;
constexpr double ratio = 0.01;
constexpr float slowly = 1e-6f;  // so that the residual does not vanish over many repetitions
constexpr std::size_t kept = static_cast<std::size_t>(ratio * size);

std::vector<float> numbers(std::size_t count) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

torch::Tensor tensor_of(std::vector<float>& values) {
  at::set_num_threads(1);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  return torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())});
}

void top_k(benchmark::State& state) {
  const auto values = numbers(size);
  for (auto _ : state) benchmark::DoNotOptimize(largest_magnitudes(values, kept));
}
void torch_top_k(benchmark::State& state) {
  auto values = numbers(size);
  const auto v = tensor_of(values);
  const torch::NoGradGuard no_grad;
  for (auto _ : state) {
    const auto places = std::get<1>(v.abs().topk(static_cast<std::int64_t>(kept), -1, true, false));
    benchmark::DoNotOptimize(v.index_select(0, places));
  }
}

// Mean magnitude, signs as bits, residual.
void signs(benchmark::State& state) {
  auto values = numbers(size);
  std::vector<std::uint32_t> words(size / 32);
  for (auto _ : state) {
    const auto scale = static_cast<float>(sum_of_magnitudes(values.data(), size) / size);
    pack_bits<Bit::is_minus>(values.data(), size, words.data());
    take_out_signs(values.data(), slowly * scale, size);
    benchmark::ClobberMemory();
  }
}
void torch_signs(benchmark::State& state) {
  auto values = numbers(size);
  auto v = tensor_of(values);
  const torch::NoGradGuard no_grad;
  const auto weights = torch::tensor({1, 2, 4, 8, 16, 32, 64, 128}, torch::kUInt8);
  for (auto _ : state) {
    const auto scale = v.abs().mean();
    auto bits = v.lt(0).view({-1, 8}).to(torch::kUInt8).mul(weights).sum(1, false, torch::kUInt8);
    v.sub_(v.sign().mul_(scale), slowly);
    benchmark::DoNotOptimize(bits);
  }
}

// P = M Q, orthogonalised; Q = M^T P; M -= P Q^T.
void power(benchmark::State& state) {
  const LowRank shape{rows, columns, rank};
  auto matrix = numbers(size);
  std::vector<float> right = numbers(columns * rank), left(rows * rank);
  for (auto _ : state) {
    write_left(shape, matrix.data(), right.data(), left.data());
    orthogonalise(rows, rank, left.data());
    write_right(shape, matrix.data(), left.data(), right.data());
    add_product(shape, -slowly, left.data(), right.data(), matrix.data());
    benchmark::ClobberMemory();
  }
}
void torch_power(benchmark::State& state) {
  auto values = numbers(size);
  auto matrix = tensor_of(values).view({rows, columns});
  const torch::NoGradGuard no_grad;
  auto right = torch::randn({columns, rank});
  for (auto _ : state) {
    auto left = torch::mm(matrix, right);
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(rank); ++c) {  // as PyTorch's hook does
      auto column = left.slice(1, c, c + 1);
      column.div_(column.norm() + 1e-8);
      if (c + 1 < static_cast<std::int64_t>(rank)) {
        auto rest = left.slice(1, c + 1);
        rest.sub_((column * rest).sum(0) * column);
      }
    }
    right = torch::mm(matrix.t(), left);
    matrix.sub_(torch::mm(left, right.t()), slowly);
  }
}

BENCHMARK(top_k)->Unit(benchmark::kMicrosecond);
BENCHMARK(torch_top_k)->Unit(benchmark::kMicrosecond);
BENCHMARK(signs)->Unit(benchmark::kMicrosecond);
BENCHMARK(torch_signs)->Unit(benchmark::kMicrosecond);
BENCHMARK(power)->Unit(benchmark::kMicrosecond);
BENCHMARK(torch_power)->Unit(benchmark::kMicrosecond);

constexpr int workers = 16;

std::shared_ptr<const Objective> objective_of(const char* file, const char* micro_batch_size) {
  const auto experiment = load_experiment(
      std::string(SYNCOPATE_SOURCE_DIR) + file,
      {"cluster.workers=16", "cluster.micro_batches=1", std::string("training.micro_batch_size=") + micro_batch_size});
  return experiment.runs.front().training.make_objective();
}

// One side of a comparison.
struct Side {
  std::shared_ptr<const Algorithm> method;
  std::shared_ptr<const Optimizer> optimizer;
};

Times train(const Side& side, const std::shared_ptr<const Objective>& objective, int steps) {
  return train(*side.method, objective, side.optimizer, workers, 1, steps);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns the arithmetic that a method cannot avoid in a step, for the tensors of an objective.
using Arithmetic = std::function<std::function<void()>(const Objective&)>;

void compare(benchmark::State& state, const std::shared_ptr<const Objective>& objective, int steps, const Side& dense,
             const Side& other, const Arithmetic& arithmetic = {}) {
  const auto work = arithmetic ? arithmetic(*objective) : std::function<void()>();
  train(dense, objective, steps), train(other, objective, steps);
  std::vector<double> ratios, cpu_ratios, beyond_ratios;
  for (auto _ : state) {
    const Times of_dense = train(dense, objective, steps), of_other = train(other, objective, steps);
    ratios.push_back(of_other.host_s / of_dense.host_s);
    cpu_ratios.push_back(of_other.cpu_s / of_dense.cpu_s);
    state.counters["dense_ms_per_step"] = 1e3 * of_dense.host_s / steps;
    if (!work) continue;
    const Times of_work = times_of([&] {
      for (int step = 0; step < steps; ++step) work();
    });
    beyond_ratios.push_back((of_other.cpu_s - of_work.cpu_s) / of_dense.cpu_s);
    state.counters["arithmetic_ms_per_step"] = 1e3 * of_work.cpu_s / steps;
  }
  state.counters["ratio"] = median(ratios);
  state.counters["cpu_ratio"] = median(cpu_ratios);
  if (work) state.counters["beyond_ratio"] = median(beyond_ratios);
}

// Five Newton-Schulz iterations of each matrix, once for all workers: they share the model.
std::function<void()> newton_schulz_of(const Objective& objective) {
  std::vector<torch::Tensor> matrices;
  for (const ParameterTensor& tensor : objective.tensors()) {
    if (tensor.rows == 0) continue;
    const auto rows = static_cast<std::int64_t>(tensor.rows), all = static_cast<std::int64_t>(tensor.size);
    const auto matrix = torch::randn({std::min(rows, all / rows), std::max(rows, all / rows)});
    matrices.push_back(matrix / matrix.norm());
  }
  return [matrices] {
    at::set_num_threads(1);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor x : matrices)
      for (const auto& [a, b, c] : newton_schulz_of_jordan) {
        const auto products = torch::mm(x, x.t());
        x = torch::addmm(x, torch::addmm(products, products, products, b, c), x, a, 1);
      }
  };
}

// The products C_a T C_b^T of all tiles T, of at most 64 x 64 values. Each worker transforms its momentum, and
// transforms its packet back. The mean is transformed once for all workers. A packet has few values per tile, so only
// one of its two products counts.
std::function<void()> transforms_of(const Objective& objective) {
  const auto side_of = [](std::int64_t size) {
    std::int64_t side = std::min<std::int64_t>(size, 64);
    while (size % side != 0) --side;
    return side;
  };
  struct Tiles {
    torch::Tensor values, left, right;
  };
  std::vector<Tiles> all;
  for (const ParameterTensor& tensor : objective.tensors()) {
    if (tensor.size == 0) continue;
    const auto size = static_cast<std::int64_t>(tensor.size);
    const std::int64_t rows = tensor.rows > 0 ? static_cast<std::int64_t>(tensor.rows) : 1;
    const std::int64_t a = side_of(rows), b = side_of(size / rows);
    all.push_back({torch::randn({size / (a * b), a, b}), torch::randn({a, a}), torch::randn({b, b})});
  }
  return [all] {
    at::set_num_threads(1);
    const torch::NoGradGuard no_grad;
    for (const Tiles& tiles : all) {
      const auto both = [&] { return torch::matmul(torch::matmul(tiles.left, tiles.values), tiles.right); };
      for (int worker = 0; worker < workers; ++worker) {
        benchmark::DoNotOptimize(both());
        benchmark::DoNotOptimize(torch::matmul(tiles.left, tiles.values));
      }
      benchmark::DoNotOptimize(both());
    }
  };
}

template <typename Method, typename... Arguments>
std::shared_ptr<const Algorithm> compressed(const CompressionOptions& options, Arguments&&... arguments) {
  auto method = std::make_shared<Method>(std::forward<Arguments>(arguments)...);
  method->compress(options);
  return method;
}

template <typename Run>
void register_row(const char* name, const char* micro_batch_size, const std::string& row, const Run& run) {
  benchmark::RegisterBenchmark((std::string(name) + "/" + micro_batch_size + "/" + row).c_str(), run)
      ->Iterations(5)
      ->Unit(benchmark::kMillisecond);
}

void register_training(const char* name, const char* file, const char* micro_batch_size, int steps) {
  const std::vector<std::pair<std::string, CompressionOptions>> all = {
      {"top_k", compression("top-k")},     {"powersgd", compression("powersgd", "rank = 4")},
      {"sign", compression("sign")},       {"scalecom", compression("scalecom")},
      {"one_bit", compression("one-bit")}, {"sign_two_phase", compression("sign", R"(exchange = "two-phase")")}};
  const std::shared_ptr<const Optimizer> momentum = make_sgd({.momentum = 0.9});
  for (const auto& one : all)
    register_row(name, micro_batch_size, one.first, [=](benchmark::State& state) {
      compare(state, objective_of(file, micro_batch_size), steps, {std::make_shared<SyncSgd>(), momentum},
              {compressed<SyncSgd>(one.second), momentum});
    });
}

// SparseLoCo takes rounds of `period` local steps. The other methods synchronise in every step.
void register_methods(const char* name, const char* file, const char* micro_batch_size, int steps, int period) {
  const std::shared_ptr<const Optimizer> adamw = make_adamw({});
  const Side dense_steps{std::make_shared<SyncSgd>(), adamw};
  const auto row = [=](const char* of, const Side& dense, const Side& other, const Arithmetic& arithmetic = {}) {
    register_row(name, micro_batch_size, of, [=](benchmark::State& state) {
      compare(state, objective_of(file, micro_batch_size), steps, dense, other, arithmetic);
    });
  };
  const auto rounds = [&] { return make_constant_period(Step{period}); };
  const OuterOptimizer outer = make_plain_outer(0.4);
  const CompressionOptions tiles = compression("tiles", "", Compresses::averages);
  row("tiles", {std::make_shared<OuterLocalSgd>(rounds(), outer, StatePolicies{}), adamw},
      {compressed<OuterLocalSgd>(tiles, rounds(), outer, StatePolicies{}), adamw});
  row("demo", dense_steps, {compressed<SyncSgd>(compression("demo")), make_sgd({})}, transforms_of);
  row("muon", dense_steps, {std::make_shared<SyncSgd>(), make_muon({.all_matrices = true}, orthogonalise_by_torch)},
      newton_schulz_of);
}

const bool registered = [] {
  register_training("mlp", "/experiments/quickstart.toml", "32", 30);
  register_training("mlp", "/experiments/quickstart.toml", "128", 10);
  register_training("resnet8", "/experiments/examples/resnet8.toml", "8", 3);
  register_methods("mlp", "/experiments/quickstart.toml", "32", 30, 15);
  register_methods("mlp", "/experiments/quickstart.toml", "128", 30, 15);
  register_methods("resnet8", "/experiments/examples/resnet8.toml", "8", 15, 15);
  return true;
}();

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
