#include "algorithms/local_sgd/overlapped_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "algorithms/local_sgd/drawn_sums.hpp"

namespace syncopate {
namespace {

constexpr double no_limit = 1e15;
constexpr std::int64_t most_work = 200'000'000;  // workers times rounds
constexpr Step longest_round = 1'000'000;        // longer ones end with a budget that does not count steps

// The workers' clocks.
struct Clocks {
  std::vector<double> at;        // where each one's round begins
  double latest = 0;             // of these
  bool is_under_way = false;     // an average that began then
  double communication_s = 0;    // of all workers, without waiting for the latest
  std::vector<double> rounds{};  // what each took, from the latest beginning to the latest
};

void take_round(Clocks& clocks, const DrawnSums& sums, Step first, Step count, double average_s) {
  const double comes = clocks.is_under_way ? clocks.latest + average_s : 0;
  const double latest_before = clocks.latest;
  for (std::size_t w = 0; w < clocks.at.size(); ++w) {
    const double end = clocks.at[w] + sums.of(w, first, count);
    clocks.at[w] = std::max(end, comes);
    clocks.communication_s += std::max(0.0, comes - std::max(end, latest_before));
    clocks.latest = std::max(clocks.latest, clocks.at[w]);
  }
  clocks.is_under_way = true;
  clocks.rounds.push_back(clocks.latest - latest_before);
}

// All wait for the latest, and for the sum.
void meet(Clocks& clocks, double time_s) {
  clocks.latest += time_s;
  clocks.communication_s += time_s * static_cast<double>(clocks.at.size());
  std::ranges::fill(clocks.at, clocks.latest);
  clocks.is_under_way = false;
}

std::optional<Prediction> drawn_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                       const PredictionInput& input) {
  const double samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  const double steps =
      std::min(input.budget.steps ? static_cast<double>(input.budget.steps->value()) : no_limit,
               input.budget.samples ? static_cast<double>(*input.budget.samples) / samples_per_step : no_limit);
  if (input.budget.bytes && steps == no_limit) return std::nullopt;
  const DrawnSums sums(input.times);
  const double average_s = input.average_s(policy);
  const Step end = static_cast<Step::Rep>(std::ceil(steps));
  Clocks clocks{.at = std::vector<double>(static_cast<std::size_t>(input.workers))};
  Step done{};
  for (std::int64_t work = 0; done < end && clocks.latest < input.budget.seconds.value_or(1e300);) {
    Step left = end - done;
    if (input.budget.seconds) left = std::min(left, sums.begun_within(*input.budget.seconds - clocks.latest));
    const Step length = period.at(done, input.learning_rate.at(done), left);
    if (length > longest_round || (work += input.workers) > most_work) return std::nullopt;
    take_round(clocks, sums, done, length, average_s);
    if (done < period.synchronous_steps()) meet(clocks, input.all_reduce_s());
    done += length;
  }
  if (clocks.is_under_way) meet(clocks, average_s);
  const auto taken = static_cast<double>(done.value());
  const double drawn = std::min(1.0, static_cast<double>(sums.drawn().value()) / taken);  // of the run, without repeats
  Prediction prediction{.formula = "rounds of sampled sums, averages one round late",
                        .step_time_s = clocks.latest / taken,
                        .communication_s = clocks.communication_s / input.workers / taken,
                        .drop_rate = 0,
                        .sync_step_time_s = *input.times.slowest_s + input.all_reduce_s(),
                        .sync_step_error_s = input.times.slowest_error_s,
                        .is_sampled = true};
  if (clocks.rounds.size() > 2) {  // the first one waits for no average
    const std::span<const double> usual = std::span(clocks.rounds).subspan(1);
    prediction.step_error_s = mean_of(usual).error * static_cast<double>(usual.size()) / taken / std::sqrt(drawn);
  }
  return prediction;
}

}  // namespace

Forecast predict_overlapped_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                   const PredictionInput& input) {
  if (!input.times.slowest_s || input.times.step_times.empty()) return Forecast::none(not_all_drawn);
  const auto prediction = drawn_rounds(period, policy, input);
  if (!prediction) return Forecast::none("how long its rounds are follows from how the run goes, or they are too many");
  return {.predictions = {*prediction}, .why_none = {}};
}

}  // namespace syncopate
