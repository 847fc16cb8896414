#include "algorithms/local_sgd/pseudo_gradient_penalty.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>

namespace syncopate {
namespace {

// exp(-norm / T) relative to the shortest norm's, so that no weight overflows and that of the shortest is 1; of an
// outlier (none) 0.
std::vector<double> exponentials(std::span<const std::optional<double>> norms, double temperature) {
  double shortest = PenaltyOptions::infinity;
  for (const auto& norm : norms) shortest = std::min(shortest, norm.value_or(shortest));
  std::vector<double> result;
  for (const auto& norm : norms) result.push_back(norm ? std::exp((shortest - *norm) / temperature) : 0);
  return result;
}

// Of one module, N times the weights. All outliers: 0.
std::vector<double> factors_of(std::span<const std::optional<double>> norms, std::span<const double> steps,
                               const PenaltyOptions& options) {
  const auto workers = static_cast<double>(norms.size());
  const bool are_finite = std::ranges::all_of(norms, [](const auto& norm) { return std::isfinite(norm.value_or(0)); });
  std::vector<double> factors =
      are_finite ? exponentials(norms, options.temperature) : std::vector<double>(norms.size(), 1);
  const double sum = std::accumulate(factors.begin(), factors.end(), 0.0);
  const double all_steps = std::accumulate(steps.begin(), steps.end(), 0.0);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (!norms[i]) continue;
    factors[i] *= workers / sum;
    if (options.step_share == 0 || all_steps == 0) continue;
    factors[i] = (1 - options.step_share) * factors[i] + options.step_share * workers * steps[i] / all_steps;
  }
  return factors;
}

}  // namespace

Penalty penalise(std::span<const NormStatistics> before, std::span<const double> norms, std::span<const double> steps,
                 int modules, const PenaltyOptions& options) {
  const auto width = static_cast<std::size_t>(modules), workers = norms.size() / width;
  Penalty penalty{.modules = modules};
  penalty.statistics.assign(before.begin(), before.end());
  penalty.statistics.resize(norms.size());
  penalty.factors.resize(norms.size());
  for (std::size_t module = 0; module < width; ++module) {
    // Where no worker's norm is finite there are no outliers: the training has diverged, and the mean shows it.
    bool has_diverged = true;
    for (std::size_t i = module; i < norms.size(); i += width) has_diverged = has_diverged && !std::isfinite(norms[i]);
    std::vector<std::optional<double>> counted;
    for (std::size_t i = module; i < norms.size(); i += width) {
      NormStatistics& statistics = penalty.statistics[i];
      const bool is_outlier = !has_diverged && statistics.is_outlier(norms[i], options);
      if (options.finds_outliers() && !is_outlier) statistics.take_in(norms[i], options);
      counted.push_back(is_outlier ? std::nullopt : std::optional(norms[i]));
    }
    const std::vector<double> factors = factors_of(counted, steps, options);
    for (std::size_t worker = 0; worker < workers; ++worker) penalty.factors[worker * width + module] = factors[worker];
    penalty.rolled_back.push_back(std::ranges::none_of(counted, [](const auto& norm) { return norm.has_value(); }));
  }
  return penalty;
}

double clip_factor(double norm, double clip_norm) {
  constexpr double least = 1e-6;
  return std::isfinite(norm) ? std::min(1.0, clip_norm / (norm + least)) : 1;
}

// The card.
PenaltyOptions read_penalty(Settings& settings) {
  PenaltyOptions options;
  options.outlier_factor =
      settings.number({"outlier_factor", "Deviations above its mean at which a norm is an outlier's; inf: at none."},
                      Range::positive(), options.outlier_factor);
  options.outlier_warmup = static_cast<int>(
      settings.integer({"outlier_warmup", "Norms of a module that come before the first outlier (W).", "rounds"}, 1,
                       1'000'000, options.outlier_warmup));
  options.outlier_smoothing =
      settings.number({"outlier_smoothing", "How far mean and variance go to each new norm (a)."},
                      Range{.low = 0, .high = 1, .low_open = true, .high_open = true}, options.outlier_smoothing);
  if (options.outlier_warmup < shortest_warmup(options))
    settings.fault("outlier_warmup",
                   fmt::format("must be at least {} with this factor and smoothing: mean and variance begin at 0, and "
                               "after fewer rounds a norm that does not change can be an outlier, for ever",
                               shortest_warmup(options)));
  options.temperature =
      settings.number({"temperature", "Of the softmax of -norm / T by which workers weigh; inf: all weigh alike (T)."},
                      Range::positive(), options.temperature);
  options.step_share = settings.number({"step_share", "How much of a weight goes by steps in the round instead (r)."},
                                       Range::between(0, 1), options.step_share);
  options.clip_norm =
      settings.number({"clip_norm", "Largest norm of what comes of the pseudo-gradients; inf: any (phi)."},
                      Range::positive(), options.clip_norm);
  return options;
}

}  // namespace syncopate
