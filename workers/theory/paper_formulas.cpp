#include "workers/theory/paper_formulas.hpp"

#include <algorithm>
#include <boost/math/constants/constants.hpp>
#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/tools/minima.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <utility>

namespace syncopate {

namespace {

double normal_quantile(double p) { return boost::math::quantile(boost::math::normal(), p); }

// The probability that all workers have finished at time t.
double all_done(std::span<const NormalTime> times, double t) {
  double probability = 1;
  for (const NormalTime& time : times) {
    if (time.deviation == 0 && t < time.mean) return 0;
    if (time.deviation == 0) continue;
    const double done = 0.5 * std::erfc((time.mean - t) / (std::numbers::sqrt2 * time.deviation));
    probability *= time.workers == 1 ? done : std::pow(done, time.workers);
    if (probability == 0) break;
  }
  return probability;
}

}  // namespace

double expected_order_statistic(std::span<const double> ascending, int k, int workers) {
  if (workers < 1 || k < 1 || k > workers) throw std::invalid_argument("an order statistic needs 1 <= k <= workers");
  if (ascending.empty()) throw std::invalid_argument("an order statistic needs at least one value of the distribution");
  const boost::math::beta_distribution<double> place(k, workers - k + 1);
  const auto values = static_cast<double>(ascending.size());
  // The result is the i-th smallest of n values if the quantile lies between (i - 1) / n and i / n.
  double sum = 0, above = 1;
  for (std::size_t i = ascending.size(); i-- > 0 && above > 1e-15;) {
    const double below = i == 0 ? 0 : boost::math::cdf(place, static_cast<double>(i) / values);
    sum += ascending[i] * (above - below);
    above = below;
  }
  return sum + above * ascending.front();
}

double expected_maximum(std::span<const NormalTime> times) {
  if (times.empty()) throw std::invalid_argument("a maximum needs at least one worker");
  // Before `low` some worker is almost certainly still computing; after `high` almost certainly none is.
  double low = -std::numeric_limits<double>::infinity(), high = low;
  for (const NormalTime& time : times) {
    constexpr double certain = 9;  // number of standard deviations
    low = std::max(low, time.mean - certain * time.deviation);
    high = std::max(high, time.mean + certain * time.deviation);
  }
  if (high <= low) return low;
  constexpr unsigned depth = 12;
  constexpr double tolerance = 1e-8;
  const auto still_at_work = [&](double t) { return 1 - all_done(times, t); };
  return low +
         boost::math::quadrature::gauss_kronrod<double, 31>::integrate(still_at_work, low, high, depth, tolerance);
}

namespace {

// One recorded step of all workers.
struct StepProfile {
  double computing = 0;              // T: time at which the slowest worker ends
  std::vector<std::int64_t> ending;  // [k]: number of micro-batches that threshold k keeps
  std::vector<double> last;          // [k]: the last end before threshold k; 0: no micro-batch ends before it
};

// Returns the index of the first threshold that keeps a micro-batch with this end. `thresholds` ascend.
std::size_t first_kept(std::span<const double> thresholds, double end) {
  if (end <= 0) return 0;  // any threshold keeps a micro-batch that takes no time
  return static_cast<std::size_t>(std::ranges::upper_bound(thresholds, end) - thresholds.begin());
}

std::vector<StepProfile> profiles_of(const MicroBatchTimes& recorded, std::span<const double> thresholds) {
  const std::size_t count = thresholds.size();
  // The last element counts micro-batches that no threshold keeps.
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

// The ratio of two durations; 1 if they are equal.
double ratio(double a, double b) { return a == b ? 1 : a / b; }

}  // namespace

double expected_micro_batches(int micro_batches, double threshold, const MicroBatchLaw& law) {
  const boost::math::normal normal;
  double sum = 0;
  for (int m = 1; m <= micro_batches; ++m) {
    const double slack = threshold - m * law.mean;
    const double deviation = std::sqrt(m) * law.deviation;
    sum += deviation > 0 ? boost::math::cdf(normal, slack / deviation) : slack > 0 ? 1 : 0;
  }
  return sum;
}

double expected_slowest_worker(int workers, int micro_batches, const MicroBatchLaw& law) {
  if (workers < 2) throw std::invalid_argument("Bailey's approximation needs at least 2 workers");
  constexpr double gamma = boost::math::constants::euler<double>();
  const double n = workers, mean = micro_batches * law.mean, deviation = std::sqrt(micro_batches) * law.deviation;
  return mean + deviation *
                    ((1 - gamma) * normal_quantile(1 - 1 / n) + gamma * normal_quantile(1 - 1 / (std::numbers::e * n)));
}

double effective_speedup(double completed, int micro_batches, double threshold, double slowest, double serial) {
  return completed * (slowest + serial) / (micro_batches * (std::min(threshold, slowest) + serial));
}

double best_threshold(int micro_batches, const MicroBatchLaw& law, double slowest, double serial,
                      double maximum_drop_rate, double shortest) {
  const auto drop_rate = [&](double threshold) {
    return 1 - expected_micro_batches(micro_batches, threshold, law) / micro_batches;
  };
  const auto speedup = [&](double threshold) {
    return effective_speedup(micro_batches * (1 - drop_rate(threshold)), micro_batches, threshold, slowest, serial);
  };
  // If micro-batches vary little, speedup(threshold) has a local maximum after each multiple of the mean micro-batch
  // time. A grid finds the best of these, and Brent's method refines it.
  constexpr int grid = 400;
  const double step = slowest / grid;
  double best = std::numeric_limits<double>::infinity();
  const auto try_it = [&](double threshold) {
    if (threshold >= shortest && drop_rate(threshold) <= maximum_drop_rate && speedup(threshold) > speedup(best))
      best = threshold;
  };
  for (int i = 1; i <= grid; ++i) try_it(i * step);
  if (std::isinf(best)) return best;
  const double low = std::max({best - step, step / 2, shortest}), high = std::min(best + step, slowest);
  try_it(boost::math::tools::brent_find_minima([&](double t) { return -speedup(t); }, low, high, 40).first);
  return best;
}

double kaplan_meier_quantile(std::vector<CensoredTime> times, double quantile) {
  std::ranges::sort(times, {}, [](const CensoredTime& time) { return std::pair(time.seconds, time.at_least); });
  constexpr double rounding = 1e-9;
  double longer = 1;
  auto as_long = static_cast<double>(times.size());
  for (const CensoredTime& time : times) {
    if (!time.at_least) longer *= 1 - 1 / as_long;
    if (longer <= 1 - quantile + rounding) return time.seconds;
    --as_long;
  }
  return times.back().seconds * (1 + longer - (1 - quantile));
}

std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds) {
  const std::vector<StepProfile> profiles = profiles_of(recorded, thresholds);
  const double micro_batches = static_cast<double>(recorded.workers) * recorded.micro_batches;  // number per step
  const auto steps = static_cast<double>(recorded.steps);
  std::vector<ThresholdEffect> effects;
  for (std::size_t k = 0; k < thresholds.size(); ++k) {
    double kept_sum = 0, with_sum = 0, without_sum = 0, saved_sum = 0, speedup_sum = 0;
    for (const StepProfile& step : profiles) {
      const double kept = static_cast<double>(step.ending[k]) / micro_batches;
      const double without = step.computing + serial_time;
      // If all kept micro-batches take no time, the step lasts until the threshold, because nothing is infinitely fast.
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
    std::vector<std::int64_t> first(count + 1);  // [k]: number of micro-batches kept by threshold k, but no lower one
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
