#include "workers/models/models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>
#include <variant>

#include "workers/data/augmentation.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/sampler.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/formulas.hpp"
#include "workers/models/script_model.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

// Estimates the memory of a network's forward and backward pass, without the parameters and their gradient. Also
// estimates the multiplications of a forward pass.
// Units:   bytes for the given number of samples in one batch, as this program evaluates them with LibTorch on a CPU.
// Shapes:  for each layer its output and what it stores for the backward pass; for attention also its scores (tokens^2
//          per head). The unfolded input of one convolution at a time is added (k^2 C values per pixel). All sequences
//          count with the length of the longest.
// Checks:  peaks of the program's memory with and without a training (tests/experiments/memory_test.cpp).
//
// The class adds up the floats per sample that each layer stores.
class PassCost {
 public:
  explicit PassCost(const Network& network)
      : network_(network),
        shape_(network.input()),
        places_(network.input().has_tokens() ? network.input().width : 1),
        held_(shape_.has_tokens() ? 0 : shape_.features()) {
    for (std::size_t i = 0; i < network.layers().size(); ++i) {
      before_ = std::exchange(shape_, network.shapes()[i]);
      std::visit(*this, network.layers()[i]);
    }
  }

  template <OneOf<layer::Flatten, layer::ResidualBegin, layer::ShortcutBegin> Kind>
  void operator()(const Kind&) {}
  void operator()(const layer::Linear& layer) {
    multiply(weight(layer.weight)[0] * weight(layer.weight)[1]);
    give();
  }
  void operator()(const layer::Convolution& layer) {
    const std::vector<std::int64_t>& filter = weight(layer.weight);
    const std::int64_t unfolded = filter[1] * filter[2] * filter[3];
    unfolded_ = std::max(unfolded_, unfolded * shape_.height * shape_.width);
    multiply(filter[0] * unfolded);
    give();
  }
  template <OneOf<layer::Relu, layer::Silu, layer::Gelu, layer::Tanh, layer::BatchNorm, layer::GroupNorm,
                  layer::LayerNorm, layer::Positions, layer::AskedTokens, layer::ResidualEnd, layer::Patches>
                Kind>
  void operator()(const Kind&) {
    give();  // as if the outputs of all tokens were needed
  }
  void operator()(const layer::RmsNorm&) { give(2); }  // includes the normalised features before their weights
  template <OneOf<layer::MeanPool, layer::FirstTokens, layer::BagOfWords> Kind>
  void operator()(const Kind&) {
    places_ = 1;
    give();
  }
  // In blocks, nothing is stored except the input, and pairs of a query with a later token are skipped.
  void operator()(const layer::Attention& layer) {
    const bool in_blocks = layer.in_blocks && places_ > layer::attention_block;
    const std::int64_t tokens = shape_.height * shape_.width * places_;
    const std::int64_t scores = layer.heads * tokens * (in_blocks ? layer::attention_block : tokens);
    const std::int64_t inputs = before_.features() * places_;
    // Without blocks, queries, keys and values are stored separately, and scores before and after the softmax.
    if (!in_blocks) held_ += inputs + 2 * scores;
    largest_ = std::max(largest_, in_blocks ? inputs : scores);
    const double seen =
        in_blocks ? 0.5 * static_cast<double>(tokens + layer::attention_block) : static_cast<double>(tokens);
    multiply_adds_ += 2.0 / 3 * seen * static_cast<double>(inputs);
    give();
  }
  void operator()(const layer::Dropout&) { give(2); }  // includes the mask
  void operator()(const layer::MaxPool&) { give(3); }  // includes the indices of the maxima, 8 bytes each
  void operator()(const layer::WordEmbedding& layer) {
    give(layer.places < 0 ? 1 : 3);  // words, positions, and their sum
  }
  void operator()(const layer::Script&) { is_known_ = false; }

  // False for a user's own module, because its memory cannot be known before a run.
  bool is_known() const { return is_known_; }
  // While a layer is differentiated, the gradients of its inputs and outputs are also in memory.
  std::int64_t trained_floats() const { return held_ + 2 * largest_ + unfolded_; }
  // During an evaluation a layer's input, output and intermediate results are in memory.
  std::int64_t evaluated_floats() const { return network_.input().features() + 3 * largest_ + unfolded_; }
  double multiply_adds() const { return multiply_adds_; }

 private:
  const std::vector<std::int64_t>& weight(int index) const {
    return network_.parameters()[static_cast<std::size_t>(index)].shape;
  }
  std::int64_t here() const { return shape_.features() * places_; }
  // Counts multiplications by this many weights at each pixel or token.
  void multiply(std::int64_t weights) {
    multiply_adds_ += static_cast<double>(weights * shape_.height * shape_.width * places_);
  }
  void give(std::int64_t copies = 1) {
    held_ += copies * here();
    largest_ = std::max(largest_, here());
  }

  const Network& network_;
  SampleShape shape_;     // output of the layer
  SampleShape before_{};  // its input
  std::int64_t places_;   // rows per sample: the longest text's tokens, while these are separate; otherwise 1
  std::int64_t held_;
  std::int64_t largest_ = 0;
  std::int64_t unfolded_ = 0;  // unfolded input of one convolution at a time
  double multiply_adds_ = 0;
  bool is_known_ = true;
};

// Rows (sequences) without a label to predict: all labels are -100, no token may be hidden, or there is no next token.
// That may hold for the whole row, or for the part that `longest` leaves. Such a row would count as a loss of 0 in a
// micro-batch's mean. A micro-batch of only such rows would add nothing to a step's gradient, but still count in its
// divisor.
struct UnaskedRows {
  std::int64_t count = 0;  // in both splits
  Split split = Split::train;
  std::uint32_t first = 0;  // row number, in its file, of the first such row

  void add(Split of, std::uint32_t row) {
    if (count++ > 0) return;
    split = of;
    first = row;
  }
  std::string text() const {  // for example "row 2 of the training set and 3 others are"
    const std::string named = fmt::format("row {} of the {} set", first, split == Split::train ? "training" : "test");
    return count == 1 ? named + " is" : fmt::format("{} and {} other{} are", named, count - 1, count == 2 ? "" : "s");
  }
};

struct UnaskedByTask {
  UnaskedRows whole;         // rows without a label to predict, even if shown completely
  UnaskedRows cut;           // rows with labels to predict only in the part that is cut off
  std::int64_t longest = 0;  // smallest value of `longest` that leaves each row in `cut` a label
};

using Kind = TextTask::Kind;

// Returns how many tokens of a row the model must see so that it has a label to predict; nullopt: no number suffices.
std::optional<std::int64_t> tokens_needed(const Dataset& dataset, Split split, std::uint32_t row,
                                          const TextTask& task) {
  const auto first_where = [](const auto& of, const auto& asks) -> std::optional<std::int64_t> {
    const auto found = std::ranges::find_if(of, asks);
    return found == of.end() ? std::nullopt : std::optional(found - of.begin() + 1);
  };
  if (task.kind == Kind::causal_lm)
    return dataset.length(split, row) > 1 ? std::optional<std::int64_t>(2) : std::nullopt;
  if (task.own_labels)
    return first_where(dataset.token_labels(split, row), [](std::int32_t label) { return label != ignored_label; });
  const auto& never = dataset.size().marks.never_masked;
  std::vector<std::int32_t> space;
  return first_where(dataset.tokens(split, row, {}, space),
                     [&](std::int32_t token) { return std::ranges::find(never, token) == never.end(); });
}

// Whether the sizes alone allow rows without a label to predict. Only the data's contents show whether there are any.
bool may_leave_unasked(const DatasetSize& data, const TextTask& task) {
  const std::int64_t shortest = data.shortest > 0 ? data.shortest : data.shape.width;
  const bool is_cut = task.longest > 0 && task.longest < data.shape.width;
  switch (task.kind) {
    case Kind::classification:
      return false;
    case Kind::causal_lm:
      return shortest < 2 || (is_cut && task.longest < 2);
    case Kind::masked_lm:
      if (task.own_labels) return is_cut;  // whole rows were checked when the data were read
      if (data.marks.never_masked.empty()) return false;
      // A row consists of a first token, words, and a last token. If it has words, its first two tokens suffice.
      if (data.marks.never_masked_stand_at_ends) return shortest < 3 || (is_cut && task.longest < 2);
      return true;
  }
  return true;
}

// Searches the training and the test set as stored in the files. `task` must not be classification.
UnaskedByTask unasked_rows(const Dataset& dataset, const TextTask& task) {
  assert(task.kind != Kind::classification);
  UnaskedByTask found;
  for (const Split split : {Split::train, Split::test})
    for (std::int64_t row = 0; row < dataset.size().samples(split); ++row) {
      const auto number = static_cast<std::uint32_t>(row);
      const auto needed = tokens_needed(dataset, split, number, task);
      if (!needed)
        found.whole.add(split, number);
      else if (task.longest > 0 && *needed > task.longest)
        found.cut.add(split, number);
      found.longest = std::max(found.longest, needed.value_or(0));
    }
  return found;
}

std::string text_of(const DatasetSize& size) {
  const SampleShape& shape = size.shape;
  if (size.token_classes > 0) return fmt::format("sequences of up to {} tokens, with one label per token", shape.width);
  if (shape.has_tokens()) return fmt::format("sequences of up to {} tokens", shape.width);
  const std::string samples = shape.channels == 1 && shape.height == 1
                                  ? fmt::format("vectors of {}", shape.width)
                                  : fmt::format("images of {} x {}", shape.height, shape.width);
  return samples + (size.targets > 0 ? ", with numbers to learn instead of classes" : "");
}

std::optional<Misfit> misfit_of(const Model& model, const DatasetSize& size) {
  using Inputs = Model::Inputs;
  if (size.shape.has_tokens() && model.inputs == Inputs::numbers)
    return Misfit{.needed = "needs samples made of numbers, such as images"};
  if (!size.shape.has_tokens() && model.inputs == Inputs::tokens)
    return Misfit{.needed = "needs texts, which are sequences of tokens"};
  if (auto found = model.misfit ? model.misfit(size) : std::nullopt) return found;
  if (size.targets > 0 && !model.learns_targets)
    return Misfit{.needed = "needs classes (integers in y); only torchscript with loss = \"mse\" learns numbers"};
  if (size.token_classes > 0 && !model.learns_token_labels)
    return Misfit{.needed =
                      "needs one label per sequence, y of (n,); only torchscript with loss = \"masked\" learns "
                      "labels of tokens"};
  return {};
}

// Reports a fault and returns false if samples of the data set do not suit the model.
bool fits(const ModelRow& row, const Model& model, const DatasetRow& dataset, const DatasetSize& size,
          Settings& training, Settings& root) {
  const auto misfit = misfit_of(model, size);
  if (!misfit) return true;
  const std::string message = fmt::format("{}; {} has {}", misfit->needed, dataset.name, text_of(size));
  if (misfit->key.empty())
    training.fault("model", message);
  else
    root.section("models").section(row.name).fault(misfit->key, message);
  return false;
}

// The keys for training a network, other than those of the model and the data.
struct NetworkTraining {
  double label_smoothing = 0;
  std::optional<PartitionOptions> partition;
  Augmentation augmentation;
  ValidationOptions validation;
  Arithmetic arithmetic;
  ComputedTokens computed{};  // the tokens that the model computes, for sequences
  SamplerOptions sampling{};  // complete once the data are known
};

ValidationOptions read_validation(Settings& training, std::uint64_t seed) {
  ValidationOptions options;
  options.samples = training.integer(
      {"validation_samples", "Number of training samples that are held out and evaluated in addition to the test set.",
       "samples"},
      0, std::int64_t{1} << 32, 0);
  options.seed = static_cast<std::uint64_t>(training.integer(
      {"validation_seed", "Seed that selects these samples; they are the same for all seeds unless subset_by_seed."}, 0,
      std::numeric_limits<std::int64_t>::max(), 0));
  const bool is_by_seed = training
                              .optional_flag({"subset_by_seed",
                                              "Whether each seed selects its own samples, by validation_seed + seed.",
                                              {},
                                              "all seeds use the same samples"})
                              .value_or(false);
  if (is_by_seed) options.seed += seed;
  options.subset = training.optional_integer(
      {"subset_samples", "Number of training samples to use, selected by validation_seed; left out: all.", "samples"},
      1, std::int64_t{1} << 32);
  if (options.samples > 0 || options.subset) return options;
  for (const char* const key : {"validation_seed", "subset_by_seed"})
    forbid(training, key, "has no effect without validation_samples or subset_samples");
  return options;
}

NetworkTraining read_network_training(Settings& training, std::uint64_t seed) {
  NetworkTraining how;
  how.label_smoothing =
      training.number({"label_smoothing",
                       "Share of each label that gradients spread over all classes; reported losses are without it."},
                      {.low = 0, .high = 1, .high_open = true}, 0.0);
  how.partition = read_partition(training);
  how.augmentation = read_augmentation(training);
  how.validation = read_validation(training, seed);
  read_batching(training, how.sampling);
  how.arithmetic = read_arithmetic(training);
  return how;
}

// Reports faults at keys that need data, for an objective without data.
void check_no_data(const NetworkTraining& how, Settings& training) {
  if (how.label_smoothing > 0) training.fault("label_smoothing", "must be 0: this model has no labels");
  if (how.partition) training.fault("partition", "must be left out: this model has no data");
  if (how.augmentation.changes_samples()) training.fault("augmentation", "must be left out: this model has no data");
  if (how.validation.samples > 0) training.fault("validation_samples", "must be 0: this model has no data");
  if (how.validation.subset) training.fault("subset_samples", "must be left out: this model has no data");
  if (how.sampling.batching != Batching::count) training.fault("batching", "must be \"count\": this model has no data");
  for (const char* const key : {"device", "precision", "device_batch", "deterministic"})
    if (training.has(key)) training.fault(key, "must be left out: this model is not computed by LibTorch");
}

// Reports faults at keys that need larger micro-batches, and at keys that need classes if samples have numbers instead.
void check_mixing(const NetworkTraining& how, const DatasetSize& size, std::string_view dataset, Settings& training) {
  if (how.augmentation.mixup > 0 && how.sampling.micro_batch_size < 2)
    training.section("augmentation")
        .fault("mixup", "needs micro_batch_size of at least 2, because samples of a micro-batch are mixed in pairs");
  if (size.targets == 0) return;
  const std::string why = fmt::format("samples of {} have numbers instead of classes", dataset);
  if (how.label_smoothing > 0) training.fault("label_smoothing", "must be 0: " + why);
  if (how.augmentation.mixup > 0) training.section("augmentation").fault("mixup", "must be left out: " + why);
}

// Reports a fault and returns false if samples cannot be held out or divided as the keys say.
bool suits_division(const NetworkTraining& how, const DatasetSize& size, std::string_view dataset, Settings& training) {
  const std::size_t before = training.faults_so_far();
  if (size.draws_samples) {
    const std::string why = fmt::format(
        "must be left out: with datasets.{}.windows = \"random\" each window is drawn from all training data", dataset);
    if (how.partition) training.fault("partition", why);
    if (how.validation.samples > 0) training.fault("validation_samples", why);
    if (how.validation.subset) training.fault("subset_samples", why);
  } else if (how.partition) {
    const std::int64_t most = how.sampling.samples / how.sampling.workers;  // with more shards some would be empty
    if (how.partition->kind != PartitionOptions::Kind::size && size.classes == 0)
      training.section("partition")
          .fault("kind", fmt::format("must be \"shuffled\" or \"size\": samples of {} have no classes", dataset));
    else if (how.partition->kind == PartitionOptions::Kind::label && how.partition->shards > most)
      training.section("partition")
          .fault(
              "shards",
              fmt::format("must be at most {}: {} training samples for {} workers cannot be divided into more shards",
                          most, how.sampling.samples, how.sampling.workers));
  }
  return training.faults_so_far() == before;
}

// Loads the data set, without held-out samples in its training set.
std::shared_ptr<const Dataset> load(const DatasetPlan& data, const ValidationOptions& validation) {
  auto dataset = data.load();
  return validation.samples > 0 || validation.subset ? with_validation(std::move(dataset), validation) : dataset;
}

// The options of the sampler for loaded data.
SamplerOptions sampling_of(const Dataset& dataset, const NetworkTraining& how) {
  SamplerOptions sampling = how.sampling;
  if (how.partition)
    sampling.shards =
        divide(labels_of(dataset), dataset.size().classes, sampling.workers, *how.partition, sampling.seed);
  return sampling;
}

// Reads the lengths of sequences, from which packed and bucketed micro-batches are formed. Returns false after a fault.
bool plan_lengths(const DatasetPlan& data, NetworkTraining& how, ObjectivePlan& plan, Settings& training) {
  try {
    const auto dataset = load(data, how.validation);
    how.sampling.lengths = std::make_shared<const std::vector<std::int32_t>>(training_lengths(*dataset, how.computed));
    const auto sampler = std::make_shared<const Sampler>(sampling_of(*dataset, how));
    plan.steps_per_epoch = sampler->steps_per_epoch();
    plan.samples_per_micro_batch = sampler->samples_per_micro_batch();
    plan.lengths = sampler;
    return true;
  } catch (const DataFault& problem) {
    training.fault(how.sampling.batching == Batching::packed ? "token_budget" : "micro_batch_size", problem.what());
    return false;
  }
}

// Reports a fault if a partition leaves a worker without a micro-batch. This depends on labels, so it reads the data.
void check_partition(const DatasetPlan& data, const NetworkTraining& how, Settings& training) {
  try {
    static_cast<void>(Sampler(sampling_of(*load(data, how.validation), how)));
  } catch (const DataFault& problem) {
    training.fault("partition", problem.what());
  }
}

// For messages: the tokens or labels that each row must contain.
const char* needed_by(const TextTask& task) {
  if (task.kind == TextTask::Kind::causal_lm) return "two tokens, because the task predicts the second";
  return task.own_labels ? "a label other than -100" : "a token that may be hidden, that is, one not in never_masked";
}

// Reports a fault if the task finds nothing to predict in some row of the data set.
void check_rows(const DatasetPlan& data, const TextTask& task, const ModelRow& row, const Model& model,
                Settings& training, Settings& root) {
  if (!may_leave_unasked(data.size, task)) return;
  try {
    const UnaskedByTask unasked = unasked_rows(*data.load(), task);
    if (unasked.whole.count > 0)
      training.fault("dataset", fmt::format("{} without a label to predict; each row must have {}",
                                            unasked.whole.text(), needed_by(task)));
    if (unasked.cut.count > 0)
      root.section("models").section(row.name).fault(
          model.longest_key,
          fmt::format("must be at least {}: {} without a label to predict in the first {}; each must keep {}",
                      unasked.longest, unasked.cut.text(),
                      task.longest == 1 ? "token" : fmt::format("{} tokens", task.longest), needed_by(task)));
  } catch (const DataFault& problem) {
    training.fault("dataset", problem.what());
  }
}

// The pass for gradients processes a chunk of samples, but at most all workers' samples of a step, and at least a
// micro-batch. The pass for an evaluation processes a whole chunk.
ObjectiveMemory memory_of(const Model& model, const Network& built, const DatasetSize& data,
                          const NetworkTraining& how) {
  const std::int64_t micro_batch = how.sampling.micro_batch_size;
  const std::int64_t step = micro_batch * how.sampling.workers * how.sampling.micro_batches;
  const std::int64_t chunk = how.arithmetic.batch_samples.value_or(model.chunk_samples);
  const std::int64_t samples = built.fuses() ? std::max(micro_batch, std::min(chunk, step)) : micro_batch;
  const PassCost pass(built);
  const std::int64_t floats = std::max(samples * pass.trained_floats(), chunk * pass.evaluated_floats());
  const bool on_device = !how.arithmetic.is_processor();
  const auto parameters = static_cast<std::int64_t>(built.parameter_floats());
  // Autocast keeps the rounded parameters until the end of a pass, 2 bytes each. About half of the activations are in
  // bfloat16, so the mean size of an activation is 3 bytes.
  const std::int64_t rounded = how.arithmetic.bfloat16 ? 2 * parameters : 0;
  const std::int64_t bytes_of_float = how.arithmetic.bfloat16 ? 3 : sizeof(float);
  const std::int64_t bytes_of_pass = pass.is_known() ? bytes_of_float * floats + rounded : 0;
  const auto bytes_of_value = data.has_byte_images ? std::int64_t{1} : std::int64_t{sizeof(float)};
  return {.data_bytes = data.is_mapped ? 0 : (data.train + data.test) * data.shape.features() * bytes_of_value,
          .pass_bytes = on_device ? 0 : bytes_of_pass,
          .device_bytes = on_device ? bytes_of_pass + parameters * std::int64_t{2 * sizeof(float)} : 0,
          .is_known = pass.is_known(),
          .buffers = static_cast<std::int64_t>(built.buffer_floats()),
          .multiply_adds = pass.multiply_adds(),
          .test_samples = data.test};
}

void plan_network(const Model& model, const Network& built, const DatasetPlan& data, const NetworkTraining& how,
                  ObjectivePlan& plan, Settings& training) {
  plan.arithmetic = how.arithmetic;
  plan.arithmetic_places = {.device = training.place("device"), .precision = training.place("precision")};
  if (!how.arithmetic.copies() && training.has("device_batch"))
    plan.notes.push_back(fmt::format("{}; has no effect with device = \"cpu\", whose batches suit one core",
                                     training.written("device_batch")));
  if (built.draws() && !how.arithmetic.is_processor())
    training.fault(
        "device",
        "must be \"cpu\": the forward of your module draws random numbers, and a GPU would not draw those of "
        "the run's seed");
  plan.parameters = static_cast<std::int64_t>(built.parameter_floats());
  plan.buffers = static_cast<std::int64_t>(built.buffer_floats());
  plan.tensors = built.tensors();
  plan.body_tensors = built.body_parameters();
  plan.memory = memory_of(model, built, data.size, how);
  plan.why_no_derivative = built.why_no_derivative();
  plan.asks_for_tokens = built.task().kind != TextTask::Kind::classification;
  const std::int64_t chunk = how.arithmetic.batch_samples.value_or(model.chunk_samples);
  const auto loading = [network = built, data, how, chunk](bool repeats_longest) {
    auto dataset = load(data, how.validation);
    SamplerOptions sampling = sampling_of(*dataset, how);
    sampling.repeats_longest = repeats_longest;
    dataset = augmented(std::move(dataset), how.augmentation);
    return make_torch_objective({.network = network,
                                 .dataset = std::move(dataset),
                                 .sampling = sampling,
                                 .chunk_samples = chunk,
                                 .label_smoothing = how.label_smoothing,
                                 .mixup = how.augmentation.mixup,
                                 .arithmetic = how.arithmetic});
  };
  plan.load = [loading] { return loading(false); };
  if (plan.pads && plan.lengths) plan.load_timed = [loading] { return loading(true); };
}

Model read_none(Settings&) { return {.time_only = true}; }

constexpr ModelRow rows[] = {
    {"linear", "softmax regression: one dense layer; for texts a bag of words", "", read_linear, true},
    {"mlp", "fully connected layers with ReLU; [models.mlp] hidden gives the widths", "The multilayer perceptron",
     read_mlp, true},
    {"cnn", "convolutions with ReLU and max-pooling, then two dense layers; batch normalisation as an option",
     "The convolutional network", read_cnn, true},
    {"resnet", "residual network of 6 n + 2 layers for small images (ResNet-8, -14, -20); batch or group normalisation",
     "The residual network", read_resnet, true},
    {"imagenet-resnet",
     "residual network for large images (ResNet-18, -34, -50, -101, -152); batch or group normalisation",
     "The residual network for large images", read_imagenet_resnet},
    {"vit", "simple vision transformer: fixed 2-d positions, pre-norm blocks, mean over the patches",
     "The vision transformer", read_vision_transformer, true},
    {"text-transformer", "transformer for texts: classes, hidden words (BERT) or next words (GPT); post- or pre-norm",
     "The transformer for texts", read_text_transformer, true},
    {"gpt", "decoder-only transformer for next tokens (GPT-2); learned or rotary positions, tied or separate head",
     "The decoder-only transformer", read_gpt},
    {"torchscript", "your own PyTorch module, saved by torch.jit.script; its forward returns logits",
     "Your own PyTorch module", read_torchscript, true},
    {"quadratic", "a noisy quadratic with a known optimum; needs no data", "The noisy quadratic", read_quadratic, true},
    {"valley", "u^2 v^2 / 2 with noise in v, which drifts to flat minima; needs no data", "The valley of minima",
     read_valley},
    {"diagonal-linear", "a diagonal linear network with label noise, on generated inputs; needs no data",
     "The diagonal linear network", read_diagonal_linear},
    {"none", "no model: methods run on virtual time only", "", read_none, true},
};

}  // namespace

void forbid(Settings& table, const char* key, const std::string& message) {
  if (table.has(key))
    table.fault(key, message);
  else
    table.leave_out(key);
}

MaskingOptions read_masking(Settings& table, bool is_asked_for, std::string_view by) {
  MaskingOptions options;
  options.share = table.number({"masked_share", "Masked language models: share of a text's tokens to predict."},
                               {.low = 0, .high = 1, .low_open = true}, options.share);
  options.most =
      table.integer({"most_masked", "Masked language models: maximum number of tokens of a text to predict."}, 1,
                    1 << 20, options.most);
  const bool is_static =
      table.choice({"masking", "Masked language models: draw masks at each visit, or once for each copy of a text."},
                   {{"dynamic", false}, {"static", true}}, false);
  const std::int64_t copies = table.integer(
      {"mask_copies", "Static masking: number of differently masked copies of each text; epochs use them in turn."}, 1,
      1 << 20, 10);
  if (is_static) options.copies = copies;
  if (is_asked_for && !is_static)
    forbid(table, "mask_copies", "has no effect with dynamic masking, which has no copies");
  if (!is_asked_for)
    for (const char* key : {"masked_share", "most_masked", "masking", "mask_copies"})
      forbid(table, key, fmt::format("has no effect: only {} uses it", by));
  return options;
}

ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context) {
  const bool dataset_named = training.has("dataset");
  const ModelRow* const model_row = training.row({"model", "The model to train."}, models());
  const DatasetRow& dataset_row = *training.row({"dataset", "The data set to train on."}, datasets(), "fashion-mnist");
  const auto batch_size =
      training.integer({"micro_batch_size", "Number of samples in a micro-batch.", "samples"}, 1, 1 << 20, 32);
  const Model model = read_tables(root, "model", models(), model_row);
  NetworkTraining how = read_network_training(training, context.seed);
  const DatasetPlanner plan_data = read_tables(root, "dataset", datasets(), &dataset_row);

  if (model.objective) check_no_data(how, training);
  if (model.objective)
    return {
        .load = [make = model.objective, seed = context.seed, first = context.first_step] { return make(seed, first); },
        .parameters = model.parameters};

  ObjectivePlan plan{
      .time_only = model.time_only, .samples_per_micro_batch = batch_size, .divides_data = how.partition.has_value()};
  if (how.partition && how.sampling.is_formed()) {
    training.fault("partition", "must be left out if batching is \"packed\" or \"bucketed\"");
    return plan;
  }
  const bool needs_data = model.network || (model.time_only && dataset_named);
  const auto data = context.looks_for_data && needs_data ? plan_data(context.seed) : std::nullopt;
  if (!data) return plan;
  if (how.validation.samples >= data->size.train) {
    training.fault("validation_samples",
                   fmt::format("must be less than the {} training samples of {}", data->size.train, dataset_row.name));
    return plan;
  }
  const std::int64_t kept = data->size.train - how.validation.samples;
  if (how.validation.subset.value_or(0) > kept) {
    training.fault("subset_samples",
                   fmt::format("must be at most the {} training samples of {}{}", kept, dataset_row.name,
                               how.validation.samples > 0 ? " that are not held out" : ""));
    return plan;
  }
  plan.validation_samples = how.validation.samples;
  plan.notes = data->size.notes;
  how.computed = model.computed;
  how.sampling.samples = how.validation.subset.value_or(kept);
  how.sampling.workers = context.workers;
  how.sampling.micro_batches = context.micro_batches;
  how.sampling.micro_batch_size = batch_size;
  how.sampling.seed = context.seed;
  how.sampling.first_step = context.first_step.value();
  plan.steps_per_epoch = how.sampling.steps_per_epoch();
  plan.pads = how.sampling.pads();
  if (how.sampling.batching != Batching::count && !data->size.shape.has_tokens()) {
    training.fault("batching", fmt::format("must be \"count\": the samples of {} are not sequences", dataset_row.name));
    return plan;
  }
  if (!suits_division(how, data->size, dataset_row.name, training)) return plan;
  if (data->size.shape.has_tokens() && (context.needs_lengths || how.sampling.is_formed())) {
    if (!plan_lengths(*data, how, plan, training)) return plan;
  } else if (plan.steps_per_epoch < 1)
    training.fault("micro_batch_size",
                   fmt::format("the {} training samples are fewer than one step's {} workers x {} micro-batches x {}",
                               how.sampling.samples, context.workers, context.micro_batches, batch_size));
  plan.load_kinds = [data = *data, how] {
    const auto dataset = load(data, how.validation);
    return std::make_shared<const SampleKinds>(*dataset, std::make_shared<const Sampler>(sampling_of(*dataset, how)),
                                               how.computed);
  };
  if (!model.network) return plan;
  plan.is_network = true;
  plan.has_accuracy = data->size.targets == 0;
  if (!fits(*model_row, model, dataset_row, data->size, training, root)) return plan;
  check_augmentation(how.augmentation, data->size, dataset_row.name, training);
  check_mixing(how, data->size, dataset_row.name, training);
  if (how.partition && plan.steps_per_epoch >= 1) check_partition(*data, how, training);
  try {
    const Network built = model.network(data->size);
    plan_network(model, built, *data, how, plan, training);
    if (!built.note().empty())
      plan.notes.push_back(
          fmt::format("{}; {}", root.section("models").section(model_row->name).written("file"), built.note()));
    if (built.input().has_tokens()) check_rows(*data, built.task(), *model_row, model, training, root);
    const bool has_batches = plan.steps_per_epoch >= 1 && how.sampling.batching != Batching::packed;
    if (model.try_micro_batch && has_batches) model.try_micro_batch(data->size, batch_size);
  } catch (const ModelFault& problem) {
    root.section("models").section(model_row->name).fault(problem.key, problem.what());
  }
  return plan;
}

std::span<const ModelRow> models() { return rows; }

}  // namespace syncopate
