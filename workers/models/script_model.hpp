// The table [models.torchscript]: a module of one's own. How to save one: TORCHSCRIPT.md.
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
  bool fused = true;           // micro-batches are evaluated together, where that changes nothing
  bool drawn = false;          // the first values of matrices and filters are drawn by the run's seed, not the file's
  bool squared_error = false;  // the loss, of numbers; else cross-entropy
  TextTask task{};             // of tokens

  // How many samples at once are tried.
  struct Trial {
    std::int64_t trained = 0;    // samples of a micro-batch; 0: not tried
    std::int64_t evaluated = 0;  // samples that are evaluated together; 0: not tried
  } trial{};
};

// The network that a module is. Throws ScriptFault. The same file, data and options give the same once more. Only the
// library with LibTorch has it (torch_script.cpp): the program calls load_script_network.
Network script_network(const std::filesystem::path& file, const std::string& hash, const DatasetSize& data,
                       const ScriptOptions& options);

}  // namespace syncopate
