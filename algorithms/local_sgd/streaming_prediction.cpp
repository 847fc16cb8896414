#include "algorithms/local_sgd/streaming_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "algorithms/local_sgd/drawn_sums.hpp"

namespace syncopate {
namespace {

constexpr double no_limit = 1e15;
constexpr std::int64_t most_work = 200'000'000;  // workers times averages
constexpr Step longest_round = 1'000'000;        // longer ones end with a budget that does not count steps

// The workers' clocks, and the averages that are under way.
class Clocks {
 public:
  Clocks(int workers, const DrawnSums& sums) : sums_(sums), at_(static_cast<std::size_t>(workers)) {}

  Step step() const { return step_; }
  double latest() const { return *std::ranges::max_element(at_); }
  double communication_s() const { return communication_s_; }
  bool are_under_way() const { return !under_way_.empty(); }
  Step next_due() const { return under_way_.front().due; }

  void train_until(Step step) {
    for (std::size_t w = 0; w < at_.size(); ++w) at_[w] += sums_.of(w, step_, step - step_);
    step_ = step;
  }
  void start(double average_s, Step due) {
    const double begin = latest();
    network_free_at_ = std::max(begin, network_free_at_) + average_s;
    under_way_.push_back({due, begin, network_free_at_});
  }
  void finish_next() {
    const auto [due, begin, end] = under_way_.front();
    under_way_.pop_front();
    for (double& at : at_) {
      communication_s_ += std::max(0.0, end - std::max(at, begin));
      at = std::max(at, end);
    }
  }

 private:
  struct UnderWay {
    Step due;
    double begin;  // where all have started it
    double end;
  };
  const DrawnSums& sums_;
  std::vector<double> at_;
  Step step_{};
  double network_free_at_ = 0;
  double communication_s_ = 0;  // of all workers, without waiting for the latest
  std::deque<UnderWay> under_way_{};
};

void take_round(Clocks& clocks, const Fragments& fragments, Step round, Step delay, std::span<const double> average_s) {
  const Step begin = clocks.step();
  for (int fragment = 0; fragment < fragments.count(); ++fragment) {
    const Step turn = begin + fragments.offset(fragment, round);
    while (clocks.are_under_way() && clocks.next_due() < turn) {
      clocks.train_until(clocks.next_due());
      clocks.finish_next();
    }
    clocks.train_until(turn);
    clocks.start(average_s[static_cast<std::size_t>(fragment)], turn + delay);
    while (clocks.are_under_way() && clocks.next_due() <= turn) clocks.finish_next();
  }
}

// What is averaged besides the parameters goes with the first fragment. Of compressed averages each is one exchange.
std::vector<double> times_of(const Fragments& fragments, const AveragePolicy& policy, const PredictionInput& input) {
  std::vector<double> times;
  for (const Exchange& exchange : input.average_exchanges) times.push_back(input.exchanges_s({exchange}));
  if (!times.empty()) return times;
  for (int fragment = 0; fragment < fragments.count(); ++fragment) {
    Bytes payload = fragments.slice(fragment).bytes_of(input.parameter_bytes);
    if (fragment == 0) payload += Bytes{input.averaged_bytes(policy).value() - input.parameter_bytes.value()};
    times.push_back(to_seconds(input.network.all_reduce(input.workers, payload)));
  }
  return times;
}

}  // namespace

Forecast predict_fragments(const SyncPeriod& period, const Fragments& fragments, Step delay,
                           const AveragePolicy& policy, const PredictionInput& input) {
  if (!input.times.slowest_s || input.times.step_times.empty()) return Forecast::none(not_all_drawn);
  const char* const unknown = "how long its rounds are follows from how the run goes, or they are too many";
  const double samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  const double steps =
      std::min(input.budget.steps ? static_cast<double>(input.budget.steps->value()) : no_limit,
               input.budget.samples ? static_cast<double>(*input.budget.samples) / samples_per_step : no_limit);
  if (input.budget.bytes && steps == no_limit) return Forecast::none(unknown);
  const DrawnSums sums(input.times);
  const std::vector<double> average_s = times_of(fragments, policy, input);
  const std::vector<double> gradient_s = {input.all_reduce_s()};
  const Step end = static_cast<Step::Rep>(std::ceil(steps));
  Clocks clocks(input.workers, sums);
  std::vector<double> rounds;
  double begun = 0;
  for (std::int64_t work = 0; clocks.step() < end && begun < input.budget.seconds.value_or(1e300);) {
    const Step done = clocks.step();
    Step left = end - done;
    if (input.budget.seconds) left = std::min(left, sums.begun_within(*input.budget.seconds - begun));
    const Step length = period.at(done, input.learning_rate.at(done), left);
    work += static_cast<std::int64_t>(input.workers) * fragments.count();
    if (length > longest_round || work > most_work) return Forecast::none(unknown);
    if (done < period.synchronous_steps())
      take_round(clocks, Fragments(1), length, {}, gradient_s);
    else
      take_round(clocks, fragments, length, delay, average_s);
    rounds.push_back(clocks.latest() - begun);
    begun = clocks.latest();
  }
  while (clocks.are_under_way()) clocks.finish_next();
  const auto taken = static_cast<double>(clocks.step().value());
  const double drawn = std::min(1.0, static_cast<double>(sums.drawn().value()) / taken);  // of the run, without repeats
  Prediction prediction{.formula = "rounds of sampled sums, fragments averaged meanwhile",
                        .step_time_s = clocks.latest() / taken,
                        .communication_s = clocks.communication_s() / input.workers / taken,
                        .drop_rate = 0,
                        .sync_step_time_s = *input.times.slowest_s + input.all_reduce_s(),
                        .sync_step_error_s = input.times.slowest_error_s,
                        .is_sampled = true};
  if (rounds.size() > 2) {  // the first one waits for fewer averages
    const std::span<const double> usual = std::span(rounds).subspan(1);
    prediction.step_error_s = mean_of(usual).error * static_cast<double>(usual.size()) / taken / std::sqrt(drawn);
  }
  return {.predictions = {prediction}, .why_none = {}};
}

}  // namespace syncopate
