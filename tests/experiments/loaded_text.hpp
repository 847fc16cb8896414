// A separate folder in which a test writes experiment files and loads them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

class LoadedText : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("syncopate-{}-{}-{}", test->test_suite_name(), getpid(), test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Experiment load(const std::string& text) const {
    const std::filesystem::path file = folder_ / "e.toml";
    std::ofstream(file) << text;
    return load_experiment(file, {});
  }

  std::filesystem::path folder_;
};

}  // namespace syncopate
