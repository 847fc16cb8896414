// Synchronous SGD under mpirun, without delays, compared with a loop written by hand with MPI and LibTorch:
//   mpirun -n 2 bin/mpi_sync_sgd_benchmark
// MLP 784-256-10, batch 32 per rank, SGD with momentum, the same data set (generated, so nothing must be installed).
// Both sides take turns within each iteration, so the ratio is from one run.
#include <benchmark/benchmark.h>
#include <mpi.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "workers/base/machine.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/sampler.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/mpi/mpi_cluster.hpp"

namespace {

using namespace syncopate;

constexpr int batch = 32;
constexpr int steps = 500;
constexpr double rate = 0.05;
constexpr double momentum = 0.9;

const MpiSession* session = nullptr;

double seconds_of(const std::function<void()>& work) {
  MPI_Barrier(session->communicator());
  const auto begin = std::chrono::steady_clock::now();
  work();
  MPI_Barrier(session->communicator());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Typical code without a framework: gradients as views into one flat buffer, one blocking all-reduce in place, torch's
// own optimizer.
class HandWritten {
 public:
  HandWritten(std::shared_ptr<const Dataset> data, const SamplerOptions& sampling)
      : data_(std::move(data)),
        sampler_(sampling),
        model_(torch::nn::Linear(784, 256), torch::nn::ReLU(), torch::nn::Linear(256, 10)),
        optimizer_(model_->parameters(), torch::optim::SGDOptions(rate).momentum(momentum)) {
    std::int64_t size = 0;
    for (const auto& parameter : model_->parameters()) size += parameter.numel();
    flat_ = torch::zeros({size});
    std::int64_t at = 0;
    for (auto& parameter : model_->parameters()) {
      MPI_Bcast(parameter.data_ptr<float>(), static_cast<int>(parameter.numel()), MPI_FLOAT, 0,
                session->communicator());
      parameter.mutable_grad() = flat_.narrow(0, at, parameter.numel()).view(parameter.sizes());
      at += parameter.numel();
    }
  }

  void train() {
    const torch::Tensor inputs = torch::empty({batch, 784});
    const torch::Tensor labels = torch::empty({batch}, torch::kLong);
    std::vector<std::uint32_t> samples;
    for (int s = 0; s < steps; ++s, ++step_) {
      samples.clear();
      sampler_.append_samples({Rank{session->rank()}, step_, 0}, samples);
      data_->gather(Split::train, samples, inputs.data_ptr<float>(), labels.data_ptr<std::int64_t>());
      flat_.zero_();
      torch::nn::functional::cross_entropy(model_->forward(inputs), labels).backward();
      MPI_Allreduce(MPI_IN_PLACE, flat_.data_ptr<float>(), static_cast<int>(flat_.numel()), MPI_FLOAT, MPI_SUM,
                    session->communicator());
      flat_.div_(session->size());
      optimizer_.step();
    }
  }

 private:
  std::shared_ptr<const Dataset> data_;
  Sampler sampler_;
  torch::nn::Sequential model_;
  torch::optim::SGD optimizer_;
  torch::Tensor flat_;
  Step step_{};
};

class WithSyncopate {
 public:
  WithSyncopate(std::shared_ptr<const Dataset> data, const SamplerOptions& sampling)
      : training_(std::make_shared<TorchObjective>(mlp_network(data->size().shape, 10, {256}), data, sampling, 256),
                  make_sgd({.momentum = momentum}), {}, executor_) {}

  void train() {
    const ComputeTime no_delays(1, 1e-3, {}, {});
    const auto made = make_mpi_cluster(
        {.workers = session->size(), .compute_time = no_delays, .training = training_, .session = *session});
    Cluster& cluster = *made;
    const LearningRate constant(LearningRate::Options{.peak = rate});
    const RunContext context{.cluster = cluster,
                             .training = training_,
                             .learning_rate = constant,
                             .budget = {.steps = Step{steps}, .seconds = {}, .samples = {}, .bytes = {}},
                             .initial_model = training_.initial_state()};
    last_ = run_algorithm(SyncSgd(), context);
  }

  RunTotals last_;

 private:
  Executor executor_{0};
  Training training_;
};

void BM_SyncSgdAgainstAHandWrittenLoop(benchmark::State& state) {
  const auto data = make_gaussian_mixture({.classes = 10, .dimension = 784, .train = 20000, .test = 100}, 1);
  const SamplerOptions sampling{
      .samples = data->size().train, .workers = session->size(), .micro_batch_size = batch, .seed = 1};
  HandWritten by_hand(data, sampling);
  WithSyncopate ours(data, sampling);
  by_hand.train();  // warms caches and allocators on both sides
  ours.train();
  std::vector<double> hand_s, our_s, ratios;
  for (auto _ : state) {
    hand_s.push_back(seconds_of([&] { by_hand.train(); }));
    our_s.push_back(seconds_of([&] { ours.train(); }));
    ratios.push_back(hand_s.back() / our_s.back());
  }
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  const double samples = static_cast<double>(steps) * batch * session->size();
  state.counters["by_hand_samples_per_s"] = samples / median(hand_s);
  state.counters["syncopate_samples_per_s"] = samples / median(our_s);
  state.counters["ratio"] = median(ratios);  // bar: 0.95
  if (session->rank() == 0)
    for (const Account& account : ours.last_.accounts)
      std::fprintf(stderr, "compute %.1f us, wait %.1f us, communicate %.1f us per step\n",
                   1e6 * to_seconds(account[Activity::compute]) / steps,
                   1e6 * to_seconds(account[Activity::wait]) / steps,
                   1e6 * to_seconds(account[Activity::communicate]) / steps);
}
// A fixed number of iterations, so that all ranks run the same number.
BENCHMARK(BM_SyncSgdAgainstAHandWrittenLoop)->Iterations(9)->Unit(benchmark::kMillisecond)->UseRealTime();

struct Silent : benchmark::BenchmarkReporter {
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  const syncopate::MpiSession mpi;
  if (!mpi.active()) {
    std::fprintf(stderr, "start this benchmark with mpirun -n 2\n");
    return 2;
  }
  session = &mpi;
  at::set_num_threads(1);
  // mpirun gives its ranks their own terminal, also if their output goes to a file: no colours unless requested.
  std::string without_colour = "--benchmark_color=false";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, without_colour.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  Silent silent;
  benchmark::RunSpecifiedBenchmarks(mpi.rank() == 0 ? nullptr : &silent);
  return 0;
}
