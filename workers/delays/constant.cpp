#include "workers/delays/constant.hpp"

#include "workers/delays/limits.hpp"

namespace syncopate {
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

}  // namespace syncopate
