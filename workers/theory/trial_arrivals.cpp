#include "workers/theory/trial_arrivals.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "workers/theory/sampled_rounds.hpp"

namespace syncopate {
namespace {

struct Update {
  double time_s = 0;
  double kept = 0;  // share of the K
};

// The K-th arrival of a step's trials, or the first gradient if that is later. Each worker does one trial after the
// other from drawn step `first` on. None where some worker would begin one more than `count` before that.
std::optional<Update> update_of(const SampledTimes& times, const TrialEnds& ends, std::size_t gradients,
                                std::size_t first, std::size_t count) {
  struct Arrival {
    double at_s = 0;
    bool is_gradient = false;
  };
  std::vector<Arrival> arrivals;
  double first_gradient_s = std::numeric_limits<double>::infinity(), all_known_until = first_gradient_s;
  for (std::size_t worker = 0; worker < static_cast<std::size_t>(times.workers); ++worker) {
    double end_s = 0;
    for (const double step_s : std::span(times.step_times).subspan(worker * times.drawn_steps() + first, count)) {
      const bool is_done = step_s < ends.limit_s;
      end_s += std::min(step_s, ends.limit_s);
      arrivals.push_back({end_s + (is_done ? ends.gradient_s : ends.note_s), is_done});
      if (is_done) first_gradient_s = std::min(first_gradient_s, arrivals.back().at_s);
    }
    all_known_until = std::min(all_known_until, end_s + std::min(ends.gradient_s, ends.limit_s + ends.note_s));
  }
  if (arrivals.size() < gradients) return std::nullopt;
  const auto kth = arrivals.begin() + static_cast<std::ptrdiff_t>(gradients - 1);
  std::ranges::nth_element(arrivals, kth, {}, &Arrival::at_s);
  const double time_s = std::max(kth->at_s, first_gradient_s);
  if (time_s > all_known_until) return std::nullopt;
  const auto done = std::ranges::count_if(arrivals.begin(), kth + 1, &Arrival::is_gradient);
  return Update{time_s, std::max(static_cast<double>(done), 1.0) / static_cast<double>(gradients)};
}

}  // namespace

std::optional<SampledUpdates> sample_updates(const SampledTimes& times, const TrialEnds& ends, std::size_t gradients) {
  for (std::size_t count = 1; count <= times.drawn_steps(); count *= 2) {
    std::vector<double> kept;
    bool all_known = true;
    const auto time_s = sample_rounds(times, static_cast<std::int64_t>(count), [&](std::size_t first) {
      const auto update = update_of(times, ends, gradients, first, count);
      all_known = all_known && update;
      kept.push_back(update ? update->kept : 0);
      return update ? update->time_s : 0;
    });
    if (!time_s) return std::nullopt;
    if (all_known) return SampledUpdates{*time_s, mean_of(kept)};
  }
  return std::nullopt;
}

}  // namespace syncopate
