// Distributions from which delays are drawn. Each function creates a process. Parameters with `_s` are in seconds;
// comments leave out the suffix.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/time/compute_time.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> constant_delay(double value_s);

// Uniform; low <= high.
std::shared_ptr<const DelayProcess> uniform_delay(double low_s, double high_s);

// Normal. A draw can be negative, but ComputeTime keeps the whole micro-batch above 0.
std::shared_ptr<const DelayProcess> normal_delay(double mean_s, double standard_deviation_s);

// Exponential; the second one has the mean shift + mean.
std::shared_ptr<const DelayProcess> exponential_delay(double mean_s);
std::shared_ptr<const DelayProcess> shifted_exponential_delay(double shift_s, double mean_s);

// Gamma: mean shape x scale, variance shape x scale^2. shape > 0. For shapes below about 0.1 the quantile function is
// too steep for polynomials, and a draw takes microseconds.
std::shared_ptr<const DelayProcess> gamma_delay(double shape, double scale_s);

// Weibull: P(X > x) = exp(-(x / scale)^shape). shape > 0. For shapes below about 0.2 the quantile function is too steep
// for polynomials, and a draw takes longer.
std::shared_ptr<const DelayProcess> weibull_delay(double shape, double scale_s);

// Pareto: P(X > x) = (minimum / x)^shape, the heaviest tail here. shape > 0; the mean is infinite up to shape 1, the
// variance up to shape 2.
std::shared_ptr<const DelayProcess> pareto_delay(double shape, double minimum_s);

// `value` with a probability in [0, 1], otherwise 0.
std::shared_ptr<const DelayProcess> bernoulli_delay(double probability, double value_s);

// Log-normal: scale x exp(mu + sigma Z), Z standard normal. sigma > 0. The median is scale x exp(mu).
std::shared_ptr<const DelayProcess> lognormal_delay(double mu, double sigma, double scale_s);

// Delays of DropCompute's simulated environment, as its reference code draws them: scale x l / mean(l), where a length
// l from 1 to 999 has the weight (1/l) exp(-(ln l - 4)^2 / 2). The mean is scale, the largest value 11.4 scale.
// Source:  Giladi et al. 2023 and its reference code.
std::shared_ptr<const DelayProcess> tabulated_lognormal_delay(double scale_s);

// The same environment as a formula: min(Z / alpha, beta) x scale with ln Z ~ N(mu, sigma^2). sigma, alpha, beta > 0.
struct BoundedLogNormal {
  // The defaults are unconfirmed second-hand values from the paper's appendix, not quotations. Compared with the
  // reference code, the mean is 0.8 % lower and the variance 8 % higher.
  double mu = 4;
  double sigma = 1;
  double alpha = 180.034262601043628;  // 2 e^4.5
  double beta = 5.5;

  double moment(int k) const;  // E[min(Z / alpha, beta)^k], in closed form
  double mean() const { return moment(1); }
  double variance() const { return moment(2) - moment(1) * moment(1); }
};
std::shared_ptr<const DelayProcess> bounded_lognormal_delay(const BoundedLogNormal& distribution, double scale_s);

// A delay that grows with the steps: min(per_step x step, maximum), as on a machine that slowly heats up or fills up.
// Its mean, variance and infimum are those of a long run: the maximum, 0, and 0 (at the first step).
std::shared_ptr<const DelayProcess> drift_delay(double per_step_s, double maximum_s);

// A histogram: bins with a density, uniform within each bin.
class Histogram {
 public:
  // Parses a file's content, compressed or not: comma-separated bin_left_s, bin_right_s, density. The density need not
  // integrate to 1. Bins must ascend and not overlap; gaps are allowed. Throws FileFault, which names file and line.
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
    double begin, end;  // cumulative probability at both ends
    double left_s, slope_s;
  };
  void add_up();  // computes probabilities, moments and the guide from masses

  std::vector<Bin> bins_;             // bins with a probability above 0
  std::vector<std::uint32_t> guide_;  // [g]: the bin at probability g / size
  double mean_s_ = 0;
  double variance_s2_ = 0;
};

// scale x a draw + shift_s; scale >= 0, shift_s may be negative.
std::shared_ptr<const DelayProcess> histogram_delay(std::shared_ptr<const Histogram> histogram, double scale,
                                                    double shift_s);

// See workers/time/data/README.md.
std::span<const EmbeddedFile> embedded_histograms();

}  // namespace syncopate
