#include "workers/models/objective_plan.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "workers/datasets/augmentation_section.hpp"
#include "workers/datasets/batching_section.hpp"
#include "workers/datasets/partition_section.hpp"
#include "workers/datasets/registry.hpp"
#include "workers/datasets/sample_kinds.hpp"
#include "workers/datasets/sampled_lengths.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/datasets/validation.hpp"
#include "workers/models/pass_memory.hpp"
#include "workers/models/registry.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/models/unasked_rows.hpp"

namespace syncopate {
namespace {

std::string text_of(const DatasetSize& size) {
  const SampleShape& shape = size.shape;
  if (size.token_classes > 0)
    return fmt::format("sequences of up to {} tokens, with a label of each token", shape.width);
  if (shape.has_tokens()) return fmt::format("sequences of up to {} tokens", shape.width);
  const std::string samples = shape.channels == 1 && shape.height == 1
                                  ? fmt::format("vectors of {}", shape.width)
                                  : fmt::format("images of {} x {}", shape.height, shape.width);
  return samples + (size.targets > 0 ? ", and numbers to be learned instead of classes" : "");
}

std::optional<Misfit> misfit_of(const Model& model, const DatasetSize& size) {
  using Inputs = Model::Inputs;
  if (size.shape.has_tokens() && model.inputs == Inputs::numbers)
    return Misfit{.key = "", .needed = "needs samples of numbers, such as images"};
  if (!size.shape.has_tokens() && model.inputs == Inputs::tokens)
    return Misfit{.key = "", .needed = "needs texts, which are tokens"};
  if (auto found = model.misfit ? model.misfit(size) : std::nullopt) return found;
  if (size.targets > 0 && !model.learns_targets)
    return Misfit{.key = "",
                  .needed = "needs classes, as y of integers has; only torchscript with loss = \"mse\" learns numbers"};
  if (size.token_classes > 0 && !model.learns_token_labels)
    return Misfit{.key = "",
                  .needed =
                      "needs one label of each sequence, y of (n,); only torchscript with loss = \"masked\" learns "
                      "those of tokens"};
  return {};
}

// A fault where samples of the data set do not suit the model.
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

// What is read of a network's training, beside the model and the data.
struct NetworkTraining {
  double label_smoothing = 0;
  std::optional<PartitionOptions> partition;
  Augmentation augmentation;
  ValidationOptions validation;
  BatchingOptions batching;
  ComputedTokens computed{};  // by the model, of sequences
  SamplerOptions sampling{};  // once the data are known
};

ValidationOptions read_validation(Settings& training) {
  ValidationOptions options;
  options.samples = training.integer(
      {"validation_samples", "Training samples that are held out, and evaluated beside the test set.", "samples"}, 0,
      std::int64_t{1} << 32, 0);
  options.seed = static_cast<std::uint64_t>(
      training.integer({"validation_seed", "Which samples these are; the same for all seeds of the experiment."}, 0,
                       std::numeric_limits<std::int64_t>::max(), 0));
  options.subset = training.optional_integer(
      {"subset_samples", "So many training samples are trained on, drawn by validation_seed; left out: all.",
       "samples"},
      1, std::int64_t{1} << 32);
  if (options.samples > 0 || options.subset) return options;
  if (training.has("validation_seed"))
    training.fault("validation_seed", "must be left out: there are neither validation_samples nor subset_samples");
  else
    training.leave_out("validation_seed");
  return options;
}

NetworkTraining read_network_training(Settings& training) {
  NetworkTraining how;
  how.label_smoothing =
      training.number({"label_smoothing",
                       "Share of each label that is spread over all classes in gradients; told losses are without it."},
                      {.low = 0, .high = 1, .high_open = true}, 0.0);
  how.partition = read_partition(training);
  how.augmentation = read_augmentation(training);
  how.validation = read_validation(training);
  how.batching = read_batching(training);
  return how;
}

// Faults at what an objective without data has no use for.
void check_no_data(const NetworkTraining& how, Settings& training) {
  if (how.label_smoothing > 0) training.fault("label_smoothing", "must be 0: this model has no labels");
  if (how.partition) training.fault("partition", "must be left out: this model has no data");
  if (how.augmentation.changes_samples()) training.fault("augmentation", "must be left out: this model has no data");
  if (how.validation.samples > 0) training.fault("validation_samples", "must be 0: this model has no data");
  if (how.validation.subset) training.fault("subset_samples", "must be left out: this model has no data");
  if (how.batching.kind != Batching::count) training.fault("batching", "must be \"count\": this model has no data");
}

// Faults at what needs classes, where samples have numbers.
void check_targets(const NetworkTraining& how, const DatasetSize& size, std::string_view dataset, Settings& training) {
  if (size.targets == 0) return;
  const std::string why = fmt::format("samples of {} have numbers and no classes", dataset);
  if (how.label_smoothing > 0) training.fault("label_smoothing", "must be 0: " + why);
  if (how.augmentation.mixup > 0) training.section("augmentation").fault("mixup", "must be left out: " + why);
}

// A fault, and false, where data without classes are to be divided by class.
bool suits_partition(const NetworkTraining& how, const DatasetSize& size, std::string_view dataset,
                     Settings& training) {
  if (!how.partition || how.partition->kind == PartitionOptions::Kind::size || size.classes > 0) return true;
  training.section("partition")
      .fault("kind", fmt::format("must be \"shuffled\" or \"size\": samples of {} have no classes", dataset));
  return false;
}

// A fault, and false, where there are more shards than samples: some would be empty.
bool suits_shards(const NetworkTraining& how, Settings& training) {
  if (!how.partition || how.partition->kind != PartitionOptions::Kind::label) return true;
  const std::int64_t most = how.sampling.samples / how.sampling.workers;
  if (how.partition->shards <= most) return true;
  training.section("partition")
      .fault("shards", fmt::format("must be at most {}: the {} training samples of {} workers have no more shards",
                                   most, how.sampling.samples, how.sampling.workers));
  return false;
}

// A fault where a micro-batch has no pairs.
void check_mixup(const Augmentation& augmentation, std::int64_t batch_size, Settings& training) {
  if (augmentation.mixup > 0 && batch_size < 2)
    training.section("augmentation")
        .fault("mixup",
               "must be left out, or micro_batch_size at least 2: samples of a micro-batch are mixed in pairs");
}

// The data set that is trained on, without what is held out.
std::shared_ptr<const Dataset> load(const DatasetPlan& data, const ValidationOptions& validation) {
  auto dataset = data.load();
  return validation.samples > 0 || validation.subset ? with_validation(std::move(dataset), validation) : dataset;
}

// What micro-batches are drawn with, once the data are there.
SamplerOptions sampling_of(const Dataset& dataset, const NetworkTraining& how) {
  SamplerOptions sampling = how.sampling;
  if (how.partition) sampling.shards = divide(dataset, sampling.workers, *how.partition, sampling.seed);
  return sampling;
}

// Sequences are read for their lengths, of which packed and bucketed micro-batches are formed. False after a fault.
bool plan_lengths(const DatasetPlan& data, NetworkTraining& how, ObjectivePlan& plan, Settings& training) {
  try {
    const auto dataset = load(data, how.validation);
    how.sampling.lengths = std::make_shared<const std::vector<std::int32_t>>(training_lengths(*dataset, how.computed));
    const auto sampler = std::make_shared<const Sampler>(sampling_of(*dataset, how));
    plan.steps_per_epoch = sampler->steps_per_epoch();
    plan.samples_per_micro_batch = sampler->samples_per_micro_batch();
    plan.lengths = sampled_lengths(sampler, how.sampling.lengths);
    return true;
  } catch (const DataFault& problem) {
    training.fault(how.sampling.batching == Batching::packed ? "token_budget" : "micro_batch_size", problem.what());
    return false;
  }
}

// A fault where a partition leaves a worker without a micro-batch: labels decide it, so the data are read.
void check_partition(const DatasetPlan& data, const NetworkTraining& how, Settings& training) {
  try {
    static_cast<void>(Sampler(sampling_of(*load(data, how.validation), how)));
  } catch (const DataFault& problem) {
    training.fault("partition", problem.what());
  }
}

// What a task asks of each row, and what its key could be instead.
const char* needed_by(const TextTask& task) {
  if (task.kind == TextTask::Kind::causal_lm) return "two tokens, of which the second is asked for";
  return task.own_labels ? "a label other than -100" : "a token that may be hidden, one that is not in never_masked";
}

// Faults where some row of the data set would be asked for nothing.
void check_rows(const DatasetPlan& data, const TextTask& task, const ModelRow& row, const Model& model,
                Settings& training, Settings& root) {
  if (!may_leave_unasked(data.size, task)) return;
  try {
    const UnaskedByTask unasked = unasked_rows(*data.load(), task);
    if (unasked.whole)
      training.fault("dataset", fmt::format("{} {} asked for nothing; each row must have {}", unasked.whole->text(),
                                            unasked.whole->others == 0 ? "is" : "are", needed_by(task)));
    if (unasked.cut)
      root.section("models").section(row.name).fault(
          model.longest_key,
          fmt::format("must be at least {}: {} {} asked for nothing in the first {}; each must "
                      "keep {}",
                      unasked.longest, unasked.cut->text(), unasked.cut->others == 0 ? "is" : "are",
                      task.longest == 1 ? "token" : fmt::format("{} tokens", task.longest), needed_by(task)));
  } catch (const DataFault& problem) {
    training.fault("dataset", problem.what());
  }
}

std::int64_t bytes_of_data(const DatasetSize& data) {
  const std::int64_t values = data.shape.features() * (data.has_byte_images ? 1 : std::int64_t{sizeof(float)});
  return (data.train + data.test) * values;
}

// A pass has the samples of a chunk: no more than all workers' in a step, and at least a micro-batch.
ObjectiveMemory memory_of(const Model& model, const Network& built, const DatasetSize& data,
                          const NetworkTraining& how) {
  const std::int64_t micro_batch = how.sampling.micro_batch_size;
  const std::int64_t step = micro_batch * how.sampling.workers * how.sampling.micro_batches;
  const std::int64_t samples = built.fuses() ? std::max(micro_batch, std::min(model.chunk_samples, step)) : micro_batch;
  const auto pass = pass_bytes(built, samples);
  return {.data_bytes = bytes_of_data(data),
          .pass_bytes = pass.value_or(0),
          .is_known = pass.has_value(),
          .chunk_samples = model.chunk_samples,
          .fuses_micro_batches = built.fuses(),
          .buffers = static_cast<std::int64_t>(built.buffer_floats())};
}

void plan_network(const Model& model, const Network& built, const DatasetPlan& data, const NetworkTraining& how,
                  ObjectivePlan& plan) {
  plan.parameters = static_cast<std::int64_t>(built.parameter_floats());
  plan.buffers = static_cast<std::int64_t>(built.buffer_floats());
  plan.tensors = built.tensors();
  plan.body_tensors = built.body_parameters();
  plan.memory = memory_of(model, built, data.size, how);
  plan.why_no_derivative = built.why_no_derivative();
  plan.asks_for_tokens = built.task().kind != TextTask::Kind::classification;
  const auto loading = [network = built, data, how, chunk = model.chunk_samples](bool repeats_longest) {
    auto dataset = load(data, how.validation);
    SamplerOptions sampling = sampling_of(*dataset, how);
    sampling.repeats_longest = repeats_longest;
    if (how.augmentation.changes_images()) dataset = augmented(std::move(dataset), how.augmentation);
    return make_torch_objective(network, std::move(dataset), sampling, chunk, how.label_smoothing,
                                how.augmentation.mixup);
  };
  plan.load = [loading] { return loading(false); };
  if (plan.pads && plan.lengths) plan.load_timed = [loading] { return loading(true); };
}

}  // namespace

ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context) {
  const bool dataset_named = training.has("dataset");
  const ModelRow* const model_row = training.row({"model", "What is trained."}, models());
  const DatasetRow& dataset_row = *training.row({"dataset", "What it is trained on."}, datasets(), "fashion-mnist");
  const auto batch_size =
      training.integer({"micro_batch_size", "Samples of a micro-batch.", "samples"}, 1, 1 << 20, 32);
  const Model model = read_models(root, model_row);
  NetworkTraining how = read_network_training(training);
  const DatasetPlanner plan_data = read_datasets(root, dataset_row);

  if (model.objective) check_no_data(how, training);
  if (model.objective)
    return {
        .load = [make = model.objective, seed = context.seed, first = context.first_step] { return make(seed, first); },
        .parameters = model.parameters,
        .memory = {.chunk_samples = model.chunk_samples}};

  ObjectivePlan plan{.load = {},
                     .time_only = model.time_only,
                     .samples_per_micro_batch = batch_size,
                     .divides_data = how.partition.has_value()};
  if (how.partition && how.batching.is_formed()) {
    training.fault("partition", "must be left out where batching is \"packed\" or \"bucketed\"");
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
  how.sampling = {.samples = how.validation.subset.value_or(kept),
                  .workers = context.workers,
                  .micro_batches = context.micro_batches,
                  .micro_batch_size = batch_size,
                  .seed = context.seed,
                  .first_step = context.first_step.value(),
                  .batching = how.batching.kind,
                  .token_budget = how.batching.token_budget};
  plan.steps_per_epoch = how.sampling.steps_per_epoch();
  plan.pads = how.batching.pads();
  if (!suits_batching(*data, how.batching, dataset_row.name, training)) return plan;
  if (!suits_partition(how, data->size, dataset_row.name, training) || !suits_shards(how, training)) return plan;
  if (data->size.shape.has_tokens() && (context.needs_lengths || how.batching.is_formed())) {
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
  check_mixup(how.augmentation, batch_size, training);
  check_targets(how, data->size, dataset_row.name, training);
  if (how.partition && plan.steps_per_epoch >= 1) check_partition(*data, how, training);
  try {
    const Network built = model.network(data->size);
    plan_network(model, built, *data, how, plan);
    if (!built.note().empty())
      plan.notes.push_back(
          fmt::format("{}; {}", root.section("models").section(model_row->name).written("file"), built.note()));
    if (built.input().has_tokens()) check_rows(*data, built.task(), *model_row, model, training, root);
    const bool has_batches = plan.steps_per_epoch >= 1 && how.batching.kind != Batching::packed;
    if (model.try_micro_batch && has_batches) model.try_micro_batch(data->size, batch_size);
  } catch (const ModelFault& problem) {
    root.section("models").section(model_row->name).fault(problem.key, problem.what());
  }
  return plan;
}

}  // namespace syncopate
