#include "workers/delays/histogram.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "workers/delays/constant.hpp"
#include "workers/delays/csv_rows.hpp"
#include "workers/delays/data_file.hpp"
#include "workers/delays/drawn_delay.hpp"
#include "workers/delays/embedded.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
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

}  // namespace syncopate
