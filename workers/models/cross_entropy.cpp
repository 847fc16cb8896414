#include "workers/models/cross_entropy.hpp"

namespace syncopate {

LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  if (smoothing == 0) {
    const auto loss = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum);
    return {.minimised = loss, .reported = loss};
  }
  const auto log_probabilities = at::log_softmax(logits, 1);
  const auto of_labels = at::nll_loss(log_probabilities, labels, /*weight=*/{}, at::Reduction::Sum);
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

}  // namespace syncopate
