// Compression: kernels on flat vectors of 2^20 values, compared with the same kernels in LibTorch's operators, on one
// thread; and simulated training with compressed sums compared with dense ones, in pairs. Bars: kernels at least twice
// as fast, training at most 1.5 times the dense method's host time ("ratio"). "cpu_ratio" is the ratio of the processor
// time of all threads, which other processes disturb less.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "tests/workers/compressions.hpp"
#include "workers/compression/kernels.hpp"

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
    pack_signs(values.data(), size, words.data());
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

std::shared_ptr<const Objective> objective_of(const char* file, const char* micro_batch_size) {
  const auto experiment = load_experiment(
      std::string(SYNCOPATE_SOURCE_DIR) + file,
      {"cluster.workers=16", "cluster.micro_batches=1", std::string("training.micro_batch_size=") + micro_batch_size});
  return experiment.runs.front().training.make_objective();
}

void trained(benchmark::State& state, const char* file, const char* micro_batch_size, int steps,
             CompressionOptions options) {
  const auto objective = objective_of(file, micro_batch_size);
  SyncSgd dense, compressed;
  compressed.compress(options);
  struct Times {
    double host_s;
    double cpu_s;
  };
  const auto run = [&](const Algorithm& method) {
    const std::clock_t start = std::clock();
    const double host_s = simulate(method, objective, 16, 1, steps);
    return Times{host_s, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC};
  };
  run(dense), run(compressed);
  std::vector<double> ratios, cpu_ratios;
  for (auto _ : state) {
    const Times of_dense = run(dense), of_compressed = run(compressed);
    ratios.push_back(of_compressed.host_s / of_dense.host_s);
    cpu_ratios.push_back(of_compressed.cpu_s / of_dense.cpu_s);
    state.counters["dense_ms_per_step"] = 1e3 * of_dense.host_s / steps;
  }
  std::ranges::sort(ratios);
  std::ranges::sort(cpu_ratios);
  state.counters["ratio"] = ratios[ratios.size() / 2];
  state.counters["cpu_ratio"] = cpu_ratios[cpu_ratios.size() / 2];
}

void register_training(const char* name, const char* file, const char* micro_batch_size, int steps) {
  const std::vector<std::pair<std::string, CompressionOptions>> all = {
      {"top_k", compression("top-k")},     {"powersgd", compression("powersgd", "rank = 4")},
      {"sign", compression("sign")},       {"scalecom", compression("scalecom")},
      {"one_bit", compression("one-bit")}, {"sign_two_phase", compression("sign", R"(exchange = "two-phase")")}};
  for (const auto& one : all) {
    const auto run = [=](benchmark::State& state) { trained(state, file, micro_batch_size, steps, one.second); };
    benchmark::RegisterBenchmark((std::string(name) + "/" + micro_batch_size + "/" + one.first).c_str(), run)
        ->Iterations(5)
        ->Unit(benchmark::kMillisecond);
  }
}

const bool registered = [] {
  register_training("mlp", "/experiments/quickstart.toml", "32", 30);
  register_training("mlp", "/experiments/quickstart.toml", "128", 10);
  register_training("resnet8", "/experiments/examples/resnet8.toml", "8", 3);
  return true;
}();

}  // namespace
}  // namespace syncopate

BENCHMARK_MAIN();
