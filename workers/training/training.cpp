#include "workers/training/training.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

CellPtr filled_cell(std::span<const float> values) {
  auto cell = std::make_shared<Cell>();
  cell->value = FlatVector(values.size());
  std::copy(values.begin(), values.end(), cell->value.data());
  return cell;
}

std::shared_ptr<Task> producer(const CellPtr& cell) { return cell ? cell->producer : nullptr; }

}  // namespace

Training::Training(std::shared_ptr<const Objective> objective, std::shared_ptr<const Optimizer> optimizer,
                   Options options, Executor& executor)
    : objective_(std::move(objective)), optimizer_(std::move(optimizer)), options_(options), executor_(executor) {}

Bytes Training::parameter_bytes() const {
  return objective_ ? Bytes{static_cast<Bytes::Rep>(4 * objective_->parameters())} : declared_bytes_;
}

ModelStatePtr Training::initial_state() {
  if (!objective_) return nullptr;
  auto state = std::make_shared<ModelState>();
  state->id = new_state_id();
  state->parameters = filled_cell(objective_->initial_parameters(options_.seed));
  if (objective_->buffers() > 0) state->buffers = filled_cell(objective_->initial_buffers());
  return state;
}

Gradient Training::share(const Gradient& gradient) {
  if (!objective_) return gradient;
  double scale = 1;
  Gradient shared(fix_sum(gradient, *objective_, scale), gradient.micro_batches(), gradient.compute_time());
  return shared *= scale;
}

ModelStatePtr Training::descend(ModelStatePtr state, const Gradient& gradient, double learning_rate) {
  if (!objective_) return nullptr;
  const bool is_shared = gradient.terms().size() == 1 && gradient.terms().front().sum;
  double scale = 1;
  auto sum = fix_sum(gradient, *objective_, scale);
  if (!is_shared) return submit_step(std::move(state), std::move(sum), scale, learning_rate, true);
  auto& use = sum->uses[{state->id, scale, learning_rate}];
  if (!use) use = submit_step(std::move(state), sum, scale, learning_rate, false);
  return use;
}

std::vector<ModelStatePtr> Training::average(std::span<const ModelStatePtr> states, const AveragePolicy& policy) {
  if (!objective_) return std::vector<ModelStatePtr>(states.size());
  const auto mean_of = [&](auto cell_of) -> CellPtr {
    std::vector<CellPtr> inputs;
    for (const auto& state : states) inputs.push_back(cell_of(*state));
    return submit_mean(std::move(inputs));
  };
  const CellPtr parameters = mean_of([](const ModelState& s) { return s.parameters; });
  std::array<CellPtr, 2> moments;
  if (policy.moments == StatePolicy::average)
    for (std::size_t i = 0; i < moments.size(); ++i)
      moments[i] = mean_of([i](const ModelState& s) { return s.moments[i]; });
  CellPtr buffers;
  if (policy.buffers == StatePolicy::average) buffers = mean_of([](const ModelState& s) { return s.buffers; });
  if (policy.buffers == StatePolicy::reset && objective_->buffers() > 0)
    buffers = filled_cell(objective_->initial_buffers());

  std::vector<ModelStatePtr> result;
  for (const auto& old : states) {
    auto state = std::make_shared<ModelState>(*old);
    state->id = new_state_id();
    state->parameters = parameters;
    if (policy.moments != StatePolicy::keep) state->moments = moments;
    if (policy.moments == StatePolicy::reset) state->optimizer_steps = 0;
    if (policy.buffers != StatePolicy::keep) state->buffers = buffers;
    const bool equals_previous = !result.empty() && state->moments == result.back()->moments &&
                                 state->buffers == result.back()->buffers &&
                                 state->optimizer_steps == result.back()->optimizer_steps;
    result.push_back(equals_previous ? result.back() : std::move(state));
  }
  return result;
}

// Element-wise mean, summed in the order of the workers. A null cell stands for zeros.
CellPtr Training::submit_mean(std::vector<CellPtr> inputs) {
  // Equal cells have their own value as mean: nothing to compute, and no rounding.
  if (std::all_of(inputs.begin(), inputs.end(), [&](const CellPtr& c) { return c == inputs.front(); }))
    return inputs.front();
  std::vector<std::shared_ptr<Task>> prerequisites;
  for (const auto& cell : inputs) prerequisites.push_back(producer(cell));
  auto output = std::make_shared<Cell>();
  auto held = std::make_shared<std::vector<CellPtr>>(std::move(inputs));
  const auto begin = executor_.submit(
      [output, held] {
        const auto filled = std::find_if(held->begin(), held->end(), [](const CellPtr& cell) { return cell; });
        output->value = FlatVector((*filled)->value.size());
      },
      prerequisites);
  output->producer = submit_ranges(begin, [output, held](std::size_t from, std::size_t to) {
    constexpr std::size_t block = 2048;  // the running sum stays in the first-level cache
    const float factor = 1.0f / static_cast<float>(held->size());
    const std::size_t end = std::min(to, output->value.size());
    for (std::size_t at = from; at < end; at += block) {
      const std::size_t n = std::min(block, end - at);
      float* out = output->value.data() + at;
      std::fill_n(out, n, 0.0f);
      for (const auto& cell : *held)
        if (cell)
          for (std::size_t i = 0; i < n; ++i) out[i] += cell->value.data()[at + i];
      for (std::size_t i = 0; i < n; ++i) out[i] *= factor;
    }
  });
  return output;
}

ModelStatePtr Training::adopt(const ModelStatePtr& self, const ModelStatePtr& other) {
  if (!objective_ || self == other) return other;
  auto state = std::make_shared<ModelState>(*self);
  state->id = new_state_id();
  state->parameters = other->parameters;
  state->buffers = other->buffers;
  return state;
}

std::vector<float> Training::values(const ModelStatePtr& state) {
  executor_.wait(state->parameters->producer);
  const auto span = state->parameters->value.span();
  return {span.begin(), span.end()};
}

std::vector<float> Training::values(const Gradient& gradient) {
  std::vector<float> out(gradient_size());
  write_values(gradient, out.data());
  out.resize(objective_->parameters());
  return out;
}

double Training::norm(const Gradient& gradient) {
  if (!objective_) return std::numeric_limits<double>::quiet_NaN();
  double sum_of_squares = 0;
  for (const float value : values(gradient)) sum_of_squares += static_cast<double>(value) * value;
  return std::sqrt(sum_of_squares);
}

double Training::loss(const Gradient& gradient) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  if (!objective_) return unknown;
  double scale = 1;
  const auto sum = fix_sum(gradient, *objective_, scale);
  submit_chunks(sum, objective_, executor_);
  for (const auto& task : sum->tasks) executor_.wait(task);
  const LossSum total = loss_of(*sum);
  return total.micro_batches > 0 ? total.loss / static_cast<double>(total.micro_batches) : unknown;
}

std::size_t Training::gradient_size() const {
  return objective_ ? objective_->parameters() + objective_->buffers() : 0;
}

void Training::write_values(const Gradient& gradient, float* out) {
  if (!objective_) return;
  double scale = 1;
  const auto sum = fix_sum(gradient, *objective_, scale);
  submit_chunks(sum, objective_, executor_);
  for (const auto& task : sum->tasks) executor_.wait(task);
  write_block(*sum, scale, 0, {out, objective_->parameters()});
  const std::span<float> buffers(out + objective_->parameters(), objective_->buffers());
  std::fill(buffers.begin(), buffers.end(), 0.0f);
  add_buffers(*sum, buffers);
}

Gradient Training::gradient_from(FlatVector values, std::int64_t micro_batches, Duration compute_time) {
  if (!objective_) return Gradient(nullptr, micro_batches, compute_time);
  assert(values.size() == gradient_size());
  auto owner = std::make_shared<FlatVector>(std::move(values));
  const std::size_t size = objective_->parameters();
  auto sum = std::make_shared<GradientSum>();
  sum->submitted = true;
  sum->micro_batches = micro_batches;
  auto& result = sum->chunks.emplace_back().result;
  result.segments.push_back({.offset = 0, .size = size, .data = owner->data(), .owner = owner});
  result.buffers_sum.assign(owner->data() + size, owner->data() + owner->size());
  return Gradient(std::move(sum), micro_batches, compute_time);
}

void Training::evaluate(const ModelStatePtr& state, std::function<void(const Evaluation&)> done) {
  assert(objective_);
  constexpr std::int64_t part_samples = 2000;
  auto parts = std::make_shared<std::vector<std::pair<Split, EvaluationSums>>>();
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds;
  for (const Split split : {Split::test, Split::train}) {
    const auto all = objective_->evaluation_samples(split);
    const auto samples = split == Split::train ? std::min(all, options_.train_samples) : all;
    for (std::int64_t begin = 0; begin < samples; begin += part_samples) {
      parts->push_back({split, {}});
      bounds.push_back({begin, std::min(samples, begin + part_samples)});
    }
  }
  const std::shared_ptr<Task> inputs[] = {producer(state->parameters), producer(state->buffers)};
  std::vector<std::shared_ptr<Task>> tasks;
  for (std::size_t i = 0; i < parts->size(); ++i)
    tasks.push_back(executor_.submit(
        [this, state, parts, i, bound = bounds[i]] {
          const float* buffers = state->buffers ? state->buffers->value.data() : nullptr;
          auto& [split, sums] = (*parts)[i];
          sums = objective_->evaluate(state->parameters->value.data(), buffers, split, bound.first, bound.second);
        },
        inputs));
  executor_.submit(
      [this, parts, done = std::move(done)] {
        EvaluationSums test, train;
        for (const auto& [split, sums] : *parts) {
          auto& total = split == Split::test ? test : train;
          total.loss += sums.loss;
          total.correct += sums.correct;
          total.samples += sums.samples;
        }
        Evaluation evaluation;
        evaluation.test_loss = test.loss / static_cast<double>(test.samples);
        evaluation.train_loss = train.loss / static_cast<double>(train.samples);
        evaluation.test_accuracy = objective_->has_accuracy()
                                       ? static_cast<double>(test.correct) / static_cast<double>(test.samples)
                                       : std::numeric_limits<double>::quiet_NaN();
        evaluation.finite = std::isfinite(evaluation.test_loss) && std::isfinite(evaluation.train_loss);
        done(evaluation);
      },
      tasks);
}

std::size_t Training::averaged_size(const AveragePolicy& policy) const {
  if (!objective_) return 0;
  std::size_t size = objective_->parameters();
  if (policy.moments == StatePolicy::average) size += objective_->parameters() * optimizer_->moments();
  if (policy.buffers == StatePolicy::average) size += objective_->buffers();
  return size;
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
  write(state->parameters, objective_->parameters());
  if (policy.moments == StatePolicy::average)
    for (int i = 0; i < optimizer_->moments(); ++i) write(state->moments[i], objective_->parameters());
  if (policy.buffers == StatePolicy::average) write(state->buffers, objective_->buffers());
}

ModelStatePtr Training::from_averaged(const ModelStatePtr& old, const AveragePolicy& policy, const float* mean) {
  if (!objective_) return nullptr;
  const auto read = [&](std::size_t size) {
    auto cell = filled_cell({mean, size});
    mean += size;
    return cell;
  };
  auto state = std::make_shared<ModelState>(*old);
  state->id = new_state_id();
  state->parameters = read(objective_->parameters());
  if (policy.moments == StatePolicy::average)
    for (int i = 0; i < optimizer_->moments(); ++i) state->moments[i] = read(objective_->parameters());
  if (policy.moments == StatePolicy::reset) {
    state->moments = {};
    state->optimizer_steps = 0;
  }
  if (policy.buffers == StatePolicy::average && objective_->buffers() > 0) state->buffers = read(objective_->buffers());
  if (policy.buffers == StatePolicy::reset && objective_->buffers() > 0)
    state->buffers = filled_cell(objective_->initial_buffers());
  return state;
}

}  // namespace syncopate
