// Turns an experiment file's keys into an objective: model, data set, and micro-batches.
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
#include "workers/models/device.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Reads the keys of a masked language model's table: masked_share, most_masked, masking, mask_copies. If no tokens are
// hidden (`is_asked_for` is false), each given key is a fault. `by`: the setting that hides tokens, for messages, such
// as "the task \"masked-lm\"".
MaskingOptions read_masking(Settings& table, bool is_asked_for, std::string_view by);

// Reports a fault if a key is given although it has no effect. Without this, a wrong value would go unnoticed.
void forbid(Settings& table, const char* key, const std::string& message);

inline constexpr std::int64_t largest_width = 1 << 16;
// Range of dropout shares. Dropping everything would leave nothing to scale.
inline constexpr Range dropout_range{.low = 0, .high = 1, .high_open = true};

// Why samples of this shape do not suit a model.
struct Misfit {
  std::string key{};   // key of the model's table to change; empty: none
  std::string needed;  // for example "the convolutions need images of at least 16 x 16"
};

// Thrown if a model has no network for samples of the data set's shape. `key`: the key of the model that is wrong.
struct ModelFault : std::runtime_error {
  ModelFault(std::string faulty_key, const std::string& what) : std::runtime_error(what), key(std::move(faulty_key)) {}
  std::string key;
};

// A model whose keys have been read: a network on a data set, an objective without data, or neither. Each model has a
// reader that returns a Model, and a row that names the reader (models.cpp). After a fault all functions are empty.
struct Model {
  enum class Inputs { numbers, tokens, either };
  Inputs inputs = Inputs::numbers;
  // Returns why a data set with inputs of this kind does not fit the model; nullopt if it fits. Empty function: all
  // data sets fit. `network` is called only for data that fit.
  std::function<std::optional<Misfit>(const DatasetSize&)> misfit{};
  // Throws ModelFault if no network can be created. Call it while the settings exist.
  std::function<Network(const DatasetSize&)> network{};
  // Throws ModelFault if micro-batches of this many samples cannot be trained on. Empty function: any number works.
  std::function<void(const DatasetSize&, std::int64_t samples)> try_micro_batch{};
  bool learns_targets = false;       // learns numbers instead of classes
  bool learns_token_labels = false;  // learns one label per token instead of one per sequence
  ComputedTokens computed{};         // for sequences
  std::string longest_key{};         // key that limits the length of sequences
  // Number of samples that are fastest to evaluate together on one core, with the kernels that machine.hpp chooses.
  std::int64_t chunk_samples = 0;

  std::function<std::shared_ptr<const Objective>(std::uint64_t seed, Step first_step)> objective{};
  std::int64_t parameters = 0;  // number of parameters of `objective`

  bool time_only = false;
};

struct ObjectiveContext {
  std::uint64_t seed = 0;  // for the order of data and for generated data
  int workers = 1;
  int micro_batches = 1;       // M: micro-batches per optimizer step and worker
  Step first_step{};           // number of steps before the run's first step; it determines the data
  bool looks_for_data = true;  // false: reads keys but no files
  bool needs_lengths = false;  // times depend on lengths, so data other than sequences are a fault
};

// An objective whose keys are checked but whose data is not loaded yet.
struct ObjectivePlan {
  std::function<std::shared_ptr<const Objective>()> load{};  // empty: time-only run, or faults
  // Like `load`, but for measuring times if micro-batches are padded (SamplerOptions::repeats_longest); otherwise
  // empty.
  std::function<std::shared_ptr<const Objective>()> load_timed{};
  bool time_only = false;                  // model = "none"
  std::int64_t parameters = 0;             // P; 0: time-only run, or faults
  std::int64_t buffers = 0;                // number of floats of normalisation statistics
  ObjectiveMemory memory{};                // measured for a network; otherwise the defaults
  std::vector<ParameterTensor> tensors{};  // if known before loading
  std::size_t body_tensors = 0;            // tensors with a `place` below this come before the model's head
  std::int64_t samples_per_micro_batch = 1;
  std::int64_t steps_per_epoch = 0;  // 0: no data set, or faults
  bool divides_data = false;         // the run divides data among workers once, by a partition other than shuffled
  bool is_network = false;
  bool has_accuracy = false;
  std::string why_no_derivative{};  // why the loss has no derivatives (Objective::derivative); empty: it has them
  std::int64_t validation_samples = 0;
  std::function<std::shared_ptr<const SampleKinds>()> load_kinds{};  // throws like `load`; empty: no data set
  std::shared_ptr<const BatchLengths> lengths{};  // lengths of micro-batches, if needed; null after a fault
  // Virtual and emulated times are those of padded micro-batches, although micro-batches are computed without padding.
  bool pads = false;
  Arithmetic arithmetic{};               // for a network
  ArithmeticPlaces arithmetic_places{};  // where the keys of `arithmetic` are written
  bool asks_for_tokens = false;          // a language model, for which longer sequences have more labels to predict
  std::vector<std::string> notes{};      // remarks on files of data and model, and on keys; one sentence each

  // Whether the model's loss is a formula, such as the quadratic's, which has no data and no tensors.
  bool is_formula() const { return load && !load_kinds; }
};

// Reads training.model, training.dataset, training.micro_batch_size, and how sequences form micro-batches. Reads all
// tables [models.*] and [datasets.*] of the root, including those of models that are not chosen, so that an override
// such as training.model=cnn works. Reads the headers of the data files, and their contents for a digest. Missing or
// wrong values are faults of the settings. `load` throws DataFault for faults that only the contents show. Any thread
// may call it, and it may outlive the settings. With model = "none" the data set only determines steps_per_epoch, and
// lengths if they are needed.
ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context);

// The models that an experiment file can name. This file does not use LibTorch.
using ModelRow = TableRow<Model>;
std::span<const ModelRow> models();

// LibTorch's version, such as "1.13.0".
std::string torch_version();

}  // namespace syncopate
