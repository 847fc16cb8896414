// A server's round of gradients: those accepted for its next step, and the step along their mean.
// Shapes:  gradient: (P,) flat float32.
// Checks:  the methods that use it.
#pragma once

#include <span>
#include <vector>

#include "workers/server.hpp"

namespace syncopate {

// A server's round: the gradients of its next step, and which workers gave them. The method's serve() decides which
// gradients count, when the round ends, and which workers the next one starts.
class GradientRound {
 public:
  explicit GradientRound(Server& server) : server_(server) {}

  // Adds the gradient, with this weight (above 0), if the server accepts it. Returns whether it did.
  bool take(const Message& message, const AcceptOptions& options = any_gradient, double weight = 1);

  int gradients() const { return static_cast<int>(givers_.size()); }
  std::span<const Rank> givers() const { return givers_; }  // one per gradient, in order of arrival

  // One step along the weighted mean of the gradients (at least one), with their mean weight in the rate. For plain SGD
  // that is rate x (sum of weight x gradient) / (their number), each gradient at its own rate. Weight decay and
  // adaptive optimizers use the rate of the update. Publishes the model and begins the next round.
  void step(double rate_factor = 1);

 private:
  Server& server_;
  Gradient sum_;                 // each times weight / first weight, so that equal weights are exactly 1
  double first_weight_ = 1;      // weight of the round's first gradient
  double relative_weights_ = 0;  // sum of the weights / the first one's
  std::vector<Rank> givers_;
};

}  // namespace syncopate
