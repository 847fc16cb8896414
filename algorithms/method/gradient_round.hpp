// GradientRound: the gradients that a server accepts for its next step, the workers that sent them (the givers), and
// the step along the gradients' mean. The method's serve() decides which gradients count, when the round ends, and
// which workers begin the next one.
// Shapes:  gradient: (P,) flat float32.
// Checks:  the methods that use it.
#pragma once

#include <span>
#include <vector>

#include "workers/server.hpp"

namespace syncopate {

class GradientRound {
 public:
  explicit GradientRound(Server& server) : server_(server) {}

  // Adds the gradient with this weight (above 0) if the server accepts it. Returns whether it did.
  bool take(const Message& message, const AcceptOptions& options = any_gradient, double weight = 1);

  int gradients() const { return static_cast<int>(givers_.size()); }
  std::span<const Rank> givers() const { return givers_; }  // one per gradient, in order of arrival

  // Takes one step along the weighted mean of the gradients (at least one), publishes the model and begins the next
  // round. The learning rate is multiplied by `rate_factor` and the gradients' mean weight, also for weight decay and
  // adaptive optimizers. For plain SGD the step is rate x (sum of weight x gradient) / (number of gradients), as if
  // each gradient had a rate of its own.
  void step(double rate_factor = 1);

 private:
  Server& server_;
  Gradient sum_;                 // sum of gradient x (weight / first weight); the factor is exactly 1 for equal weights
  double first_weight_ = 1;      // weight of the round's first gradient
  double relative_weights_ = 0;  // sum of weight / first weight
  std::vector<Rank> givers_;
};

}  // namespace syncopate
