// AdaComm's rule: rounds become shorter as the training loss falls.
// Source:  Wang and Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in
//          Local-Update SGD", after code of others that has its rule; Paddle's AdaptiveLocalSGDOptimizer.
// Units:   periods in optimizer steps.
//   adacomm:  tau_l = ceil(sqrt(F_l / F_0) tau_0), with rates ceil(sqrt(eta_0 F_l / (eta_l F_0)) tau_0)
//   paddle:   tau_l = ceil(sqrt(tau_0 eta_0 F_l / (eta_l F_0))), clipped to [1, 16]
// Differs: not established as the paper's: the rule that takes gamma tau_{l-1} where tau_l is not below tau_{l-1}
//          (`shrink`), its gamma of 1/2 and its rounding (here up). min(tau_l, tau_{l-1}) (`keep`) is others' code. A
//          value within rounding (1e-12) above a whole number is that number. Where it is no number, or infinite, as
//          where F_0 or eta_l is 0, the period stays.
// Checks:  constant loss and rate give tau_0 for ever, or ceil(sqrt(tau_0)) by Paddle's formula, which is its first
//          period too; periods against formulas.
#pragma once

#include <optional>

#include "workers/units/units.hpp"

namespace syncopate {

class LossPeriod {
 public:
  enum class Form { adacomm, paddle };
  // What follows a period that the next one is not below.
  enum class NotBelow {
    take,    // the next one
    keep,    // the same again
    shrink,  // gamma of it
  };
  struct Options {
    Step initial{1};  // tau_0
    Form form = Form::adacomm;
    bool follows_rate = false;  // the factor eta_0 / eta_l inside the root
    NotBelow not_below = NotBelow::take;
    double shrinkage = 0.5;  // gamma
    Step minimum{1};
    std::optional<Step> maximum{};
  };
  static constexpr Step longest_of_paddle{16};

  // Throws std::invalid_argument for a period below 1, a maximum below the minimum, and gamma outside (0, 1).
  explicit LossPeriod(const Options& options);

  bool follows_rate() const { return options_.follows_rate; }
  // Of the first interval: the rule's own at F_0 and eta_0.
  Step first() const;
  // loss: F_l / F_0; rate: eta_0 / eta_l; before: tau_{l-1}.
  Step next(double loss, double rate, Step before) const;

 private:
  double steps(double loss, double rate) const;
  Step clipped(double steps) const;

  Options options_;
};

}  // namespace syncopate
