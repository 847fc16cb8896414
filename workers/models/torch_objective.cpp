#include "workers/models/torch_objective.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>
#include <variant>

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

// The memory for a batch's inputs, which a thread reuses for its next batch.
FlatVector& memory_of_this_thread() {
  thread_local FlatVector memory;
  return memory;
}

// Mixes training samples with the partners that are drawn for them, micro-batch by micro-batch.
void mix_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches, double alpha, SampleBatch& batch,
                 std::span<float> inputs) {
  const std::size_t all = batch.samples.size(), size = all / micro_batches.size(), features = inputs.size() / all;
  const std::int64_t* const labels = batch.answers.data_ptr<std::int64_t>();
  batch.mixed = {.labels = at::empty_like(batch.answers), .shares = at::empty(batch.answers.sizes(), at::kFloat)};
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    const Mixture mixture = drawn_mixture(sampler.options().seed, sampler.in_data(micro_batches[m]), size, alpha);
    mix(mixture, inputs.subspan(m * size * features, size * features));
    for (std::size_t i = 0; i < size; ++i) {
      batch.mixed->labels.data_ptr<std::int64_t>()[m * size + i] = labels[m * size + mixture.partners[i]];
      batch.mixed->shares.data_ptr<float>()[m * size + i] = mixture.share;
    }
  }
}

// The squared error of a sample is the mean of (output - target)^2 over its targets, as in torch.nn.MSELoss.
// Shapes:  outputs and targets (n, targets). Returns the sum over the samples; torch.nn.MSELoss takes their mean.
LossSums squared_error(const at::Tensor& outputs, const at::Tensor& targets) {
  const auto of_each = static_cast<double>(targets.size(1));
  const at::Tensor loss = at::mse_loss(outputs, targets, at::Reduction::Sum) / of_each;
  return {.minimised = loss, .reported = loss};
}

// The loss that gradients minimise.
LossSums loss_of(const at::Tensor& outputs, const SampleBatch& batch, double smoothing) {
  if (batch.targets.defined()) return squared_error(outputs, batch.targets);
  return cross_entropy(outputs, batch.answers, smoothing, batch.mixed ? &*batch.mixed : nullptr, batch.weights);
}

// A model to evaluate, with a copy of its statistics, because forward() takes only mutable statistics.
struct Member {
  Member(const Network& network, const Device& device, const float* parameters, const float* buffers)
      : parameters(device.parameters(network, parameters)),
        copy(buffers, buffers + network.buffer_floats()),
        buffers(device, network, DeviceVector::Of::buffers, copy.data()) {}

  std::vector<at::Tensor> parameters;
  std::vector<float> copy;
  DeviceVector buffers;
};

SampleBatch upload(const Device& device, SampleBatch batch) {
  std::vector<at::Tensor*> tensors = {&batch.answers, &batch.targets, &batch.weights};
  if (batch.mixed) tensors.insert(tensors.end(), {&batch.mixed->labels, &batch.mixed->shares});
  if (auto* const texts = std::get_if<SequenceBatch>(&batch.inputs)) {
    tensors.insert(tensors.end(), {&texts->tokens, &texts->places, &texts->begins, &texts->asked});
    for (TextGroup& group : texts->groups)
      tensors.insert(tensors.end(), {&group.tokens_of_slots, &group.slots_of_tokens, &group.lengths});
  } else {
    tensors.push_back(&std::get<at::Tensor>(batch.inputs));
  }
  for (at::Tensor* const tensor : tensors) *tensor = device.upload(*tensor);
  return batch;
}

std::vector<std::uint32_t> numbers_from(std::int64_t begin, std::int64_t end) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(begin));
  return numbers;
}

// Logits of one model, or of the mean probabilities of an ensemble, up to a constant that a softmax ignores. They are
// computed from logarithms, in which small probabilities do not vanish.
at::Tensor ensemble_logits(std::vector<at::Tensor> of_members) {
  if (of_members.size() == 1) return of_members.front();
  for (at::Tensor& logits : of_members) logits = at::log_softmax(logits, 1);
  return at::logsumexp(at::stack(of_members), 0);
}

// Adds in place if nothing else uses the memory. An empty `sum` becomes the summand.
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

// Adds the gradient of `loss_sum` with respect to the parameters to `sum` (P,), all in double precision. If there are
// directions, one per parameter, adds the product of the Hessian and the directions instead.
void add_derivative(std::vector<double>& sum, const at::Tensor& loss_sum, const Network& network,
                    const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& directions) {
  const bool is_product = !directions.empty();
  auto found = torch::autograd::grad({loss_sum}, parameters, {}, is_product, is_product, /*allow_unused=*/true);
  if (is_product) {
    at::Tensor product = at::zeros({}, at::kDouble);
    for (std::size_t p = 0; p < found.size(); ++p)
      if (found[p].defined()) product = product + (found[p] * directions[p]).sum();
    if (!product.requires_grad()) return;  // the gradient is constant
    found = torch::autograd::grad({product}, parameters, {}, c10::nullopt, false, true);
  }
  for (std::size_t p = 0; p < found.size(); ++p) {
    if (!found[p].defined()) continue;  // the loss does not depend on this parameter
    const at::Tensor flat = found[p].contiguous();
    const Parameter& parameter = network.parameters()[p];
    for (std::size_t i = 0; i < parameter.size; ++i) sum[parameter.offset + i] += flat.data_ptr<double>()[i];
  }
}

// Separate gradients from one pass. The pass differentiates the loss with respect to the outputs of all linear layers.
// The gradient of the weights for any rows of the batch is then a product of these rows alone.
// Shapes:  inputs (n, i); the loss's gradients with respect to the outputs (n, o); weights (o, i).
// Cost:    for each list of rows one product of (o, rows) and (rows, i) per layer, as in a separate pass over these
//          rows; all other work is done once.
class ApartByProducts : public GradientsApart {
 public:
  // Differentiates `loss`, the sum over all samples, and frees its graph. `losses` (n,): the reported loss of each
  // sample, in main memory. `inputs`: the memory of the first layer's inputs.
  ApartByProducts(const Network& network, const Device& device, std::unique_ptr<const FlatVector> inputs,
                  std::vector<LinearPass> passes, const at::Tensor& loss, const at::Tensor& losses,
                  std::span<const std::span<const MicroBatch>> lists, std::int64_t micro_batch_size)
      : network_(network), device_(device), inputs_(std::move(inputs)), passes_(std::move(passes)) {
    const auto size = static_cast<double>(micro_batch_size);
    std::vector<at::Tensor> outputs;
    for (const LinearPass& pass : passes_) outputs.push_back(pass.outputs);
    auto gradients = torch::autograd::grad({loss}, outputs, {at::scalar_tensor(1 / size, loss.options())});
    for (std::size_t i = 0; i < passes_.size(); ++i) passes_[i].outputs = std::move(gradients[i]);
    const float* const values = losses.data_ptr<float>();
    std::int64_t begin = 0;
    for (const auto& list : lists) {
      const std::int64_t rows = std::ssize(list) * micro_batch_size;
      lists_.push_back({begin, rows, std::accumulate(values + begin, values + begin + rows, 0.0) / size});
      begin += rows;
    }
  }

  PartialGradient of(std::size_t list) const override {
    return device_.run([&] {
      const c10::InferenceMode guard;
      std::vector<at::Tensor> gradients(network_.parameters().size());
      add_products(gradients, lists_[list]);
      PartialGradient result;
      result.segments = device_.segments(network_, std::move(gradients));
      result.loss_sum = lists_[list].loss_sum;
      return result;
    });
  }
  double loss_sum(std::size_t list) const override { return lists_[list].loss_sum; }
  void add_to(float* out, std::size_t list) const override {
    device_.run([&] {
      const c10::InferenceMode guard;
      DeviceVector sum(device_, network_, DeviceVector::Of::parameters, out);
      std::vector<at::Tensor> views = sum.views();
      add_products(views, lists_[list]);
      sum.return_values();
    });
  }

 private:
  struct List {
    std::int64_t begin;  // of its rows in the batch
    std::int64_t rows;
    double loss_sum;
  };

  // Adds the list's gradient to `sums`, one tensor per parameter in the network's order. An undefined tensor becomes
  // its part.
  void add_products(std::vector<at::Tensor>& sums, const List& list) const {
    for (const LinearPass& pass : passes_) {
      const at::Tensor by_outputs = pass.outputs.narrow(0, list.begin, list.rows);
      const at::Tensor inputs = pass.inputs.narrow(0, list.begin, list.rows);
      at::Tensor& weight = sums[static_cast<std::size_t>(pass.layer.weight)];
      weight = weight.defined() ? weight.addmm_(by_outputs.t(), inputs) : at::mm(by_outputs.t(), inputs);
      if (pass.layer.bias < 0) continue;
      at::Tensor& bias = sums[static_cast<std::size_t>(pass.layer.bias)];
      bias = bias.defined() ? bias.add_(by_outputs.sum(0)) : by_outputs.sum(0);
    }
  }

  const Network& network_;
  const Device& device_;
  std::unique_ptr<const FlatVector> inputs_;
  std::vector<LinearPass> passes_;  // `outputs` contains the loss's gradients with respect to the layer's outputs
  std::vector<List> lists_;
};

}  // namespace

LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing, const MixedLabels* mixed,
                       const at::Tensor& weights) {
  if (smoothing == 0 && !mixed && !weights.defined()) {
    const auto loss = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum);
    return {.minimised = loss, .reported = loss};
  }
  const auto log_probabilities = at::log_softmax(logits, 1);
  at::Tensor of_labels;
  if (weights.defined())
    of_labels = (at::nll_loss(log_probabilities, labels, /*weight=*/{}, at::Reduction::None) * weights).sum();
  else
    of_labels = mixed ? losses_of(log_probabilities, labels, mixed).sum()
                      : at::nll_loss(log_probabilities, labels, /*weight=*/{}, at::Reduction::Sum);
  if (smoothing == 0) return {.minimised = of_labels, .reported = of_labels};
  at::Tensor of_all = log_probabilities.mean(1);
  if (weights.defined()) of_all = of_all * weights;
  return {.minimised = (1 - smoothing) * of_labels + smoothing * -of_all.sum(), .reported = of_labels};
}

std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, double share) {
  auto gradients = torch::autograd::grad({loss}, parameters, {at::scalar_tensor(share, loss.options())},
                                         /*retain_graph=*/{}, /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t p = 0; p < gradients.size(); ++p)
    gradients[p] = gradients[p].defined() ? gradients[p].contiguous() : at::zeros_like(parameters[p]);
  return gradients;
}

TorchObjective::TorchObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                               std::int64_t chunk_samples, double label_smoothing, double mixup,
                               const Arithmetic& arithmetic)
    : network_(std::move(network)),
      dataset_(std::move(dataset)),
      sampler_(sampling),
      chunk_samples_(chunk_samples),
      label_smoothing_(label_smoothing),
      mixup_(mixup),
      device_(arithmetic),
      has_batched_gradients_(is_made_of_linear_layers(network_) && dataset_->size().targets == 0 &&
                             !arithmetic.bfloat16) {
  assert(network_.input() == dataset_->size().shape);
  assert(sampling.samples <= dataset_->size().train);
  assert(!takes_texts() || network_.buffers().empty());
}

std::optional<std::uint64_t> TorchObjective::seed_of(const MicroBatch& micro_batch) const {
  if (!network_.draws()) return std::nullopt;
  return seed_of_draws(seed(), sampler_.in_data(micro_batch));
}

SampleBatch TorchObjective::training_batch(std::span<const MicroBatch> micro_batches, FlatVector& memory) const {
  std::vector<std::uint32_t> samples;
  std::vector<std::int64_t> epochs;
  std::vector<AskedText> texts;
  std::vector<std::int32_t> lengths;
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    const std::size_t before = samples.size();
    sampler_.append_samples(micro_batches[m], samples);
    epochs.resize(samples.size(), sampler_.epoch(micro_batches[m]));
    if (!takes_texts()) continue;
    lengths.clear();
    if (sampler_.options().repeats_longest) sampler_.append(micro_batches[m], lengths);
    for (std::size_t i = before; i < samples.size(); ++i)
      texts.push_back({.sample = samples[i],
                       .epoch = epochs[i],
                       .micro_batch = static_cast<std::int64_t>(m),
                       .asked = lengths.empty() ? 0 : lengths[i - before]});
  }
  if (takes_texts()) return ask(*dataset_, Split::train, std::move(texts), network_.task(), seed());
  SampleBatch batch = gathered(*dataset_, Split::train, seed(), std::move(samples), std::move(epochs), memory);
  if (mixup_ > 0) mix_samples(sampler_, micro_batches, mixup_, batch, memory.span());
  return batch;
}

SampleBatch TorchObjective::evaluated_batch(Split split, std::span<const std::uint32_t> samples) const {
  if (!takes_texts())
    return gathered(*dataset_, split, seed(), {samples.begin(), samples.end()}, {}, memory_of_this_thread());
  std::vector<AskedText> texts;
  for (const std::uint32_t sample : samples) texts.push_back({.sample = sample});
  return ask(*dataset_, split, std::move(texts), network_.task(), seed());
}

std::vector<float> TorchObjective::initial_buffers() const {
  std::vector<float> flat;
  for (const auto& buffer : network_.buffers()) flat.insert(flat.end(), buffer.initial->begin(), buffer.initial->end());
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
    // For texts, the weights of the labels (SampleBatch::weights) already contain this share.
    const double share = takes_texts() ? 1 : 1.0 / static_cast<double>(samples_per_micro_batch());
    for (std::size_t first = 0; first < micro_batches.size(); first += together) {
      throw_if_interrupted();
      const SampleBatch batch =
          upload(device_, training_batch(micro_batches.subspan(first, together), memory_of_this_thread()));
      const Visits visits = batch.visits(seed());
      // Each micro-batch starts from the state's statistics.
      std::copy_n(buffers, statistics.size(), statistics.begin());
      DeviceVector changed(device_, network_, DeviceVector::Of::buffers, statistics.data());
      const SeededDraws draws(seed_of(micro_batches[first]));
      const auto outputs = device_.outputs_of(
          [&] { return forward(network_, there, changed.views(), batch.inputs, Mode::train, &visits); });
      const LossSums loss = loss_of(outputs, batch, label_smoothing_);
      add_to(sum, gradients_of(loss.minimised, there, share));
      result.loss_sum += loss.reported.item<float>() * share;
      changed.return_values();
      for (std::size_t b = 0; b < statistics.size(); ++b) result.buffers_sum[b] += statistics[b];
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
    auto memory = std::make_unique<FlatVector>();
    const SampleBatch batch = upload(device_, training_batch(all, *memory));
    const Visits visits = batch.visits(seed());
    const MixedLabels* const mixed = batch.mixed ? &*batch.mixed : nullptr;
    std::vector<LinearPass> passes;
    const auto logits =
        forward(network_, device_.parameters(network_, parameters), {}, batch.inputs, Mode::train, &visits, &passes);
    const auto loss = cross_entropy(logits, batch.answers, label_smoothing_, mixed).minimised;
    const at::Tensor losses =
        losses_of(at::log_softmax(logits.detach(), 1), batch.answers, mixed).to(at::kCPU).contiguous();
    return std::make_unique<const ApartByProducts>(network_, device_, std::move(memory), std::move(passes), loss,
                                                   losses, lists, samples_per_micro_batch());
  });
}

EvaluationSums TorchObjective::evaluate_samples(const float* parameters, const float* buffers, Split split,
                                                std::span<const std::uint32_t> samples) const {
  if (!takes_texts()) return Objective::evaluate_samples(parameters, buffers, split, samples);
  return evaluate_together({&parameters, 1}, {&buffers, 1}, split, samples);
}

EvaluationSums TorchObjective::evaluate_ensemble(std::span<const float* const> parameters,
                                                 std::span<const float* const> buffers, Split split, std::int64_t begin,
                                                 std::int64_t end) const {
  assert(0 <= begin && begin <= end && end <= evaluation_samples(split));
  return evaluate_together(parameters, buffers, split, numbers_from(begin, end));
}

EvaluationSums TorchObjective::evaluate_together(std::span<const float* const> parameters,
                                                 std::span<const float* const> buffers, Split split,
                                                 std::span<const std::uint32_t> samples) const {
  assert(!parameters.empty() && parameters.size() == buffers.size());
  return device_.run([&] {
    const c10::InferenceMode guard;
    std::vector<std::unique_ptr<const Member>> members;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      members.push_back(std::make_unique<const Member>(network_, device_, parameters[i], buffers[i]));

    EvaluationSums sums;
    const auto chunk = static_cast<std::size_t>(chunk_samples_);
    for (std::size_t first = 0; first < samples.size(); first += chunk) {
      throw_if_interrupted();
      const SampleBatch batch =
          upload(device_, evaluated_batch(split, samples.subspan(first, std::min(chunk, samples.size() - first))));
      std::vector<at::Tensor> outputs;
      for (const auto& member : members)
        outputs.push_back(device_.outputs_of([&] {
          return forward(network_, member->parameters, member->buffers.views(), batch.inputs, Mode::evaluate);
        }));
      sums.samples += batch.answers.numel();
      if (batch.targets.defined()) {
        const at::Tensor mean = outputs.size() == 1 ? outputs.front() : at::stack(outputs).mean(0);
        sums.loss += squared_error(mean, batch.targets).reported.item<float>();
        continue;
      }
      const auto logits = ensemble_logits(std::move(outputs));
      sums.loss += at::cross_entropy_loss(logits, batch.answers, {}, at::Reduction::Sum).item<float>();
      sums.correct += logits.argmax(1).eq(batch.answers).sum().item<std::int64_t>();
    }
    return sums;
  });
}

// Derivatives are computed on the processor, because not every device has double precision. If the samples contain no
// token to predict, they are 0.
std::vector<double> TorchObjective::derivative(const float* parameters, const float* buffers, Split split,
                                               std::int64_t begin, std::int64_t end,
                                               std::span<const double> direction) const {
  assert(direction.empty() || direction.size() == network_.parameter_floats());
  use_one_thread();
  const c10::AutoGradMode differentiates(true);
  std::vector<at::Tensor> in_doubles = view_parameters(network_, flat_view(parameters, this->parameters()));
  std::vector<at::Tensor> directions;
  for (std::size_t p = 0; p < in_doubles.size(); ++p) {
    in_doubles[p] = in_doubles[p].to(at::kDouble).requires_grad_();
    if (!direction.empty())
      directions.push_back(at::from_blob(const_cast<double*>(direction.data()) + network_.parameters()[p].offset,
                                         in_doubles[p].sizes(), at::kDouble));
  }
  std::vector<float> copy(buffers, buffers + network_.buffer_floats());
  auto statistics = view_buffers(network_, flat_view(copy.data(), copy.size()));
  for (auto& each : statistics) each = each.to(at::kDouble);
  std::vector<double> mean(network_.parameter_floats());
  std::int64_t answers = 0;
  for (std::int64_t first = begin; first < end; first += chunk_samples_) {
    throw_if_interrupted();
    SampleBatch batch = evaluated_batch(split, numbers_from(first, std::min(first + chunk_samples_, end)));
    if (batch.answers.numel() == 0) continue;
    if (auto* const inputs = std::get_if<at::Tensor>(&batch.inputs)) *inputs = inputs->to(at::kDouble);
    const auto outputs = forward(network_, in_doubles, statistics, batch.inputs, Mode::evaluate);
    const auto loss_sum = batch.targets.defined()
                              ? squared_error(outputs, batch.targets.to(at::kDouble)).reported
                              : at::cross_entropy_loss(outputs, batch.answers, {}, at::Reduction::Sum);
    add_derivative(mean, loss_sum, network_, in_doubles, directions);
    answers += batch.answers.numel();
  }
  for (double& element : mean) element /= static_cast<double>(std::max<std::int64_t>(answers, 1));
  return mean;
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
      const SampleBatch batch = upload(device_, training_batch({&micro_batch, 1}, memory_of_this_thread()));
      const Visits visits = batch.visits(seed());
      const SeededDraws draws(seed_of(micro_batch));
      device_.outputs_of(
          [&] { return forward(network_, weights, measured.views(), batch.inputs, Mode::measure, &visits); });
      measured.return_values();
      for (std::size_t b = 0; b < sum.size(); ++b) sum[b] += statistics[b];
    }
    for (std::size_t b = 0; b < sum.size(); ++b)
      statistics[b] = static_cast<float>(sum[b] / static_cast<double>(micro_batches.size()));
    return statistics;
  });
}

}  // namespace syncopate
