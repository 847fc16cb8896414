#include "algorithms/quorum/arrival_prediction.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "workers/theory/sampled_rounds.hpp"

namespace syncopate {
namespace {

// The K-th end of a step, done or given up at the limit, of those that each worker does one after the other from drawn
// step `first` on; none where some worker would begin one more than `count` before that.
std::optional<double> kth_end(const SampledTimes& times, double limit_s, std::size_t gradients, std::size_t first,
                              std::size_t count) {
  std::vector<double> ends;
  double all_known_until = std::numeric_limits<double>::infinity();
  for (std::size_t worker = 0; worker < static_cast<std::size_t>(times.workers); ++worker) {
    double end_s = 0;
    for (const double step_s : std::span(times.step_times).subspan(worker * times.drawn_steps() + first, count))
      ends.push_back(end_s += std::min(step_s, limit_s));
    all_known_until = std::min(all_known_until, end_s);
  }
  if (ends.size() < gradients) return std::nullopt;
  const auto kth = ends.begin() + static_cast<std::ptrdiff_t>(gradients - 1);
  std::ranges::nth_element(ends, kth);
  if (*kth > all_known_until) return std::nullopt;
  return *kth;
}

// Rounds of no more drawn steps of each worker than it takes to know all of their K-th ends.
std::optional<SampledMean> sample_kth_end(const SampledTimes& times, double limit_s, std::size_t gradients) {
  for (std::size_t count = 1; count <= times.drawn_steps(); count *= 2) {
    bool all_known = true;
    const auto mean = sample_rounds(times, static_cast<std::int64_t>(count), [&](std::size_t first) {
      const auto end_s = kth_end(times, limit_s, gradients, first, count);
      all_known = all_known && end_s;
      return end_s.value_or(0);
    });
    if (!mean || all_known) return mean;
  }
  return std::nullopt;
}

}  // namespace

Forecast predict_arrivals(int gradients, const PredictionInput& input, double limit_s) {
  if (!input.times.slowest_s) return Forecast::none(not_all_drawn);
  if (input.network.has_shared_links()) return Forecast::none("messages wait for each other on shared links");
  const auto computing = sample_kth_end(input.times, limit_s, static_cast<std::size_t>(gradients));
  if (!computing) return Forecast::none("a step takes more of each worker's gradients than a few were drawn of");
  const double updates = static_cast<double>(input.workers) / gradients;  // in a step of the experiment file
  return {{{.formula = "sampled K-th arrival",
            .step_time_s = updates * (computing->mean + input.message_s() + input.gradient_message_s()),
            .communication_s = 0,  // all compute until the next model comes
            .kept = 1,
            .drop_rate = {},
            .sync_step_time_s = *input.times.slowest_s + input.all_reduce_s(),
            .step_error_s = updates * computing->error,
            .sync_step_error_s = input.times.slowest_error_s,
            .is_sampled = true}},
          {}};
}

}  // namespace syncopate
