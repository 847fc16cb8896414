#include "workers/training/gradient.hpp"

#include <utility>

namespace syncopate {

Gradient::Gradient(ModelStatePtr at, const MicroBatch& micro_batch, Duration compute_time)
    : micro_batches_(1), compute_time_(compute_time) {
  // Time-only runs count micro-batches and carry nothing.
  if (at) terms_.push_back({.at = std::move(at), .micro_batches = {micro_batch}, .sum = nullptr, .scale = 1});
}

Gradient::Gradient(std::shared_ptr<GradientSum> sum, std::int64_t micro_batches, Duration compute_time)
    : micro_batches_(micro_batches), compute_time_(compute_time) {
  if (sum) terms_.push_back({.at = nullptr, .micro_batches = {}, .sum = std::move(sum), .scale = 1});
}

Gradient& Gradient::operator+=(const Gradient& other) { return *this += Gradient(other); }

Gradient& Gradient::operator+=(Gradient&& other) {
  micro_batches_ += other.micro_batches_;
  compute_time_ += other.compute_time_;
  for (Term& term : other.terms_) {
    // The usual case, micro-batches of one worker at one model, stays one term.
    if (!terms_.empty() && term.at && terms_.back().at == term.at && terms_.back().scale == term.scale) {
      auto& list = terms_.back().micro_batches;
      list.insert(list.end(), term.micro_batches.begin(), term.micro_batches.end());
    } else {
      terms_.push_back(std::move(term));
    }
  }
  other = Gradient();
  return *this;
}

Gradient& Gradient::operator*=(double factor) {
  for (Term& term : terms_) term.scale *= factor;
  return *this;
}

}  // namespace syncopate
