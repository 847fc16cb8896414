#include "workers/training/gradient.hpp"

#include <utility>

#include "workers/training/gradient_sum.hpp"

namespace syncopate {

Gradient::Gradient(const ModelStatePtr& at, const MicroBatch& first, int count, Duration compute_time)
    : micro_batches_(count), compute_time_(compute_time) {
  if (!at) return;
  Term& term = terms_.emplace_back();
  term.at = at;
  for (int i = 0; i < count; ++i) term.micro_batches.push_back({first.worker, first.step, first.index + i});
}

Gradient::Gradient(std::shared_ptr<GradientSum> sum, std::int64_t micro_batches, Duration compute_time)
    : micro_batches_(micro_batches), compute_time_(compute_time) {
  if (!sum) return;
  if (sum->wide) use_double_precision();
  terms_.push_back({.at = nullptr, .micro_batches = {}, .sum = std::move(sum), .scale = 1, .layers = {}});
}

void Gradient::join(std::vector<Term>&& terms) {
  if (terms_.empty()) {
    terms_ = std::move(terms);
    return;
  }
  for (Term& term : terms) {
    // The usual case, micro-batches of one worker at one model, stays one term.
    const Term& last = terms_.back();
    if (term.at && last.at == term.at && last.scale == term.scale && last.layers == term.layers) {
      auto& list = terms_.back().micro_batches;
      list.insert(list.end(), term.micro_batches.begin(), term.micro_batches.end());
    } else {
      terms_.push_back(std::move(term));
    }
  }
}

}  // namespace syncopate
