#include "workers/delays/bounded_lognormal.hpp"

#include <algorithm>
#include <array>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <string_view>

#include "workers/delays/drawn_delay.hpp"
#include "workers/delays/length_table.hpp"
#include "workers/delays/limits.hpp"
#include "workers/delays/quantile_table.hpp"

namespace syncopate {
namespace {

class TabulatedLogNormal final : public DrawnDelay {
 public:
  explicit TabulatedLogNormal(double scale_s) : scale_s_(scale_s), per_length_s_(scale_s / lengths_.mean()) {}
  double mean_s() const override { return scale_s_; }
  double variance_s2() const override { return per_length_s_ * per_length_s_ * lengths_.variance(); }
  double minimum_s() const override { return per_length_s_; }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override {
    lengths_.add(uniform, per_length_s_, added_s);
  }

  const LengthTable& lengths_ = LengthTable::of_reference_code();
  double scale_s_;
  double per_length_s_;
};

class FormulaLogNormal final : public DrawnDelay {
 public:
  FormulaLogNormal(const BoundedLogNormal& form, double scale_s)
      : quantile_([d = distribution(form)](double p) { return quantile(d, p); },
                  [d = distribution(form)](double p) { return quantile(complement(d, p)); }),
        bound_s_(form.beta * scale_s),
        scale_s_(scale_s),
        mean_s_(form.mean() * scale_s),
        variance_s2_(form.variance() * scale_s * scale_s) {}
  double mean_s() const override { return mean_s_; }
  double variance_s2() const override { return variance_s2_; }
  double minimum_s() const override { return 0; }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override {
    quantile_.reader().add(uniform, {.scale = scale_s_, .bound = bound_s_}, added_s);
  }

  // Of Z / alpha, which is log-normal too.
  static boost::math::lognormal distribution(const BoundedLogNormal& form) {
    return boost::math::lognormal(form.mu - std::log(form.alpha), form.sigma);
  }

  QuantileTable quantile_;
  double bound_s_;
  double scale_s_;
  double mean_s_;
  double variance_s2_;
};

}  // namespace

// With d = (ln(alpha beta) - mu) / sigma: E[Z^k; Z < alpha beta] / alpha^k + beta^k P(Z > alpha beta).
double BoundedLogNormal::moment(int k) const {
  const boost::math::normal standard;
  const double d = (std::log(alpha * beta) - mu) / sigma;
  const double below = std::exp(k * (mu - std::log(alpha)) + k * k * sigma * sigma / 2);
  return below * cdf(standard, d - k * sigma) + std::pow(beta, k) * cdf(complement(standard, d));
}

std::shared_ptr<const DelayProcess> tabulated_lognormal_delay(double scale_s) {
  return std::make_shared<TabulatedLogNormal>(scale_s);
}

std::shared_ptr<const DelayProcess> bounded_lognormal_delay(const BoundedLogNormal& distribution, double scale_s) {
  return std::make_shared<FormulaLogNormal>(distribution, scale_s);
}

std::shared_ptr<const DelayProcess> read_bounded_lognormal_delay(Settings& settings, double unit_s) {
  const Range scales = Range::between(0, longest_delay);
  const bool by_formula =
      settings.choice({"form", "The reference code's table of lengths, or min(Z / alpha, beta) with Z log-normal."},
                      {{"table", false}, {"formula", true}}, false);
  if (!by_formula)
    return tabulated_lognormal_delay(unit_s * settings.number({"scale", "The mean delay.", of_unit}, scales, 0.5));
  BoundedLogNormal form;
  form.mu = settings.number({"mu", "The mean of Z's logarithm."}, Range::between(-50, 50), form.mu);
  form.sigma =
      settings.number({"sigma", "The standard deviation of Z's logarithm."}, Range::between(0.001, 10), form.sigma);
  form.alpha = settings.number({"alpha", "What Z is divided by."}, Range::between(1e-30, 1e30), form.alpha);
  form.beta = settings.number({"beta", "The bound."}, Range::between(1e-30, longest_delay), form.beta);
  return bounded_lognormal_delay(
      form, unit_s * settings.number({"scale", "What the bounded number is multiplied by.", of_unit}, scales, 1.0));
}

}  // namespace syncopate
