// A server's round of gradients: those that it has accepted for its next step, and the step along their mean.
// Shapes:  gradient: (P,) flat float32.
// Checks:  the methods that step so.
#pragma once

#include <span>
#include <vector>

#include "workers/server.hpp"

namespace syncopate {

// A server's round: the gradients of its next step, and who has given them. The method's serve() decides which count,
// when the round ends, and whom the next one starts.
class GradientRound {
 public:
  explicit GradientRound(Server& server) : server_(server) {}

  // Adds the gradient, with this weight (above 0), if the server accepts it. Whether it did.
  bool take(const Message& message, const AcceptOptions& options = any_gradient, double weight = 1);

  int gradients() const { return static_cast<int>(givers_.size()); }
  std::span<const Rank> givers() const { return givers_; }  // of each gradient, in the order in which they came

  // One step along the weighted mean of the gradients, of which there is at least one, with their mean weight in the
  // rate: for plain SGD rate x (sum of weight x gradient) / (their number), each gradient at its own rate. Weight decay
  // and adaptive optimizers see the rate that the update has. The next round begins. The model is published.
  void step(double rate_factor = 1);

 private:
  Server& server_;
  Gradient sum_;                 // each times its weight / the first one's, so that equal weights are exactly 1
  double first_weight_ = 1;      // of the round
  double relative_weights_ = 0;  // their sum
  std::vector<Rank> givers_;
};

}  // namespace syncopate
