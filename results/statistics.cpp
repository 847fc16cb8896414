#include "results/statistics.hpp"

#include <algorithm>
#include <bit>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace syncopate {

namespace {

constexpr std::size_t most_sign_flips = 20;  // number of differences: about a million choices of signs

using StudentsT = boost::math::students_t_distribution<double>;

StudentsT students_t(std::size_t n) { return StudentsT(static_cast<double>(n - 1)); }

double standard_error_of(const Statistics& values) { return values.std / std::sqrt(static_cast<double>(values.n)); }

// From one choice of signs to the next only one sign changes (Gray code), so each choice costs one addition.
double sign_flip_p_of(std::span<const double> differences) {
  double sum = 0, size = 0;
  for (const double difference : differences) {
    sum += difference;
    size += std::abs(difference);
  }
  const double observed = std::abs(sum), rounding = size * 1e-12;
  const std::uint64_t choices = std::uint64_t{1} << differences.size();
  std::uint64_t as_far = 0, flipped = 0;
  for (std::uint64_t choice = 0; choice < choices; ++choice) {
    if (std::abs(sum) >= observed - rounding) ++as_far;
    if (choice + 1 == choices) break;
    const auto which = static_cast<std::size_t>(std::countr_zero(choice + 1));
    flipped ^= std::uint64_t{1} << which;
    sum += (flipped >> which & 1 ? -2 : 2) * differences[which];
  }
  return static_cast<double>(as_far) / static_cast<double>(choices);
}

}  // namespace

bool can_flip_signs(std::size_t n) {
  return n <= most_sign_flips && 2 * std::pow(0.5, static_cast<double>(n)) <= significance_level;
}

std::optional<Interval> interval_of_mean(std::span<const double> values, double confidence) {
  if (values.size() < 2) return {};
  const Statistics found = statistics(values);
  const double half = boost::math::quantile(students_t(found.n), (1 + confidence) / 2) * standard_error_of(found);
  return Interval{found.mean - half, found.mean + half};
}

PairedDifference paired_difference(std::span<const double> differences) {
  const Statistics found = statistics(differences);
  PairedDifference result{.n = found.n, .mean = found.mean, .interval = interval_of_mean(differences)};
  if (found.n > 1 && found.std > 0) {
    const double t = std::abs(found.mean) / standard_error_of(found);
    result.t_p = 2 * boost::math::cdf(boost::math::complement(students_t(found.n), t));
  }
  if (found.n > 1 && found.n <= most_sign_flips) result.sign_flip_p = sign_flip_p_of(differences);
  return result;
}

bool PairedDifference::is_significant() const {
  if (!interval || interval->holds(0)) return false;
  return !can_flip_signs(n) || *sign_flip_p <= significance_level;
}

std::optional<double> sign_flip_p(std::span<const double> values, double mean) {
  if (!can_flip_signs(values.size())) return {};
  std::vector<double> differences(values.begin(), values.end());
  for (double& difference : differences) difference -= mean;
  return sign_flip_p_of(differences);
}

std::optional<double> common_horizon_s(std::span<const TimeToReach> runs) {
  std::optional<double> censored_s, reached_s;
  for (const TimeToReach& run : runs) {
    if (run.is_reached)
      reached_s = std::max(run.time_s, reached_s.value_or(run.time_s));
    else
      censored_s = std::min(run.time_s, censored_s.value_or(run.time_s));
  }
  return censored_s ? censored_s : reached_s;
}

RestrictedTimes restricted_times(std::span<const TimeToReach> runs, double horizon_s) {
  RestrictedTimes result;
  for (const TimeToReach& run : runs) {
    if (!run.is_reached && run.time_s < horizon_s)
      throw std::invalid_argument("a run that did not reach the target ended before the horizon");
    const bool in_time = run.is_reached && run.time_s <= horizon_s;
    result.reached += in_time;
    result.times_s.push_back(in_time ? run.time_s : horizon_s);
  }
  return result;
}

Statistics statistics(std::span<const double> values) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {.n = 0, .mean = nan, .std = nan};
  std::size_t n = 0;
  double mean = 0;
  double squares = 0;  // sum of squared distances from the mean so far
  for (const double value : values) {
    ++n;
    const double distance = value - mean;
    mean += distance / static_cast<double>(n);
    squares += distance * (value - mean);
  }
  return {.n = n, .mean = mean, .std = n > 1 ? std::sqrt(squares / static_cast<double>(n - 1)) : 0.0};
}

std::optional<double> least_squares_slope(std::span<const std::pair<double, double>> points) {
  const auto count = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0, squares = 0, products = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / count;
    mean_y += y / count;
  }
  for (const auto& [x, y] : points) {
    squares += (x - mean_x) * (x - mean_x);
    products += (x - mean_x) * (y - mean_y);
  }
  return squares > 0 ? std::optional(products / squares) : std::nullopt;
}

std::optional<StepsByBatch> steps_by_batch(std::span<const MeasuredNoise> measured, Step steps, double batch) {
  if (measured.empty() || measured.front().step >= steps) return {};
  StepsByBatch result;
  for (std::size_t i = 0; i < measured.size() && measured[i].step < steps; ++i) {
    const Step begin = i == 0 ? Step{0} : measured[i].step;  // the first scale also holds before it was measured
    const Step end = i + 1 < measured.size() ? std::min(measured[i + 1].step, steps) : steps;
    const auto count = static_cast<double>((end - begin).value());
    const double noise = measured[i].scale;
    const double whole = count / (1 + noise / batch);
    result.least += whole;
    result.times_batch += whole * noise;
    result.mean_noise_scale += count * noise / static_cast<double>(steps.value());
  }
  return result;
}

namespace {

constexpr std::size_t window = 5;  // number of evaluations
constexpr std::size_t levels = 10;

// The smoothed logarithms of the losses; empty if there are too few losses, or if one of them has no logarithm.
std::vector<LossAt> smoothed(std::span<const LossAt> run) {
  if (run.size() <= window) return {};
  if (std::ranges::any_of(run, [](const LossAt& at) { return !(at.loss > 0) || !std::isfinite(at.loss); })) return {};
  std::vector<LossAt> result;
  for (std::size_t first = 0; first + window <= run.size(); ++first) {
    double sum = 0;
    for (const LossAt& at : run.subspan(first, window)) sum += std::log(at.loss);
    result.push_back({run[first + window / 2].at, sum / window});
  }
  return result;
}

double lowest(const std::vector<LossAt>& run) { return std::ranges::min(run, {}, &LossAt::loss).loss; }

// The first time at which the run's loss is at or below the level. The run must begin above the level and reach it.
double passage(const std::vector<LossAt>& run, double level) {
  const auto below = std::ranges::find_if(run, [level](const LossAt& at) { return at.loss <= level; });
  if (below == run.begin()) return below->at;
  const LossAt &after = *below, &before = *(below - 1);
  return before.at + (after.at - before.at) * (before.loss - level) / (before.loss - after.loss);
}

}  // namespace

std::vector<LossPassage> passages_through_equal_losses(std::span<const LossAt> own, std::span<const LossAt> other) {
  const std::vector<LossAt> ours = smoothed(own), theirs = smoothed(other);
  if (ours.empty() || theirs.empty()) return {};
  const double high = std::min(ours.front().loss, theirs.front().loss), low = std::max(lowest(ours), lowest(theirs));
  if (high <= low) return {};
  std::vector<LossPassage> result;
  for (std::size_t i = 0; i < levels; ++i) {
    const double level = high - (high - low) * (static_cast<double>(i) + 0.5) / levels;
    result.push_back({passage(ours, level), passage(theirs, level)});
  }
  return result;
}

double ratio_of(std::span<const LossPassage> passages) {
  double sum = 0;
  for (const LossPassage& passage : passages) sum += std::log(passage.own / passage.other);
  return std::exp(sum / static_cast<double>(passages.size()));
}

double difference_of(std::span<const LossPassage> passages) {
  double sum = 0;
  for (const LossPassage& passage : passages) sum += passage.own - passage.other;
  return sum / static_cast<double>(passages.size());
}

}  // namespace syncopate
