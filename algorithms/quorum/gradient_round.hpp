// A server's round: the gradients that its next step is made of, and who has given them. Which count, when the round
// ends and whom the next one starts is the method's to say, in its serve().
// Shapes:  gradient: (P,) flat float32.
// Cost:    that of a sum; of which worker gave what, one rank per gradient.
#pragma once

#include <span>
#include <vector>

#include "workers/server.hpp"

namespace syncopate {

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
