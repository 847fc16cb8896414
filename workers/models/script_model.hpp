// The table [models.torchscript]: a module of one's own. How to save one: TORCHSCRIPT.md.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "workers/config/settings.hpp"
#include "workers/models/models.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

Model read_torchscript(Settings& table);

// What is asked for of a module that is loaded from a file.
// Why a file cannot be trained: what was found, and what would be right.
struct ScriptFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ScriptOptions {
  bool fused = true;           // micro-batches are evaluated together, where that changes nothing
  bool drawn = false;          // the first values of matrices and filters are drawn by the run's seed, not the file's
  bool squared_error = false;  // the loss, of numbers; else cross-entropy
  TextTask task{};             // of tokens

  // Whether it bears them is tried.
  struct Trial {
    std::int64_t trained = 0;    // samples of a micro-batch; 0: not tried
    std::int64_t evaluated = 0;  // samples that are evaluated together; 0: not tried
  } trial{};
};

}  // namespace syncopate
