// The table [models.torchscript]: a user's own module. How to save one: TORCHSCRIPT.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "workers/config/settings.hpp"
#include "workers/models/models.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

Model read_torchscript(Settings& table);

// Why a module's file cannot be trained: what was found, and what would be right.
struct ScriptFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ScriptOptions {
  bool fused = true;           // evaluate micro-batches together, if that changes nothing
  bool drawn = false;          // draw initial matrices and filters by the run's seed instead of taking the file's
  bool squared_error = false;  // the loss, for numbers; else cross-entropy
  TextTask task{};             // for tokens

  // How many samples to try at once.
  struct Trial {
    std::int64_t trained = 0;    // samples of a micro-batch; 0: no trial
    std::int64_t evaluated = 0;  // samples evaluated together; 0: no trial
  } trial{};
};

// The network for a module's file. Throws ScriptFault. The same file, data and options give the same network again.
// Only the library with LibTorch has this function (torch_script.cpp): the program calls load_script_network.
Network script_network(const std::filesystem::path& file, const std::string& hash, const DatasetSize& data,
                       const ScriptOptions& options);

}  // namespace syncopate
