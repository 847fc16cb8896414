// AdaComm: Local SGD whose rounds become shorter as the training loss falls.
// Source:  Wang and Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in
//          Local-Update SGD"; Paddle's AdaptiveLocalSGDOptimizer. The formulas: loss_period.hpp.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: intervals in steps, or seconds of the workers' clock.
// Cost:    one all-reduce of P floats per round; per interval one all-gather of a loss, 8 bytes of each worker (the
//          first time F_0 too); where intervals are in seconds one per round, with what the clocks show, 8 bytes more.
// Differs: a method of its own, since the rules of a table `period` know steps and rates, and nothing that workers have
//          to gather. Unless told, an interval is a round, as in Paddle; the paper's is T_0 seconds: a new one begins
//          with the first average after each multiple of T_0, or of a number of steps. T_0 has no default: the paper's
//          is not established. F_l is the mean over the workers of their last step's loss before it, as in Paddle, not
//          that of the whole training set; F_0 is that of the first step, eta_0 the rate of that. Paddle's first
//          average, after its first step, is left out. No formula for its time: how long rounds are follows from the
//          loss. Between a round of 1 step and the longest one, a step takes what Local SGD's does with that period,
//          and the gathering. A worker that loses its state in the first interval leaves its loss out of F_0; what all
//          have agreed on is not lost. Momentum stays with its worker unless chosen; the last average falls on the last
//          step.
// Checks:  a constant loss and rate equal Local SGD with the period tau_0 bit for bit; periods of a quadratic against
//          its recursion in double precision; virtual times by hand.
#pragma once

#include <optional>

#include "algorithms/local_sgd/loss_period.hpp"
#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct AdaCommOptions {
  LossPeriod::Options period{};
  // How long an interval is; neither: a round.
  std::optional<Step> interval_steps{};
  std::optional<double> interval_s{};  // T_0
  StatePolicies policies{};
};

class AdaComm : public Algorithm {
 public:
  explicit AdaComm(const AdaCommOptions& options) : options_(options), rule_(options.period) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_values = true,
            .follows_clock = options_.interval_s.has_value(),
            .judges_alone = true,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .averages_models = true,
            .averages_moments = options_.policies.average.averaged_vectors(2) > 1};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("how long its rounds are follows from the training loss");
  }

 private:
  struct Course;
  void begin_interval(Worker& worker, Course& course) const;

  AdaCommOptions options_;
  LossPeriod rule_;
};

std::unique_ptr<Algorithm> make_adacomm(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
