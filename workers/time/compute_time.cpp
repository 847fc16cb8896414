#include "workers/time/compute_time.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {

namespace {

constexpr double exact_below_ns = 0x1p51;

// out[i] = declared + added, rounded to the nearest nanosecond, at least one. Adding 1.5 x 2^52 leaves the rounded
// integer in the low mantissa bits. Unlike from_seconds, which calls llround, this is vectorised. Returns false if a
// value is NaN or too large for this method.
SYNCOPATE_VECTOR_CLONES
bool round_small(double declared_s, std::size_t size, const double* added_s, Duration* out) {
  constexpr double shift = 0x1.8p52;
  std::int64_t inexact = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double nanoseconds = (declared_s + added_s[i]) * 1e9;
    inexact |= std::abs(nanoseconds) < exact_below_ns ? 0 : 1;
    const std::uint64_t rounded =
        std::bit_cast<std::uint64_t>(nanoseconds + shift) - std::bit_cast<std::uint64_t>(shift);
    out[i] = Duration{std::max(static_cast<std::int64_t>(rounded), std::int64_t{1})};
  }
  return inexact == 0;
}

void round_all(double declared_s, std::span<const double> added_s, std::span<Duration> out) {
  if (round_small(declared_s, out.size(), added_s.data(), out.data())) return;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double seconds = declared_s + added_s[i];
    if (!(std::abs(seconds * 1e9) < exact_below_ns)) out[i] = from_seconds(std::max(seconds, 1e-9));
  }
}

constexpr std::size_t most_at_once = 512;

bool is_positive(double value) { return value > 0 && std::isfinite(value); }

// Whether no delay is null and each can have its own random stream, numbered from `first_stream` on.
bool are_usable(std::span<const std::shared_ptr<const DelayProcess>> delays, std::size_t first_stream = 0) {
  return first_stream + delays.size() <= std::numeric_limits<std::uint8_t>::max() &&
         std::ranges::find(delays, nullptr) == delays.end();
}

constexpr std::int64_t most_looked_at = 200'000;  // micro-batches

// Mean and variance, computed from the sum of values and the sum of squares.
class SumOfSteps {
 public:
  void add(double value) {
    ++count_;
    sum_ += value;
    squares_ += value * value;
  }
  StepLaw law() const {
    const double mean = sum_ / static_cast<double>(count_);
    return {mean, std::max(squares_ / static_cast<double>(count_) - mean * mean, 0.0)};
  }

 private:
  std::int64_t count_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

class ContentTime final : public DelayProcess {
 public:
  ContentTime(const ContentCost& cost, std::shared_ptr<const BatchLengths> lengths)
      : cost_(cost), lengths_(std::move(lengths)) {
    look_at_first_epoch();
    const std::vector<std::int32_t> least(static_cast<std::size_t>(lengths_->fewest_samples()), lengths_->shortest());
    minimum_s_ = seconds_of(cost_, least);
  }

  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    for (std::size_t i = 0; i < added_s.size(); ++i)
      added_s[i] += seconds({stream.worker, stream.step, static_cast<int>(first + i)});
  }
  double mean_s() const override { return of_micro_batch_.mean_s; }
  double variance_s2() const override { return of_micro_batch_.variance_s2; }
  double minimum_s() const override { return minimum_s_; }
  bool follows_samples() const override { return true; }

  StepLaw step_law(const RandomStream& stream, int micro_batches) const override {
    const auto worker = static_cast<std::size_t>(stream.worker.value);
    const auto& laws = micro_batches == lengths_->micro_batches() ? of_step_ : of_one_;
    const StepLaw law = laws.size() > 1 ? laws.at(worker) : laws.front();
    if (micro_batches == lengths_->micro_batches()) return law;
    return {micro_batches * law.mean_s, micro_batches * law.variance_s2};
  }

 private:
  double seconds(const MicroBatch& micro_batch) const {
    thread_local std::vector<std::int32_t> lengths;
    lengths.clear();
    lengths_->append(micro_batch, lengths);
    return seconds_of(cost_, lengths);
  }

  // Computes means and variances for each worker, or for all together if their data do not differ.
  void look_at_first_epoch() {
    const int all = lengths_->workers(), micro_batches = lengths_->micro_batches();
    const bool apart = lengths_->differs_by_worker();
    const int workers =
        apart ? all : static_cast<int>(std::clamp<std::int64_t>(most_looked_at / micro_batches, 1, all));
    const std::int64_t steps = std::clamp<std::int64_t>(most_looked_at / (std::int64_t{workers} * micro_batches), 1,
                                                        lengths_->steps_per_epoch());
    std::vector<SumOfSteps> of_steps(apart ? static_cast<std::size_t>(all) : 1), of_ones(of_steps.size());
    SumOfSteps of_all;
    for (Step step = 0; step < steps; ++step) {
      throw_if_interrupted();
      for (int worker = 0; worker < workers; ++worker) {
        const std::size_t place = apart ? static_cast<std::size_t>(worker) : 0;
        double step_s = 0;
        for (int m = 0; m < micro_batches; ++m) {
          const double time_s = seconds({Rank{worker}, step, m});
          of_all.add(time_s);
          of_ones[place].add(time_s);
          step_s += time_s;
        }
        of_steps[place].add(step_s);
      }
    }
    of_micro_batch_ = of_all.law();
    for (const SumOfSteps& sum : of_steps) of_step_.push_back(sum.law());
    for (const SumOfSteps& sum : of_ones) of_one_.push_back(sum.law());
  }

  ContentCost cost_;
  std::shared_ptr<const BatchLengths> lengths_;
  StepLaw of_micro_batch_;
  std::vector<StepLaw> of_step_;  // sum over a step's micro-batches, by worker, or one entry for all
  std::vector<StepLaw> of_one_;   // one micro-batch, by worker, or one entry for all
  double minimum_s_ = 0;
};

}  // namespace

Duration sum_of(std::span<const Duration> durations) {
  Duration sum{};
  for (const Duration duration : durations)
    sum = std::min(sum, longest_duration) + std::min(duration, longest_duration);
  return sum;
}

ComputeTime::ComputeTime(std::uint64_t seed, double base_s, std::vector<double> worker_factors,
                         std::vector<std::shared_ptr<const DelayProcess>> delays)
    : seed_(seed), base_s_(base_s), worker_factors_(std::move(worker_factors)), delays_(std::move(delays)) {
  assert(is_positive(base_s_) && std::ranges::all_of(worker_factors_, is_positive) && are_usable(delays_));
}

ComputeTime::ComputeTime(std::uint64_t seed, std::shared_ptr<const DelayProcess> base,
                         std::vector<double> worker_factors, std::vector<std::shared_ptr<const DelayProcess>> delays)
    : ComputeTime(seed, 1, std::move(worker_factors), std::move(delays)) {
  assert(base);
  base_s_ = 0;
  base_ = std::move(base);
}

void ComputeTime::durations(const Steps& steps, std::uint32_t first, std::span<Duration> out) const {
  if (out.empty()) return;
  const RandomRows all{stream(0, steps.worker, steps.step), steps.along, steps.count};
  const std::size_t length = out.size() / steps.count;
  const std::size_t rows_at_once = std::max<std::size_t>(most_at_once / length, 1);
  for (std::size_t begin = 0; begin < steps.count; begin += rows_at_once) {
    const RandomRows part = all.part(begin, std::min(rows_at_once, steps.count - begin));
    const auto rows = out.subspan(begin * length, part.count * length);
    for (std::size_t done = 0; done < rows.size(); done += most_at_once)  // repeats only for a single long row
      few_durations(part, first + static_cast<std::uint32_t>(done),
                    rows.subspan(done, std::min(most_at_once, rows.size() - done)));
  }
}

void ComputeTime::few_durations(const RandomRows& rows, std::uint32_t first, std::span<Duration> out) const {
  throw_if_interrupted();                                 // called often while many durations are drawn
  thread_local std::array<double, most_at_once> added_s;  // not on a fiber's stack, so that it stays in the cache
  const std::span<double> sums_s(added_s.data(), out.size());
  add_delays(rows, first, sums_s);
  if (base_) add_base(rows, first, sums_s);
  if (worker_factors_.empty() || base_) return round_all(base_s_, sums_s, out);
  const std::size_t length = out.size() / rows.count;
  for (std::size_t row = 0; row < rows.count; ++row)
    round_all(declared(rows[row].worker), sums_s.subspan(row * length, length), out.subspan(row * length, length));
}

Duration ComputeTime::duration(const MicroBatch& slot, const MicroBatch& samples) const {
  double added_s = 0, base_s = base_s_;
  add_delays({stream(0, slot.worker, slot.step)}, static_cast<std::uint32_t>(slot.index), {&added_s, 1});
  if (base_) {
    base_s = 0;
    base_->add(stream(0, samples.worker, samples.step), static_cast<std::uint32_t>(samples.index), {&base_s, 1});
  }
  Duration rounded{};
  round_all(factor(slot.worker) * base_s, {&added_s, 1}, {&rounded, 1});
  return rounded;
}

bool ComputeTime::can_run_out() const {
  return (base_ && base_->can_run_out()) ||
         std::ranges::any_of(delays_, [](const auto& delay) { return delay->can_run_out(); });
}

Duration ComputeTime::base(Rank worker) const {
  const double base_s = base_ ? base_->mean_s() * factor(worker) : declared(worker);
  return std::max(from_seconds(base_s), Duration{1});
}

double ComputeTime::shortest(Rank worker) const {
  double shortest_s = base_ ? base_->shortest_s(worker) * factor(worker) : declared(worker);
  for (const auto& delay : delays_) shortest_s += delay->shortest_s(worker);
  return std::max(shortest_s, 1e-9);
}

StepLaw ComputeTime::step_law(Rank worker, int micro_batches) const {
  StepLaw law{micro_batches * declared(worker), 0};
  if (base_) {
    const StepLaw base = base_->step_law(stream(0, worker, {}), micro_batches);
    law = {factor(worker) * base.mean_s, factor(worker) * factor(worker) * base.variance_s2};
  }
  for (std::size_t position = 0; position < delays_.size(); ++position) {
    const StepLaw added = delays_[position]->step_law(stream(position, worker, {}), micro_batches);
    law.mean_s += added.mean_s;
    law.variance_s2 += added.variance_s2;
  }
  return law;
}

Duration ComputeTime::added(Rank worker, Step step, std::uint32_t index) const {
  double added_s = 0;
  add_delays({stream(0, worker, step)}, index, {&added_s, 1});
  return from_seconds(added_s < 0 ? 0 : added_s);
}

bool ComputeTime::has_finite_mean() const {
  return std::ranges::all_of(delays_, [](const auto& delay) { return std::isfinite(delay->mean_s()); });
}

void ComputeTime::add_delays(RandomRows rows, std::uint32_t first, std::span<double> sums_s) const {
  std::ranges::fill(sums_s, 0.0);
  for (const auto& delay : delays_) {
    if (rows.count == 1)
      delay->add(rows.first, first, sums_s);
    else
      delay->add_rows(rows, first, sums_s);
    ++rows.first.stream;
  }
}

void ComputeTime::add_base(const RandomRows& rows, std::uint32_t first, std::span<double> sums_s) const {
  thread_local std::array<double, most_at_once> base_s;
  std::fill_n(base_s.begin(), sums_s.size(), 0.0);
  base_->add_rows(rows, first, {base_s.data(), sums_s.size()});
  const std::size_t length = sums_s.size() / rows.count;
  for (std::size_t row = 0; row < rows.count; ++row) {
    const double of_worker = factor(rows[row].worker);
    for (std::size_t i = row * length; i < (row + 1) * length; ++i) sums_s[i] += of_worker * base_s[i];
  }
}

double seconds_of(const ContentCost& cost, std::span<const std::int32_t> lengths) {
  double tokens = 0, squares = 0, longest = 0;
  for (const std::int32_t length : lengths) {
    const auto own = static_cast<double>(length);
    tokens += own;
    squares += own * own;
    longest = std::max(longest, own);
  }
  const auto samples = static_cast<double>(lengths.size());
  if (cost.pads) squares = samples * longest * longest;
  return cost.base_s + cost.per_token_s * tokens + cost.per_padded_token_s * samples * longest +
         cost.per_squared_length_s * squares;
}

std::shared_ptr<const DelayProcess> content_time(const ContentCost& cost, std::shared_ptr<const BatchLengths> lengths) {
  return std::make_shared<ContentTime>(cost, std::move(lengths));
}

Pauses::Pauses(std::uint64_t seed, double trailing_s, std::vector<std::shared_ptr<const DelayProcess>> sleeps,
               std::size_t first_stream)
    : seed_(seed), trailing_(from_seconds(trailing_s)), sleeps_(std::move(sleeps)), first_stream_(first_stream) {
  assert(are_usable(sleeps_, first_stream_));
}

Duration Pauses::sleep(Rank worker, Step step, std::uint32_t index) const {
  double sleep_s = 0;
  for (std::size_t i = 0; i < sleeps_.size(); ++i) {
    const RandomStream stream{seed_, Purpose::delay, static_cast<std::uint8_t>(first_stream_ + i), worker, step};
    sleeps_[i]->add(stream, index, {&sleep_s, 1});
  }
  return from_seconds(std::max(sleep_s, 0.0));
}

MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline) {
  const Time end = later(start, duration);
  switch (deadline.preempt) {
    case Preempt::discard:
      if (start >= deadline.at) return {start, false};
      return end < deadline.at || deadline.at == never ? MicroBatchEnd{end, true} : MicroBatchEnd{deadline.at, false};
    case Preempt::microbatch:
      if (start > deadline.at) return {start, false};
      return {end, true};
    case Preempt::backward: {
      if (start > deadline.at) return {start, false};
      const Time forward_end = later(start, forward_pass(duration, deadline));
      return forward_end > deadline.at ? MicroBatchEnd{forward_end, false} : MicroBatchEnd{end, true};
    }
    case Preempt::layer:
      if (start >= deadline.at) return {start, false};
      return end <= deadline.at ? MicroBatchEnd{end, true} : MicroBatchEnd{deadline.at, false};
  }
  throw std::logic_error("unknown kind of preemption");
}

Duration forward_pass(Duration duration, const Deadline& deadline) {
  return Duration{static_cast<Duration::rep>(deadline.forward_share * static_cast<double>(duration.count()))};
}

// Divides integers, as the computation of a tensor's share of the model does, so that equal shares are equal doubles.
double backward_share(Duration worked, Duration duration, const Deadline& deadline) {
  const Duration forward = forward_pass(duration, deadline);
  if (deadline.preempt != Preempt::layer || deadline.at_message || worked <= forward) return 0;
  return static_cast<double>((worked - forward).count()) / static_cast<double>((duration - forward).count());
}

}  // namespace syncopate
