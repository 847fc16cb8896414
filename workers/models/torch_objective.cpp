#include "workers/models/torch_objective.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/models/forward.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

// The reported loss of each sample: (n,).
at::Tensor losses_of(const at::Tensor& log_probabilities, const at::Tensor& labels, const MixedLabels* mixed) {
  const auto loss_of = [&](const at::Tensor& of) { return -log_probabilities.gather(1, of.unsqueeze(1)).squeeze(1); };
  return mixed ? at::lerp(loss_of(labels), loss_of(mixed->labels), mixed->shares) : loss_of(labels);
}

// Training samples in the memory of a SampleBatch.
struct TrainingBatch {
  Visits visits;
  at::Tensor inputs;  // (n, channels, height, width)
  at::Tensor labels;
  at::Tensor targets{};  // if defined: numbers to learn instead of labels
  std::optional<MixedLabels> mixed{};
};

at::Tensor vector_tensor(std::vector<std::int64_t>& of) {
  return at::from_blob(of.data(), {std::ssize(of)}, at::kLong);
}

// Samples of a data set, contiguous in memory, as tensors that are valid until the next samples are taken.
class SampleBatch {
 public:
  // Each thread reuses one batch.
  static SampleBatch& of_this_thread() {
    thread_local SampleBatch batch;
    return batch;
  }

  // Samples [first, first + count) of a split.
  void take(const Dataset& dataset, Split split, std::int64_t first, std::int64_t count) {
    numbers_.resize(static_cast<std::size_t>(count));
    std::iota(numbers_.begin(), numbers_.end(), static_cast<std::uint32_t>(first));
    make_room(dataset);
    dataset.gather(split, numbers_, inputs_.data(), labels_.data());
    if (!targets_.empty()) dataset.gather_targets(split, numbers_, targets_.data());
  }

  at::Tensor inputs(const Dataset& dataset) {
    const SampleShape& shape = dataset.size().shape;
    return at::from_blob(inputs_.data(), {std::ssize(numbers_), shape.channels, shape.height, shape.width}, at::kFloat);
  }

  at::Tensor labels() { return vector_tensor(labels_); }

  at::Tensor targets() {  // (n, targets); undefined if samples have classes
    if (targets_.empty()) return {};
    const auto samples = std::ssize(numbers_);
    return at::from_blob(targets_.data(), {samples, std::ssize(targets_) / samples}, at::kFloat);
  }

  // Takes the training samples of several micro-batches, one micro-batch after another. `mixup`: alpha; 0: none.
  TrainingBatch take_training(const Dataset& dataset, const Sampler& sampler, std::span<const MicroBatch> micro_batches,
                              double mixup) {
    name_samples(sampler, micro_batches);
    const Visits visits{.seed = sampler.options().seed, .samples = numbers_, .epochs = epochs_};
    make_room(dataset);
    dataset.gather_training(visits, inputs_.data(), labels_.data());
    if (!targets_.empty()) dataset.gather_targets(Split::train, numbers_, targets_.data());
    if (mixup > 0) mix_samples(sampler, micro_batches, mixup);
    TrainingBatch batch{.visits = visits, .inputs = inputs(dataset), .labels = labels(), .targets = targets()};
    if (mixup > 0)
      batch.mixed = {.labels = vector_tensor(partner_labels_),
                     .shares = at::from_blob(partner_shares_.data(), {std::ssize(partner_shares_)}, at::kFloat)};
    return batch;
  }

 private:
  void make_room(const Dataset& dataset) {
    const std::size_t floats = numbers_.size() * static_cast<std::size_t>(dataset.size().shape.features());
    if (inputs_.size() != floats) inputs_ = FlatVector(floats);
    labels_.resize(numbers_.size());
    targets_.resize(numbers_.size() * static_cast<std::size_t>(dataset.size().targets));
  }

  void name_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches) {
    numbers_.clear();
    epochs_.clear();
    for (const MicroBatch& micro_batch : micro_batches) {
      sampler.append_samples(micro_batch, numbers_);
      epochs_.resize(numbers_.size(), sampler.epoch(micro_batch));
    }
  }

  void mix_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches, double alpha) {
    const std::size_t size = numbers_.size() / micro_batches.size(), features = inputs_.size() / numbers_.size();
    partner_labels_.resize(labels_.size());
    partner_shares_.resize(labels_.size());
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      const Mixture mixture = drawn_mixture(sampler.options().seed, sampler.in_data(micro_batches[m]), size, alpha);
      mix(mixture, inputs_.span().subspan(m * size * features, size * features));
      for (std::size_t i = 0; i < size; ++i) {
        partner_labels_[m * size + i] = labels_[m * size + mixture.partners[i]];
        partner_shares_[m * size + i] = mixture.share;
      }
    }
  }

  std::vector<std::uint32_t> numbers_;
  std::vector<std::int64_t> epochs_;
  FlatVector inputs_;
  std::vector<std::int64_t> labels_;
  std::vector<float> targets_;                // numbers to learn instead of labels
  std::vector<std::int64_t> partner_labels_;  // for samples that are mixed with partners
  std::vector<float> partner_shares_;
};

// The squared error of a sample is the mean of (output - target)^2 over its targets, as in torch.nn.MSELoss.
// Shapes:  outputs and targets (n, targets). Returns the sum over the samples; torch.nn.MSELoss takes their mean.
LossSums squared_error(const at::Tensor& outputs, const at::Tensor& targets) {
  const auto of_each = static_cast<double>(targets.size(1));
  const at::Tensor loss = at::mse_loss(outputs, targets, at::Reduction::Sum) / of_each;
  return {.minimised = loss, .reported = loss};
}

// Gradients by parameter in the network's order, and the loss. Both are summed over micro-batches' means.
struct BackwardPass {
  std::vector<at::Tensor> gradients;
  double loss_sum = 0;
};

// `parameters` must require gradients.
BackwardPass differentiate(const Network& network, const Device& device, const std::vector<at::Tensor>& parameters,
                           const std::vector<at::Tensor>& buffers, const TrainingBatch& batch,
                           std::int64_t micro_batch_size, double label_smoothing) {
  const auto outputs = device.outputs_of(
      [&] { return forward(network, parameters, buffers, batch.inputs, Mode::train, &batch.visits); });
  const LossSums loss = batch.targets.defined() ? squared_error(outputs, batch.targets)
                                                : cross_entropy(outputs, batch.labels, label_smoothing,
                                                                batch.mixed ? &*batch.mixed : nullptr);
  const double share = 1.0 / static_cast<double>(micro_batch_size);
  return {.gradients = gradients_of(loss.minimised, parameters, share),
          .loss_sum = loss.reported.item<float>() * share};
}

// A model to evaluate, with a copy of its statistics, because forward() takes only mutable ones.
struct Member {
  Member(const Network& network, const Device& device, const float* parameters, const float* buffers)
      : parameters(device.parameters(network, parameters)),
        copy(buffers, buffers + network.buffer_floats()),
        buffers(device, network, DeviceVector::Of::buffers, copy.data()) {}

  std::vector<at::Tensor> parameters;
  std::vector<float> copy;
  DeviceVector buffers;
};

std::vector<at::Tensor> outputs_of(const Network& network, const Device& device,
                                   const std::vector<std::unique_ptr<const Member>>& members,
                                   const at::Tensor& inputs) {
  std::vector<at::Tensor> outputs;
  for (const auto& member : members)
    outputs.push_back(device.outputs_of(
        [&] { return forward(network, member->parameters, member->buffers.views(), inputs, Mode::evaluate); }));
  return outputs;
}

TrainingBatch upload(const Device& device, TrainingBatch batch) {
  for (at::Tensor* const tensor : {&batch.inputs, &batch.labels, &batch.targets}) *tensor = device.upload(*tensor);
  if (batch.mixed)
    batch.mixed = {.labels = device.upload(batch.mixed->labels), .shares = device.upload(batch.mixed->shares)};
  return batch;
}

// The rows of a batch that belong to one list of micro-batches, and the sum of their losses, as in a separate pass.
struct ListOfRows {
  Rows rows;
  double loss_sum = 0;
};

class ApartByProducts : public GradientsApart {
 public:
  ApartByProducts(const Network& network, const Device& device, std::unique_ptr<const SampleBatch> batch,
                  LinearGradients gradients, std::vector<ListOfRows> lists)
      : network_(network),
        device_(device),
        batch_(std::move(batch)),
        gradients_(std::move(gradients)),
        lists_(std::move(lists)) {}

  PartialGradient of(std::size_t list) const override {
    return device_.run([&] {
      const c10::InferenceMode guard;
      PartialGradient result;
      result.segments = device_.segments(network_, gradients_.of(lists_[list].rows, network_.parameters().size()));
      result.loss_sum = lists_[list].loss_sum;
      return result;
    });
  }
  double loss_sum(std::size_t list) const override { return lists_[list].loss_sum; }
  void add_to(float* out, std::size_t list) const override {
    device_.run([&] {
      const c10::InferenceMode guard;
      DeviceVector sum(device_, network_, DeviceVector::Of::parameters, out);
      gradients_.add_to(sum.views(), lists_[list].rows);
      sum.return_values();
    });
  }

 private:
  const Network& network_;
  const Device& device_;
  std::unique_ptr<const SampleBatch> batch_;  // owns the first layer's inputs, which are views of its memory
  LinearGradients gradients_;
  std::vector<ListOfRows> lists_;
};

std::vector<ListOfRows> lists_of_rows(std::span<const std::span<const MicroBatch>> lists, const at::Tensor& losses,
                                      std::int64_t micro_batch_size) {
  const float* loss = losses.data_ptr<float>();
  std::vector<ListOfRows> result;
  std::int64_t begin = 0;
  for (const auto& list : lists) {
    const std::int64_t count = std::ssize(list) * micro_batch_size;
    const double sum = std::accumulate(loss + begin, loss + begin + count, 0.0);
    result.push_back({.rows = {begin, count}, .loss_sum = sum / static_cast<double>(micro_batch_size)});
    begin += count;
  }
  return result;
}

}  // namespace

LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing, const MixedLabels* mixed) {
  if (smoothing == 0 && !mixed) {
    const auto loss = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum);
    return {.minimised = loss, .reported = loss};
  }
  const auto log_probabilities = at::log_softmax(logits, 1);
  const auto of_labels = mixed ? losses_of(log_probabilities, labels, mixed).sum()
                               : at::nll_loss(log_probabilities, labels, /*weight=*/{}, at::Reduction::Sum);
  if (smoothing == 0) return {.minimised = of_labels, .reported = of_labels};
  const auto of_all = -log_probabilities.mean(1).sum();
  return {.minimised = (1 - smoothing) * of_labels + smoothing * of_all, .reported = of_labels};
}

LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing,
                       const at::Tensor& weights) {
  const auto log_probabilities = at::log_softmax(logits, 1);
  const auto of_labels = (at::nll_loss(log_probabilities, labels, /*weight=*/{}, at::Reduction::None) * weights).sum();
  if (smoothing == 0) return {.minimised = of_labels, .reported = of_labels};
  const auto of_all = -(log_probabilities.mean(1) * weights).sum();
  return {.minimised = (1 - smoothing) * of_labels + smoothing * of_all, .reported = of_labels};
}

at::Tensor ensemble_logits(std::vector<at::Tensor> of_members) {
  if (of_members.size() == 1) return of_members.front();
  for (at::Tensor& logits : of_members) logits = at::log_softmax(logits, 1);
  return at::logsumexp(at::stack(of_members), 0);
}

Derivatives::Derivatives(const Network& network, const float* parameters, std::span<const double> direction)
    : network_(network), parameters_(view_parameters(network, parameters)), sum_(network.parameter_floats()) {
  assert(direction.empty() || direction.size() == sum_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p] = parameters_[p].to(at::kDouble).requires_grad_();
    if (!direction.empty())
      directions_.push_back(at::from_blob(const_cast<double*>(direction.data()) + network.parameters()[p].offset,
                                          parameters_[p].sizes(), at::kDouble));
  }
}

void Derivatives::add(const at::Tensor& loss_sum) {
  const bool is_product = !directions_.empty();
  auto found = torch::autograd::grad({loss_sum}, parameters_, {}, is_product, is_product, /*allow_unused=*/true);
  if (is_product) {
    at::Tensor product = at::zeros({}, at::kDouble);
    for (std::size_t p = 0; p < found.size(); ++p)
      if (found[p].defined()) product = product + (found[p] * directions_[p]).sum();
    if (!product.requires_grad()) return;  // the gradient is constant
    found = torch::autograd::grad({product}, parameters_, {}, c10::nullopt, false, true);
  }
  for (std::size_t p = 0; p < found.size(); ++p) {
    if (!found[p].defined()) continue;  // the loss does not depend on this parameter
    const at::Tensor flat = found[p].contiguous();
    const Parameter& parameter = network_.parameters()[p];
    for (std::size_t i = 0; i < parameter.size; ++i) sum_[parameter.offset + i] += flat.data_ptr<double>()[i];
  }
}

std::vector<double> Derivatives::mean_over(std::int64_t samples) const {
  std::vector<double> mean = sum_;
  for (double& element : mean) element /= static_cast<double>(samples);
  return mean;
}

std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, double share) {
  auto gradients = torch::autograd::grad({loss}, parameters, {at::scalar_tensor(share, loss.options())},
                                         /*retain_graph=*/{}, /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t p = 0; p < gradients.size(); ++p)
    gradients[p] = gradients[p].defined() ? gradients[p].contiguous() : at::zeros_like(parameters[p]);
  return gradients;
}

void add_to(std::vector<at::Tensor>& sum, std::vector<at::Tensor> summand) {
  if (sum.empty()) {
    sum = std::move(summand);
    return;
  }
  for (std::size_t p = 0; p < sum.size(); ++p) {
    // If a network adds two terms, their gradients may be the same tensor.
    if (sum[p].storage().use_count() == 1)
      sum[p].add_(summand[p]);
    else
      sum[p] = sum[p] + summand[p];
  }
}

std::vector<GradientSegment> segments_of(const Network& network, std::vector<at::Tensor> gradients) {
  std::vector<GradientSegment> segments;
  for (const auto p : network.flat_order()) {
    const Parameter& parameter = network.parameters()[p];
    auto owner = std::make_shared<const at::Tensor>(std::move(gradients[p]));
    const float* data = owner->data_ptr<float>();
    segments.push_back({.offset = parameter.offset, .size = parameter.size, .data = data, .owner = std::move(owner)});
  }
  return segments;
}

NetworkObjective::NetworkObjective(Network network, std::shared_ptr<const Dataset> dataset,
                                   const SamplerOptions& sampling, std::int64_t chunk_samples, double label_smoothing,
                                   const Arithmetic& arithmetic)
    : network_(std::move(network)),
      dataset_(std::move(dataset)),
      sampler_(sampling),
      chunk_samples_(chunk_samples),
      label_smoothing_(label_smoothing),
      device_(arithmetic) {
  assert(network_.input() == dataset_->size().shape);
  assert(sampling.samples <= dataset_->size().train);
}

std::optional<std::uint64_t> NetworkObjective::seed_of(const MicroBatch& micro_batch) const {
  if (!network_.draws()) return std::nullopt;
  return seed_of_draws(seed(), sampler_.in_data(micro_batch));
}

TorchObjective::TorchObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                               std::int64_t chunk_samples, double label_smoothing, double mixup,
                               const Arithmetic& arithmetic)
    : NetworkObjective(std::move(network), std::move(dataset), sampling, chunk_samples, label_smoothing, arithmetic),
      mixup_(mixup),
      has_batched_gradients_(is_made_of_linear_layers(network_) && dataset_->size().targets == 0 &&
                             !arithmetic.bfloat16) {}

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
  return device_.run([&] {
    const std::size_t together = fuses_micro_batches() ? micro_batches.size() : 1;
    auto there = device_.shared_parameters(network_, parameters);
    for (auto& parameter : there) parameter.requires_grad_();

    PartialGradient result;
    result.buffers_sum.assign(this->buffers(), 0);
    std::vector<float> statistics(this->buffers());
    std::vector<at::Tensor> sum;
    for (std::size_t first = 0; first < micro_batches.size(); first += together) {
      throw_if_interrupted();
      const TrainingBatch batch =
          upload(device_, SampleBatch::of_this_thread().take_training(*dataset_, sampler_,
                                                                      micro_batches.subspan(first, together), mixup_));
      // Each micro-batch starts from the state's statistics.
      std::copy_n(buffers, statistics.size(), statistics.begin());
      DeviceVector changed(device_, network_, DeviceVector::Of::buffers, statistics.data());
      const SeededDraws draws(seed_of(micro_batches[first]));
      auto pass =
          differentiate(network_, device_, there, changed.views(), batch, samples_per_micro_batch(), label_smoothing_);
      changed.return_values();
      result.loss_sum += pass.loss_sum;
      for (std::size_t b = 0; b < statistics.size(); ++b) result.buffers_sum[b] += statistics[b];
      add_to(sum, std::move(pass.gradients));
    }
    result.segments = device_.segments(network_, std::move(sum));
    return result;
  });
}

std::unique_ptr<const GradientsApart> TorchObjective::batched_gradients(
    const float* parameters, const float*, std::span<const std::span<const MicroBatch>> lists) const {
  assert(has_batched_gradients_);
  return device_.run([&]() -> std::unique_ptr<const GradientsApart> {
    throw_if_interrupted();
    std::vector<MicroBatch> all;
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    auto memory = std::make_unique<SampleBatch>();
    const TrainingBatch batch = upload(device_, memory->take_training(*dataset_, sampler_, all, mixup_));
    const MixedLabels* const mixed = batch.mixed ? &*batch.mixed : nullptr;
    std::vector<LinearPass> passes;
    const auto logits =
        forward(network_, device_.parameters(network_, parameters), batch.inputs, &batch.visits, passes);
    const auto loss = cross_entropy(logits, batch.labels, label_smoothing_, mixed).minimised;
    const std::int64_t size = samples_per_micro_batch();
    const at::Tensor losses =
        losses_of(at::log_softmax(logits.detach(), 1), batch.labels, mixed).to(at::kCPU).contiguous();
    auto by_list = lists_of_rows(lists, losses, size);
    return std::make_unique<const ApartByProducts>(
        network_, device_, std::move(memory), LinearGradients(std::move(passes), loss, 1.0 / static_cast<double>(size)),
        std::move(by_list));
  });
}

EvaluationSums TorchObjective::evaluate_ensemble(std::span<const float* const> parameters,
                                                 std::span<const float* const> buffers, Split split, std::int64_t begin,
                                                 std::int64_t end) const {
  assert(0 <= begin && begin <= end && end <= evaluation_samples(split));
  assert(!parameters.empty() && parameters.size() == buffers.size());
  return device_.run([&] {
    const c10::InferenceMode guard;
    std::vector<std::unique_ptr<const Member>> members;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      members.push_back(std::make_unique<const Member>(network_, device_, parameters[i], buffers[i]));

    EvaluationSums sums{.loss = 0, .correct = 0, .samples = end - begin};
    for (std::int64_t first = begin; first < end; first += chunk_samples_) {
      throw_if_interrupted();
      const auto n = std::min(chunk_samples_, end - first);
      SampleBatch& batch = SampleBatch::of_this_thread();
      batch.take(*dataset_, split, first, n);
      std::vector<at::Tensor> outputs = outputs_of(network_, device_, members, device_.upload(batch.inputs(*dataset_)));
      if (const at::Tensor targets = device_.upload(batch.targets()); targets.defined()) {
        const at::Tensor mean = outputs.size() == 1 ? outputs.front() : at::stack(outputs).mean(0);
        sums.loss += squared_error(mean, targets).reported.item<float>();
        continue;
      }
      const at::Tensor labels = device_.upload(batch.labels());
      const auto logits = ensemble_logits(std::move(outputs));
      sums.loss += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<float>();
      sums.correct += logits.argmax(1).eq(labels).sum().item<std::int64_t>();
    }
    return sums;
  });
}

// Derivatives are computed on the processor, because not every device has double precision.
std::vector<double> TorchObjective::derivative(const float* parameters, const float* buffers, Split split,
                                               std::int64_t begin, std::int64_t end,
                                               std::span<const double> direction) const {
  use_one_thread();
  const c10::AutoGradMode differentiates(true);
  Derivatives sum(network_, parameters, direction);
  std::vector<float> copy(buffers, buffers + network_.buffer_floats());
  auto statistics = view_buffers(network_, flat_view(copy.data(), copy.size()));
  for (auto& each : statistics) each = each.to(at::kDouble);
  for (std::int64_t first = begin; first < end; first += chunk_samples_) {
    throw_if_interrupted();
    const auto n = std::min(chunk_samples_, end - first);
    SampleBatch& batch = SampleBatch::of_this_thread();
    batch.take(*dataset_, split, first, n);
    const at::Tensor inputs = batch.inputs(*dataset_).to(at::kDouble);
    const auto outputs = forward(network_, sum.parameters(), statistics, inputs, Mode::evaluate);
    const at::Tensor targets = batch.targets();
    sum.add(targets.defined() ? squared_error(outputs, targets.to(at::kDouble)).reported
                              : at::cross_entropy_loss(outputs, batch.labels(), {}, at::Reduction::Sum));
  }
  return sum.mean_over(end - begin);
}

std::vector<float> TorchObjective::batch_statistics(const float* parameters,
                                                    std::span<const MicroBatch> micro_batches) const {
  return device_.run([&] {
    const c10::InferenceMode guard;
    const auto weights = device_.parameters(network_, parameters);
    std::vector<float> statistics(buffers());
    DeviceVector measured(device_, network_, DeviceVector::Of::buffers, statistics.data());
    std::vector<double> sum(buffers());
    for (const MicroBatch& micro_batch : micro_batches) {
      throw_if_interrupted();
      const TrainingBatch batch =
          upload(device_, SampleBatch::of_this_thread().take_training(*dataset_, sampler_, {&micro_batch, 1}, mixup_));
      const SeededDraws draws(seed_of(micro_batch));
      device_.outputs_of(
          [&] { return forward(network_, weights, measured.views(), batch.inputs, Mode::measure, &batch.visits); });
      measured.return_values();
      for (std::size_t b = 0; b < sum.size(); ++b) sum[b] += statistics[b];
    }
    for (std::size_t b = 0; b < sum.size(); ++b)
      statistics[b] = static_cast<float>(sum[b] / static_cast<double>(micro_batches.size()));
    return statistics;
  });
}

}  // namespace syncopate
