#include "workers/delays/bernoulli.hpp"

#include "workers/delays/drawn_delay.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

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

}  // namespace syncopate
