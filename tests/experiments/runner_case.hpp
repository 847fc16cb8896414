// A fixture that builds a small experiment in code, executes its runs and reads their files.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "algorithms/method/algorithm.hpp"
#include "experiments/execution/runner.hpp"
#include "results/run_directory.hpp"
#include "workers/base/process.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/formulas.hpp"
#include "workers/time/network.hpp"

namespace syncopate {

namespace fs = std::filesystem;

// Synchronous SGD in which each worker calls `at_step_3` before its fourth step.
class Synchronous : public Algorithm {
 public:
  explicit Synchronous(std::function<void(Worker&)> at_step_3 = {}) : at_step_3_(std::move(at_step_3)) {}

  void run(Worker& worker) const override {
    ++runs;
    while (worker.budget_left()) {
      if (worker.step() == Step{3} && at_step_3_) at_step_3_(worker);
      Gradient gradient = worker.compute_step_gradient();
      worker.all_reduce_sum(gradient);
      worker.descend(gradient / (worker.size() * worker.micro_batches()));
      worker.publish();
    }
  }

  mutable int runs = 0;  // number of workers that have begun

 private:
  std::function<void(Worker&)> at_step_3_;
};

class RunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    options_.results_directory = fs::path(testing::TempDir()) / fmt::format("syncopate-runner-{}-{}", getpid(), name);
    fs::remove_all(options_.results_directory);
    options_.threads = 1;
    options_.cluster = ClusterChoice::simulated;
    experiment_.name = "test";
  }
  void TearDown() override {
    set_interrupted(false);
    fs::remove_all(options_.results_directory);
  }

  // Adds a run of ten steps on a quadratic of two dimensions. Two workers have two micro-batches of 1 s each.
  syncopate::Run& add(const std::string& method, std::uint64_t seed, std::shared_ptr<const Algorithm> algorithm,
                      double rate = 0.1) {
    syncopate::Run run;
    run.experiment = experiment_.name;
    run.method = method;
    run.seed = seed;
    run.resolved_toml = fmt::format("method = \"{}\"\nseed = {}\n", method, seed);
    run.hash = fmt::format("{:08x}00000000", experiment_.runs.size());
    run.cluster.workers = 2;
    run.cluster.micro_batches = 2;
    run.cluster.compute_time = std::make_shared<ComputeTime>(seed, 1.0, std::vector<double>{},
                                                             std::vector<std::shared_ptr<const DelayProcess>>{});
    run.cluster.network = make_fixed_network(0.5);
    run.training.make_objective = [seed] {
      return std::make_shared<Quadratic>(QuadraticOptions{.dimension = 2}, seed);
    };
    run.training.optimizer = make_sgd({});
    run.training.learning_rate =
        std::make_shared<LearningRate>(LearningRate::Options{.shape = LearningRate::Shape::constant,
                                                             .peak = rate,
                                                             .warmup_steps = {},
                                                             .total_steps = {},
                                                             .decay_steps = {}});
    run.budget.steps = Step{10};
    run.evaluation.every_steps = Step{4};
    run.algorithm = std::move(algorithm);
    experiment_.runs.push_back(std::move(run));
    return experiment_.runs.back();
  }

  int start() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = run_experiment(experiment_, options_);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }

  fs::path directory(std::size_t run) const {
    return run_directory(options_.results_directory, experiment_.runs[run], false);
  }
  std::string read(std::size_t run, const char* name) const {
    std::ifstream file(directory(run) / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  nlohmann::json summary(std::size_t run) const { return nlohmann::json::parse(read(run, "summary.json")); }

  Experiment experiment_;
  RunOptions options_;
  std::string out_;
  std::string err_;
};

}  // namespace syncopate
