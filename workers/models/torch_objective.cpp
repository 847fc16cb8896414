#include "workers/models/torch_objective.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "workers/models/cross_entropy.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/initial_parameters.hpp"
#include "workers/models/one_thread.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

// A batch in memory that its thread uses again for the next one.
struct Batch {
  std::vector<std::uint32_t> numbers;
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;

  static Batch& of_this_thread(std::size_t samples) {
    thread_local Batch batch;
    batch.numbers.resize(samples);
    return batch;
  }

  // Tensors (n, channels, height, width) and (n,) that live until the next call in this thread.
  std::pair<at::Tensor, at::Tensor> gather(const Dataset& dataset, Split split) {
    const SampleShape& shape = dataset.size().shape;
    const auto n = static_cast<std::int64_t>(numbers.size());
    inputs.resize(numbers.size() * static_cast<std::size_t>(shape.features()));
    labels.resize(numbers.size());
    dataset.gather(split, numbers, inputs.data(), labels.data());
    return {at::from_blob(inputs.data(), {n, shape.channels, shape.height, shape.width}, at::kFloat),
            at::from_blob(labels.data(), {n}, at::kLong)};
  }
};

// Gradients by parameter in the network's order, scaled by 1 / micro_batch_size, and the sum of losses
// scaled likewise: sums over micro-batches of means over each.
struct BackwardPass {
  std::vector<at::Tensor> gradients;
  double loss_sum = 0;
};

BackwardPass differentiate(const Network& network, const float* flat, const std::vector<at::Tensor>& buffers,
                           const std::pair<at::Tensor, at::Tensor>& batch, std::int64_t micro_batch_size,
                           double label_smoothing) {
  auto parameters = view_parameters(network, flat);
  for (auto& parameter : parameters) parameter.requires_grad_();
  const auto logits = forward(network, parameters, buffers, batch.first, Mode::train);
  const LossSums loss = cross_entropy(logits, batch.second, label_smoothing);
  const double share = 1.0 / static_cast<double>(micro_batch_size);
  auto gradients = torch::autograd::grad({loss.minimised}, parameters, {at::scalar_tensor(share, at::kFloat)});
  for (auto& gradient : gradients) gradient = gradient.contiguous();
  return {.gradients = std::move(gradients), .loss_sum = loss.reported.item<float>() * share};
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

}  // namespace

TorchObjective::TorchObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                               std::int64_t chunk_samples, double label_smoothing)
    : network_(std::move(network)),
      dataset_(std::move(dataset)),
      sampler_(sampling),
      chunk_samples_(chunk_samples),
      label_smoothing_(label_smoothing) {
  assert(network_.input() == dataset_->size().shape);
  assert(sampling.samples <= dataset_->size().train);
}

std::vector<float> TorchObjective::initial_parameters(std::uint64_t seed) const {
  return syncopate::initial_parameters(network_, seed);
}

std::vector<float> TorchObjective::initial_buffers() const {
  std::vector<float> flat;
  for (const auto& buffer : network_.buffers()) flat.insert(flat.end(), buffer.size, buffer.initial);
  return flat;
}

PartialGradient TorchObjective::gradient(const float* parameters, const float* buffers,
                                         std::span<const MicroBatch> micro_batches) const {
  assert(!micro_batches.empty());
  use_one_thread();
  const auto size = static_cast<std::size_t>(samples_per_micro_batch());
  const std::size_t together = fuses_micro_batches() ? micro_batches.size() : 1;

  PartialGradient result;
  result.buffers_sum.assign(this->buffers(), 0);
  std::vector<float> statistics(this->buffers());
  std::vector<at::Tensor> sum;
  for (std::size_t first = 0; first < micro_batches.size(); first += together) {
    throw_if_interrupted();
    Batch& batch = Batch::of_this_thread(together * size);
    for (std::size_t m = 0; m < together; ++m)
      sampler_.sample_numbers(micro_batches[first + m], std::span(batch.numbers).subspan(m * size, size));
    std::copy_n(buffers, statistics.size(), statistics.begin());  // each micro-batch starts from the state's
    auto pass = differentiate(network_, parameters, view_buffers(network_, statistics.data()),
                              batch.gather(*dataset_, Split::train), samples_per_micro_batch(), label_smoothing_);
    result.loss_sum += pass.loss_sum;
    for (std::size_t b = 0; b < statistics.size(); ++b) result.buffers_sum[b] += statistics[b];
    if (sum.empty())
      sum = std::move(pass.gradients);
    else
      for (std::size_t p = 0; p < sum.size(); ++p) sum[p].add_(pass.gradients[p]);
  }

  for (const auto p : network_.flat_order()) {
    const Parameter& parameter = network_.parameters()[p];
    auto owner = std::make_shared<const at::Tensor>(std::move(sum[p]));
    const float* data = owner->data_ptr<float>();
    result.segments.push_back(
        {.offset = parameter.offset, .size = parameter.size, .data = data, .owner = std::move(owner)});
  }
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
    const auto [inputs, labels] = batch.gather(*dataset_, split);
    const auto logits = predict(network_, members, inputs);
    sums.loss += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<float>();
    sums.correct += logits.argmax(1).eq(labels).sum().item<std::int64_t>();
  }
  return sums;
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
    Batch& batch = Batch::of_this_thread(static_cast<std::size_t>(samples_per_micro_batch()));
    sampler_.sample_numbers(micro_batch, batch.numbers);
    forward(network_, weights, views, batch.gather(*dataset_, Split::train).first, Mode::measure);
    for (std::size_t b = 0; b < sum.size(); ++b) sum[b] += statistics[b];
  }
  for (std::size_t b = 0; b < sum.size(); ++b)
    statistics[b] = static_cast<float>(sum[b] / static_cast<double>(micro_batches.size()));
  return statistics;
}

}  // namespace syncopate
