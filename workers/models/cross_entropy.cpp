#include "workers/models/cross_entropy.hpp"

namespace syncopate {

namespace {

at::Tensor losses_of(const at::Tensor& log_probabilities, const at::Tensor& labels, const MixedLabels* mixed) {
  const auto loss_of = [&](const at::Tensor& of) { return -log_probabilities.gather(1, of.unsqueeze(1)).squeeze(1); };
  return mixed ? at::lerp(loss_of(labels), loss_of(mixed->labels), mixed->shares) : loss_of(labels);
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

at::Tensor losses_of_samples(const at::Tensor& logits, const at::Tensor& labels, const MixedLabels* mixed) {
  return losses_of(at::log_softmax(logits, 1), labels, mixed);
}

LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing,
                       const at::Tensor& weights) {
  const auto log_probabilities = at::log_softmax(logits, 1);
  const auto of_labels = (at::nll_loss(log_probabilities, labels, /*weight=*/{}, at::Reduction::None) * weights).sum();
  if (smoothing == 0) return {.minimised = of_labels, .reported = of_labels};
  const auto of_all = -(log_probabilities.mean(1) * weights).sum();
  return {.minimised = (1 - smoothing) * of_labels + smoothing * of_all, .reported = of_labels};
}

}  // namespace syncopate
