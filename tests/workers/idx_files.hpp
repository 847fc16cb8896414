// IDX files for a test, in a temporary directory of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncopate {

using FileBytes = std::vector<std::uint8_t>;

inline FileBytes idx_header(std::uint8_t type, const std::vector<std::uint32_t>& dimensions) {
  FileBytes bytes = {0, 0, type, static_cast<std::uint8_t>(dimensions.size())};
  for (const auto dimension : dimensions)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(dimension >> shift));
  return bytes;
}

inline FileBytes idx_file(const std::vector<std::uint32_t>& dimensions, const FileBytes& values) {
  FileBytes bytes = idx_header(0x08, dimensions);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

class IdxFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = std::filesystem::temp_directory_path() / ("syncopate-" + test + "-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path write(const std::string& name, const FileBytes& bytes) const {
    std::ofstream out(directory_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return directory_ / name;
  }

  std::filesystem::path write_gzip(const std::string& name, const FileBytes& bytes) const {
    const auto file = directory_ / name;
    gzFile out = gzopen(file.c_str(), "wb");
    if (!out || gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())) != static_cast<int>(bytes.size()))
      throw std::runtime_error("cannot write " + file.string());
    gzclose(out);
    return file;
  }

  std::filesystem::path directory_;
};

// The message of the Fault that `action` throws. The test fails if it throws none.
template <typename Fault, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Fault& fault) {
    return fault.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace syncopate
