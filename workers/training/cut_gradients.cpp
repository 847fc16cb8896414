// Gradients that a deadline has cut, and sums in which each tensor has a count of its own.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>

#include "workers/training/gradient_sum.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

std::optional<Gradient> Training::cut_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                               double backward_share) const {
  if (!at) return std::nullopt;
  const auto done = backward_order_->done_by(backward_share);
  return done ? std::optional(Gradient::of_layers(at, micro_batch, *done)) : std::nullopt;
}

std::optional<Gradient> Training::cut_gradient(std::shared_ptr<GradientSum> evaluated, double backward_share) const {
  if (!evaluated) return std::nullopt;
  const auto done = backward_order_->done_by(backward_share);
  if (!done) return std::nullopt;
  cut_sum(*evaluated, *done, *objective_);
  Gradient gradient(std::move(evaluated), 0);
  gradient.mark_cut();
  return gradient;
}

namespace {

void count(std::vector<double>& counts, const BackwardOrder& order, const LastLayers& layers, std::size_t more) {
  for (std::size_t tensor = 0; tensor < counts.size(); ++tensor)
    if (order.is_done(tensor, layers)) counts[tensor] += static_cast<double>(more);
}

void count(std::vector<double>& counts, const BackwardOrder& order, const GradientSum& sum) {
  for (const auto& chunk : sum.chunks) {
    if (chunk.scale == 0) continue;
    if (chunk.nested)
      count(counts, order, *chunk.nested);
    else
      count(counts, order, chunk.layers, chunk.micro_batches.size());
  }
}

}  // namespace

std::vector<double> Training::contributions(const Gradient& gradient) const {
  if (!objective_) return {static_cast<double>(gradient.micro_batches())};
  std::vector<double> counts(backward_order_->tensors());
  for (const Gradient::Term& term : gradient.terms()) {
    if (term.scale == 0) continue;
    if (term.sum)
      count(counts, *backward_order_, *term.sum);
    else
      count(counts, *backward_order_, term.layers, term.micro_batches.size());
  }
  return counts;
}

void Training::weigh_tensors(const Gradient& shared, std::span<const double> contributions) const {
  if (!objective_) return;
  assert(shared.terms().size() == 1 && shared.terms().front().sum);
  assert(contributions.size() == backward_order_->tensors());
  const auto micro_batches = static_cast<double>(std::max<std::int64_t>(shared.micro_batches(), 1));
  const auto is_usual = [&](double count) { return count == micro_batches; };
  auto& factors = shared.terms().front().sum->factors;
  if (!factors.empty() || std::ranges::all_of(contributions, is_usual)) return;
  for (std::size_t tensor = 0; tensor < contributions.size(); ++tensor)
    factors.push_back({backward_order_->end_of(tensor), micro_batches / std::max(contributions[tensor], 1.0)});
}

}  // namespace syncopate
