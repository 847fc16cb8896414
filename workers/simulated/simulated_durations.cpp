// Durations on the simulated cluster. Each is a pure function of its place, so that those that are going to be asked
// for may be drawn together, which is several times cheaper.
#include <algorithm>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

constexpr int long_step = 1 << 15;  // micro-batches: drawing several such steps at once gains nothing and takes memory

}  // namespace

// Of micro-batches first.index .. first.index + count - 1; longest_duration if one of them never ends.
Duration SimulatedCluster::step_time(const MicroBatch& first, int count) {
  StepTimes& ahead = step_times_;
  const int place = first.worker.value - ahead.first_worker;
  const bool is_same_step = first.step == ahead.asked.step && first.index == ahead.asked.index && count == ahead.count;
  const bool is_drawn = is_same_step && place >= 0 && place < ahead.workers;
  const bool is_next = is_same_step && first.worker.value == ahead.asked.worker.value + 1;
  ahead.asked = first;
  if (is_drawn) return ahead.times[static_cast<std::size_t>(place)];
  ahead.count = count;
  ahead.workers = 0;
  if (!is_next) return own_step_time(first, count);
  draw_step_times(first, count);
  return ahead.times[0];
}

// For this worker and those after it.
void SimulatedCluster::draw_step_times(const MicroBatch& first, int count) {
  StepTimes& ahead = step_times_;
  ahead.first_worker = first.worker.value;
  ahead.workers = options_.compute_time.can_run_out() || count > long_step
                      ? 1
                      : std::min(StepTimes::most_workers, options_.workers - first.worker.value);
  draw_sums({.worker = first.worker, .step = first.step, .count = static_cast<std::size_t>(ahead.workers)}, first.index,
            count, ahead.times);
}

Duration SimulatedCluster::own_step_time(const MicroBatch& first, int count) {
  constexpr int most = StepsAhead::most_steps;
  if (first.index != 0 || count != options_.micro_batches) {
    Duration time{};
    draw_sums({.worker = first.worker, .step = first.step}, first.index, count, {&time, 1});
    return time;
  }
  if (steps_ahead_.empty()) steps_ahead_.resize(static_cast<std::size_t>(options_.workers));
  StepsAhead& ahead = steps_ahead_[index(first.worker)];
  // Of a worker that has not asked for the step before, it is not known whether it goes on like this.
  const bool goes_on = first.step == ahead.asked + 1 && !options_.compute_time.can_run_out() && count <= long_step;
  ahead.asked = first.step;
  const Step::Rep place = (first.step - (ahead.end - most)).value();
  const bool is_drawn = place >= 0 && place < most && ahead.times[static_cast<std::size_t>(place)] > Duration{};
  if (is_drawn) return ahead.times[static_cast<std::size_t>(place)];
  const int steps = goes_on ? most : 1;
  draw_own_steps(first.worker, first.step, steps);
  return ahead.times[static_cast<std::size_t>(most - steps)];
}

void SimulatedCluster::draw_own_steps(Rank worker, Step first, int steps) {
  StepsAhead& ahead = steps_ahead_[index(worker)];
  ahead.end = first + steps;
  ahead.times = {};
  const auto drawn = std::span(ahead.times).last(static_cast<std::size_t>(steps));
  draw_sums({.worker = worker, .step = first, .along = RandomRows::Along::steps, .count = drawn.size()}, 0,
            options_.micro_batches, drawn);
}

// The same where the worker is going to ask, before it does: on the event loop's stack, which is in the cache.
void SimulatedCluster::draw_ahead_of_time(Rank worker) {
  const StepsAhead& ahead = steps_ahead_[index(worker)];
  const bool goes_on = ahead.asked + 1 == ahead.end && ahead.times.front() > Duration{};
  if (goes_on) draw_own_steps(worker, ahead.end, StepsAhead::most_steps);
}

// times[i] = what micro-batches first .. first + count - 1 take in row i.
void SimulatedCluster::draw_sums(const ComputeTime::Steps& steps, int first, int count, std::span<Duration> times) {
  const auto length = static_cast<std::size_t>(count);
  drawn_.resize(steps.count * length);
  options_.compute_time.durations(steps, static_cast<std::uint32_t>(first), drawn_);
  for (std::size_t i = 0; i < steps.count; ++i) times[i] = sum_of(std::span(drawn_).subspan(i * length, length));
}

// Durations are drawn for several micro-batches of a step at once, which is much cheaper.
Duration SimulatedCluster::draw(Participant& participant, const MicroBatch& micro_batch) {
  constexpr int most_ahead = 64;
  const int first = participant.drawn_first;
  const int count = static_cast<int>(participant.durations.size());
  const bool is_drawn =
      participant.drawn_step == micro_batch.step && micro_batch.index >= first && micro_batch.index < first + count;
  if (!is_drawn) draw_ahead(participant, micro_batch, std::clamp(options_.micro_batches, 1, most_ahead));
  return participant.durations[static_cast<std::size_t>(micro_batch.index - participant.drawn_first)];
}

void SimulatedCluster::draw_ahead(Participant& participant, const MicroBatch& first, int count) {
  participant.durations.resize(options_.compute_time.known_ahead(
      first.worker, first.step, static_cast<std::uint32_t>(first.index), static_cast<std::size_t>(count)));
  participant.drawn_step = first.step;
  participant.drawn_first = first.index;
  options_.compute_time.durations(first.worker, first.step, static_cast<std::uint32_t>(first.index),
                                  participant.durations);
}

}  // namespace syncopate
