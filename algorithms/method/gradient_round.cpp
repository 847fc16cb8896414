#include "algorithms/method/gradient_round.hpp"

#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

bool GradientRound::take(const Message& message, const AcceptOptions& options, double weight) {
  if (!server_.accept(message, options)) return false;
  if (givers_.empty()) first_weight_ = weight;
  const double relative = weight / first_weight_;
  sum_ += relative == 1 ? message.gradient : message.gradient * relative;
  relative_weights_ += relative;
  givers_.push_back(message.from);
  return true;
}

void GradientRound::step(double rate_factor) {
  server_.descend(std::exchange(sum_, {}) / (relative_weights_ * server_.micro_batches()),
                  {.rate_factor = rate_factor, .weight = first_weight_ * (relative_weights_ / gradients())});
  relative_weights_ = 0;
  givers_.clear();
  server_.publish();
}

namespace {

// From update to update, where the K workers of each begin again and the others go on. Each takes its drawn steps one
// after the other, and then the first again, over as many updates as all these gradients make. Their parts, which are
// nearly independent, say how sure the mean is. None where they are too few for that.
std::optional<SampledMean> follow_updates(const SampledTimes& times, int gradients, double round_trip_s) {
  constexpr std::size_t parts = 8;
  std::vector<std::size_t> givers(static_cast<std::size_t>(gradients));
  const std::size_t steps = times.drawn_steps(), updates_in_part = times.step_times.size() / givers.size() / parts;
  if (updates_in_part == 0) return std::nullopt;
  using Arrival = std::pair<double, std::size_t>;  // of a worker's gradient
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> under_way;
  std::vector<std::size_t> taken(static_cast<std::size_t>(times.workers));
  const auto begin = [&](std::size_t worker, double at_s) {
    under_way.emplace(at_s + round_trip_s + times.step_times[worker * steps + taken[worker]++ % steps], worker);
  };
  for (std::size_t worker = 0; worker < taken.size(); ++worker) begin(worker, 0);
  double now_s = 0;
  std::vector<double> means(parts);
  for (double& mean_s : means) {
    const double begun_s = now_s;
    for (std::size_t update = 0; update < updates_in_part; ++update) {
      for (std::size_t& giver : givers) {
        std::tie(now_s, giver) = under_way.top();
        under_way.pop();
      }
      for (const std::size_t giver : givers) begin(giver, now_s);
    }
    mean_s = (now_s - begun_s) / static_cast<double>(updates_in_part);
  }
  return mean_of(means);
}

// `update`: from one to the next.
Forecast of_updates(std::string formula, int gradients, const SampledMean& update, const PredictionInput& input) {
  const double updates = static_cast<double>(input.workers) / gradients;  // in a step of the experiment file
  return {{{.formula = std::move(formula),
            .step_time_s = updates * update.mean,
            .communication_s = 0,
            .kept = 1,
            .drop_rate = {},
            .sync_step_time_s = *input.times.slowest_s + input.all_reduce_s(),
            .step_error_s = updates * update.error,
            .sync_step_error_s = input.times.slowest_error_s,
            .is_sampled = true}},
          {}};
}

}  // namespace

// All compute until the next model comes, so that nothing is booked as communication.
Forecast predict_arrivals(int gradients, const PredictionInput& input, double limit_s) {
  if (!input.times.slowest_s) return Forecast::none(not_all_drawn);
  const double note_s =
      to_seconds(input.network.message({.from = Rank{0}, .to = Rank{input.workers}, .payload = Bytes{}}));
  auto updates =
      sample_updates(input.times, {limit_s, input.gradient_message_s(), note_s}, static_cast<std::size_t>(gradients));
  if (!updates) return Forecast::none("a step takes more of each worker's gradients than a few were drawn of");
  updates->time_s.mean += input.message_s();
  Forecast forecast = of_updates("sampled K-th arrival", gradients, updates->time_s, input);
  forecast.predictions.front().kept = updates->kept.mean;
  forecast.predictions.front().kept_error = updates->kept.error;
  return forecast;
}

Forecast predict_arrivals_with_late_work(int gradients, const PredictionInput& input) {
  if (!input.times.slowest_s) return Forecast::none(not_all_drawn);
  const double round_trip_s = input.message_s() + input.gradient_message_s();
  const auto update = follow_updates(input.times, gradients, round_trip_s);
  if (!update) return Forecast::none("too few steps were drawn to follow updates by");
  Forecast forecast = of_updates("sampled K-th arrival, late work goes on", gradients, *update, input);
  forecast.predictions.front().communication_s = round_trip_s;
  forecast.predictions.front().drop_rate = 0;
  return forecast;
}

}  // namespace syncopate
