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
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "workers/time/delays.hpp"
#include "workers/time/quantile_table.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// A delay without random numbers: min(first + per_step x step, maximum).
class DriftDelay final : public DelayProcess {
 public:
  DriftDelay(double first_s, double per_step_s, double maximum_s)
      : first_s_(first_s), per_step_s_(per_step_s), maximum_s_(maximum_s) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    const double value_s = std::min(first_s_ + per_step_s_ * static_cast<double>(stream.step.value()), maximum_s_);
    for (double& sum_s : added_s) sum_s += value_s;
  }
  double mean_s() const override { return per_step_s_ > 0 ? maximum_s_ : first_s_; }
  double variance_s2() const override { return 0; }
  double minimum_s() const override { return first_s_; }

 private:
  double first_s_;
  double per_step_s_;
  double maximum_s_;
};

struct DelayMoments {
  double mean_s = 0;
  double variance_s2 = 0;
  double minimum_s = 0;
};

// added_s[i] += the delay for uniform[i], 0 < uniform[i] < 1. Both spans have the same length.
using AddQuantiles = std::function<void(std::span<const double> uniform, std::span<double> added_s)>;

// Shared by a thread's fibers: an array on each fiber's stack would never be in the cache.
thread_local std::array<double, 512> uniform_numbers;

// A delay that is a function of one uniform number.
class DrawnDelay final : public DelayProcess {
 public:
  DrawnDelay(const DelayMoments& moments, AddQuantiles add_quantiles)
      : moments_(moments), add_quantiles_(std::move(add_quantiles)) {}

  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    while (!added_s.empty()) {
      const auto now = added_s.first(std::min(added_s.size(), uniform_numbers.size()));
      const std::span<double> numbers(uniform_numbers.data(), now.size());
      stream.fill_uniform(first, numbers);
      add_quantiles_(numbers, now);
      first += static_cast<std::uint32_t>(now.size());
      added_s = added_s.subspan(now.size());
    }
  }

  void add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const override {
    const std::size_t length = added_s.size() / rows.count;
    if (length == 0) return;
    const std::size_t at_once = uniform_numbers.size() / length;
    if (at_once <= 1) return DelayProcess::add_rows(rows, first, added_s);
    for (std::size_t begin = 0; begin < rows.count; begin += at_once) {
      const std::size_t count = std::min(at_once, rows.count - begin);
      const std::span<double> numbers(uniform_numbers.data(), count * length);
      rows.part(begin, count).fill_uniform(first, numbers);
      add_quantiles_(numbers, added_s.subspan(begin * length, count * length));
    }
  }

  double mean_s() const override { return moments_.mean_s; }
  double variance_s2() const override { return moments_.variance_s2; }
  double minimum_s() const override { return moments_.minimum_s; }

 private:
  DelayMoments moments_;
  AddQuantiles add_quantiles_;
};

// `delay_s` is inlined, because a call would double the few nanoseconds that a draw costs.
template <typename Delay>
std::shared_ptr<const DelayProcess> drawn_one_by_one(const DelayMoments& moments, const Delay& delay_s) {
  return std::make_shared<DrawnDelay>(moments, [delay_s](std::span<const double> uniform, std::span<double> added_s) {
    // A copy, which writing to added_s cannot change. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const Delay local = delay_s;
    for (std::size_t i = 0; i < added_s.size(); ++i) added_s[i] += local(uniform[i]);
  });
}

template <typename Law>
std::shared_ptr<const QuantileTable> table_of(const Law& law) {
  return std::make_shared<const QuantileTable>([law](double p) { return quantile(law, p); },
                                               [law](double p) { return quantile(complement(law, p)); });
}

// shift + scale x X, where X has the table's quantiles and the moments `of_x`. scale >= 0; with 0 the delay is shift
// even if the moments are infinite.
std::shared_ptr<const DelayProcess> tabulated(std::shared_ptr<const QuantileTable> table, const DelayMoments& of_x,
                                              double shift_s, double scale_s) {
  DelayMoments moments{shift_s, 0, shift_s};
  if (scale_s != 0)
    moments = {shift_s + scale_s * of_x.mean_s, scale_s * scale_s * of_x.variance_s2,
               shift_s + scale_s * of_x.minimum_s};
  return std::make_shared<DrawnDelay>(moments, [=](std::span<const double> uniform, std::span<double> added_s) {
    table->add(uniform, {.shift = shift_s, .scale = scale_s}, added_s);
  });
}

}  // namespace

std::shared_ptr<const DelayProcess> constant_delay(double value_s) {
  return std::make_shared<DriftDelay>(value_s, 0, value_s);
}

std::shared_ptr<const DelayProcess> drift_delay(double per_step_s, double maximum_s) {
  return std::make_shared<DriftDelay>(0, per_step_s, maximum_s);
}

std::shared_ptr<const DelayProcess> bernoulli_delay(double probability, double value_s) {
  const DelayMoments moments{probability * value_s, probability * (1 - probability) * value_s * value_s,
                             probability < 1 ? 0 : value_s};
  return drawn_one_by_one(moments, [=](double u) { return u < probability ? value_s : 0.0; });
}

std::shared_ptr<const DelayProcess> uniform_delay(double low_s, double high_s) {
  const double width_s = high_s - low_s;
  return drawn_one_by_one(DelayMoments{low_s + width_s / 2, width_s * width_s / 12, low_s},
                          [=](double u) { return low_s + width_s * u; });
}

std::shared_ptr<const DelayProcess> normal_delay(double mean_s, double standard_deviation_s) {
  static const auto standard = table_of(boost::math::normal());
  return tabulated(standard, {0, 1, -infinity}, mean_s, standard_deviation_s);
}

std::shared_ptr<const DelayProcess> exponential_delay(double mean_s) { return shifted_exponential_delay(0, mean_s); }

std::shared_ptr<const DelayProcess> shifted_exponential_delay(double shift_s, double mean_s) {
  static const auto standard = table_of(boost::math::exponential());
  return tabulated(standard, {1, 1, 0}, shift_s, mean_s);
}

std::shared_ptr<const DelayProcess> gamma_delay(double shape, double scale_s) {
  return tabulated(table_of(boost::math::gamma_distribution(shape)), {shape, shape, 0}, 0, scale_s);
}

std::shared_ptr<const DelayProcess> weibull_delay(double shape, double scale_s) {
  const boost::math::weibull law(shape);
  return tabulated(table_of(law), {mean(law), variance(law), 0}, 0, scale_s);
}

std::shared_ptr<const DelayProcess> pareto_delay(double shape, double minimum_s) {
  const double below_one = shape - 1, below_two = shape - 2;
  const double mean = below_one > 0 ? shape / below_one : infinity;
  const double variance = below_two > 0 ? shape / (below_one * below_one * below_two) : infinity;
  return tabulated(table_of(boost::math::pareto(1, shape)), {mean, variance, 1}, 0, minimum_s);
}

std::shared_ptr<const DelayProcess> lognormal_delay(double mu, double sigma, double scale_s) {
  const double square = sigma * sigma;
  return tabulated(table_of(boost::math::lognormal(0, sigma)),
                   {std::exp(square / 2), std::expm1(square) * std::exp(square), 0}, 0, scale_s * std::exp(mu));
}

std::shared_ptr<const DelayProcess> tabulated_lognormal_delay(double scale_s) {
  const LengthTable& lengths = LengthTable::of_reference_code();
  const double per_length_s = scale_s / lengths.mean();
  return std::make_shared<DrawnDelay>(
      DelayMoments{scale_s, per_length_s * per_length_s * lengths.variance(), per_length_s},
      [=, &lengths](std::span<const double> uniform, std::span<double> added_s) {
        lengths.add(uniform, per_length_s, added_s);
      });
}

// The delay is scale x min(Z / alpha, beta). Z / alpha is log-normal, because Z is.
std::shared_ptr<const DelayProcess> bounded_lognormal_delay(const BoundedLogNormal& form, double scale_s) {
  const auto table = table_of(boost::math::lognormal(form.mu - std::log(form.alpha), form.sigma));
  return std::make_shared<DrawnDelay>(
      DelayMoments{form.mean() * scale_s, form.variance() * scale_s * scale_s, 0},
      [table, scale_s, bound_s = form.beta * scale_s](std::span<const double> uniform, std::span<double> added_s) {
        table->add(uniform, {.scale = scale_s, .bound = bound_s}, added_s);
      });
}

// E[Z^k; Z < alpha beta] / alpha^k + beta^k P(Z > alpha beta). Z is below alpha beta if (ln Z - mu) / sigma < d.
double BoundedLogNormal::moment(int k) const {
  const boost::math::normal standard;
  const double d = (std::log(alpha * beta) - mu) / sigma;
  const double below = std::exp(k * (mu - std::log(alpha)) + k * k * sigma * sigma / 2);
  return below * cdf(standard, d - k * sigma) + std::pow(beta, k) * cdf(complement(standard, d));
}

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
  // Removes bins with a probability so small that the slope is infinite. No draw falls into them.
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
  bins_.back().end = 1;  // above every u
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
  const DelayMoments moments{shift_s + scale * histogram->mean_s(), scale * scale * histogram->variance_s2(),
                             shift_s + scale * histogram->minimum_s()};
  return drawn_one_by_one(moments, [=](double u) { return shift_s + scale * histogram->quantile(u); });
}

namespace {

// Readers of the keys, and the table of delays.

using Delay = std::shared_ptr<const DelayProcess>;

constexpr Range durations = Range::between(0, longest_delay);
// For descriptions of keys. The unit is seconds, or the time of a micro-batch without delays.
constexpr const char* of_unit = "its `unit`";

// Reads a quantity in the entry's unit and returns seconds.
double read_s(Settings& settings, const DelayContext& context, std::string_view name, std::string_view sentence,
              const std::optional<Stated<double>>& fallback = {}) {
  return context.unit_s * settings.number({name, sentence, of_unit}, durations, fallback);
}

double read_shape(Settings& settings, double least) {
  return settings.number({"shape", "The shape of the distribution."}, Range::between(least, 1e6));
}

// Returns a factor for a recording's durations, and the seconds that are added to them.
std::pair<double, double> read_adjustment(Settings& settings, const DelayContext& context) {
  const double scale =
      settings.number({"scale", "Factor by which the recorded durations are multiplied."}, durations, 1.0);
  const double shift = settings.number({"shift", "Time that is added to the scaled durations.", of_unit},
                                       Range::between(-longest_delay, longest_delay), 0.0);
  return {scale, context.unit_s * shift};
}

Delay read_constant(Settings& settings, const DelayContext& context) {
  return constant_delay(read_s(settings, context, "value", "The delay."));
}

Delay read_uniform(Settings& settings, const DelayContext& context) {
  const double low = settings.number({"low", "The shortest delay.", of_unit}, durations, 0.0);
  const double high = settings.number({"high", "The longest delay; at least `low`.", of_unit}, durations);
  if (settings.has("high") && high < low) settings.fault("high", "must be at least `low`");
  return uniform_delay(context.unit_s * low, context.unit_s * high);
}

Delay read_normal(Settings& settings, const DelayContext& context) {
  const double mean =
      settings.number({"mean", "The mean delay.", of_unit}, Range::between(-longest_delay, longest_delay), 0.0);
  return normal_delay(context.unit_s * mean,
                      read_s(settings, context, "standard_deviation", "The standard deviation of the delay."));
}

Delay read_exponential(Settings& settings, const DelayContext& context) {
  return exponential_delay(read_s(settings, context, "mean", "The mean delay."));
}

Delay read_shifted_exponential(Settings& settings, const DelayContext& context) {
  const double shift_s = read_s(settings, context, "shift", "The shortest delay; the exponential part is added to it.");
  return shifted_exponential_delay(shift_s, read_s(settings, context, "mean", "The mean of the exponential part."));
}

Delay read_gamma(Settings& settings, const DelayContext& context) {
  const double shape = read_shape(settings, 0.01);
  return gamma_delay(shape, read_s(settings, context, "scale", "The scale of the distribution."));
}

Delay read_weibull(Settings& settings, const DelayContext& context) {
  const double shape = read_shape(settings, 0.05);
  return weibull_delay(shape, read_s(settings, context, "scale", "The scale of the distribution."));
}

Delay read_pareto(Settings& settings, const DelayContext& context) {
  const double shape =
      settings.number({"shape", "The exponent of the tail; the mean is finite above 1, the variance above 2."},
                      Range::between(0.1, 1e6));
  // This distribution has no key `scale`, but a user may expect one.
  if (std::ranges::count(settings.keys(), "scale") > 0 && settings.has("scale"))
    settings.fault("scale", "must be left out: a Pareto distribution has no scale besides its minimum");
  return pareto_delay(shape, read_s(settings, context, "minimum", "The shortest delay."));
}

Delay read_bernoulli(Settings& settings, const DelayContext& context) {
  const double probability = settings.number({"probability", "Probability of the delay."}, Range::between(0, 1));
  return bernoulli_delay(probability, read_s(settings, context, "value", "The delay, if it occurs."));
}

Delay read_lognormal(Settings& settings, const DelayContext& context) {
  const double mu = settings.number({"mu", "The mean of the logarithm."}, Range::between(-50, 50));
  const double sigma =
      settings.number({"sigma", "The standard deviation of the logarithm."}, Range::between(0.001, 10));
  return lognormal_delay(mu, sigma, read_s(settings, context, "scale", "The factor of the log-normal number.", 1.0));
}

// The table is the default, because the reference code has it. For the table and for the formula, the default of
// `scale` gives half a unit on average.
Delay read_bounded_lognormal(Settings& settings, const DelayContext& context) {
  const bool by_formula = settings.choice(
      {"form", "How delays are drawn: from the reference code's table, or as min(Z / alpha, beta), Z log-normal."},
      {{"table", false}, {"formula", true}}, false);
  if (!by_formula) return tabulated_lognormal_delay(read_s(settings, context, "scale", "The mean delay.", 0.5));
  BoundedLogNormal form;
  form.mu = settings.number({"mu", "The mean of Z's logarithm."}, Range::between(-50, 50), form.mu);
  form.sigma =
      settings.number({"sigma", "The standard deviation of Z's logarithm."}, Range::between(0.001, 10), form.sigma);
  form.alpha = settings.number({"alpha", "The divisor of Z."}, Range::between(1e-30, 1e30), form.alpha);
  form.beta = settings.number({"beta", "The bound."}, Range::between(1e-30, longest_delay), form.beta);
  return bounded_lognormal_delay(form, read_s(settings, context, "scale", "The factor of the bounded number.", 1.0));
}

// Returns null after a fault.
std::shared_ptr<const Histogram> read_histogram_data(Settings& settings) {
  const Key data{"data", "Name of a histogram that is part of the program; replaces `file`."};
  if (settings.has("data")) {
    if (settings.has("file")) settings.fault("data", "must not be given together with file");
    const auto* const file = settings.row(data, embedded_histograms());
    return file ? std::make_shared<const Histogram>(std::string(file->name), file->content) : nullptr;
  }
  if (!settings.has("file")) {
    settings.fault("file", "is required, unless data = \"dropcompute-160\" or \"dropcompute-192\"");
    return nullptr;
  }
  return read_data_file<Histogram>(settings);
}

Delay read_histogram(Settings& settings, const DelayContext& context) {
  auto histogram = read_histogram_data(settings);
  const auto [scale, shift_s] = read_adjustment(settings, context);
  return histogram ? histogram_delay(std::move(histogram), scale, shift_s) : constant_delay(0);
}

Delay read_drift(Settings& settings, const DelayContext& context) {
  const double per_step_s = read_s(settings, context, "per_step", "Growth of the delay per step.");
  return drift_delay(per_step_s, read_s(settings, context, "maximum", "The longest delay, at which the growth stops."));
}

Delay read_trace_delay(Settings& settings, const DelayContext& context) {
  std::vector<TraceLimit> nobody;
  TraceReplay replay;
  auto trace = read_trace(settings, replay, context.traces ? *context.traces : nobody);
  std::tie(replay.scale, replay.shift_s) = read_adjustment(settings, context);
  return trace ? trace_delay(std::move(trace), std::move(replay)) : constant_delay(0);
}

constexpr std::array delay_rows = {
    DelayRow{"constant", "The same delay for every micro-batch: value.", read_constant},
    DelayRow{"uniform", "Uniform between low and high.", read_uniform},
    DelayRow{"normal", "Normal with mean and standard_deviation; may be negative.", read_normal},
    DelayRow{"exponential", "Exponential with mean.", read_exponential},
    DelayRow{"shifted-exponential", "shift plus an exponential with mean: shift + mean on average.",
             read_shifted_exponential},
    DelayRow{"gamma", "Gamma with shape and scale: mean shape x scale.", read_gamma},
    DelayRow{"weibull", "Weibull with shape and scale: mean scale x Gamma(1 + 1 / shape).", read_weibull},
    DelayRow{"pareto", "Pareto with shape and minimum: the heaviest tail; no finite mean up to shape 1.", read_pareto},
    DelayRow{"bernoulli", "`value` with a probability, otherwise 0.", read_bernoulli},
    DelayRow{"lognormal", "scale x exp(mu + sigma Z), Z standard normal.", read_lognormal},
    DelayRow{"bounded-lognormal",
             "DropCompute's simulated stragglers: scale x a bounded log-normal, form = \"table\" or \"formula\".",
             read_bounded_lognormal},
    DelayRow{"histogram",
             "Drawn from a histogram, times scale, plus shift: a file with bin_left_s, bin_right_s, density, or data = "
             "\"dropcompute-160\", \"dropcompute-192\".",
             read_histogram},
    DelayRow{"drift", "Grows by per_step with each step, up to maximum.", read_drift, true},
    DelayRow{
        "trace",
        "Recorded durations x scale + shift; the file has the columns worker, step, micro_batch, duration_s; end = "
        "\"error\", \"stop\", \"wrap\", or stretch.",
        read_trace_delay, true},
};

}  // namespace

std::span<const DelayRow> delays() { return delay_rows; }

}  // namespace syncopate
