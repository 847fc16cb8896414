// Both sides of a comparison: a method that trains on the simulated cluster, and plain training loops. The model is the
// MLP 784-256-10 on Fashion-MNIST.
#pragma once

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "experiments/sections/experiment.hpp"
#include "tests/benchmarks/plain_loop.hpp"
#include "workers/data/images.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

inline const int cores = static_cast<int>(std::thread::hardware_concurrency());

inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The objective of an experiment with the quick start's data and MLP.
inline std::shared_ptr<const Objective> mlp(int workers, int micro_batches, int micro_batch_size) {
  const auto experiment = load_experiment(
      SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml",
      {"cluster.workers=" + std::to_string(workers), "cluster.micro_batches=" + std::to_string(micro_batches),
       "training.micro_batch_size=" + std::to_string(micro_batch_size)});
  return experiment.runs.front().training.make_objective();
}

struct Times {
  double host_s = 0;
  double cpu_s = 0;  // processor time of all threads
};

inline Times times_of(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  const double host_s = seconds_of(work);
  return {host_s, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC};
}

// The times that the algorithm takes for `steps` on the simulated cluster, including arithmetic.
inline Times train(const Algorithm& algorithm, std::shared_ptr<const Objective> objective,
                   std::shared_ptr<const Optimizer> optimizer, int workers, int micro_batches, int steps) {
  static const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", {});
  const Run& run = experiment.runs.front();
  Executor executor(cores);
  Training training(std::move(objective), std::move(optimizer), {}, executor);
  SimulatedCluster cluster({.workers = workers,
                            .servers = algorithm.traits().servers,
                            .micro_batches = micro_batches,
                            .compute_time = *run.cluster.compute_time,
                            .network = *run.cluster.network,
                            .training = training});
  const LearningRate rate(LearningRate::Options{.peak = 0.01});
  const RunContext context{.cluster = cluster,
                           .training = training,
                           .learning_rate = rate,
                           .budget = {.steps = steps},
                           .micro_batches = micro_batches,
                           .initial_model = training.initial_state()};
  return times_of([&] {
    run_algorithm(algorithm, context);
    executor.wait_all();
  });
}

// Host seconds of training by SGD.
inline double simulate(const Algorithm& algorithm, std::shared_ptr<const Objective> objective, int workers,
                       int micro_batches, int steps, double momentum = 0.9) {
  return train(algorithm, std::move(objective), make_sgd({.momentum = momentum}), workers, micro_batches, steps).host_s;
}

inline const TensorData& tensors() {
  static const auto dataset = idx_images().load(idx_images().usual());
  static const TensorData data(*dataset);
  return data;
}

inline void set_threads(int torch_threads, int blas_threads) {
  at::set_num_threads(torch_threads);
  if (auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set(blas_threads);
}

// Host seconds of independent plain loops, one per core, each with this number of steps.
inline double run_plain_loops(int batch, int steps_of_each) {
  tensors();
  return seconds_of([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < cores; ++i)
      threads.emplace_back([&] {
        set_threads(1, 1);
        PlainLoop loop(tensors(), batch);
        for (int step = 0; step < steps_of_each; ++step) loop.step();
      });
    for (auto& thread : threads) thread.join();
  });
}

inline void report(benchmark::State& state, double ours_per_s, double theirs_per_s, double bar) {
  state.counters["ours_samples_per_s"] = ours_per_s;
  state.counters["theirs_samples_per_s"] = theirs_per_s;
  state.counters["ratio"] = ours_per_s / theirs_per_s;
  state.counters["bar"] = bar;
}

}  // namespace syncopate
