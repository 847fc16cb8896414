#include "workers/models/text_objective.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "workers/datasets/visits.hpp"
#include "workers/models/cross_entropy.hpp"
#include "workers/models/derivatives.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/gradient_tensors.hpp"
#include "workers/models/initial_parameters.hpp"
#include "workers/models/one_thread.hpp"
#include "workers/models/seeded_draws.hpp"
#include "workers/models/sequence_batch.hpp"
#include "workers/models/text_questions.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

// Logits of one model; of an ensemble those of its members' mean probabilities, up to a constant, which a softmax does
// not see.
at::Tensor predict(const Network& network, std::span<const float* const> members, const SequenceBatch& texts) {
  std::vector<at::Tensor> logits;
  for (const float* const parameters : members)
    logits.push_back(forward(network, view_parameters(network, parameters), texts, Mode::evaluate));
  if (logits.size() == 1) return logits.front();
  for (at::Tensor& each : logits) each = at::log_softmax(each, 1);
  return at::logsumexp(at::stack(logits), 0);
}

}  // namespace

TextObjective::TextObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                             std::int64_t chunk_samples, double label_smoothing)
    : network_(std::move(network)),
      dataset_(std::move(dataset)),
      sampler_(sampling),
      chunk_samples_(chunk_samples),
      label_smoothing_(label_smoothing) {
  assert(network_.input() == dataset_->size().shape && network_.buffers().empty());
  assert(sampling.samples <= dataset_->size().train);
}

std::vector<float> TextObjective::initial_parameters(std::uint64_t seed) const {
  return syncopate::initial_parameters(network_, seed);
}

std::vector<AskedText> TextObjective::texts_of(std::span<const MicroBatch> micro_batches) const {
  std::vector<AskedText> texts;
  std::vector<std::uint32_t> numbers;
  std::vector<std::int32_t> lengths;
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    numbers.clear();
    sampler_.append_samples(micro_batches[m], numbers);
    lengths.clear();
    if (sampler_.options().repeats_longest) sampler_.append_lengths(micro_batches[m], lengths);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      texts.push_back({.sample = numbers[i],
                       .epoch = sampler_.epoch(micro_batches[m]),
                       .micro_batch = static_cast<std::int64_t>(m),
                       .asked = lengths.empty() ? 0 : lengths[i]});
  }
  return texts;
}

std::optional<std::uint64_t> TextObjective::seed_of_draws(const MicroBatch& micro_batch) const {
  if (!network_.draws()) return std::nullopt;
  return syncopate::seed_of_draws(seed(), sampler_.in_data(micro_batch));
}

PartialGradient TextObjective::gradient(const float* flat, const float*,
                                        std::span<const MicroBatch> micro_batches) const {
  assert(!micro_batches.empty());
  use_one_thread();
  const std::size_t together = fuses_micro_batches() ? micro_batches.size() : 1;

  PartialGradient result;
  std::vector<at::Tensor> sum;
  for (std::size_t first = 0; first < micro_batches.size(); first += together) {
    throw_if_interrupted();
    const TextQuestions questions =
        ask(*dataset_, Split::train, texts_of(micro_batches.subspan(first, together)), network_.task(), seed());
    const SeededDraws draws(seed_of_draws(micro_batches[first]));
    auto parameters = view_parameters(network_, flat);
    for (auto& parameter : parameters) parameter.requires_grad_();
    const Visits visits{.seed = seed(), .samples = questions.samples, .epochs = questions.epochs};
    const auto logits = forward(network_, parameters, questions.texts, Mode::train, &visits);
    const LossSums loss = cross_entropy(logits, questions.answers, label_smoothing_, questions.weights);
    result.loss_sum += loss.reported.item<float>();
    add_to(sum, gradients_of(loss.minimised, parameters));
  }
  result.segments = segments_of(network_, std::move(sum));
  return result;
}

EvaluationSums TextObjective::evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                       std::int64_t end) const {
  return evaluate_ensemble({&parameters, 1}, {&buffers, 1}, split, begin, end);
}

EvaluationSums TextObjective::evaluate_samples(const float* parameters, const float*, Split split,
                                               std::span<const std::uint32_t> samples) const {
  return evaluate_texts({&parameters, 1}, split, samples);
}

EvaluationSums TextObjective::evaluate_ensemble(std::span<const float* const> parameters, std::span<const float* const>,
                                                Split split, std::int64_t begin, std::int64_t end) const {
  assert(0 <= begin && begin <= end && end <= evaluation_samples(split));
  std::vector<std::uint32_t> samples(static_cast<std::size_t>(end - begin));
  std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(begin));
  return evaluate_texts(parameters, split, samples);
}

EvaluationSums TextObjective::evaluate_texts(std::span<const float* const> parameters, Split split,
                                             std::span<const std::uint32_t> samples) const {
  assert(!parameters.empty());
  use_one_thread();
  const c10::InferenceMode guard;
  EvaluationSums sums;
  const auto chunk = static_cast<std::size_t>(chunk_samples_);
  for (std::size_t first = 0; first < samples.size(); first += chunk) {
    throw_if_interrupted();
    std::vector<AskedText> texts;
    for (const std::uint32_t sample : samples.subspan(first, std::min(chunk, samples.size() - first)))
      texts.push_back({.sample = sample});
    const TextQuestions questions = ask(*dataset_, split, std::move(texts), network_.task(), seed());
    const auto logits = predict(network_, parameters, questions.texts);
    sums.loss += at::cross_entropy_loss(logits, questions.answers, {}, at::Reduction::Sum).item<float>();
    sums.correct += logits.argmax(1).eq(questions.answers).sum().item<std::int64_t>();
    sums.samples += questions.answers.numel();
  }
  return sums;
}

// Where texts are asked for nothing there is no mean, and nothing to learn.
std::vector<double> TextObjective::derivative(const float* parameters, const float*, Split split, std::int64_t begin,
                                              std::int64_t end, std::span<const double> direction) const {
  use_one_thread();
  const c10::AutoGradMode differentiates(true);
  Derivatives sum(network_, parameters, direction);
  std::int64_t answers = 0;
  for (std::int64_t first = begin; first < end; first += chunk_samples_) {
    throw_if_interrupted();
    std::vector<AskedText> texts;
    for (std::int64_t sample = first; sample < std::min(first + chunk_samples_, end); ++sample)
      texts.push_back({.sample = static_cast<std::uint32_t>(sample)});
    const TextQuestions questions = ask(*dataset_, split, std::move(texts), network_.task(), seed());
    if (questions.answers.numel() == 0) continue;
    const auto logits = forward(network_, sum.parameters(), questions.texts, Mode::evaluate);
    sum.add(at::cross_entropy_loss(logits, questions.answers, {}, at::Reduction::Sum));
    answers += questions.answers.numel();
  }
  return sum.mean_over(std::max<std::int64_t>(answers, 1));
}

}  // namespace syncopate
