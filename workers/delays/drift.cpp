#include "workers/delays/drift.hpp"

#include <algorithm>

#include "workers/delays/limits.hpp"

namespace syncopate {
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

}  // namespace syncopate
