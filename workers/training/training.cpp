#include "workers/training/training.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/sums_apart.hpp"

namespace syncopate {

Training::Training(std::shared_ptr<const Objective> objective, std::shared_ptr<const Optimizer> optimizer,
                   Options options, Executor& executor)
    : objective_(std::move(objective)), optimizer_(std::move(optimizer)), options_(options), executor_(executor) {
  if (objective_ && optimizer_)
    stretches_ = std::make_shared<const std::vector<Stretch>>(stretches_of(*objective_, *optimizer_));
  if (objective_) backward_order_.emplace(*objective_);
  if (objective_ && options_.processes)
    divided_ = std::make_unique<DividedWork>(*options_.processes, executor_, options_.workers);
}

void Training::leave_processes() {
  if (divided_) divided_->leave();
}

Bytes Training::parameter_bytes() const {
  return objective_ ? Bytes{static_cast<Bytes::Rep>(4 * objective_->parameters())} : declared_bytes_;
}

ModelStatePtr Training::initial_state() {
  if (!objective_) return nullptr;
  auto state = std::make_shared<ModelState>();
  state->id = new_state_id();
  const auto& start = options_.start;
  assert(!start || !start->taken.empty() || start->parameters.size() == objective_->parameters());
  state->parameters = filled_cell(start && start->taken.empty() ? start->parameters : new_parameters());
  if (objective_->buffers() > 0)
    state->buffers = filled_cell(start && !start->buffers.empty() ? start->buffers : objective_->initial_buffers());
  return state;
}

// The model's own first ones, but for what is taken of another's.
std::vector<float> Training::new_parameters() const {
  std::vector<float> values = objective_->initial_parameters(options_.seed);
  if (!options_.start) return values;
  for (const auto& [from, to, size] : options_.start->taken) {
    assert(from + size <= options_.start->parameters.size() && to + size <= values.size());
    std::copy_n(&options_.start->parameters[from], size, &values[to]);
  }
  return values;
}

Gradient Training::share(const Gradient& gradient) {
  if (!objective_) return gradient;
  double scale = 1;
  Gradient shared(fixed(gradient, scale), gradient.micro_batches(), gradient.compute_time());
  return shared *= scale;
}

void Training::set_statistics(const Gradient& shared, std::int64_t micro_batches) {
  if (!objective_) return;
  assert(shared.terms().size() == 1 && shared.terms().front().sum);
  auto& count = shared.terms().front().sum->micro_batches;
  if (count != micro_batches) count = micro_batches;  // the first who says so; others may read it by then
}

ModelStatePtr Training::descend(ModelStatePtr state, const Gradient& gradient, double learning_rate,
                                const StepRules& rules) {
  if (!objective_) return nullptr;
  if (CourseLog* const log = CourseLog::here()) log->before_step();
  double scale = 1;
  auto sum = fixed(gradient, scale);
  if (options_.on_kept && rules.slice.index == 0) tell_kept(*sum);
  const bool is_shared = gradient.terms().size() == 1 && gradient.terms().front().sum == sum;
  const ProcessSet places = place_of_step(*state, gradient);
  if (!is_shared) return submit_step(std::move(state), std::move(sum), scale, learning_rate, true, rules, places);
  auto& use = sum->uses[{.from = state->id,
                         .scale = scale,
                         .learning_rate = learning_rate,
                         .slice = rules.slice,
                         .keeps_second = rules.keeps_second,
                         .clips = rules.clipping == Clipping::of_step}];
  if (!use) use = submit_step(std::move(state), sum, scale, learning_rate, false, rules, places);
  return use;
}

// Once, whoever descends along it; of a server's models in slices the first one says so.
void Training::tell_kept(GradientSum& sum) const {
  if (std::exchange(sum.is_told, true)) return;
  for (const MicroBatch& micro_batch : sum.carried) options_.on_kept(micro_batch);
  for (const GradientSum::Chunk& chunk : sum.chunks) {
    if (chunk.scale == 0 || !chunk.layers.are_all()) continue;
    for (const MicroBatch& micro_batch : chunk.micro_batches) options_.on_kept(micro_batch);
    if (chunk.nested) tell_kept(*chunk.nested);
  }
}

std::vector<MicroBatch> Training::travelling(const Gradient& gradient) const {
  std::vector<MicroBatch> micro_batches;
  if (options_.on_kept) append_micro_batches(gradient, micro_batches);
  return micro_batches;
}

void Training::tell_kept(std::span<const MicroBatch> micro_batches) const {
  for (const MicroBatch& micro_batch : micro_batches) options_.on_kept(micro_batch);
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
  if (divided_) divided_->bring(state->parameters, ProcessSet::everywhere());
  executor_.wait(state->parameters->producer);
  const auto span = state->parameters->value.span();
  return {span.begin(), span.end()};
}

std::vector<float> Training::buffer_values(const ModelStatePtr& state) {
  if (!state->buffers) return {};
  if (divided_) divided_->bring(state->buffers, ProcessSet::everywhere());
  executor_.wait(state->buffers->producer);
  const auto span = state->buffers->value.span();
  return {span.begin(), span.end()};
}

std::vector<float> Training::values(const Gradient& gradient) {
  std::vector<float> out(gradient_size(gradient.wide()));
  write_values(gradient, out.data());
  out.resize(objective_->parameters());
  return out;
}

namespace {

double distance_of(const Cell& a, const Cell& b, std::size_t offset, std::size_t size) {
  const float* const x = a.value.data() + offset;
  const float* const y = b.value.data() + offset;
  double sum_of_squares = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double difference = static_cast<double>(x[i]) - y[i];
    sum_of_squares += difference * difference;
  }
  return std::sqrt(sum_of_squares);
}

}  // namespace

double Training::distance(const ModelStatePtr& a, const ModelStatePtr& b) {
  if (!objective_) return std::numeric_limits<double>::quiet_NaN();
  const CellPtr cells[] = {a->parameters, b->parameters};
  const ProcessSet places = place_of_reader(cells);
  const auto tasks = brought(cells, places);
  const auto compute = [&] {
    for (const auto& task : tasks) executor_.wait(task);
    return std::vector{distance_of(*a->parameters, *b->parameters, 0, objective_->parameters())};
  };
  return told(1, places, compute).front();
}

std::vector<double> Training::distances(const ModelStatePtr& a, const ModelStatePtr& b) {
  if (!objective_) return {};
  const std::vector<ParameterTensor> tensors = objective_->tensors();
  const CellPtr cells[] = {a->parameters, b->parameters};
  const ProcessSet places = place_of_reader(cells);
  const auto tasks = brought(cells, places);
  const auto compute = [&] {
    for (const auto& task : tasks) executor_.wait(task);
    std::vector<double> distances;
    for (const ParameterTensor& tensor : tensors)
      distances.push_back(distance_of(*a->parameters, *b->parameters, tensor.offset, tensor.size));
    return distances;
  };
  return told(tensors.size(), places, compute);
}

double Training::norm(const Gradient& gradient) {
  if (!objective_) return std::numeric_limits<double>::quiet_NaN();
  // What is written of it is computed once, whoever asks for how much.
  double scale = 1;
  const auto sum = fixed(gradient, scale);
  submit_chunks(sum, objective_, executor_, divided_.get());
  // Where it is already, or else everywhere.
  const ProcessSet places = sum->at.empty() ? ProcessSet::everywhere() : sum->at;
  const auto there = readable(sum, places);
  const auto compute = [&] {
    for (const auto& task : there->tasks) executor_.wait(task);
    std::vector<float> values(objective_->parameters());
    write_block(*there, scale, 0, values);
    double sum_of_squares = 0;
    for (const float value : values) sum_of_squares += static_cast<double>(value) * value;
    return std::vector{std::sqrt(sum_of_squares)};
  };
  return told(1, places, compute).front();
}

double Training::loss(const Gradient& gradient) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  if (!objective_) return unknown;
  double scale = 1;
  const auto sum = fixed(gradient, scale);
  submit_chunks(sum, objective_, executor_, divided_.get());
  return told_number([&] {
    if (divided_) return loss_of_processes(*sum);
    for (const auto& task : sum->tasks) executor_.wait(task);
    const LossSum total = loss_of(*sum);
    return total.micro_batches > 0 ? total.loss / static_cast<double>(total.micro_batches) : unknown;
  });
}

std::size_t Training::gradient_size(bool wide) const {
  return objective_ ? (wide ? 2 : 1) * objective_->parameters() + objective_->buffers() : 0;
}

void Training::write_values(const Gradient& gradient, float* out) {
  if (!objective_) return;
  double scale = 1;
  const auto sum = readable(fixed(gradient, scale), ProcessSet::everywhere());
  for (const auto& task : sum->tasks) executor_.wait(task);
  const std::size_t size = objective_->parameters();
  if (gradient.wide())
    write_wide_block(*sum, scale, 0, {out, size}, {out + size, size});
  else
    write_block(*sum, scale, 0, {out, size});
  const std::span<float> buffers(out + gradient_size(gradient.wide()) - objective_->buffers(), objective_->buffers());
  std::fill(buffers.begin(), buffers.end(), 0.0f);
  add_buffers(*sum, buffers);
}

Gradient Training::gradient_from(FlatVector values, std::int64_t micro_batches, Duration compute_time, bool wide,
                                 std::vector<MicroBatch> carried) {
  if (!objective_) {
    Gradient empty(nullptr, micro_batches, compute_time);
    if (wide) empty.use_double_precision();
    return empty;
  }
  const bool is_replayed = CourseLog::replays_here();  // its value comes with all others
  assert(is_replayed || values.size() == gradient_size(wide));
  auto owner = std::make_shared<FlatVector>(std::move(values));
  const std::size_t size = objective_->parameters();
  auto sum = new_sum();
  sum->submitted = true;
  sum->wide = wide;
  sum->micro_batches = micro_batches;
  sum->carried = std::move(carried);
  if (is_replayed) {
    sum->chunks.resize(wide ? 2 : 1);
    return Gradient(std::move(sum), micro_batches, compute_time);
  }
  const float* part = owner->data();
  // What the first part of a wide gradient lacks is a summand like any other.
  for (int i = 0; i < (wide ? 2 : 1); ++i, part += size)
    sum->chunks.emplace_back().result.segments.push_back({.offset = 0, .size = size, .data = part, .owner = owner});
  sum->chunks.front().result.buffers_sum.assign(part, std::as_const(*owner).data() + owner->size());
  return Gradient(std::move(sum), micro_batches, compute_time);
}

std::shared_ptr<Task> Training::submit_on(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                                          std::function<void(const GradientSum&, double)> work) {
  double scale = 1;
  const auto sum = fixed(gradient, scale);
  return submit_reading(sum, scale, place(), std::move(prerequisites), std::move(work));
}

std::shared_ptr<Task> Training::submit_reading(const std::shared_ptr<GradientSum>& sum, double scale, ProcessSet places,
                                               std::vector<std::shared_ptr<Task>> prerequisites,
                                               std::function<void(const GradientSum&, double)> work) {
  const auto there = readable(sum, places);
  if (!is_here(places)) return nullptr;
  prerequisites.insert(prerequisites.end(), there->tasks.begin(), there->tasks.end());
  return executor_.submit([there, scale, work = std::move(work)] { work(*there, scale); }, prerequisites);
}

void Training::hold(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                    std::function<void(const GradientSum&, double)> work,
                    std::function<void(const std::shared_ptr<Task>&)> submitted) {
  if (!objective_->has_gradients_apart())
    return submitted(submit_on(gradient, std::move(prerequisites), std::move(work)));
  double scale = 1;
  const auto sum = fixed(gradient, scale);
  held_.push_back({.sum = sum,
                   .scale = scale,
                   .places = place(),
                   .prerequisites = std::move(prerequisites),
                   .work = std::move(work),
                   .submitted = std::move(submitted)});
}

// Where several processes divide the work, each has the passes of its own workers.
void Training::begin_held() {
  std::vector<Held> all = std::exchange(held_, {});
  std::erase_if(all, [this](const Held& held) { return is_elsewhere(held); });
  std::vector<std::shared_ptr<GradientSum>> sums;
  for (const Held& held : all) sums.push_back(held.sum);
  for (const std::vector<std::size_t>& together : passes_of(sums, *objective_)) {
    std::vector<std::shared_ptr<GradientSum>> of_pass;
    for (const std::size_t i : together) of_pass.push_back(std::exchange(sums[i], nullptr));
    submit_pass(of_pass, objective_, executor_, [&](std::size_t at) {
      Held& held = all[together[at]];
      held.prerequisites.insert(held.prerequisites.end(), held.sum->tasks.begin(), held.sum->tasks.end());
      const auto work = [sum = std::exchange(held.sum, nullptr), scale = held.scale, work = std::move(held.work)] {
        work(*sum, scale);
      };
      held.submitted(executor_.submit(work, held.prerequisites));
    });
  }
}

// What is not to be evaluated here by one pass with others is submitted otherwise.
bool Training::is_elsewhere(const Held& held) {
  if (!divided_) return false;
  const auto is_of_one = [&](const GradientSum::Chunk& chunk) {
    return chunk.at && chunk.at->parameters->at.covers(held.places) &&
           (!chunk.at->buffers || chunk.at->buffers->at.covers(held.places)) &&
           std::ranges::all_of(chunk.micro_batches, [&](const MicroBatch& micro_batch) {
             return ProcessSet::only(divided_->process_of(micro_batch.worker)) == held.places;
           });
  };
  const bool is_own = !held.sum->submitted && std::ranges::all_of(held.sum->chunks, is_of_one);
  if (!is_own) {
    held.submitted(submit_reading(held.sum, held.scale, held.places, held.prerequisites, held.work));
    return true;
  }
  held.sum->at = held.places;
  if (is_here(held.places)) return false;
  held.sum->submitted = true;
  for (GradientSum::Chunk& chunk : held.sum->chunks) chunk.at = nullptr;
  held.submitted(nullptr);
  return true;
}

Gradient Training::promised(std::int64_t micro_batches, std::vector<MicroBatch> carried, std::span<const CellPtr> reads,
                            std::function<void(float* out)> fill) {
  auto sum = new_sum();
  sum->submitted = true;
  sum->micro_batches = micro_batches;
  sum->carried = std::move(carried);
  sum->chunks.emplace_back();
  const auto evaluate = [sum = std::weak_ptr(sum), size = objective_->parameters(), all = gradient_size(),
                         fill = std::move(fill)] {
    const auto filled = sum.lock();
    if (!filled) return;  // nobody asks for it any more
    auto owner = std::make_shared<FlatVector>(all);
    fill(owner->data());
    const float* const values = std::as_const(*owner).data();
    PartialGradient& result = filled->chunks.front().result;
    result.segments.push_back({.offset = 0, .size = size, .data = values, .owner = owner});
    result.buffers_sum.assign(values + size, values + all);
  };
  sum->tasks.push_back(executor_.submit(evaluate, brought(reads, ProcessSet::everywhere())));
  return Gradient(sum, micro_batches);
}

}  // namespace syncopate
