#include "workers/simulated/simulation_state.hpp"

#include "workers/cluster/cluster.hpp"

namespace syncopate {

namespace {

// In micro-batches. If steps are at least this long, drawing several at once gains nothing and takes memory.
constexpr int long_step = 1 << 15;

}  // namespace

SimulationState::SimulationState(const SimulatedOptions& given)
    : options(given),
      spans(given.record && given.record->spans ? &*given.record->spans : nullptr),
      rows(given.observer),
      stacks(static_cast<std::size_t>(given.workers + given.servers), given.most_own_stacks),
      timers_(given.workers + given.servers),
      participants_(given.workers + given.servers) {
  if (options.network.overlap()) last_micro_batches = ByRank<LastMicroBatch>(options.workers);
  for (const Rank rank : everybody()) participants_[rank].book = Book(rank, start_time, spans);
}

void SimulationState::fail_for_end_of_clock(Rank rank) const { throw RunFailure(explain_end_of_clock(name(rank))); }

void SimulationState::add_duration(Rank rank, const MicroBatch& slot, Duration duration) {
  const Duration added = options.compute_time.added(rank, slot.step, static_cast<std::uint32_t>(slot.index));
  options.record->durations->push_back({rank, slot.step, slot.index, duration, added});
}

Duration DurationPrefetch::of_step(const MicroBatch& first, int count) {
  SameStep& ahead = same_;
  const int place = first.worker.value - ahead.first_worker;
  const bool is_same_step = first.step == ahead.asked.step && first.index == ahead.asked.index && count == ahead.count;
  const bool is_drawn = is_same_step && place >= 0 && place < ahead.workers;
  const bool is_next = is_same_step && first.worker.value == ahead.asked.worker.value + 1;
  ahead.asked = first;
  if (is_drawn) return ahead.times[static_cast<std::size_t>(place)];
  ahead.count = count;
  ahead.workers = 0;
  if (!is_next) return of_own_step(first, count);
  draw_same_step(first, count);
  return ahead.times[0];
}

// Draws the durations of this step for the worker and for the workers after it.
void DurationPrefetch::draw_same_step(const MicroBatch& first, int count) {
  SameStep& ahead = same_;
  ahead.first_worker = first.worker.value;
  ahead.workers = compute_time_.can_run_out() || count > long_step
                      ? 1
                      : std::min(SameStep::most_workers, workers_ - first.worker.value);
  draw_sums({.worker = first.worker, .step = first.step, .count = static_cast<std::size_t>(ahead.workers)}, first.index,
            count, ahead.times);
}

Duration DurationPrefetch::of_own_step(const MicroBatch& first, int count) {
  constexpr int most = OwnSteps::most_steps;
  if (first.index != 0 || count != micro_batches_) {
    Duration time{};
    draw_sums({.worker = first.worker, .step = first.step}, first.index, count, {&time, 1});
    return time;
  }
  if (own_.empty()) own_ = ByRank<OwnSteps>(workers_);
  OwnSteps& ahead = own_[first.worker];
  // Draw further steps ahead only for a worker that has also asked for the previous step.
  const bool goes_on = first.step == ahead.asked + 1 && !compute_time_.can_run_out() && count <= long_step;
  ahead.asked = first.step;
  const Step::Rep place = (first.step - (ahead.end - most)).value();
  const bool is_drawn = place >= 0 && place < most && ahead.times[static_cast<std::size_t>(place)] > Duration{};
  if (is_drawn) return ahead.times[static_cast<std::size_t>(place)];
  const int steps = goes_on ? most : 1;
  draw_own_steps(first.worker, first.step, steps);
  return ahead.times[static_cast<std::size_t>(most - steps)];
}

void DurationPrefetch::draw_own_steps(Rank worker, Step first, int steps) {
  OwnSteps& ahead = own_[worker];
  ahead.end = first + steps;
  ahead.times = {};
  const auto drawn = std::span(ahead.times).last(static_cast<std::size_t>(steps));
  draw_sums({.worker = worker, .step = first, .along = RandomRows::Along::steps, .count = drawn.size()}, 0,
            micro_batches_, drawn);
}

// Call it from the event loop, whose stack is in the cache, unlike a fiber's.
void DurationPrefetch::draw_next_steps(Rank worker) {
  const OwnSteps& ahead = own_[worker];
  const bool goes_on = ahead.asked + 1 == ahead.end && ahead.times.front() > Duration{};
  if (goes_on) draw_own_steps(worker, ahead.end, OwnSteps::most_steps);
}

// times[i] = total duration of micro-batches first .. first + count - 1 of the i-th step in `steps`.
void DurationPrefetch::draw_sums(const ComputeTime::Steps& steps, int first, int count, std::span<Duration> times) {
  const auto length = static_cast<std::size_t>(count);
  drawn_.resize(steps.count * length);
  compute_time_.durations(steps, static_cast<std::uint32_t>(first), drawn_);
  for (std::size_t i = 0; i < steps.count; ++i) times[i] = sum_of(std::span(drawn_).subspan(i * length, length));
}

Duration DurationPrefetch::of(const MicroBatch& micro_batch) {
  constexpr int most_ahead = 64;
  if (micro_batches_ == 1 && micro_batch.index == 0) return of_own_step(micro_batch, 1);  // it is a whole step
  if (one_by_one_.empty()) one_by_one_ = ByRank<OneByOne>(workers_);
  OneByOne& ahead = one_by_one_[micro_batch.worker];
  const int count = static_cast<int>(ahead.times.size());
  const bool is_drawn =
      ahead.step == micro_batch.step && micro_batch.index >= ahead.first && micro_batch.index < ahead.first + count;
  if (!is_drawn) {
    const int drawn = compute_time_.can_run_out() ? 1 : std::clamp(micro_batches_, 1, most_ahead);
    ahead.times.resize(static_cast<std::size_t>(drawn));
    ahead.step = micro_batch.step;
    ahead.first = micro_batch.index;
    compute_time_.durations(micro_batch.worker, micro_batch.step, static_cast<std::uint32_t>(micro_batch.index),
                            ahead.times);
  }
  return ahead.times[static_cast<std::size_t>(micro_batch.index - ahead.first)];
}

void SleepTracker::begin_one(Rank worker, const MicroBatch& slot, const Deadline& deadline) {
  pauses_[worker] = {.sleep = sleep_after(slot),
                     .cut_at = deadline.at,
                     .trailing_until = later(state_[worker].book.now(), state_.options.pauses->trailing())};
}

// The deadline cuts the sleep, while trailing work continues in parallel. A cut sleep ends one nanosecond after the
// deadline, so that no check counts it as in time. A real sleep also ends after its deadline.
void SleepTracker::end_one(Rank worker) {
  const Time now = state_[worker].book.now();
  const Pause pause = std::exchange(pauses_[worker], {});
  const Duration left = std::max(later(pause.cut_at, Duration{1}) - now, Duration{});
  pass(worker, std::max(later(now, std::min(pause.sleep, left)), pause.trailing_until), "sleep");
}

void SleepTracker::pass(Rank worker, Time until, const char* what) {
  Book& book = state_[worker].book;
  if (until <= book.now()) return;
  state_.check_clock(worker, until);
  book.pass(Activity::compute, until, {what});
}

}  // namespace syncopate
