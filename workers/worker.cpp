#include "workers/worker.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "workers/compression/compressed_average.hpp"
#include "workers/compression/compressed_messages.hpp"
#include "workers/compression/compressed_sum.hpp"

namespace syncopate {
namespace {

// Where outages take the state so often that the same micro-batch, or a server's step, is begun anew again and again,
// the run fails at this number. The mean time between outages must be at least 1/8 of the micro-batch (or step). At
// that bound it is begun e^8 = 2,981 times on average, and more often than this number with a probability of e^-33.
constexpr std::int64_t most_restarts = 100'000;

// Micro-batches that a worker can take before its own data are used up.
std::int64_t data_of(const RunContext& context, Rank rank) {
  const auto index = static_cast<std::size_t>(rank.value);
  if (index >= context.data_of.size() || !context.data_of[index]) return std::numeric_limits<std::int64_t>::max();
  return context.data_of[index]->value() * context.micro_batches;
}

}  // namespace

Worker::Worker(const RunContext& context, Rank rank)
    : Participant(context, rank), may_lose_state_(context.cluster.may_lose_state(rank)) {
  data_ = data_of(context, rank);
  if (context.compressor) compressed_sum_ = std::make_unique<CompressedSum>(context.compressor, context.training, rank);
  if (!context.average_compressors.empty())
    compressed_average_ = std::make_unique<CompressedAverage>(context.average_compressors, context.training, rank);
}

Worker::~Worker() = default;

void Worker::extend_budget(Step extra, bool stretch) {
  if (!context_.budget.steps) return;
  extra_steps_ += extra;
  const auto planned = static_cast<double>(context_.budget.steps->value());
  if (stretch && planned > 0) schedule_stretch_ = (planned + static_cast<double>(extra_steps_.value())) / planned;
}

std::optional<Gradient> Worker::compute_gradient(const Deadline& deadline) {
  return compute_gradient({rank_, step_, next_micro_batch_}, deadline);
}

std::optional<Gradient> Worker::compute_gradient(const MicroBatch& samples, const Deadline& deadline) {
  ++taken_;
  return compute_slot({rank_, step_, next_micro_batch_++}, samples, deadline);
}

std::optional<Gradient> Worker::compute_slot(const MicroBatch& slot, const MicroBatch& samples,
                                             const Deadline& deadline) {
  Attempts attempts{.of = slot};
  while (true) {
    auto gradient = context_.cluster.compute_gradient(rank_, model_, slot, samples, deadline);
    if (gradient || !loses_state(attempts)) return gradient;
    recover();
  }
}

// A step's gradient belongs to one version of a server's model, so that it begins anew at a newer one.
template <typename Slot>
Gradient Worker::compute_step_with_outages(const Slot& slot_of) {
  Gradient sum;
  const Servers servers = context_.cluster.servers();
  const bool restarts_step = servers > 0 && !servers.hold_slices();
  Attempts attempts{.of = slot_of(0), .is_step = restarts_step};
  for (int m = 0; m < micro_batches();) {
    const MicroBatch slot = slot_of(m);
    const auto gradient = context_.cluster.compute_gradient(rank_, model_, slot, slot, {});
    if (gradient) {
      sum += *gradient;
      ++m;
      if (!restarts_step) attempts = {.of = slot_of(m)};
    } else if (loses_state(attempts) && !restarts_step) {
      recover();
    } else {
      discard(std::exchange(sum, {}));
      m = 0;
      ask_server_for_model(Here::current());
    }
  }
  return sum;
}

bool Worker::loses_state(Attempts& attempts) {
  if (!may_lose_state_ || !context_.cluster.has_lost_state(rank_)) return false;
  ++states_lost_;
  if (compressed_messages_) compressed_messages_->forget();
  if (++attempts.restarts >= most_restarts) give_up(attempts);
  return true;
}

void Worker::give_up(const Attempts& attempts) const {
  const auto& [micro_batch, is_step, restarts] = attempts;
  const std::string what = is_step
                               ? fmt::format("step {}, of {} micro-batches,", micro_batch.step.value(), micro_batches())
                               : fmt::format("micro-batch {} of step {}", micro_batch.index, micro_batch.step.value());
  throw RunFailure(fmt::format(
      "worker {} at {:.6f} s: {} has been begun anew {} times: each time an outage took the worker's state before the "
      "end; mean_time_between_s in [[outages]] must not be much shorter than what a worker computes without a break, "
      "or "
      "the outages' state must be \"kept\"",
      rank_.value, to_seconds(now()), what, restarts));
}

void Worker::declare_newest(const ModelStatePtr& model) {
  if (!may_lose_state_) return;
  if (!recovery_) recovery_ = {model, since_sync_.kept, kept_total_, since_sync_.compute_time};
  recovery_->model = model;
}

// Local steps since the last agreement are gone: their time was for nothing, and they count as planned alone.
void Worker::recover() {
  if (!recovery_) return;
  const std::int64_t lost = since_sync_.kept - recovery_->kept;
  const Duration lost_time = since_sync_.compute_time - recovery_->compute_time;
  if (lost > 0) context_.cluster.discard(rank_, {rank_, lost, lost_time});
  since_sync_.kept = recovery_->kept;
  since_sync_.compute_time = recovery_->compute_time;
  kept_total_ = recovery_->kept_total;
  model_ = recovery_->model;
  recovery_.reset();
}

// The next step of the data.
Step Worker::take_turn() {
  const Step turn = taken_ / micro_batches();
  taken_ += micro_batches();
  return turn;
}

Gradient Worker::compute_step() {
  const MicroBatch first{rank_, step_, next_micro_batch_};
  next_micro_batch_ += micro_batches();
  taken_ += micro_batches();
  if (may_lose_state_)
    return compute_step_with_outages([&](int m) { return MicroBatch{rank_, step_, first.index + m}; });
  return context_.cluster.compute_gradients(rank_, model_, first, micro_batches());
}

Gradient Worker::compute_turn() {
  if (cancelled_turns_ > Step{0}) return *compute_turn(Deadline());
  const Step step = take_turn();
  if (may_lose_state_) return compute_step_with_outages([&](int m) { return MicroBatch{rank_, step, m}; });
  return context_.cluster.compute_gradients(rank_, model_, {rank_, step, 0}, micro_batches());
}

std::optional<Gradient> Worker::compute_step_gradient(const Deadline& deadline, Samples samples) {
  if (deadline.at == never && !deadline.at_message) return compute_step_gradient(samples);
  if (taken_ >= data_ || (deadline.at_message && nobody_can_send())) return std::nullopt;
  if (samples == Samples::in_turn) return compute_turn(deadline);
  Gradient sum;
  for (int m = 0; m < micro_batches(); ++m) {
    const auto gradient = compute_gradient(deadline);
    if (!gradient) return std::nullopt;
    sum += *gradient;
  }
  return sum;
}

// The durations are those of a step that is further on by as many as have been cancelled.
std::optional<Gradient> Worker::compute_turn(const Deadline& deadline) {
  const Step step = take_turn();
  Gradient sum;
  for (int m = 0; m < micro_batches(); ++m) {
    const auto gradient = compute_slot({rank_, step + cancelled_turns_, m}, {rank_, step, m}, deadline);
    if (!gradient) {
      taken_ -= micro_batches();
      ++cancelled_turns_;
      return std::nullopt;
    }
    sum += *gradient;
  }
  return sum;
}

// Servers that have ended send nothing any more, and workers only where there is none.
bool Worker::nobody_can_send() const {
  const int first = context_.cluster.servers() > 0 ? size_ : 0;
  for (int other = first; other < size_ + context_.cluster.servers(); ++other)
    if (Rank{other} != rank_ && !has_left(Rank{other})) return false;
  return true;
}

void Worker::descend(const Gradient& gradient, const StepOptions& options) {
  const std::int64_t planned = options.micro_batches.value_or(micro_batches());
  // With the steps themselves: those that a lost state takes with it are counted, and not taken again.
  if (options.is_planned) surplus_ += planned - micro_batches();
  // What has been summed over the workers is counted there, with the step that follows.
  if (!gradient.reduced()) {
    if (compressed_average_ && !steps_began_at_) steps_began_at_ = model();
    if (may_lose_state_ && !recovery_) recovery_ = {model_, since_sync_.kept, kept_total_, since_sync_.compute_time};
    since_sync_.kept += gradient.micro_batches();
    since_sync_.planned += planned;
    since_sync_.compute_time += gradient.compute_time();
    kept_total_ += size_ * gradient.micro_batches();  // as if all took as many
    ++since_sync_.period;
  }
  take_step(gradient, options, Clipping::of_step);
  next_micro_batch_ = 0;
}

Duration Worker::micro_batch_time(const Gradient& last) const {
  return last.compute_time() + context_.cluster.sleep_after(rank_, {rank_, step_, next_micro_batch_ - 1});
}

void Worker::discard(const Gradient& gradient) {
  context_.cluster.discard(rank_, {rank_, gradient.micro_batches(), gradient.compute_time()});
}

void Worker::skip_steps(Step steps) {
  since_sync_.planned += steps.value() * micro_batches();
  since_sync_.period += steps;
  step_ += steps;
  next_micro_batch_ = 0;
}

}  // namespace syncopate
