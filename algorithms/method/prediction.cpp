#include "algorithms/method/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

namespace syncopate {

namespace {

// The time of a message between a server and the worker with the fastest link.
double least_message_s(const PredictionInput& input, Bytes payload) {
  Duration least = longest_duration;
  for (const Rank worker : Ranks(input.workers))
    least = std::min(least, input.network.message({.from = worker, .to = Rank{input.workers}, .payload = payload}));
  return to_seconds(least);
}

// The expected time until `quorum` workers have computed, and the name of the formula.
std::pair<double, std::string> order_statistic(int quorum, const PredictionInput& input) {
  const SampledMean sampled = sampled_order_statistic(input.times, quorum);
  if (!input.times.alike()) return {sampled.mean, "order statistic, unlike workers"};
  // The formula for independent workers has the smaller error: one worker's distribution has more draws than the order
  // statistic of all workers. Both use the same steps, so they differ much only if workers are late together.
  constexpr double standard_errors = 5;
  const double independent_s = expected_order_statistic(input.times.steps, quorum, input.workers);
  if (std::abs(independent_s - sampled.mean) <= standard_errors * sampled.error)
    return {independent_s, "order statistic"};
  return {sampled.mean, "order statistic, late together"};
}

}  // namespace

double PredictionInput::all_reduce_s() const {
  if (exchanges.empty()) return dense_all_reduce_s();
  if (!budget.steps || *budget.steps <= 0) {
    const ExchangesFrom& last = exchanges.back();
    const double even_s = exchanges_s(last.exchanges);
    return last.of_odd_steps.empty() ? even_s : (even_s + exchanges_s(last.of_odd_steps)) / 2;
  }
  double sum_s = 0;
  for (const auto& [count, of_step] : shared_out(exchanges, *budget.steps))
    sum_s += static_cast<double>(count) * exchanges_s(*of_step);
  return sum_s / static_cast<double>(budget.steps->value());
}

double PredictionInput::exchanges_s(const std::vector<Exchange>& of_one) const {
  Duration sum{};
  for (const Exchange& exchange : of_one)
    sum +=
        network.collective({.operation = exchange.operation, .members = workers, .payload = exchange.payload(workers)});
  return to_seconds(sum);
}

double PredictionInput::dense_all_reduce_s() const { return to_seconds(network.all_reduce(workers, parameter_bytes)); }

std::optional<double> PredictionInput::visible_all_reduce_s() const {
  const std::optional<Overlap> overlap = network.overlap();
  if (!overlap) return all_reduce_s();
  if (times.micro_batch_times.empty()) return std::nullopt;
  const auto in_step = static_cast<std::size_t>(micro_batches);
  const CollectiveCall sum{.members = workers, .payload = parameter_bytes};
  std::vector<double> visible;
  for (std::size_t step = 0; step < times.drawn_steps(); ++step) {
    BucketArrivals buckets;
    Time slowest = start_time;
    for (std::size_t worker = 0; worker < static_cast<std::size_t>(workers); ++worker) {
      const auto own =
          std::span(times.micro_batch_times).subspan((worker * times.drawn_steps() + step) * in_step, in_step);
      const Time done = later(start_time, std::accumulate(own.begin(), own.end(), Duration{}));
      buckets.arrive(*overlap, done, own.back());
      slowest = std::max(slowest, done);
    }
    visible.push_back(to_seconds(buckets.end(network, sum, start_time) - slowest));
  }
  return mean_of(visible).mean;
}

double PredictionInput::sync_sgd_s() const {
  return network.overlap() ? visible_all_reduce_s().value_or(dense_all_reduce_s()) : dense_all_reduce_s();
}

double PredictionInput::average_s(const AveragePolicy& policy) const {
  if (!average_exchanges.empty()) return exchanges_s(average_exchanges);
  const Bytes payload{policy.averaged_vectors(moments) * parameter_bytes.value()};
  return to_seconds(network.all_reduce(workers, payload));
}

// The last of equal slices is never smaller than the others.
double PredictionInput::message_s(int servers) const {
  return least_message_s(*this, Slice{.index = servers - 1, .count = servers}.bytes_of(parameter_bytes));
}

double PredictionInput::gradient_message_s(int servers) const {
  return packet ? least_message_s(*this, *packet) : message_s(servers);
}

double Prediction::effective_speedup_error() const {
  constexpr double rounding = 1e-12;
  if (std::abs(effective_speedup() - 1) < rounding) return 0;
  return effective_speedup() *
         std::hypot(kept_error / kept, sync_step_error_s / sync_step_time_s, step_error_s / step_time_s);
}

std::vector<SlowestWorker> slowest_workers(const PredictionInput& input) {
  std::vector<SlowestWorker> result;
  const SampledTimes& times = input.times;
  if (times.has_variance && !times.alike())
    result.push_back({"normal workers, unlike", expected_slowest_sum(times)});
  else if (times.has_variance && input.workers > 1)
    result.push_back({.formula = "Eq. 4",
                      .step_s = expected_slowest_worker(input.workers, input.micro_batches, times.law),
                      .by_equation_4 = true});
  if (times.slowest_s)
    result.push_back(
        {.formula = "sampled E[T]", .step_s = *times.slowest_s, .error_s = times.slowest_error_s, .is_sampled = true});
  return result;
}

bool misses(const Prediction& formula, const Prediction& sampled) {
  constexpr double standard_errors = 3, rounding = 5e-5;  // rounding of the tables to four digits
  const auto differ = [](double a, double b, double error) {
    return std::abs(a - b) > standard_errors * error + rounding * std::abs(b);
  };
  return differ(formula.step_time_s, sampled.step_time_s, sampled.step_error_s) ||
         differ(formula.kept, sampled.kept, sampled.kept_error);
}

Forecast Forecast::of(std::vector<Prediction> predictions, std::string why_none) {
  if (!predictions.empty()) why_none.clear();
  return {std::move(predictions), std::move(why_none)};
}

Forecast predict_quorum(int quorum, bool cancels, double round_trip_s, const PredictionInput& input) {
  if (!input.times.slowest_s) return Forecast::none(not_all_drawn);
  const auto [computing_s, formula] = order_statistic(quorum, input);
  return {{{.formula = cancels ? formula : formula + " (lower bound)",
            .step_time_s = computing_s + round_trip_s,
            .kept = static_cast<double>(quorum) / input.workers,
            .drop_rate = {},
            .sync_step_time_s = *input.times.slowest_s + input.dense_all_reduce_s(),
            .sync_step_error_s = input.times.slowest_error_s}},
          {}};
}

std::optional<double> time_of_budget(const PredictionInput& input, const Prediction& prediction) {
  const Budget& budget = input.budget;
  double time_s = std::numeric_limits<double>::infinity();
  if (budget.steps) time_s = static_cast<double>(budget.steps->value()) * prediction.step_time_s;
  if (budget.seconds) time_s = std::min(time_s, *budget.seconds);
  if (budget.samples) {
    const double samples_per_step =
        prediction.kept * input.workers * input.micro_batches * static_cast<double>(input.samples_per_micro_batch);
    time_s = std::min(time_s, static_cast<double>(*budget.samples) / samples_per_step * prediction.step_time_s);
  }
  if (time_s == std::numeric_limits<double>::infinity()) return std::nullopt;
  return time_s;
}

}  // namespace syncopate
