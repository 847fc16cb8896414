// One optimizer step as executor tasks: evaluate what is still a promise, then update block by block.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "workers/training/gradient_sum.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

namespace {

// A block of parameters, moments and gradient fits the first-level cache.
constexpr std::size_t block_size = 2048;

struct StepWork {
  std::shared_ptr<const Objective> objective;
  std::shared_ptr<const Optimizer> optimizer;
  ModelStatePtr from;  // input; null once taken over or no longer needed
  std::shared_ptr<GradientSum> sum;
  double scale = 1;
  StepContext context;
  double clip_norm = 0;
  std::size_t first = 0;  // the parameters [first, last) move on
  std::size_t last = 0;
  CellPtr parameters;  // outputs
  std::array<CellPtr, 2> moments;
  CellPtr buffers;
  const float* before = nullptr;  // where the input is: the output itself when in place
  const float* moments_before[2] = {nullptr, nullptr};

  void begin();
  void update(std::size_t begin, std::size_t end) const;
};

// Whether nobody else holds it any more; then their reads are over. Letting go of a further holder synchronises with
// how the others let go, as a fence would, which ThreadSanitizer does not know.
template <typename Held>
bool only_ours(const std::shared_ptr<Held>& held) {
  if (held.use_count() != 1) return false;
  std::shared_ptr<Held>(held).reset();
  return true;
}

// Gives `output` memory: the input's own where nobody else holds it. Returns where to read the input.
const float* take_over(const CellPtr& input, Cell& output, bool state_is_ours, std::size_t size) {
  if (input && state_is_ours && only_ours(input)) {
    output.value = std::move(input->value);
    return output.value.data();
  }
  output.value = FlatVector(size);
  return input ? input->value.data() : nullptr;
}

double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end) {
  double sum_of_squares = 0;
  float block[block_size];
  for (std::size_t at = begin; at < end; at += block_size) {
    const std::size_t n = std::min(block_size, end - at);
    write_block(sum, scale, at, {block, n});
    for (std::size_t i = 0; i < n; ++i) sum_of_squares += static_cast<double>(block[i]) * block[i];
  }
  return std::sqrt(sum_of_squares);
}

void StepWork::begin() {
  const std::size_t size = objective->parameters();
  if (clip_norm > 0) {
    // As torch.nn.utils.clip_grad_norm_: the same guard against division by zero.
    const double norm = norm_of(*sum, scale, first, last);
    scale *= std::min(1.0, clip_norm / (norm + 1e-6));
  }
  const bool ours = only_ours(from);
  if (buffers) {
    buffers->value = FlatVector(objective->buffers());
    std::fill_n(buffers->value.data(), buffers->value.size(), 0.0f);
    add_buffers(*sum, buffers->value.span());
    for (float& value : buffers->value.span()) value /= static_cast<float>(sum->micro_batches);
  }
  before = take_over(from->parameters, *parameters, ours, size);
  for (int i = 0; i < optimizer->moments(); ++i)
    moments_before[i] = take_over(from->moments[i], *moments[i], ours, size);
}

void StepWork::update(std::size_t begin, std::size_t end) const {
  const auto& decay = optimizer->weight_decay();
  const std::size_t decayed = decay.scope == DecayScope::all ? objective->parameters() : objective->weights();
  float gradient[block_size];
  for (std::size_t at = begin; at < end;) {
    // A block never straddles the border between decayed and other parameters.
    const std::size_t stop = std::min({end, at + block_size, at < decayed ? decayed : end});
    write_block(*sum, scale, at, {gradient, stop - at});
    OptimizerBlock block{
        .size = stop - at, .gradient = gradient, .before = before + at, .after = parameters->value.data() + at};
    for (int i = 0; i < optimizer->moments(); ++i) {
      block.moments_before[i] = moments_before[i] ? moments_before[i] + at : nullptr;
      block.moments_after[i] = moments[i]->value.data() + at;
    }
    StepContext here = context;
    here.decay = at < decayed ? decay.rate : 0;
    optimizer->update(block, here);
    at = stop;
  }
}

// Of one chunk, or none at all.
bool is_taken_at(const GradientSum& sum, const ModelState& state) {
  if (sum.chunks.empty()) return true;
  const ModelStatePtr& at = sum.chunks.front().at;
  return sum.chunks.size() == 1 && at && at->parameters == state.parameters && at->buffers == state.buffers;
}

}  // namespace

ModelStatePtr Training::submit_step(ModelStatePtr state, std::shared_ptr<GradientSum> sum, double scale,
                                    double learning_rate, bool exclusive, Slice slice) {
  auto next = std::make_shared<ModelState>(*state);
  next->id = new_state_id();
  next->parameters = std::make_shared<Cell>();
  for (int i = 0; i < optimizer_->moments(); ++i) next->moments[i] = std::make_shared<Cell>();
  if (state->buffers && sum->micro_batches > 0) next->buffers = std::make_shared<Cell>();
  ++next->optimizer_steps;

  auto work = std::make_shared<StepWork>();
  work->objective = objective_;
  work->optimizer = optimizer_;
  work->scale = scale;
  work->context = {.learning_rate = learning_rate, .step = next->optimizer_steps.value()};
  work->clip_norm = options_.clip_norm;
  const auto size = static_cast<std::int64_t>(objective_->parameters());
  work->first = static_cast<std::size_t>(slice.begin(size));
  work->last = static_cast<std::size_t>(slice.end(size));
  work->parameters = next->parameters;
  work->moments = next->moments;
  if (next->buffers != state->buffers) work->buffers = next->buffers;

  std::vector<std::shared_ptr<Task>> inputs = {state->parameters->producer,
                                               state->buffers ? state->buffers->producer : nullptr};
  for (const auto& moment : state->moments)
    if (moment) inputs.push_back(moment->producer);
  // The gradient of a local step goes straight from the backward pass into the update. One that was taken at
  // another model does not wait for this one: it is computed before or beside the steps that come before.
  const bool one_task = exclusive && is_taken_at(*sum, *state);
  // The other cores have the steps and gradients of others.
  const bool whole = exclusive && sum->chunks.size() <= 1;
  if (!one_task) {
    submit_chunks(sum, objective_, executor_);
    inputs.insert(inputs.end(), sum->tasks.begin(), sum->tasks.end());
  }
  work->sum = std::move(sum);
  state->parameters->stepped_from = true;
  work->from = std::move(state);

  const auto begin = [work, one_task, whole] {
    if (one_task)
      for (auto& chunk : work->sum->chunks) evaluate_chunk(chunk, *work->objective);
    work->begin();
    if (whole) work->update(work->first, work->last);
    // What the last task holds is released with it; a local step's gradient at once.
    if (whole) work->sum = nullptr, work->from = nullptr;
  };
  const auto started = executor_.submit(begin, inputs);
  const auto update = [work](std::size_t from, std::size_t to) { work->update(from, to); };
  const auto done = whole ? started : submit_ranges(started, work->first, work->last, update);
  next->parameters->producer = done;
  for (int i = 0; i < optimizer_->moments(); ++i) next->moments[i]->producer = done;
  if (work->buffers) next->buffers->producer = done;
  return next;
}

}  // namespace syncopate
