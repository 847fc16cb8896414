// A folder of a test's own with one module in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/workers/script_files.hpp"
#include "workers/models/torch_script.hpp"

namespace syncopate {

class ScriptFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("syncopate-script-" + std::to_string(getpid()) + "-" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ / "model.pt"; }

  // Each is another file, so nothing is remembered of those before.
  Network load(const DatasetSize& data, const ScriptOptions& options = {}) const {
    static int files = 0;
    return script_network(file(), std::to_string(++files), data, options);
  }
  std::string fault(const DatasetSize& data, const ScriptOptions& options = {}) const {
    try {
      load(data, options);
    } catch (const ScriptFault& problem) {
      return problem.what();
    }
    return "";
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace syncopate
