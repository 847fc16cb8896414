// A small experiment file that tests change and load.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

using Overrides = std::vector<std::string>;

// An experiment on generated data. A step takes 64 samples (4 workers x 2 micro-batches x 8), so 640 samples are 10
// steps.
inline constexpr const char* small = R"(
name = "small"
seeds = [3, 5]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "fixed"
latency_s = 0.5
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 8
[training.learning_rate]
schedule = "cosine"
peak = 0.2
[training.optimizer]
name = "sgd"
[datasets.gaussian-mixture]
train = 640
[budget]
epochs = 6
[[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "drop"
algorithm = "dropcompute"
threshold_s = 0.015
)";

class ExperimentFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    file = std::filesystem::temp_directory_path() /
           (std::string("syncopate_") + test->name() + std::to_string(getpid()) + ".toml");
    write(small);
  }
  void TearDown() override { std::filesystem::remove(file); }

  void write(const std::string& text) const { std::ofstream(file) << text; }
  Experiment load(const Overrides& overrides = {}) const { return load_experiment(file, overrides); }
  std::string faults(const Overrides& overrides = {}, const LoadOptions& options = {}) const {
    try {
      load_experiment(file, overrides, options);
    } catch (const ConfigurationFault& fault) {
      return fault.what();
    }
    return "";
  }
  double rate(const Overrides& overrides, int step) const {
    return load(overrides).runs.at(0).training.learning_rate->at(step);
  }

  std::filesystem::path file;
};

}  // namespace syncopate
