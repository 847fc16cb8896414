// Averages of the workers' states, and the part of a state that an average moves as bytes.
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

namespace {

bool averages(const AveragePolicy& policy, int moment) {
  return policy.moments[static_cast<std::size_t>(moment)] == StatePolicy::average;
}

// Whoever has one of them needs their mean.
ProcessSet places_of_any(std::span<const CellPtr> cells) {
  ProcessSet places = ProcessSet::none();
  for (const CellPtr& cell : cells)
    if (cell) places = places | cell->at;
  return places;
}

bool all_equal(const auto& values) {
  return std::all_of(values.begin(), values.end(), [&](const auto& value) { return value == values.front(); });
}

}  // namespace

std::vector<ModelStatePtr> Training::average(std::span<const ModelStatePtr> states, const AveragePolicy& policy,
                                             std::span<const double> weights, Slice slice) {
  if (!objective_) return std::vector<ModelStatePtr>(states.size());
  assert(weights.empty() || weights.size() == states.size());
  const bool weighted = !weights.empty() && !all_equal(weights);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto mean_of = [&](std::size_t size, auto cell_of, Slice of = {}) -> CellPtr {
    std::vector<CellPtr> inputs;
    std::vector<WeightedCell> terms;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (weighted && weights[i] == 0) continue;
      inputs.push_back(cell_of(*states[i]));
      if (weighted) terms.push_back({weights[i] / total, inputs.back()});
    }
    // Equal cells have their own value as mean: nothing to compute, and no rounding.
    if (all_equal(inputs)) return inputs.front();
    return weighted ? submit_combination(terms, size, places_of_any(inputs)) : submit_mean(std::move(inputs), size, of);
  };
  const std::size_t size = objective_->parameters();
  const bool has_new_parameters = policy.parameters == StatePolicy::average;
  CellPtr parameters;
  if (has_new_parameters)
    parameters = mean_of(
        size, [](const ModelState& s) { return s.parameters; }, slice);
  std::array<CellPtr, 2> moments;
  for (std::size_t i = 0; i < moments.size(); ++i)
    if (policy.moments[i] == StatePolicy::average)
      moments[i] = mean_of(size, [i](const ModelState& s) { return s.moments[i].values; });
  CellPtr buffers;
  if (policy.buffers == StatePolicy::average)
    buffers = mean_of(objective_->buffers(), [](const ModelState& s) { return s.buffers; });
  if (policy.buffers == StatePolicy::reset && objective_->buffers() > 0)
    buffers = filled_cell(objective_->initial_buffers());

  std::vector<MomentAges> ages;
  for (const auto& state : states) ages.push_back(ages_of(*state));
  const MomentAges age = age_of_mean(ages, weighted ? weights : std::span<const double>());
  std::vector<ModelStatePtr> result;
  for (const auto& old : states) {
    auto state = std::make_shared<ModelState>(*old);
    state->id = new_state_id();
    if (has_new_parameters) state->parameters = parameters;
    for (std::size_t i = 0; i < moments.size(); ++i) {
      if (policy.moments[i] == StatePolicy::average) state->moments[i] = {moments[i], age[i]};
      if (policy.moments[i] == StatePolicy::reset) state->moments[i] = {};
    }
    if (policy.buffers != StatePolicy::keep) state->buffers = buffers;
    const bool equals_previous = !result.empty() && state->parameters == result.back()->parameters &&
                                 state->moments == result.back()->moments && state->buffers == result.back()->buffers;
    result.push_back(equals_previous ? result.back() : std::move(state));
  }
  return result;
}

// Element-wise mean, summed in the order of the workers; outside the slice the first one's.
CellPtr Training::submit_mean(std::vector<CellPtr> inputs, std::size_t size, Slice slice) {
  ProcessSet places = places_of_any(inputs);
  if (divided_) places = divided_->normalised(places);
  if (std::ranges::any_of(inputs, [&](const CellPtr& cell) { return cell && !cell->at.covers(places); }))
    return submit_mean_of_processes(std::move(inputs), size, slice, places);
  const auto held = std::make_shared<const std::vector<CellPtr>>(std::move(inputs));
  const auto begin = static_cast<std::size_t>(slice.begin(static_cast<std::int64_t>(size)));
  const auto end = static_cast<std::size_t>(slice.end(static_cast<std::int64_t>(size)));
  return submit_cell(size, *held, places, [held, begin, end](float* out, std::size_t from, std::size_t to) {
    if (from < begin || to > end) {
      std::copy(held->front()->value.data() + from, held->front()->value.data() + to, out + from);
      from = std::clamp(begin, from, to);
      to = std::clamp(end, from, to);
    }
    constexpr std::size_t block = 2048;  // the running sum stays in the first-level cache
    const float factor = 1.0f / static_cast<float>(held->size());
    for (std::size_t at = from; at < to; at += block) {
      const std::size_t n = std::min(block, to - at);
      float* const sum = out + at;
      std::fill_n(sum, n, 0.0f);
      for (const auto& cell : *held)
        if (cell) add(sum, cell->value.data() + at, n);
      scale(sum, factor, n);
    }
  });
}

MomentAges Training::age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights) const {
  if (time_only()) return {};
  return syncopate::age_of_mean(ages, weights, optimizer_->decays());
}

std::size_t Training::averaged_size(const AveragePolicy& policy) const {
  const auto declared = static_cast<std::size_t>(declared_bytes_.value()) / sizeof(float);
  const std::size_t parameters = objective_ ? objective_->parameters() : declared;
  const int vectors = policy.averaged_vectors(optimizer_ ? optimizer_->moments() : 0);
  const bool averages_buffers = objective_ && policy.buffers == StatePolicy::average;
  return static_cast<std::size_t>(vectors) * parameters + (averages_buffers ? objective_->buffers() : 0);
}

void Training::write_averaged(const ModelStatePtr& state, const AveragePolicy& policy, float* out) {
  if (!objective_) return;
  const auto write = [&](const CellPtr& cell, std::size_t size) {
    executor_.wait(producer(cell));
    if (cell)
      std::copy_n(cell->value.data(), size, out);
    else
      std::fill_n(out, size, 0.0f);
    out += size;
  };
  if (policy.parameters == StatePolicy::average) write(state->parameters, objective_->parameters());
  for (int i = 0; i < optimizer_->moments(); ++i)
    if (averages(policy, i)) write(state->moments[static_cast<std::size_t>(i)].values, objective_->parameters());
  if (policy.buffers == StatePolicy::average) write(state->buffers, objective_->buffers());
}

ModelStatePtr Training::from_averaged(const ModelStatePtr& old, const AveragePolicy& policy, const float* mean,
                                      const MomentAges& ages) {
  if (!objective_) return nullptr;
  const auto read = [&](std::size_t size) {
    if (CourseLog::replays_here()) return new_cell();  // whose value comes with all others
    auto cell = filled_cell({mean, size});
    mean += size;
    return cell;
  };
  auto state = std::make_shared<ModelState>(*old);
  state->id = new_state_id();
  if (policy.parameters == StatePolicy::average) state->parameters = read(objective_->parameters());
  for (std::size_t i = 0; i < static_cast<std::size_t>(optimizer_->moments()); ++i)
    if (policy.moments[i] == StatePolicy::average) state->moments[i] = {read(objective_->parameters()), ages[i]};
  for (std::size_t i = 0; i < policy.moments.size(); ++i)
    if (policy.moments[i] == StatePolicy::reset) state->moments[i] = {};
  if (policy.buffers == StatePolicy::average && objective_->buffers() > 0) state->buffers = read(objective_->buffers());
  if (policy.buffers == StatePolicy::reset && objective_->buffers() > 0)
    state->buffers = filled_cell(objective_->initial_buffers());
  return state;
}

}  // namespace syncopate
