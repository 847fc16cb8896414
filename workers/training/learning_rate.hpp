// Learning-rate schedules as functions of the number of completed optimizer steps.
// Source:  the reference code of Gu et al. 2024 (repository hmgxr128/QSR): warm-up, constant, step, linear, cosine,
//          cosine-step; from their paper: modified cosine; Chen et al. 2016 (TensorFlow): exponential and its
//          staircase; the recipes of BERT and of LARS in DropCompute's code: warm-up, hold and polynomial.
// Symbols: t steps done, W warm-up steps, C steps of the hold, T total steps, N = T - W - C,
//          u = min(max(t - W - C, 0), N); `warmup_start` is `final`, unless it is given.
//   warm-up (all):    warmup_start + t (peak - warmup_start) / W  for t < W; the first step runs at warmup_start
//   hold:             peak  for C steps after the warm-up, in shapes that fall to `final` and in exponential
//   constant:         peak
//   step:             peak x factor^(decay points already reached)
//   exponential:      peak x factor^(max(t - W - C, 0) / D); its staircase rounds the exponent down
//   linear:           final + (peak - final) (N - u) / N
//   polynomial:       final + (peak - final) ((N - u) / N)^power
//   cosine:           final + (peak - final) (1 + cos(pi u / N)) / 2
//   modified cosine:  the cosine at min(t, constant_from)
//   cosine-step:      base^round(log_base(cosine)), halves rounded to even; the warm-up goes to the unrounded peak
// Differs: published codes count t differently. Here t is the number of steps before this one, as in the papers;
//          Counter selects the other definitions.
// Checks:  golden values of the sources' recipes; the formulas above; periods of QSR over whole trainings.
#pragma once

#include <optional>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

class LearningRate {
 public:
  enum class Shape { constant, step, exponential, linear, polynomial, cosine, modified_cosine, cosine_step };

  // The value of t that the formulas use for the step that follows t completed steps.
  enum class Counter {
    done,       // t
    next,       // t + 1: as if the schedule were stepped before the optimizer
    optimizer,  // max(t, 1): an optimizer's step counter, read before it is incremented, as in DropCompute's BERT
  };

  struct Options {
    Shape shape = Shape::constant;
    double peak = 0.1;
    double final = 0;                      // final rate, for shapes that have one
    std::optional<double> warmup_start{};  // nullopt: final
    Step warmup_steps{};
    Step hold_steps{};
    double warmup_share = 0;          // share of total_steps, added to warmup_steps; the sum need not be an integer
    double hold_share = 0;            // share of total_steps, added to hold_steps
    Step total_steps{};               // T; needed by shares, and by all shapes except constant, step and exponential
    std::vector<Step> decay_steps{};  // step: the steps at which the rate falls, ascending
    double decay_factor = 0.1;        // for step and exponential
    Step decay_every{1};              // exponential: D
    bool staircase = false;           // exponential
    double power = 1;                 // polynomial
    Step constant_from{};             // modified cosine; at least W
    double base = 2;                  // cosine-step
    Counter counter = Counter::done;
  };

  // Throws std::invalid_argument for negative or infinite rates. The readers of the keys ensure that steps are left for
  // the decay (T > W + C), that decay steps ascend, that factor, power and D are above 0, and that the base is above 1.
  explicit LearningRate(Options options);

  // Returns the rate of the step that follows `steps_done` (at least 0) completed steps. Shapes that fall to `final`
  // stay there from T on.
  double at(Step steps_done) const;
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
