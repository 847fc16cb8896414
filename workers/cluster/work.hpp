// Micro-batches that a worker has computed and whose fate is decided: they are in a model, or never will be.
#pragma once

#include <cstdint>

#include "workers/units/units.hpp"

namespace syncopate {

struct Work {
  Rank worker{};
  std::int64_t micro_batches = 0;
  Duration time{};  // that the worker took for them
};

}  // namespace syncopate
