// Periods that depend on more than the step and the learning rate: periods that follow the training loss (AdaComm), and
// separate periods for the parameters and each moment of the optimizer (DES-LOC).
// Source:  adacomm.hpp, des_loc.hpp.
// Units:   periods and intervals in optimizer steps, or seconds of the workers' clock.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <optional>

#include "algorithms/local_sgd/sync_period.hpp"

namespace syncopate {

// AdaComm's formula: rounds become shorter as the training loss falls.
// Source:  others' code of Wang and Joshi's rule; Paddle's AdaptiveLocalSGDOptimizer. In interval l, with the loss F_l
//          and the learning rate eta_l, the period is
//   adacomm:  tau_l = ceil(sqrt(F_l / F_0) tau_0), with `follows_rate` ceil(sqrt(eta_0 F_l / (eta_l F_0)) tau_0)
//   paddle:   tau_l = ceil(sqrt(tau_0 eta_0 F_l / (eta_l F_0))), clipped to [1, 16]
// Differs: it is not established whether the paper has `shrink`, its gamma of 1/2 and its rounding (here up). `keep` is
//          from others' code. A value within 1e-12 (relative) above a whole number counts as that number. If the
//          formula gives NaN or infinity, as for F_0 = 0 or eta_l = 0, the period does not change.
// Checks:  with a constant loss and rate every period is tau_0, or ceil(sqrt(tau_0)) by Paddle's formula.
struct LossPeriod {
  enum class Form { adacomm, paddle };
  // The next period if the formula's period is not below the last one.
  enum class NotBelow {
    take,    // the formula's period
    keep,    // the last period
    shrink,  // gamma times the last period
  };
  static constexpr Step longest_of_paddle{16};

  Step initial{1};  // tau_0
  Form form = Form::adacomm;
  bool follows_rate = false;  // whether the root contains the factor eta_0 / eta_l
  NotBelow not_below = NotBelow::take;
  double shrinkage = 0.5;  // gamma, in (0, 1)
  Step minimum{1};
  std::optional<Step> maximum{};  // at least `minimum`

  // The first interval's period: the formula's for F_l = F_0 and eta_l = eta_0.
  Step first() const { return clipped(steps(1, 1)); }
  // loss: F_l / F_0; rate: eta_0 / eta_l; before: tau_{l-1}.
  Step next(double loss, double rate, Step before) const;

 private:
  double steps(double loss, double rate) const;
  Step clipped(double steps) const;
};

// Rounds whose period LossPeriod updates after each interval. An interval is a number of steps or of seconds; if
// neither is given, it is one round.
struct LossPeriodOptions {
  LossPeriod period{};
  std::optional<Step> interval_steps{};
  std::optional<double> interval_s{};  // T_0
};
std::unique_ptr<const SyncPeriod> make_loss_period(const LossPeriodOptions& options);

// DES-LOC's schedule: the parameters and each moment of the optimizer are averaged with separate periods. Averages
// after the same step are one all-reduce.
class MomentSchedule final : public SyncPeriod {
 public:
  static constexpr Step never{std::numeric_limits<Step::Rep>::max()};

  // parameters: K_x. moments: K_u and K_v, `never` for a moment that the optimizer does not have.
  MomentSchedule(Step parameters, const std::array<Step, 2>& moments) : parameters_(parameters), moments_(moments) {}

  // The number of steps until the next average.
  Step at(Step done, double learning_rate, Step left) const override;
  bool sets_averages() const override { return true; }
  // After the run's last step, `end`, the parameters are always averaged. BatchNorm statistics have the policy of
  // `usual`.
  AveragePolicy due(Step done, Step end, const AveragePolicy& usual) const override;
  void describe(Traits& traits) const override;
  // The number of steps after which the schedule repeats; if that is above 10^9, the longest period.
  Step cycle() const;

 private:
  Step parameters_;
  std::array<Step, 2> moments_;
};

// The number of steps after which half of a moment's value remains: ln 0.5 / ln beta. 0 for beta = 0.
double half_life(double beta);

// These functions read keys from a method's table, or from its table `period`. `parameters`: the key of K_x.
LossPeriodOptions read_loss_period(Settings& settings, const AlgorithmContext& context);
std::unique_ptr<const SyncPeriod> read_moment_schedule(Settings& settings, const Key& parameters,
                                                       const AlgorithmContext& context);

}  // namespace syncopate
