#include "workers/time/distributions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/math/distributions/exponential.hpp>
#include <boost/math/distributions/gamma.hpp>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/pareto.hpp>
#include <boost/math/distributions/weibull.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "workers/time/compute_time.hpp"
#include "workers/time/quantile_table.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

namespace {

// Delays of which each is a function of one uniform number of its own, as most are.
class DrawnDelay : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const final;
  void add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const final;

 protected:
  // added_s[i] += the delay that belongs to uniform[i], 0 < uniform[i] < 1. Both are equally long.
  virtual void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const = 0;
};

// For a delay_s(double uniform) that is inlined: a draw costs a few nanoseconds, which a call per draw would double.
template <typename Delay>
void add_each(std::span<const double> uniform, std::span<double> added_s, const Delay& delay_s) {
  for (std::size_t i = 0; i < added_s.size(); ++i) added_s[i] += delay_s(uniform[i]);
}

// One for all fibers: on their stacks it would never be in the cache.
thread_local std::array<double, 512> uniform_numbers;

void DrawnDelay::add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const {
  while (!added_s.empty()) {
    const auto now = added_s.first(std::min(added_s.size(), uniform_numbers.size()));
    const std::span<double> numbers(uniform_numbers.data(), now.size());
    stream.fill_uniform(first, numbers);
    add_quantiles(numbers, now);
    first += static_cast<std::uint32_t>(now.size());
    added_s = added_s.subspan(now.size());
  }
}

void DrawnDelay::add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const {
  const std::size_t length = added_s.size() / rows.count;
  if (length == 0) return;
  const std::size_t at_once = uniform_numbers.size() / length;
  if (at_once <= 1) return DelayProcess::add_rows(rows, first, added_s);
  for (std::size_t begin = 0; begin < rows.count; begin += at_once) {
    const std::size_t count = std::min(at_once, rows.count - begin);
    const std::span<double> numbers(uniform_numbers.data(), count * length);
    rows.part(begin, count).fill_uniform(first, numbers);
    add_quantiles(numbers, added_s.subspan(begin * length, count * length));
  }
}

class BernoulliDelay final : public DrawnDelay {
 public:
  BernoulliDelay(double probability, double value_s) : probability_(probability), value_s_(value_s) {}
  double mean_s() const override { return probability_ * value_s_; }
  double variance_s2() const override { return probability_ * (1 - probability_) * value_s_ * value_s_; }
  double minimum_s() const override { return probability_ < 1 ? 0 : value_s_; }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override {
    add_each(uniform, added_s,
             [probability = probability_, value_s = value_s_](double u) { return u < probability ? value_s : 0.0; });
  }

  double probability_;
  double value_s_;
};

}  // namespace

std::shared_ptr<const DelayProcess> bernoulli_delay(double probability, double value_s) {
  return std::make_shared<BernoulliDelay>(probability, value_s);
}

std::shared_ptr<const DelayProcess> read_bernoulli_delay(Settings& settings, double unit_s) {
  const double probability = settings.number({"probability", "How likely the delay is."}, Range::between(0, 1));
  return bernoulli_delay(probability, unit_s * settings.number({"value", "The delay, where there is one.", of_unit},
                                                               Range::between(0, longest_delay)));
}

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

namespace {

class ConstantDelay final : public DelayProcess {
 public:
  explicit ConstantDelay(double value_s) : value_s_(value_s) {}
  void add(const RandomStream&, std::uint32_t, std::span<double> added_s) const override {
    for (double& sum_s : added_s) sum_s += value_s_;
  }
  double mean_s() const override { return value_s_; }
  double variance_s2() const override { return 0; }
  double minimum_s() const override { return value_s_; }

 private:
  double value_s_;
};

}  // namespace

std::shared_ptr<const DelayProcess> constant_delay(double value_s) { return std::make_shared<ConstantDelay>(value_s); }

std::shared_ptr<const DelayProcess> read_constant_delay(Settings& settings, double unit_s) {
  return constant_delay(unit_s * settings.number({"value", "The delay.", of_unit}, Range::between(0, longest_delay)));
}

namespace {

class DriftDelay final : public DelayProcess {
 public:
  DriftDelay(double per_step_s, double maximum_s) : per_step_s_(per_step_s), maximum_s_(maximum_s) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    const double value_s = std::min(per_step_s_ * static_cast<double>(stream.step.value()), maximum_s_);
    for (double& sum_s : added_s) sum_s += value_s;
  }
  double mean_s() const override { return per_step_s_ > 0 ? maximum_s_ : 0; }
  double variance_s2() const override { return 0; }
  double minimum_s() const override { return 0; }

 private:
  double per_step_s_;
  double maximum_s_;
};

}  // namespace

std::shared_ptr<const DelayProcess> drift_delay(double per_step_s, double maximum_s) {
  return std::make_shared<DriftDelay>(per_step_s, maximum_s);
}

std::shared_ptr<const DelayProcess> read_drift_delay(Settings& settings, double unit_s) {
  const double per_step = settings.number({"per_step", "By how much the delay grows with each step.", of_unit},
                                          Range::between(0, longest_delay));
  const double maximum =
      settings.number({"maximum", "The longest delay, at which it stays.", of_unit}, Range::between(0, longest_delay));
  return drift_delay(unit_s * per_step, unit_s * maximum);
}

namespace {

// A delay drawn by inverse distribution function: shift + scale x X, X = quantile(u).
// Mean, variance and infimum of X, before shift and scale.
struct StandardMoments {
  double mean = 0;
  double variance = 0;
  double minimum = 0;
};

class QuantileDelay final : public DrawnDelay {
 public:
  // scale_s >= 0; with 0 the delay is shift_s, whatever the moments.
  QuantileDelay(std::shared_ptr<const QuantileTable> standard, const StandardMoments& moments, double shift_s,
                double scale_s);

  double mean_s() const override { return moments_s_.mean; }
  double variance_s2() const override { return moments_s_.variance; }
  double minimum_s() const override { return moments_s_.minimum; }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override;

  std::shared_ptr<const QuantileTable> standard_;  // of the distribution before shift and scale
  double shift_s_;
  double scale_s_;
  StandardMoments moments_s_;  // with shift and scale
};

QuantileDelay::QuantileDelay(std::shared_ptr<const QuantileTable> standard, const StandardMoments& moments,
                             double shift_s, double scale_s)
    : standard_(std::move(standard)), shift_s_(shift_s), scale_s_(scale_s), moments_s_{shift_s, 0, shift_s} {
  if (scale_s == 0) return;
  moments_s_ = {shift_s + scale_s * moments.mean, scale_s * scale_s * moments.variance,
                shift_s + scale_s * moments.minimum};
}

void QuantileDelay::add_quantiles(std::span<const double> uniform, std::span<double> added_s) const {
  standard_->reader().add(uniform, {.shift = shift_s_, .scale = scale_s_}, added_s);
}

}  // namespace

std::shared_ptr<const DelayProcess> exponential_delay(double mean_s) { return shifted_exponential_delay(0, mean_s); }

std::shared_ptr<const DelayProcess> shifted_exponential_delay(double shift_s, double mean_s) {
  static const auto standard = std::make_shared<const QuantileTable>(
      [](double p) { return quantile(boost::math::exponential(), p); },
      [](double p) { return quantile(complement(boost::math::exponential(), p)); });
  return std::make_shared<QuantileDelay>(standard, StandardMoments{1, 1, 0}, shift_s, mean_s);
}

std::shared_ptr<const DelayProcess> read_exponential_delay(Settings& settings, double unit_s) {
  return exponential_delay(unit_s *
                           settings.number({"mean", "The mean delay.", of_unit}, Range::between(0, longest_delay)));
}

std::shared_ptr<const DelayProcess> read_shifted_exponential_delay(Settings& settings, double unit_s) {
  const double shift = settings.number({"shift", "The shortest delay, to which the exponential one is added.", of_unit},
                                       Range::between(0, longest_delay));
  const double mean =
      settings.number({"mean", "The mean of the exponential part.", of_unit}, Range::between(0, longest_delay));
  return shifted_exponential_delay(unit_s * shift, unit_s * mean);
}

std::shared_ptr<const DelayProcess> gamma_delay(double shape, double scale_s) {
  using boost::math::gamma_distribution;
  const auto standard = std::make_shared<const QuantileTable>(
      [shape](double p) { return quantile(gamma_distribution(shape), p); },
      [shape](double p) { return quantile(complement(gamma_distribution(shape), p)); });
  return std::make_shared<QuantileDelay>(standard, StandardMoments{shape, shape, 0}, 0.0, scale_s);
}

std::shared_ptr<const DelayProcess> read_gamma_delay(Settings& settings, double unit_s) {
  const double shape = settings.number({"shape", "The shape of the distribution."}, Range::between(0.01, 1e6));
  const double scale =
      settings.number({"scale", "The scale of the distribution.", of_unit}, Range::between(0, longest_delay));
  return gamma_delay(shape, unit_s * scale);
}

namespace {

class HistogramDelay final : public DrawnDelay {
 public:
  HistogramDelay(std::shared_ptr<const Histogram> histogram, double scale, double shift_s)
      : histogram_(std::move(histogram)), scale_(scale), shift_s_(shift_s) {}
  double mean_s() const override { return shift_s_ + scale_ * histogram_->mean_s(); }
  double variance_s2() const override { return scale_ * scale_ * histogram_->variance_s2(); }
  double minimum_s() const override { return shift_s_ + scale_ * histogram_->minimum_s(); }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override {
    add_each(uniform, added_s, [&histogram = *histogram_, scale = scale_, shift_s = shift_s_](double u) {
      return shift_s + scale * histogram.quantile(u);
    });
  }

  std::shared_ptr<const Histogram> histogram_;
  double scale_;
  double shift_s_;
};

// Null after a fault.
std::shared_ptr<const Histogram> read_histogram(Settings& settings) {
  const Key histogram_data{"data", "A histogram that comes with the program, instead of a file."};
  if (settings.has("data")) {
    if (settings.has("file")) settings.fault("data", "must not be given together with file");
    const auto* const file = settings.row(histogram_data, embedded_histograms());
    return file ? std::make_shared<const Histogram>(std::string(file->name), file->content) : nullptr;
  }
  if (!settings.has("file")) {
    settings.fault("file", "must be given, or data = \"dropcompute-160\" or \"dropcompute-192\"");
    return nullptr;
  }
  return read_data_file<Histogram>(settings);
}

}  // namespace

Histogram::Histogram(const std::string& file, std::string_view content) {
  CsvRows rows(file, content, {"bin_left_s", "bin_right_s", "density"});
  double last_right = -longest_delay;
  while (rows.next()) {
    const double left = rows.number(0), right = rows.number(1), density = rows.number(2);
    if (density < 0) rows.fault(fmt::format("density = {}; must be at least 0", density));
    if (!(right > left)) rows.fault(fmt::format("bin_right_s = {}; must be above bin_left_s, {}", right, left));
    if (left < last_right)
      rows.fault(fmt::format("bin_left_s = {}; must be at least {}, where the bin before ends", left, last_right));
    if (right > longest_delay) rows.fault(fmt::format("bin_right_s = {}; must be at most {}", right, longest_delay));
    last_right = right;
    if (density > 0) bins_.push_back({0, density * (right - left), left, right - left});
  }
  rows.check();
  double mass = 0;
  for (const Bin& bin : bins_) mass += bin.end;
  if (!(mass > 0)) rows.fault("the histogram is empty; some density must be above 0");
  if (std::isinf(mass)) rows.fault("the densities times the bins' widths add up to infinity; must be finite");
  rows.check();
  for (Bin& bin : bins_) bin.end /= mass;
  // No draw comes to a bin whose share is as good as 0, and its slope would be none.
  std::erase_if(bins_, [](const Bin& bin) { return !std::isfinite(bin.slope_s / bin.end); });
  add_up();
}

void Histogram::add_up() {
  double sum = 0;
  for (Bin& bin : bins_) {
    const double probability = bin.end, width = bin.slope_s, centre = bin.left_s + width / 2;
    mean_s_ += probability * centre;
    bin = {sum, sum + probability, bin.left_s, width / probability};
    sum = bin.end;
  }
  bins_.back().end = 1;  // which no u reaches
  for (const Bin& bin : bins_) {
    const double probability = bin.end - bin.begin, width = probability * bin.slope_s;
    const double offset = bin.left_s + width / 2 - mean_s_;
    variance_s2_ += probability * (offset * offset + width * width / 12);
  }
  guide_.resize(8 * bins_.size());
  std::uint32_t bin = 0;
  for (std::size_t g = 0; g < guide_.size(); ++g) {
    while (bins_[bin].end <= static_cast<double>(g) / static_cast<double>(guide_.size())) ++bin;
    guide_[g] = bin;
  }
}

std::shared_ptr<const DelayProcess> histogram_delay(std::shared_ptr<const Histogram> histogram, double scale,
                                                    double shift_s) {
  return std::make_shared<HistogramDelay>(std::move(histogram), scale, shift_s);
}

std::shared_ptr<const DelayProcess> read_histogram_delay(Settings& settings, double unit_s) {
  auto histogram = read_histogram(settings);
  const double scale =
      settings.number({"scale", "What the durations are multiplied by."}, Range::between(0, longest_delay), 1.0);
  const double shift =
      settings.number({"shift", "What is added to them.", of_unit}, Range::between(-longest_delay, longest_delay), 0.0);
  if (!histogram) return constant_delay(0);
  return histogram_delay(std::move(histogram), scale, unit_s * shift);
}

std::shared_ptr<const DelayProcess> lognormal_delay(double mu, double sigma, double scale_s) {
  using boost::math::lognormal;
  const auto standard =
      std::make_shared<const QuantileTable>([sigma](double p) { return quantile(lognormal(0, sigma), p); },
                                            [sigma](double p) { return quantile(complement(lognormal(0, sigma), p)); });
  const double square = sigma * sigma;
  const StandardMoments moments{std::exp(square / 2), std::expm1(square) * std::exp(square), 0};
  return std::make_shared<QuantileDelay>(standard, moments, 0.0, scale_s * std::exp(mu));
}

std::shared_ptr<const DelayProcess> read_lognormal_delay(Settings& settings, double unit_s) {
  const double mu = settings.number({"mu", "The mean of the logarithm."}, Range::between(-50, 50));
  const double sigma =
      settings.number({"sigma", "The standard deviation of the logarithm."}, Range::between(0.001, 10));
  const double scale = settings.number({"scale", "What the log-normal number is multiplied by.", of_unit},
                                       Range::between(0, longest_delay), 1.0);
  return lognormal_delay(mu, sigma, unit_s * scale);
}

std::shared_ptr<const DelayProcess> normal_delay(double mean_s, double standard_deviation_s) {
  static const auto standard =
      std::make_shared<const QuantileTable>([](double p) { return quantile(boost::math::normal(), p); },
                                            [](double p) { return quantile(complement(boost::math::normal(), p)); });
  const StandardMoments moments{0, 1, -std::numeric_limits<double>::infinity()};
  return std::make_shared<QuantileDelay>(standard, moments, mean_s, standard_deviation_s);
}

std::shared_ptr<const DelayProcess> read_normal_delay(Settings& settings, double unit_s) {
  const double mean =
      settings.number({"mean", "The mean delay.", of_unit}, Range::between(-longest_delay, longest_delay), 0.0);
  const double deviation =
      settings.number({"standard_deviation", "Its standard deviation.", of_unit}, Range::between(0, longest_delay));
  return normal_delay(unit_s * mean, unit_s * deviation);
}

std::shared_ptr<const DelayProcess> pareto_delay(double shape, double minimum_s) {
  using boost::math::pareto;
  const auto standard =
      std::make_shared<const QuantileTable>([shape](double p) { return quantile(pareto(1, shape), p); },
                                            [shape](double p) { return quantile(complement(pareto(1, shape), p)); });
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double below_one = shape - 1, below_two = shape - 2;
  const StandardMoments moments{
      below_one > 0 ? shape / below_one : infinity,
      below_two > 0 ? shape / (below_one * below_one * below_two) : infinity,
      1,
  };
  return std::make_shared<QuantileDelay>(standard, moments, 0.0, minimum_s);
}

std::shared_ptr<const DelayProcess> read_pareto_delay(Settings& settings, double unit_s) {
  const double shape =
      settings.number({"shape", "The exponent of the tail; the mean is finite above 1, the variance above 2."},
                      Range::between(0.1, 1e6));
  // The key becomes known where it is written alone: it is none of this law's.
  if (std::ranges::count(settings.keys(), "scale") > 0 && settings.has("scale"))
    settings.fault("scale", "must be left out: a Pareto law has shape and minimum, which is its scale");
  const double minimum = settings.number({"minimum", "The shortest delay.", of_unit}, Range::between(0, longest_delay));
  return pareto_delay(shape, unit_s * minimum);
}

namespace {

class UniformDelay final : public DrawnDelay {
 public:
  UniformDelay(double low_s, double high_s) : low_s_(low_s), width_s_(high_s - low_s) {}
  double mean_s() const override { return low_s_ + width_s_ / 2; }
  double variance_s2() const override { return width_s_ * width_s_ / 12; }
  double minimum_s() const override { return low_s_; }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override {
    add_each(uniform, added_s, [low_s = low_s_, width_s = width_s_](double u) { return low_s + width_s * u; });
  }

  double low_s_;
  double width_s_;
};

}  // namespace

std::shared_ptr<const DelayProcess> uniform_delay(double low_s, double high_s) {
  return std::make_shared<UniformDelay>(low_s, high_s);
}

std::shared_ptr<const DelayProcess> read_uniform_delay(Settings& settings, double unit_s) {
  const double low = settings.number({"low", "The shortest delay.", of_unit}, Range::between(0, longest_delay), 0.0);
  const double high =
      settings.number({"high", "The longest delay, at least low.", of_unit}, Range::between(0, longest_delay));
  if (settings.has("high") && high < low) settings.fault("high", "must be at least low");
  return uniform_delay(unit_s * low, unit_s * high);
}

std::shared_ptr<const DelayProcess> weibull_delay(double shape, double scale_s) {
  using boost::math::weibull;
  const auto standard =
      std::make_shared<const QuantileTable>([shape](double p) { return quantile(weibull(shape), p); },
                                            [shape](double p) { return quantile(complement(weibull(shape), p)); });
  const StandardMoments moments{mean(weibull(shape)), variance(weibull(shape)), 0};
  return std::make_shared<QuantileDelay>(standard, moments, 0.0, scale_s);
}

std::shared_ptr<const DelayProcess> read_weibull_delay(Settings& settings, double unit_s) {
  const double shape = settings.number({"shape", "The shape of the distribution."}, Range::between(0.05, 1e6));
  const double scale =
      settings.number({"scale", "The scale of the distribution.", of_unit}, Range::between(0, longest_delay));
  return weibull_delay(shape, unit_s * scale);
}

}  // namespace syncopate
