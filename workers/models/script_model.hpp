// The table [models.torchscript]: a user's own module. TORCHSCRIPT.md explains how to save one.
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

// Thrown if a module's file cannot be trained. The message says what was found and what is required.
struct ScriptFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ScriptOptions {
  bool fused = true;   // evaluate micro-batches together if that changes no result
  bool drawn = false;  // draw initial matrices and filters from the run's seed instead of taking the file's values
  bool squared_error = false;  // squared error as the loss, for numbers; false: cross-entropy
  TextTask task{};             // for tokens

  // Sizes of the batches with which the module is tried before the run.
  struct Trial {
    std::int64_t trained = 0;    // number of samples in a micro-batch; 0: no trial
    std::int64_t evaluated = 0;  // number of samples evaluated together; 0: no trial
  } trial{};
};

// Returns the network for a module's file. Throws ScriptFault. A module is not loaded again if the last call had the
// same file, data and options. Only the library with LibTorch contains this function (torch_script.cpp): the program
// calls torch_functions().load_script.
Network script_network(const std::filesystem::path& file, const std::string& hash, const DatasetSize& data,
                       const ScriptOptions& options);

}  // namespace syncopate
