// The way from an experiment file's keys to an objective: which model, on which data set, by which micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/partition.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// The keys of a masked language model's table: masked_share, most_masked, masking, mask_copies. Unless something is
// hidden (`is_asked_for`), each key that is given is a fault. `by`: what asks for it, such as "the task \"masked-lm\"".
MaskingOptions read_masking(Settings& table, bool is_asked_for, std::string_view by);

// A fault where a key is given that has no effect, since nobody would notice a wrong value.
void forbid(Settings& table, const char* key, const std::string& message);

inline constexpr std::int64_t largest_width = 1 << 16;
// A share of what is dropped: all of it would leave nothing to scale.
inline constexpr Range dropout_range{.low = 0, .high = 1, .high_open = true};

// Why samples of some shape do not suit a model.
struct Misfit {
  std::string key{};   // of the model's table, that could be another; empty: none
  std::string needed;  // "the convolutions need images of at least 16 x 16"
};

// Why no network can be made for samples of some shape, of a key of the model's table.
struct ModelFault : std::runtime_error {
  ModelFault(std::string faulty_key, const std::string& what) : std::runtime_error(what), key(std::move(faulty_key)) {}
  std::string key;
};

// A model whose keys are read: a network on a data set, an objective without data, or neither. Each model has a reader
// that gives one, and a row that names the reader (models.cpp). All functions are empty after a fault.
struct Model {
  enum class Inputs { numbers, tokens, either };
  Inputs inputs = Inputs::numbers;
  // Why a data set of these inputs does not fit; empty: all do. The network is made for those that fit.
  std::function<std::optional<Misfit>(const DatasetSize&)> misfit{};
  // Throws a ModelFault where no network can be made. To be called while the settings live.
  std::function<Network(const DatasetSize&)> network{};
  // Throws a ModelFault where micro-batches of so many samples cannot be trained on. Empty: any can.
  std::function<void(const DatasetSize&, std::int64_t samples)> try_micro_batch{};
  bool learns_targets = false;       // numbers instead of classes
  bool learns_token_labels = false;  // a label of each token instead of one for all
  ComputedTokens computed{};         // of sequences
  std::string longest_key{};         // what they are cut by
  // Samples that one core evaluates together for the best speed, with the kernels that machine.hpp chooses.
  std::int64_t chunk_samples = 0;

  std::function<std::shared_ptr<const Objective>(std::uint64_t seed, Step first_step)> objective{};
  std::int64_t parameters = 0;  // of such an objective

  bool time_only = false;
};

// Facts about a run that the plan of its objective needs.
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
  std::function<std::shared_ptr<const Objective>()> load{};  // empty: time-only, or faults
  // Timed in its place where micro-batches are padded (SamplerOptions::repeats_longest); else empty.
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
  // Virtual and emulated times are those of padded micro-batches, which are computed without padding all the same.
  bool pads = false;
  bool asks_for_tokens = false;      // a language model's task: more is asked of a longer sequence
  std::vector<std::string> notes{};  // what is worth knowing of the data's and the model's files; a sentence each
};

// Reads training.model, training.dataset, training.micro_batch_size and how sequences make micro-batches, and all
// tables [models.*] and [datasets.*] of the root, also those of models not chosen, so that an override such as
// training.model=cnn works. Reads the headers of the data files, and their contents for a digest. What is missing or
// wrong is a fault of the settings. `load` throws DataFault for faults that only the contents show; it may be called
// from any thread and outlives the settings. With model = "none" a data set that is named only gives steps_per_epoch,
// and lengths where they are needed.
ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context);

// The models one can name in an experiment file. No LibTorch here.
struct ModelRow {
  std::string_view name;      // as written in TOML
  std::string_view sentence;  // what it is
  std::string_view title;     // what its table [models.<name>] is of; empty: it has no keys
  Model (*read)(Settings& table);
};
std::span<const ModelRow> models();

// Reads all tables [models.*] of the root (see plan_objective). `chosen` may be null.
Model read_models(Settings& root, const ModelRow* chosen);

// LibTorch's, such as "1.13.0".
std::string torch_version();

}  // namespace syncopate
