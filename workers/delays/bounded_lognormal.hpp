// Bounded log-normal delays, the simulated environment of DropCompute, in two forms.
// Source: Giladi et al. 2023 and its reference code; what is known of either is told with each form.
#pragma once

#include <memory>

#include "workers/delays/compute_time.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

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

}  // namespace syncopate
