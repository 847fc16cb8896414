#include "workers/theory/threshold_effects.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace syncopate {
namespace {

// One recorded step, over all workers.
struct StepProfile {
  double computing = 0;              // T: the slowest worker's end
  std::vector<std::int64_t> ending;  // [k]: micro-batches that end before threshold k, or take no time
  std::vector<double> last;          // [k]: the last end before threshold k; 0: none
};

// The place of the first threshold under which it is kept.
std::size_t first_kept(std::span<const double> thresholds, double end) {
  if (end <= 0) return 0;  // what takes no time is kept under any
  return static_cast<std::size_t>(std::ranges::upper_bound(thresholds, end) - thresholds.begin());
}

std::vector<StepProfile> profiles_of(const MicroBatchTimes& recorded, std::span<const double> thresholds) {
  const std::size_t count = thresholds.size();
  // The last element takes what ends before no threshold.
  const StepProfile empty{.ending = std::vector<std::int64_t>(count + 1), .last = std::vector<double>(count + 1)};
  std::vector<StepProfile> profiles(static_cast<std::size_t>(recorded.steps), empty);
  visit_ends(recorded, [&](int step, int, double end) {
    StepProfile& profile = profiles[static_cast<std::size_t>(step)];
    const std::size_t first = first_kept(thresholds, end);
    ++profile.ending[first];
    profile.last[first] = std::max(profile.last[first], end);
    profile.computing = std::max(profile.computing, end);
  });
  for (StepProfile& profile : profiles)
    for (std::size_t k = 1; k < count; ++k) {
      profile.ending[k] += profile.ending[k - 1];
      profile.last[k] = std::max(profile.last[k], profile.last[k - 1]);
    }
  return profiles;
}

// Of two durations; what takes no time takes as long with as without a threshold.
double ratio(double a, double b) { return a == b ? 1 : a / b; }

}  // namespace

std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds) {
  const std::vector<StepProfile> profiles = profiles_of(recorded, thresholds);
  const double micro_batches = static_cast<double>(recorded.workers) * recorded.micro_batches;  // of a step
  const auto steps = static_cast<double>(recorded.steps);
  std::vector<ThresholdEffect> effects;
  for (std::size_t k = 0; k < thresholds.size(); ++k) {
    double kept_sum = 0, with_sum = 0, without_sum = 0, saved_sum = 0, speedup_sum = 0;
    for (const StepProfile& step : profiles) {
      const double kept = static_cast<double>(step.ending[k]) / micro_batches;
      const double without = step.computing + serial_time;
      // Nothing is infinitely fast: where all that is kept takes no time, the step lasts until the threshold.
      const bool until_last = form == SpeedupForm::reference && (step.last[k] > 0 || step.ending[k] == 0);
      const double computing = until_last ? step.last[k] : std::min(thresholds[k], step.computing);
      const double with = computing + serial_time;
      kept_sum += kept;
      with_sum += with;
      without_sum += without;
      saved_sum += 1 - ratio(with, without);
      speedup_sum += kept == 0 ? 0 : kept * ratio(without, with);
    }
    const double kept = kept_sum / steps;
    if (form == SpeedupForm::throughput)
      effects.push_back(
          {thresholds[k], 1 - kept, 1 - ratio(with_sum, without_sum), kept * ratio(without_sum, with_sum)});
    else
      effects.push_back({thresholds[k], 1 - kept, saved_sum / steps, speedup_sum / steps});
  }
  return effects;
}

std::vector<LargestDropper> largest_droppers(const MicroBatchTimes& recorded, std::span<const double> thresholds) {
  const std::size_t count = thresholds.size();
  const auto of_worker = static_cast<std::size_t>(recorded.steps) * static_cast<std::size_t>(recorded.micro_batches);
  std::vector<std::int64_t> most(count), all(count);
  std::vector<LargestDropper> largest(count);
  for (int worker = 0; worker < recorded.workers; ++worker) {
    const MicroBatchTimes own{.times = recorded.times.subspan(static_cast<std::size_t>(worker) * of_worker, of_worker),
                              .workers = 1,
                              .steps = recorded.steps,
                              .micro_batches = recorded.micro_batches};
    std::vector<std::int64_t> first(count + 1);  // [k]: those that threshold k is the first to keep
    visit_ends(own, [&](int, int, double end) { ++first[first_kept(thresholds, end)]; });
    std::int64_t kept_later = 0;
    for (std::size_t k = count; k-- > 0;) {
      kept_later += first[k + 1];
      all[k] += kept_later;
      if (kept_later > most[k]) largest[k].worker = worker;
      most[k] = std::max(most[k], kept_later);
    }
  }
  for (std::size_t k = 0; k < count; ++k)
    if (all[k] > 0) largest[k].share = static_cast<double>(most[k]) / static_cast<double>(all[k]);
  return largest;
}

}  // namespace syncopate
