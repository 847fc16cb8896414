#include "workers/models/objective_plan.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "workers/datasets/partition_section.hpp"
#include "workers/datasets/registry.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/models/registry.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {
namespace {

std::string text_of(const SampleShape& shape) {
  return shape.has_tokens() ? fmt::format("up to {} tokens long", shape.width)
                            : fmt::format("{} x {}", shape.height, shape.width);
}

std::optional<Misfit> misfit_of(const Model& model, const DatasetSize& size) {
  using Inputs = Model::Inputs;
  if (size.shape.has_tokens() && model.inputs == Inputs::numbers)
    return Misfit{.key = "", .needed = "needs samples of numbers, such as images"};
  if (!size.shape.has_tokens() && model.inputs == Inputs::tokens)
    return Misfit{.key = "", .needed = "needs texts, which are tokens"};
  return model.misfit ? model.misfit(size) : std::nullopt;
}

// A fault where samples of the data set do not suit the model.
bool fits(const ModelRow& row, const Model& model, const DatasetRow& dataset, const DatasetSize& size,
          Settings& training, Settings& root) {
  const auto misfit = misfit_of(model, size);
  if (!misfit) return true;
  const std::string message = fmt::format("{}; those of {} are {}", misfit->needed, dataset.name, text_of(size.shape));
  if (misfit->key.empty())
    training.fault("model", message);
  else
    root.section("models").section(row.name).fault(misfit->key, message);
  return false;
}

// What is read of a network's training, beside the model and the data.
struct NetworkTraining {
  SamplerOptions sampling;
  std::optional<PartitionOptions> partition;
  double label_smoothing = 0;
};

// A fault where a partition leaves a worker without a micro-batch: labels decide it, so the data are read.
void check_partition(const DatasetPlan& data, const NetworkTraining& how, Settings& training) {
  try {
    SamplerOptions sampling = how.sampling;
    sampling.shards = divide(*data.load(), sampling.workers, *how.partition, sampling.seed);
    static_cast<void>(Sampler(std::move(sampling)));
  } catch (const DataFault& problem) {
    training.fault("partition", problem.what());
  }
}

void plan_network(const Model& model, const DatasetPlan& data, const NetworkTraining& how, ObjectivePlan& plan) {
  const Network built = model.network(data.size.shape, data.size.classes);
  plan.parameters = static_cast<std::int64_t>(built.parameter_floats());
  for (const ParameterTensor& tensor : built.tensors()) plan.tensors.push_back(tensor.name);
  plan.load = [network = built, load = data.load, how, chunk = model.chunk_samples] {
    auto dataset = load();
    SamplerOptions sampling = how.sampling;
    if (how.partition) sampling.shards = divide(*dataset, sampling.workers, *how.partition, sampling.seed);
    return make_torch_objective(network, std::move(dataset), sampling, chunk, how.label_smoothing);
  };
}

}  // namespace

ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context) {
  const bool dataset_named = training.has("dataset");
  const ModelRow* const model_row = training.row({"model", "What is trained."}, models());
  const DatasetRow& dataset_row = *training.row({"dataset", "What it is trained on."}, datasets(), "fashion-mnist");
  const auto batch_size =
      training.integer({"micro_batch_size", "Samples of a micro-batch.", "samples"}, 1, 1 << 20, 32);
  const auto label_smoothing =
      training.number({"label_smoothing",
                       "Share of each label that is spread over all classes in gradients; told losses are without it."},
                      {.low = 0, .high = 1, .high_open = true}, 0.0);
  const Model model = read_models(root, model_row);
  const auto partition = read_partition(training);
  const DatasetPlanner plan_data = read_datasets(root, dataset_row);

  if (model.objective && label_smoothing > 0) training.fault("label_smoothing", "must be 0: this model has no labels");
  if (model.objective && partition) training.fault("partition", "must be left out: this model has no data");
  if (model.objective)
    return {.load = [make = model.objective, seed = context.seed] { return make(seed); },
            .parameters = model.parameters};

  ObjectivePlan plan{.load = {}, .time_only = model.time_only, .samples_per_micro_batch = batch_size};
  const bool needs_data = model.network || (model.time_only && dataset_named);
  const auto data = context.looks_for_data && needs_data ? plan_data(context.seed) : std::nullopt;
  if (!data) return plan;
  const SamplerOptions sampling{.samples = data->size.train,
                                .workers = context.workers,
                                .micro_batches = context.micro_batches,
                                .micro_batch_size = batch_size,
                                .seed = context.seed};
  plan.steps_per_epoch = sampling.steps_per_epoch();
  if (plan.steps_per_epoch < 1)
    training.fault("micro_batch_size",
                   fmt::format("the {} training samples are fewer than one step's {} workers x {} micro-batches x {}",
                               data->size.train, context.workers, context.micro_batches, batch_size));
  if (!model.network) return plan;
  plan.has_accuracy = true;
  if (!fits(*model_row, model, dataset_row, data->size, training, root)) return plan;
  const NetworkTraining how{sampling, partition, label_smoothing};
  if (partition && plan.steps_per_epoch >= 1) check_partition(*data, how, training);
  plan_network(model, *data, how, plan);
  return plan;
}

}  // namespace syncopate
