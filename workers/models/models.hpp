// The way from an experiment file's keys to an objective: which model, on which data set, by which micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "workers/settings/settings.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/objective_memory.hpp"

namespace syncopate {

class BatchLengths;
class SampleKinds;

// What a run must know before its objective can be planned.
struct ObjectiveContext {
  std::uint64_t seed = 0;  // of the data order and of generated data
  int workers = 1;
  int micro_batches = 1;       // M: micro-batches per optimizer step and worker
  Step first_step{};           // of the data: so many steps lie before the run's first
  bool looks_for_data = true;  // false: keys are read, but no files
  bool needs_lengths = false;  // times go by them: what is no sequence is a fault
};

// An objective whose keys are checked but whose data is not loaded yet.
struct ObjectivePlan {
  std::function<std::shared_ptr<const Objective>()> load;  // empty: time-only, or faults
  // What is timed in its place, where micro-batches are padded: it computes each as its longest sequence so many times.
  // Else empty.
  std::function<std::shared_ptr<const Objective>()> load_timed{};
  bool time_only = false;                  // model = "none"
  std::int64_t parameters = 0;             // P; 0: time-only, or faults
  std::int64_t buffers = 0;                // floats of normalisation statistics
  ObjectiveMemory memory{};                // of a network; else what it says by default
  std::vector<ParameterTensor> tensors{};  // where these are known before it is loaded
  std::size_t body_tensors = 0;            // those whose place is below this come before the model's head
  std::int64_t samples_per_micro_batch = 1;
  std::int64_t steps_per_epoch = 0;  // 0: no data set, or faults
  bool divides_data = false;         // once for the run: a partition other than shuffled
  bool is_network = false;
  bool has_accuracy = false;
  std::string why_no_derivative{};  // of the loss on some samples; empty: there is one
  std::int64_t validation_samples = 0;
  std::function<std::shared_ptr<const SampleKinds>()> load_kinds{};  // as `load`; empty: no data set
  std::shared_ptr<const BatchLengths> lengths{};  // of micro-batches, where they are needed; null after a fault
  // Virtual and emulated times are those of a micro-batch whose sequences are padded to its longest; what is computed
  // of it has no padding, and is the same.
  bool pads = false;
  bool asks_for_tokens = false;      // a language model's task: more is asked of a longer sequence
  std::vector<std::string> notes{};  // what is worth knowing of the data's and the model's files; a sentence each
};

// Reads training.model, training.dataset, training.micro_batch_size and how sequences make micro-batches, and all
// tables [models.*] and [datasets.*] of the root, also those of models not chosen, so that an override such as
// training.model=cnn works. Reads the headers of the data files, and their contents for a digest; what is missing or
// wrong is a fault of the settings. `load` throws DataFault (datasets/dataset.hpp) for faults only the contents show;
// it may be called from any thread and outlives the settings. With model = "none" a data set that is named only gives
// steps_per_epoch, and lengths where they are needed.
ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context);

}  // namespace syncopate
