#include "workers/delays/content_time.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most_looked_at = 200'000;  // micro-batches

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

  // Of all workers together, or of each.
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
  std::vector<StepLaw> of_step_;  // by worker, or one of all; these are sums over a whole step's micro-batches,
  std::vector<StepLaw> of_one_;   // and these of one
  double minimum_s_ = 0;
};

}  // namespace

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

}  // namespace syncopate
