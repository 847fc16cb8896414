#include "workers/models/torch_objective.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "workers/datasets/visits.hpp"
#include "workers/models/cross_entropy.hpp"
#include "workers/models/derivatives.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/gradient_tensors.hpp"
#include "workers/models/initial_parameters.hpp"
#include "workers/models/mixup.hpp"
#include "workers/models/one_thread.hpp"
#include "workers/models/seeded_draws.hpp"
#include "workers/models/squared_error.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

// A batch in memory that its thread uses again for the next one.
struct Batch {
  std::vector<std::uint32_t> numbers;
  std::vector<std::int64_t> epochs;
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
  std::vector<float> targets;                // numbers instead of labels
  std::vector<std::int64_t> partner_labels;  // where samples are mixed with others
  std::vector<float> partner_shares;

  static Batch& of_this_thread(std::size_t samples) {
    thread_local Batch batch;
    batch.numbers.resize(samples);
    batch.epochs.resize(samples);
    return batch;
  }

  // Micro-batch after micro-batch.
  void name_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches) {
    const auto size = static_cast<std::size_t>(sampler.options().micro_batch_size);
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      sampler.sample_numbers(micro_batches[m], std::span(numbers).subspan(m * size, size));
      std::fill_n(epochs.begin() + static_cast<std::ptrdiff_t>(m * size), size, sampler.epoch(micro_batches[m]));
    }
  }
  Visits visits(const Sampler& sampler) const {
    return {.seed = sampler.options().seed, .samples = numbers, .epochs = epochs};
  }

  void make_room(const Dataset& dataset) {
    inputs.resize(numbers.size() * static_cast<std::size_t>(dataset.size().shape.features()));
    labels.resize(numbers.size());
    targets.resize(numbers.size() * static_cast<std::size_t>(dataset.size().targets));
  }

  void gather(const Dataset& dataset, Split split) {
    make_room(dataset);
    dataset.gather(split, numbers, inputs.data(), labels.data());
    if (!targets.empty()) dataset.gather_targets(split, numbers, targets.data());
  }
  void gather_training(const Dataset& dataset, const Visits& visits_of_numbers) {
    make_room(dataset);
    dataset.gather_training(visits_of_numbers, inputs.data(), labels.data());
    if (!targets.empty()) dataset.gather_targets(Split::train, numbers, targets.data());
  }

  void mix_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches, double alpha) {
    const std::size_t size = numbers.size() / micro_batches.size(), features = inputs.size() / numbers.size();
    partner_labels.resize(labels.size());
    partner_shares.resize(labels.size());
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      const Mixture mixture = drawn_mixture(sampler.options().seed, sampler.in_data(micro_batches[m]), size, alpha);
      mix(mixture, std::span(inputs).subspan(m * size * features, size * features));
      for (std::size_t i = 0; i < size; ++i) {
        partner_labels[m * size + i] = labels[m * size + mixture.partners[i]];
        partner_shares[m * size + i] = mixture.share;
      }
    }
  }

  // Tensors (n, channels, height, width) and (n,) that live until the next call in this thread.
  at::Tensor input_tensor(const SampleShape& shape) {
    return at::from_blob(inputs.data(), {std::ssize(numbers), shape.channels, shape.height, shape.width}, at::kFloat);
  }
  static at::Tensor label_tensor(std::vector<std::int64_t>& of) {
    return at::from_blob(of.data(), {std::ssize(of)}, at::kLong);
  }
  // (n, targets); undefined where samples have classes.
  at::Tensor target_tensor() {
    if (targets.empty()) return {};
    const auto samples = std::ssize(numbers);
    return at::from_blob(targets.data(), {samples, std::ssize(targets) / samples}, at::kFloat);
  }
};

// What is trained on, in memory until its thread's next batch.
struct TrainingBatch {
  Visits visits;
  at::Tensor inputs;
  at::Tensor labels;
  at::Tensor targets{};  // defined: numbers instead of labels
  std::optional<MixedLabels> mixed{};
};

// Gradients by parameter in the network's order, scaled by 1 / micro_batch_size, and the sum of losses
// scaled likewise: sums over micro-batches of means over each.
struct BackwardPass {
  std::vector<at::Tensor> gradients;
  double loss_sum = 0;
};

BackwardPass differentiate(const Network& network, const float* flat, const std::vector<at::Tensor>& buffers,
                           const TrainingBatch& batch, std::int64_t micro_batch_size, double label_smoothing) {
  auto parameters = view_parameters(network, flat);
  for (auto& parameter : parameters) parameter.requires_grad_();
  const auto outputs = forward(network, parameters, buffers, batch.inputs, Mode::train, &batch.visits);
  const LossSums loss = batch.targets.defined() ? squared_error(outputs, batch.targets)
                                                : cross_entropy(outputs, batch.labels, label_smoothing,
                                                                batch.mixed ? &*batch.mixed : nullptr);
  const double share = 1.0 / static_cast<double>(micro_batch_size);
  return {.gradients = gradients_of(loss.minimised, parameters, share),
          .loss_sum = loss.reported.item<float>() * share};
}

// A model to evaluate, with a copy of its statistics: forward takes no const ones.
struct Member {
  Member(const Network& network, const float* parameters, const float* buffers)
      : parameters(view_parameters(network, parameters)),
        copy(buffers, buffers + network.buffer_floats()),
        buffers(view_buffers(network, copy.data())) {}

  std::vector<at::Tensor> parameters;
  std::vector<float> copy;
  std::vector<at::Tensor> buffers;
};

// Logits of one model; of an ensemble those of its members' mean probabilities, up to a constant, which a
// softmax does not see. Formed from logarithms, where small probabilities do not vanish.
at::Tensor predict(const Network& network, const std::vector<Member>& members, const at::Tensor& inputs) {
  std::vector<at::Tensor> logits;
  for (const Member& member : members)
    logits.push_back(forward(network, member.parameters, member.buffers, inputs, Mode::evaluate));
  if (logits.size() == 1) return logits.front();
  for (at::Tensor& each : logits) each = at::log_softmax(each, 1);
  return at::logsumexp(at::stack(logits), 0);
}

// Of an ensemble the mean of what its members give.
at::Tensor mean_output(const Network& network, const std::vector<Member>& members, const at::Tensor& inputs) {
  std::vector<at::Tensor> outputs;
  for (const Member& member : members)
    outputs.push_back(forward(network, member.parameters, member.buffers, inputs, Mode::evaluate));
  return outputs.size() == 1 ? outputs.front() : at::stack(outputs).mean(0);
}

TrainingBatch training_batch(const Dataset& dataset, const Sampler& sampler, std::span<const MicroBatch> micro_batches,
                             double mixup) {
  const auto size = static_cast<std::size_t>(sampler.options().micro_batch_size);
  Batch& batch = Batch::of_this_thread(micro_batches.size() * size);
  batch.name_samples(sampler, micro_batches);
  const Visits visits = batch.visits(sampler);
  batch.gather_training(dataset, visits);
  if (mixup > 0) batch.mix_samples(sampler, micro_batches, mixup);
  TrainingBatch result{.visits = visits,
                       .inputs = batch.input_tensor(dataset.size().shape),
                       .labels = Batch::label_tensor(batch.labels),
                       .targets = batch.target_tensor()};
  if (mixup > 0)
    result.mixed = {
        .labels = Batch::label_tensor(batch.partner_labels),
        .shares = at::from_blob(batch.partner_shares.data(), {std::ssize(batch.partner_shares)}, at::kFloat)};
  return result;
}

}  // namespace

TorchObjective::TorchObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                               std::int64_t chunk_samples, double label_smoothing, double mixup)
    : network_(std::move(network)),
      dataset_(std::move(dataset)),
      sampler_(sampling),
      chunk_samples_(chunk_samples),
      label_smoothing_(label_smoothing),
      mixup_(mixup) {
  assert(network_.input() == dataset_->size().shape);
  assert(sampling.samples <= dataset_->size().train);
}

std::vector<float> TorchObjective::initial_parameters(std::uint64_t seed) const {
  return syncopate::initial_parameters(network_, seed);
}

std::optional<std::uint64_t> TorchObjective::seed_of(const MicroBatch& micro_batch) const {
  if (!network_.draws()) return std::nullopt;
  return seed_of_draws(sampler_.options().seed, sampler_.in_data(micro_batch));
}

std::vector<float> TorchObjective::initial_buffers() const {
  std::vector<float> flat;
  for (const auto& buffer : network_.buffers()) {
    if (buffer.given)
      flat.insert(flat.end(), buffer.given->begin(), buffer.given->end());
    else
      flat.insert(flat.end(), buffer.size, buffer.initial);
  }
  return flat;
}

PartialGradient TorchObjective::gradient(const float* parameters, const float* buffers,
                                         std::span<const MicroBatch> micro_batches) const {
  assert(!micro_batches.empty());
  use_one_thread();
  const std::size_t together = fuses_micro_batches() ? micro_batches.size() : 1;

  PartialGradient result;
  result.buffers_sum.assign(this->buffers(), 0);
  std::vector<float> statistics(this->buffers());
  std::vector<at::Tensor> sum;
  for (std::size_t first = 0; first < micro_batches.size(); first += together) {
    throw_if_interrupted();
    const TrainingBatch batch = training_batch(*dataset_, sampler_, micro_batches.subspan(first, together), mixup_);
    std::copy_n(buffers, statistics.size(), statistics.begin());  // each micro-batch starts from the state's
    const SeededDraws draws(seed_of(micro_batches[first]));
    auto pass = differentiate(network_, parameters, view_buffers(network_, statistics.data()), batch,
                              samples_per_micro_batch(), label_smoothing_);
    result.loss_sum += pass.loss_sum;
    for (std::size_t b = 0; b < statistics.size(); ++b) result.buffers_sum[b] += statistics[b];
    add_to(sum, std::move(pass.gradients));
  }
  result.segments = segments_of(network_, std::move(sum));
  return result;
}

EvaluationSums TorchObjective::evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                        std::int64_t end) const {
  return evaluate_ensemble({&parameters, 1}, {&buffers, 1}, split, begin, end);
}

EvaluationSums TorchObjective::evaluate_ensemble(std::span<const float* const> parameters,
                                                 std::span<const float* const> buffers, Split split, std::int64_t begin,
                                                 std::int64_t end) const {
  assert(0 <= begin && begin <= end && end <= evaluation_samples(split));
  assert(!parameters.empty() && parameters.size() == buffers.size());
  use_one_thread();
  const c10::InferenceMode guard;
  std::vector<Member> members;
  for (std::size_t i = 0; i < parameters.size(); ++i) members.emplace_back(network_, parameters[i], buffers[i]);

  EvaluationSums sums{.loss = 0, .correct = 0, .samples = end - begin};
  for (std::int64_t first = begin; first < end; first += chunk_samples_) {
    throw_if_interrupted();
    const auto n = std::min(chunk_samples_, end - first);
    Batch& batch = Batch::of_this_thread(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      batch.numbers[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(first + i);
    batch.gather(*dataset_, split);
    const at::Tensor inputs = batch.input_tensor(dataset_->size().shape);
    if (const at::Tensor targets = batch.target_tensor(); targets.defined()) {
      sums.loss += squared_error(mean_output(network_, members, inputs), targets).reported.item<float>();
      continue;
    }
    const at::Tensor labels = Batch::label_tensor(batch.labels);
    const auto logits = predict(network_, members, inputs);
    sums.loss += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<float>();
    sums.correct += logits.argmax(1).eq(labels).sum().item<std::int64_t>();
  }
  return sums;
}

std::vector<double> TorchObjective::derivative(const float* parameters, const float* buffers, Split split,
                                               std::int64_t begin, std::int64_t end,
                                               std::span<const double> direction) const {
  use_one_thread();
  const at::AutoGradMode differentiates(true);
  Derivatives sum(network_, parameters, direction);
  auto statistics = Member(network_, parameters, buffers).buffers;
  for (auto& each : statistics) each = each.to(at::kDouble);
  for (std::int64_t first = begin; first < end; first += chunk_samples_) {
    throw_if_interrupted();
    const auto n = std::min(chunk_samples_, end - first);
    Batch& batch = Batch::of_this_thread(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      batch.numbers[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(first + i);
    batch.gather(*dataset_, split);
    const at::Tensor inputs = batch.input_tensor(dataset_->size().shape).to(at::kDouble);
    const auto outputs = forward(network_, sum.parameters(), statistics, inputs, Mode::evaluate);
    const at::Tensor targets = batch.target_tensor();
    sum.add(targets.defined()
                ? squared_error(outputs, targets.to(at::kDouble)).reported
                : at::cross_entropy_loss(outputs, Batch::label_tensor(batch.labels), {}, at::Reduction::Sum));
  }
  return sum.mean_over(end - begin);
}

std::vector<float> TorchObjective::batch_statistics(const float* parameters,
                                                    std::span<const MicroBatch> micro_batches) const {
  use_one_thread();
  const c10::InferenceMode guard;
  const auto weights = view_parameters(network_, parameters);
  std::vector<float> statistics(buffers());
  const auto views = view_buffers(network_, statistics.data());
  std::vector<double> sum(buffers());
  for (const MicroBatch& micro_batch : micro_batches) {
    throw_if_interrupted();
    const TrainingBatch batch = training_batch(*dataset_, sampler_, {&micro_batch, 1}, mixup_);
    const SeededDraws draws(seed_of(micro_batch));
    forward(network_, weights, views, batch.inputs, Mode::measure, &batch.visits);
    for (std::size_t b = 0; b < sum.size(); ++b) sum[b] += statistics[b];
  }
  for (std::size_t b = 0; b < sum.size(); ++b)
    statistics[b] = static_cast<float>(sum[b] / static_cast<double>(micro_batches.size()));
  return statistics;
}

}  // namespace syncopate
