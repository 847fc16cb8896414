// One optimizer step as executor tasks: evaluate what is still a promise, take what passes a layer-wise optimizer
// needs, then update block by block.
#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

namespace {

// A block of parameters, moments and gradient fits the first-level cache.
constexpr std::size_t block_size = longest_block;

// What the passes of a layer-wise step measure.
class Measures {
 public:
  explicit Measures(std::size_t tensors) : by_tensor_(tensors) {}

  // From any thread: the sums of each tensor over a range of the parameters that begins here.
  void add(std::size_t range, std::vector<TensorSums> sums) {
    std::lock_guard lock(mutex_);
    ranges_.emplace(range, std::move(sums));
  }
  // Once all have been added: range by range, whichever came first.
  void end_pass(int pass) {
    const auto at = static_cast<std::size_t>(pass);
    for (const auto& [range, sums] : ranges_)
      for (std::size_t tensor = 0; tensor < sums.size(); ++tensor)
        for (std::size_t i = 0; i < sums[tensor].size(); ++i) {
          by_tensor_[tensor][at][i] += sums[tensor][i];
          of_model_[at][i] += sums[tensor][i];
        }
    ranges_.clear();
  }
  const PassSums& of_tensor(std::size_t tensor) const { return by_tensor_[tensor]; }
  const PassSums& of_model() const { return of_model_; }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<TensorSums>> ranges_;
  std::vector<PassSums> by_tensor_;
  PassSums of_model_{};
};

struct StepWork {
  std::shared_ptr<const Objective> objective;
  std::shared_ptr<const Optimizer> optimizer;
  std::shared_ptr<const std::vector<Stretch>> stretches;
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
  FlatVector gradient;  // of a layer-wise step
  std::unique_ptr<Measures> measures;

  void begin();
  void measure(int pass, std::size_t begin, std::size_t end);
  void update(std::size_t begin, std::size_t end);

  template <typename Use>
  void for_blocks(std::size_t begin, std::size_t end, const Use& use);
  OptimizerBlock block(std::size_t begin, std::size_t size, const float* gradient) const;
  StepContext context_of(std::size_t stretch) const;
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

void StepWork::begin() {
  const std::size_t size = objective->parameters();
  if (clip_norm > 0) scale *= clipping_factor(norm_of(*sum, scale, first, last), clip_norm);
  const bool ours = only_ours(from);
  if (buffers) {
    buffers->value = FlatVector(objective->buffers());
    std::fill_n(buffers->value.data(), buffers->value.size(), 0.0f);
    add_buffers(*sum, buffers->value.span());
    for (float& value : buffers->value.span()) value /= static_cast<float>(sum->micro_batches);
  }
  before = take_over(from->parameters, *parameters, ours, size);
  for (int i = 0; i < optimizer->moments(); ++i)
    moments_before[i] = take_over(from->moments[i].values, *moments[i], ours, size);
  if (optimizer->passes() > 0) {
    gradient = FlatVector(size);
    measures = std::make_unique<Measures>(stretches->size());
  }
}

// Calls use(begin, size, stretch) block by block; none straddles two stretches.
template <typename Use>
void StepWork::for_blocks(std::size_t begin, std::size_t end, const Use& use) {
  const auto is_before = [](const Stretch& stretch, std::size_t at) { return stretch.end <= at; };
  auto stretch = std::lower_bound(stretches->begin(), stretches->end(), begin, is_before);
  for (std::size_t at = begin; at < end; ++stretch) {
    for (const std::size_t last = std::min(end, stretch->end); at < last;) {
      const std::size_t size = std::min(block_size, last - at);
      use(at, size, static_cast<std::size_t>(stretch - stretches->begin()));
      at += size;
    }
  }
}

OptimizerBlock StepWork::block(std::size_t begin, std::size_t size, const float* of_gradient) const {
  OptimizerBlock block{
      .size = size, .gradient = of_gradient, .before = before + begin, .after = parameters->value.data() + begin};
  for (int i = 0; i < optimizer->moments(); ++i) {
    block.moments_before[i] = moments_before[i] ? moments_before[i] + begin : nullptr;
    block.moments_after[i] = moments[i]->value.data() + begin;
  }
  return block;
}

StepContext StepWork::context_of(std::size_t stretch) const {
  StepContext here = context;
  here.excluded = (*stretches)[stretch].excluded;
  here.decay = here.excluded ? 0 : optimizer->weight_decay().rate;
  if (measures) {
    here.tensor = &measures->of_tensor(stretch);
    here.model = &measures->of_model();
  }
  return here;
}

void StepWork::measure(int pass, std::size_t begin, std::size_t end) {
  std::vector<TensorSums> sums(stretches->size());
  for_blocks(begin, end, [&](std::size_t at, std::size_t size, std::size_t stretch) {
    float* const kept = gradient.data() + at;
    if (pass == 0) write_block(*sum, scale, at, {kept, size});
    OptimizerBlock here = block(at, size, kept);
    here.kept = kept;
    const TensorSums share = optimizer->measure(pass, here, context_of(stretch));
    for (std::size_t i = 0; i < share.size(); ++i) sums[stretch][i] += share[i];
  });
  measures->add(begin, std::move(sums));
}

void StepWork::update(std::size_t begin, std::size_t end) {
  float of_block[block_size];
  for_blocks(begin, end, [&](std::size_t at, std::size_t size, std::size_t stretch) {
    if (!measures) write_block(*sum, scale, at, {of_block, size});
    optimizer->update(block(at, size, measures ? gradient.data() + at : of_block), context_of(stretch));
  });
}

// Of one chunk, or none at all.
bool is_taken_at(const GradientSum& sum, const ModelState& state) {
  if (sum.chunks.empty()) return true;
  const ModelStatePtr& at = sum.chunks.front().at;
  return sum.chunks.size() == 1 && at && at->parameters == state.parameters && at->buffers == state.buffers;
}

}  // namespace

// By one process, which is the only one that takes the step.
bool Training::is_evaluated_at(const GradientSum& sum, ProcessSet places) const {
  if (!divided_ || sum.chunks.empty()) return true;
  const auto& micro_batches = sum.chunks.front().micro_batches;
  return std::ranges::all_of(micro_batches, [&](const MicroBatch& micro_batch) {
    return divided_->normalised(ProcessSet::only(divided_->process_of(micro_batch.worker))) == places;
  });
}

ModelStatePtr Training::submit_step(ModelStatePtr state, std::shared_ptr<GradientSum> sum, double scale,
                                    double learning_rate, bool exclusive, const StepRules& rules, ProcessSet places) {
  auto next = std::make_shared<ModelState>(*state);
  next->id = new_state_id();
  next->parameters = new_cell();
  const std::span<Moment> moments(next->moments.data(), static_cast<std::size_t>(optimizer_->moments()));
  for (Moment& moment : moments) moment.values = new_cell();
  for (Moment& moment : rules.keeps_second ? moments.first(1) : moments) ++moment.age.steps;
  if (state->buffers && sum->micro_batches > 0) next->buffers = new_cell();

  auto work = std::make_shared<StepWork>();
  work->objective = objective_;
  work->optimizer = optimizer_;
  work->stretches = stretches_;
  assert(optimizer_->passes() == 0 || rules.slice.count == 1);
  work->scale = scale;
  work->context = {.learning_rate = learning_rate, .ages = ages_of(*next), .keeps_second = rules.keeps_second};
  work->clip_norm = rules.clipping == Clipping::of_step ? options_.clip_norm : 0;
  const auto size = static_cast<std::int64_t>(objective_->parameters());
  work->first = static_cast<std::size_t>(rules.slice.begin(size));
  work->last = static_cast<std::size_t>(rules.slice.end(size));
  work->parameters = next->parameters;
  for (std::size_t i = 0; i < moments.size(); ++i) work->moments[i] = moments[i].values;
  if (next->buffers != state->buffers) work->buffers = next->buffers;

  // Held only for the moment: what nobody else holds is updated in place.
  std::vector<std::shared_ptr<Task>> inputs = brought(
      std::vector{state->parameters, state->moments[0].values, state->moments[1].values, state->buffers}, places);
  // The gradient of a local step goes straight from the backward pass into the update. One that was taken at
  // another model does not wait for this one: it is computed before or beside the steps that come before.
  const bool one_task = exclusive && is_taken_at(*sum, *state) && is_evaluated_at(*sum, places);
  // The other cores have the steps and gradients of others.
  const bool whole = exclusive && sum->chunks.size() <= 1;
  if (!one_task) {
    sum = readable(sum, places);
    inputs.insert(inputs.end(), sum->tasks.begin(), sum->tasks.end());
  }
  work->sum = std::move(sum);
  state->parameters->stepped_from = true;
  next->parameters->at = places;
  for (Moment& moment : moments) moment.values->at = places;
  if (work->buffers) work->buffers->at = places;
  if (!is_here(places)) return next;
  work->from = std::move(state);

  const int passes = optimizer_->passes();
  const auto begin = [work, one_task, whole, passes] {
    if (one_task)
      for (auto& chunk : work->sum->chunks) evaluate_chunk(chunk, std::exchange(chunk.at, nullptr), *work->objective);
    work->begin();
    if (!whole) return;
    for (int pass = 0; pass < passes; ++pass) {
      work->measure(pass, work->first, work->last);
      work->measures->end_pass(pass);
    }
    work->update(work->first, work->last);
    // What the last task holds is released with it; a local step's gradient at once.
    work->sum = nullptr, work->from = nullptr, work->gradient = FlatVector();
  };
  auto done = executor_.submit(begin, inputs);
  if (!whole) {
    for (int pass = 0; pass < passes; ++pass) {
      const auto measure = [work, pass](std::size_t from, std::size_t to) { work->measure(pass, from, to); };
      const std::shared_ptr<Task> measured[] = {submit_ranges(done, work->first, work->last, measure)};
      done = executor_.submit([work, pass] { work->measures->end_pass(pass); }, measured);
    }
    const auto update = [work](std::size_t from, std::size_t to) { work->update(from, to); };
    done = submit_ranges(done, work->first, work->last, update);
  }
  next->parameters->producer = done;
  for (Moment& moment : moments) moment.values->producer = done;
  if (work->buffers) next->buffers->producer = done;
  return next;
}

}  // namespace syncopate
