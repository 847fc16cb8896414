// Delays drawn from a histogram: bins with a density, uniform within each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

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

}  // namespace syncopate
