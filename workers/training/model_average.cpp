#include "workers/training/model_average.hpp"

#include <array>
#include <cassert>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

namespace {

// The processes that have at least one of the cells. The mean is needed on all of them.
ProcessSet places_of_any(std::span<const CellPtr> cells) {
  ProcessSet places = ProcessSet::none();
  for (const CellPtr& cell : cells)
    if (cell) places = places | cell->at;
  return places;
}

bool all_equal(const auto& values) {
  return std::all_of(values.begin(), values.end(), [&](const auto& value) { return value == values.front(); });
}

template <typename Term>
std::vector<Term> normalised(std::vector<Term> terms) {
  double total = 0;
  for (const Term& term : terms) total += term.weight;
  for (Term& term : terms) term.weight /= total;
  return terms;
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
    // If all cells are the same cell, it is the mean, without arithmetic and rounding.
    if (all_equal(inputs)) return inputs.front();
    return weighted ? submit_combination(terms, size, places_of_any(inputs)) : submit_mean(std::move(inputs), size, of);
  };
  const std::size_t size = objective_->parameters();
  const bool has_new_parameters = policy.parameters == StatePolicy::average;
  CellPtr parameters;
  if (has_new_parameters)
    parameters = mean_of(
        size, [](const ModelState& s) { return s.parameters; }, slice);
  std::array<CellPtr, most_moments> moments;
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
    auto state = new_state(*old);
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

// The element-wise mean, summed in the order of the workers; outside the slice, the values of the first input.
CellPtr Training::submit_mean(std::vector<CellPtr> inputs, std::size_t size, Slice slice) {
  ProcessSet places = places_of_any(inputs);
  if (divided_) places = divided_->normalised(places);
  if (std::ranges::any_of(inputs, [&](const CellPtr& cell) { return cell && !cell->at.covers(places); }))
    return submit_mean_of_processes(std::move(inputs), size, slice, places);
  const auto held = std::make_shared<const std::vector<CellPtr>>(std::move(inputs));
  const std::size_t begin = slice.begin(size), end = slice.end(size);
  return submit_cell(size, *held, places, [held, begin, end](float* out, std::size_t from, std::size_t to) {
    if (from < begin || to > end) {
      std::copy(held->front()->value.data() + from, held->front()->value.data() + to, out + from);
      from = std::clamp(begin, from, to);
      to = std::clamp(end, from, to);
    }
    constexpr std::size_t block = 2048;  // so that the running sum stays in the first-level cache
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
  for (std::size_t i = 0; i < static_cast<std::size_t>(optimizer_->moments()); ++i)
    if (policy.moments[i] == StatePolicy::average) write(state->moments[i].values, objective_->parameters());
  if (policy.buffers == StatePolicy::average) write(state->buffers, objective_->buffers());
}

ModelStatePtr Training::from_averaged(const ModelStatePtr& old, const AveragePolicy& policy, const float* mean,
                                      const MomentAges& ages) {
  if (!objective_) return nullptr;
  const auto read = [&](std::size_t size) {
    if (CheckpointLog::replays_here()) return new_cell();  // restored later with all other values
    auto cell = filled_cell({mean, size});
    mean += size;
    return cell;
  };
  auto state = new_state(*old);
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

ModelStatePtr MovingAverage::update(const ModelStatePtr& published, Training& training) {
  const bool lags = options_.of == MovingAverageOptions::Of::before_update;
  const ModelStatePtr taken = lags ? std::exchange(last_, published) : published;
  const double decay = options_.decay_of(updates_++);
  average_ = training.combine(std::array<WeightedState, 2>{{{decay, average_}, {1 - decay, taken}}});
  return average_;
}

std::optional<MovingAverageOptions> read_moving_average(Settings& settings, bool publishes_rounds) {
  using Of = MovingAverageOptions::Of;
  if (!settings.has("average")) return std::nullopt;
  Settings table = settings.section(
      {"average", "A moving average of the published models; if given, it is evaluated instead of them."});
  MovingAverageOptions options;
  options.decay = table.number({"decay", "Weight of the old average in each update (alpha)."},
                               Range{.low = 0, .high = 1, .high_open = true}, options.decay);
  options.of =
      table.choice({"of", "Whether a step adds the model from before the step or from after it to the average."},
                   {{"before-update", Of::before_update}, {"after-update", Of::after_update}},
                   publishes_rounds ? Of::after_update : options.of,
                   "\"before-update\"; \"after-update\" where models are published once per round");
  if (publishes_rounds && options.of == Of::before_update)
    table.fault("of", "must be \"after-update\": this method publishes a model only once per round of local steps");
  options.num_updates = table.flag(
      {"num_updates", "Whether the decay of update n, from 0, is at most (1 + n) / (10 + n), as in TensorFlow."},
      options.num_updates);
  return options;
}

void write_norm_preserving_mean(float* out, std::span<const WeightedVector> terms, std::size_t size) {
  const std::vector<WeightedVector> shares = normalised(std::vector(terms.begin(), terms.end()));
  std::vector<WeightedVector> directions;
  double length = 0;
  for (const auto& [share, in] : shares) {
    const double norm = std::sqrt(sum_of_squares(in, size));
    length += share * norm;
    if (norm > 0) directions.push_back({share / norm, in});
  }
  std::vector<double> sum(size);
  for (const auto& [weight, in] : directions) add_scaled(sum.data(), weight, in, size);
  double squares = 0;
  for (const double value : sum) squares += value * value;
  const double norm = std::sqrt(squares);
  if (norm <= shortest_mean_direction) return write_weighted_sum(out, shares, size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(length / norm * sum[i]);
}

ModelStatePtr norm_preserving_mean(Training& training, std::span<const WeightedState> differences, Slice slice,
                                   OfEmbeddings embeddings) {
  if (training.time_only()) return nullptr;
  std::vector<CellPtr> read;
  std::vector<WeightedState> held(differences.begin(), differences.end());
  for (const WeightedState& difference : held) read.push_back(difference.state->parameters);
  auto result = new_state(*held.front().state);
  result->parameters = new_cell();
  if (result->buffers) result->buffers = training.combine(normalised(held))->buffers;
  const Objective& objective = training.objective();
  const std::size_t size = objective.parameters();
  const std::size_t begin = slice.begin(size), end = slice.end(size);
  for (WeightedState& difference : held) difference.state = held_by_task(difference.state);
  const auto fill = [cell = result->parameters, held = std::move(held), tensors = objective.tensors(), size, begin, end,
                     embeddings] {
    cell->value = FlatVector(size);
    float* const out = cell->value.data();
    std::fill(out, out + begin, 0.0f);
    std::fill(out + end, out + size, 0.0f);
    for (const ParameterTensor& tensor : tensors) {
      const std::size_t from = std::max(begin, tensor.offset), to = std::min(end, tensor.offset + tensor.size);
      if (from >= to) continue;
      std::vector<WeightedVector> terms;
      for (const auto& [weight, state] : held) terms.push_back({weight, values_of(state->parameters) + from});
      if (embeddings == OfEmbeddings::mean && is_embedding(tensor.name))
        write_weighted_sum(out + from, normalised(terms), to - from);
      else
        write_norm_preserving_mean(out + from, terms, to - from);
    }
  };
  training.compute({.reads = std::move(read), .writes = {result->parameters}, .work = fill});
  return result;
}

}  // namespace syncopate
