// Delays drawn from a histogram: bins with a density, uniform within each.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// Delays that are there or not: value with a probability, else 0.
// 0 <= probability <= 1.
std::shared_ptr<const DelayProcess> bernoulli_delay(double probability, double value_s);

// Keys: 0 <= probability <= 1, value >= 0.
std::shared_ptr<const DelayProcess> read_bernoulli_delay(Settings& settings, double unit_s);

// Bounded log-normal delays, the simulated environment of DropCompute, in two forms.
// Source: Giladi et al. 2023 and its reference code; what is known of either is told with each form.
// The reference code's generator: an integer length l = 1..999 with weight (1/l) exp(-(ln l - 4)^2 / 2),
// the delay scale x l / mean(l). Its mean is scale_s, its largest value 11.4 scale_s.
std::shared_ptr<const DelayProcess> tabulated_lognormal_delay(double scale_s);

// min(Z / alpha, beta) x scale with ln Z ~ N(mu, sigma^2). sigma, alpha, beta > 0.
struct BoundedLogNormal {
  // The defaults are hearsay about the paper's appendix that nobody confirmed; they are not quoted from
  // the paper. They fit the code's table: the mean is 0.8 % lower, the variance 8 % higher.
  double mu = 4;
  double sigma = 1;
  double alpha = 180.034262601043628;  // 2 e^4.5
  double beta = 5.5;

  double moment(int k) const;  // E[min(Z / alpha, beta)^k], in closed form
  double mean() const { return moment(1); }
  double variance() const { return moment(2) - moment(1) * moment(1); }
};
std::shared_ptr<const DelayProcess> bounded_lognormal_delay(const BoundedLogNormal& distribution, double scale_s);

// Keys: form = "table" (the default, being the one with evidence) or "formula"; scale >= 0 (0.5 for the
// table, 1 for the formula, which both mean half a unit on average); mu, sigma, alpha, beta of the formula.
std::shared_ptr<const DelayProcess> read_bounded_lognormal_delay(Settings& settings, double unit_s);

// The same delay for every micro-batch.
std::shared_ptr<const DelayProcess> constant_delay(double value_s);

// Keys: value >= 0.
std::shared_ptr<const DelayProcess> read_constant_delay(Settings& settings, double unit_s);

// A delay that grows with the steps: min(per_step x step, maximum), as a machine that slowly heats up or fills.
// Its mean, variance and infimum are those of a long run: the maximum, 0, and 0 at the first step.
std::shared_ptr<const DelayProcess> drift_delay(double per_step_s, double maximum_s);

// Keys: per_step >= 0, maximum >= 0.
std::shared_ptr<const DelayProcess> read_drift_delay(Settings& settings, double unit_s);

// Files that are part of the program, so that they are found wherever it stands.
struct EmbeddedFile {
  std::string_view name;
  std::string_view sentence;
  std::string_view content;
};

// See workers/time/data/README.md.
std::span<const EmbeddedFile> embedded_histograms();

// Exponential delays, from zero or from a shift on.
std::shared_ptr<const DelayProcess> exponential_delay(double mean_s);

// shift_s plus an exponential of mean mean_s: shift_s + mean_s on average.
std::shared_ptr<const DelayProcess> shifted_exponential_delay(double shift_s, double mean_s);

// Key: mean >= 0.
std::shared_ptr<const DelayProcess> read_exponential_delay(Settings& settings, double unit_s);

// Keys: shift >= 0; mean >= 0 of the exponential part.
std::shared_ptr<const DelayProcess> read_shifted_exponential_delay(Settings& settings, double unit_s);

// Gamma delays: mean shape x scale, variance shape x scale^2.
// shape > 0. Below about 0.1 the quantile is too steep for polynomials and a draw takes microseconds.
std::shared_ptr<const DelayProcess> gamma_delay(double shape, double scale_s);

// Keys: 0.01 <= shape <= 1e6, scale >= 0.
std::shared_ptr<const DelayProcess> read_gamma_delay(Settings& settings, double unit_s);

class Histogram {
 public:
  // What a file holds, compressed or not: comma-separated bin_left_s, bin_right_s, density; the density need not
  // integrate to 1. Bins ascend and do not overlap; there may be gaps. Throws FileFault, which names `file` and the
  // line.
  Histogram(const std::string& file, std::string_view content);

  double quantile(double u) const {
    std::size_t bin = guide_[static_cast<std::size_t>(u * static_cast<double>(guide_.size()))];
    while (bins_[bin].end <= u) ++bin;
    return bins_[bin].left_s + (u - bins_[bin].begin) * bins_[bin].slope_s;
  }
  double mean_s() const { return mean_s_; }
  double variance_s2() const { return variance_s2_; }
  double minimum_s() const { return bins_.front().left_s; }

 private:
  struct Bin {
    double begin, end;  // of the probability below
    double left_s, slope_s;
  };
  void add_up();  // from masses to probabilities, moments, and the guide

  std::vector<Bin> bins_;             // those with a mass
  std::vector<std::uint32_t> guide_;  // [g]: the bin of g / size
  double mean_s_ = 0;
  double variance_s2_ = 0;
};

// scale x a draw + shift_s; scale >= 0, shift_s may be negative.
std::shared_ptr<const DelayProcess> histogram_delay(std::shared_ptr<const Histogram> histogram, double scale,
                                                    double shift_s);

// Keys: file, or data, the name of a histogram that is part of the program; scale (of the file's seconds, 1 if
// absent); shift (0 if absent), in units. The hash of a file's content becomes part of the configuration.
std::shared_ptr<const DelayProcess> read_histogram_delay(Settings& settings, double unit_s);

// Log-normal delays: scale x exp(mu + sigma Z), Z standard normal.
// sigma > 0. Its median is scale_s exp(mu).
std::shared_ptr<const DelayProcess> lognormal_delay(double mu, double sigma, double scale_s);

// Keys: mu and sigma of the logarithm; scale >= 0, 1 if absent.
std::shared_ptr<const DelayProcess> read_lognormal_delay(Settings& settings, double unit_s);

// Normal delays. They may be negative; ComputeTime keeps the whole micro-batch above 0.
std::shared_ptr<const DelayProcess> normal_delay(double mean_s, double standard_deviation_s);

// Keys: mean (0 if absent), standard_deviation >= 0.
std::shared_ptr<const DelayProcess> read_normal_delay(Settings& settings, double unit_s);

// Pareto delays: P(X > x) = (minimum / x)^shape, the heaviest tail of all.
// shape > 0; the mean is infinite up to shape 1, the variance up to shape 2.
std::shared_ptr<const DelayProcess> pareto_delay(double shape, double minimum_s);

// Keys: 0.1 <= shape <= 1e6, minimum >= 0.
std::shared_ptr<const DelayProcess> read_pareto_delay(Settings& settings, double unit_s);

// Delays uniform between two bounds.
// low_s <= high_s.
std::shared_ptr<const DelayProcess> uniform_delay(double low_s, double high_s);

// Keys: 0 <= low <= high; low is 0 if absent.
std::shared_ptr<const DelayProcess> read_uniform_delay(Settings& settings, double unit_s);

// Weibull delays: P(X > x) = exp(-(x / scale)^shape).
// shape > 0. Below about 0.2 the quantile is too steep for polynomials and a draw takes longer.
std::shared_ptr<const DelayProcess> weibull_delay(double shape, double scale_s);

// Keys: 0.05 <= shape <= 1e6, scale >= 0.
std::shared_ptr<const DelayProcess> read_weibull_delay(Settings& settings, double unit_s);

}  // namespace syncopate
