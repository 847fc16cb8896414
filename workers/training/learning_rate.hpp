// Learning-rate schedules as functions of the number of optimizer steps done.
// Source:  the reference code of Gu et al. 2024 (repository hmgxr128/QSR): warm-up, constant, step, linear, cosine,
//          cosine-step; their paper: modified cosine; Chen et al. 2016 (TensorFlow): exponential and its staircase; the
//          recipes of BERT and of LARS in DropCompute's code: warm-up, hold and polynomial.
// Symbols: t steps done, W warm-up steps, C steps of the hold, T total steps, N = T - W - C,
//          u = min(max(t - W - C, 0), N); `warmup_start` is `final`, unless it is given.
//   warm-up (all):    warmup_start + t (peak - warmup_start) / W  for t < W; the first step runs at warmup_start
//   hold:             peak  for C steps after the warm-up; for shapes that fall to `final`, and for exponential
//   constant:         peak
//   step:             peak x factor^(decay points already reached)
//   exponential:      peak x factor^(max(t - W - C, 0) / D); its staircase rounds the exponent down
//   linear:           final + (peak - final) (N - u) / N
//   polynomial:       final + (peak - final) ((N - u) / N)^power
//   cosine:           final + (peak - final) (1 + cos(pi u / N)) / 2
//   modified cosine:  the cosine at min(t, constant_from)
//   cosine-step:      base^round(log_base(cosine)), halves to even; the warm-up goes to the unrounded peak
// Differs: codes count differently. t here is the number of steps before this one, as in the papers; see Counter for
//          others.
// Checks:  golden values of the recipes; the formulas; periods of QSR over whole trainings.
#pragma once

#include <optional>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

class LearningRate {
 public:
  enum class Shape { constant, step, exponential, linear, polynomial, cosine, modified_cosine, cosine_step };

  // Which number is used for t in the step after t steps.
  enum class Counter {
    done,       // t
    next,       // t + 1: the step's number, as in schedules that are stepped first
    optimizer,  // max(t, 1): an optimizer's counter, read before it is incremented, as in DropCompute's BERT
  };

  struct Options {
    Shape shape = Shape::constant;
    double peak = 0.1;
    double final = 0;                      // end value, for shapes that have one
    std::optional<double> warmup_start{};  // none: final
    Step warmup_steps{};
    Step hold_steps{};
    double warmup_share = 0;          // share of total_steps, added to warmup_steps; may end between two steps
    double hold_share = 0;            // share of total_steps, added to hold_steps
    Step total_steps{};               // T; needed by shares, and by all but constant, step and exponential
    std::vector<Step> decay_steps{};  // step: where the rate falls, ascending
    double decay_factor = 0.1;        // for step and exponential
    Step decay_every{1};              // exponential: D
    bool staircase = false;           // exponential
    double power = 1;                 // polynomial
    Step constant_from{};             // modified cosine; at least W
    double base = 2;                  // cosine-step
    Counter counter = Counter::done;
  };

  // Throws std::invalid_argument for: negative or infinite rates, a total that leaves no step to decay in (T <= W + C),
  // decay steps out of order, a factor, power or D that is not above 0, a base that is not above 1.
  explicit LearningRate(Options options);

  // The rate of the step after `steps_done` (at least 0) steps. Shapes that fall to `final` stay there from T on.
  double at(Step steps_done) const;
  // The number of steps in the warm-up.
  Step warmup() const;
  const Options& options() const { return options_; }

 private:
  Step counted(Step steps_done) const;
  double decayed(Step t) const;

  Options options_;
  double start_ = 0;   // rate at the start of the warm-up
  double warmup_ = 0;  // W
  double held_ = 0;    // W + C
};

}  // namespace syncopate
