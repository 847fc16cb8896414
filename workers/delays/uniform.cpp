#include "workers/delays/uniform.hpp"

#include "workers/delays/drawn_delay.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
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

}  // namespace syncopate
