#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "tests/faults/fuzzing.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

void fuzz_histogram(std::string_view input) {
  try {
    const auto shared = std::make_shared<const Histogram>("bins.csv", input);
    const Histogram& histogram = *shared;
    must(std::isfinite(histogram.mean_s()), "the mean is finite");
    must(std::isfinite(histogram.variance_s2()) && histogram.variance_s2() >= 0, "the variance is finite");
    constexpr int places = 64;
    double last_s = histogram.minimum_s();
    for (int place = 0; place < places; ++place) {
      const double draw_s = histogram.quantile(place / static_cast<double>(places));
      // Within a bin two draws may differ only by rounding.
      must(draw_s >= last_s - 1e-9 * (1 + std::abs(last_s)), "quantiles ascend");
      must(draw_s <= longest_delay * (1 + 1e-9), "draws are within limits");
      last_s = draw_s;
    }
    must(histogram.quantile(std::nextafter(1.0, 0.0)) <= longest_delay * (1 + 1e-9), "the last draw is one, too");
    const auto delay = histogram_delay(shared, 2, 1);
    must(std::isfinite(delay->mean_s()) && delay->minimum_s() <= delay->mean_s() * (1 + 1e-9) + 1e-9,
         "the mean is not below the least delay");
    std::array<double, 4> drawn_s{};
    delay->add({.seed = 1}, 0, drawn_s);
    for (const double draw_s : drawn_s) must(draw_s >= delay->minimum_s() - 1, "no draw is below the least delay");
    must(std::isfinite(delay->variance_s2()) && delay->variance_s2() >= 0, "the delay's variance is finite");
  } catch (const FileFault& fault) {
    must(std::string_view(fault.what()).starts_with("bins.csv"), "a fault begins with the file's name");
  }
}

}  // namespace syncopate
