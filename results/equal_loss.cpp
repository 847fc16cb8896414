#include "results/equal_loss.hpp"

#include <algorithm>
#include <cmath>

namespace syncopate {

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

std::vector<Passage> passages_through_equal_losses(std::span<const LossAt> own, std::span<const LossAt> other) {
  const std::vector<LossAt> ours = smoothed(own), theirs = smoothed(other);
  if (ours.empty() || theirs.empty()) return {};
  const double high = std::min(ours.front().loss, theirs.front().loss), low = std::max(lowest(ours), lowest(theirs));
  if (high <= low) return {};
  std::vector<Passage> result;
  for (std::size_t i = 0; i < levels; ++i) {
    const double level = high - (high - low) * (static_cast<double>(i) + 0.5) / levels;
    result.push_back({passage(ours, level), passage(theirs, level)});
  }
  return result;
}

double ratio_of(std::span<const Passage> passages) {
  double sum = 0;
  for (const Passage& passage : passages) sum += std::log(passage.own / passage.other);
  return std::exp(sum / static_cast<double>(passages.size()));
}

double difference_of(std::span<const Passage> passages) {
  double sum = 0;
  for (const Passage& passage : passages) sum += passage.own - passage.other;
  return sum / static_cast<double>(passages.size());
}

}  // namespace syncopate
