// A fixture that writes files, and reads entries of [[delays]] that name them with the program's reader.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "workers/config/settings.hpp"
#include "workers/time/delays.hpp"

namespace syncopate {

class DelayFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("syncopate_delays_") + test->name() + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  void write_compressed(const std::string& name, const std::string& text) const {
    gzFile file = gzopen(path(name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }

  struct Read {
    std::shared_ptr<const DelayProcess> delay;
    std::string faults;
    std::string resolved;
  };
  // Reads the text as if it were in a file in the folder.
  Read read(const std::string& toml, DelayContext context = {0.010, 2}) const {
    SettingsDocument document(parse_toml(toml, path("experiment.toml")));
    Settings settings = document.root();
    auto delay = make_delay(settings, context);
    return {std::move(delay), document.check().report(), write_toml(document.resolved())};
  }

  std::filesystem::path folder_;
};

inline std::vector<double> added(const DelayProcess& process, int worker, Step step, std::size_t n,
                                 std::uint32_t first = 0) {
  std::vector<double> sums(n, 0.0);
  process.add({.seed = 7, .worker = Rank{worker}, .step = step}, first, sums);
  return sums;
}

}  // namespace syncopate
