// What an objective will hold in memory, and how it cuts its work: known before its data are loaded, for whoever wants
// to know whether a run fits.
#pragma once

#include <cstdint>

namespace syncopate {

struct ObjectiveMemory {
  std::int64_t data_bytes = 0;  // of the data set; sequences as if all were as long as the longest
  // While a thread computes the gradient of a chunk: activations and what comes with them, beside parameters and
  // gradient. 0: nothing worth mentioning, or not known, as of a module of the user's own.
  std::int64_t pass_bytes = 0;
  bool is_known = true;            // false: only a model that is loaded says it
  std::int64_t chunk_samples = 1;  // these two: see Objective
  bool fuses_micro_batches = true;
  std::int64_t buffers = 0;  // floats of normalisation statistics

  bool operator==(const ObjectiveMemory&) const = default;
};

}  // namespace syncopate
