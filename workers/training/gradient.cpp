#include "workers/training/gradient.hpp"

#include <atomic>
#include <cmath>
#include <numeric>

#include "workers/training/checkpoint_log.hpp"
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
  terms_.push_back({.sum = std::move(sum)});
}

void Gradient::join(std::vector<Term>&& terms) {
  if (terms_.empty()) {
    terms_ = std::move(terms);
    return;
  }
  for (Term& term : terms) {
    // Terms at the same model and weight are joined, so that a worker's step usually is a single term.
    const Term& last = terms_.back();
    if (term.at && last.at == term.at && last.scale == term.scale && last.layers == term.layers) {
      auto& list = terms_.back().micro_batches;
      list.insert(list.end(), term.micro_batches.begin(), term.micro_batches.end());
    } else {
      terms_.push_back(std::move(term));
    }
  }
}

CellPtr filled_cell(std::span<const float> values) {
  auto cell = new_cell();
  cell->value = FlatVector(values.size());
  std::copy(values.begin(), values.end(), cell->value.data());
  return cell;
}

std::uint64_t new_state_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::shared_ptr<ModelState> new_state(const ModelState& like) {
  auto state = std::make_shared<ModelState>(like);
  state->id = new_state_id();
  return state;
}

MomentAges ages_of(const ModelState& state) {
  return {state.moments[0].age, state.moments[1].age, state.moments[2].age};
}

MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights,
                       std::span<const double> decays) {
  MomentAges mean = ages.front();
  const auto count = static_cast<double>(ages.size());
  const double total = weights.empty() ? count : std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t moment = 0; moment < decays.size(); ++moment) {
    if (std::ranges::all_of(ages, [&](const MomentAges& each) { return each[moment] == mean[moment]; })) continue;
    MomentAge age_of_all{.left = 0};
    for (std::size_t i = 0; i < ages.size(); ++i) {
      const MomentAge& age = ages[i][moment];
      const double share = (weights.empty() ? 1 : weights[i]) / total;
      age_of_all.left += share * age.left * std::pow(decays[moment], static_cast<double>(age.steps.value()));
      age_of_all.weights += share * age.weights;
      age_of_all.iterates += share * age.iterates;
      age_of_all.largest_rate = std::max(age_of_all.largest_rate, age.largest_rate);
    }
    mean[moment] = age_of_all;
  }
  return mean;
}

BackwardOrder::BackwardOrder(const Objective& objective)
    : flat_(objective.tensors()), weights_(objective.weights()), parameters_(objective.parameters()) {
  std::erase_if(flat_, [](const ParameterTensor& tensor) { return tensor.size == 0; });
  last_first_ = flat_;
  std::ranges::stable_sort(last_first_, {}, &ParameterTensor::place);
  std::ranges::reverse(last_first_);
}

std::optional<PartialBackward> BackwardOrder::done_by(double share) const {
  PartialBackward done{.weights_from = weights_, .others_from = parameters_};
  std::size_t elements = 0;
  for (const ParameterTensor& tensor : last_first_) {
    elements += tensor.size;
    if (static_cast<double>(elements) / static_cast<double>(parameters_) > share) break;
    (tensor.offset < weights_ ? done.weights_from : done.others_from) = tensor.offset;
  }
  const bool is_nothing = done.weights_from == weights_ && done.others_from == parameters_;
  return is_nothing ? std::nullopt : std::optional(done);
}

void leave_layers(std::vector<GradientSegment>& segments, const PartialBackward& layers, std::size_t weights) {
  std::vector<GradientSegment> left;
  const auto leave = [&](const GradientSegment& segment, std::size_t from, std::size_t to) {
    const std::size_t begin = std::max(from, segment.offset), end = std::min(to, segment.offset + segment.size);
    if (begin >= end) return;
    left.push_back({.offset = begin,
                    .size = end - begin,
                    .data = segment.data + (begin - segment.offset),
                    .owner = segment.owner});
  };
  for (const GradientSegment& segment : segments) {
    leave(segment, layers.weights_from, weights);
    leave(segment, std::max(layers.others_from, weights), segment.offset + segment.size);
  }
  segments = std::move(left);
}

}  // namespace syncopate
