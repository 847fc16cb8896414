// A server's round of gradients, and formulas for how long a step along the first K gradients takes.
// Source:  Dutta et al. 2018; exponential times of mean mu: K mu / N where all workers begin with the step and give
//          gradients until it is made (K-batch-sync), mu (H_N - H_(N-K)) where the K that made the last one begin and
//          the others go on (K-async).
// Shapes:  gradient: (P,) flat float32.   Units: seconds.
// Differs: both predictions go by drawn steps, which follow one another as in a run. For other times there is no closed
//          form of K-async: the others' gradients are the nearer, the longer they have been computed.
// Checks:  closed forms for exponential and for constant times; simulation.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "algorithms/method/prediction.hpp"
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

// K-batch-sync: the K-th arrival in N renewal processes that start together, by rounds of the drawn steps of all
// workers; none where they are too few. limit_s: a worker gives up a gradient then, sends a note without values and
// begins the next; notes are of the K as well, but at least one gradient makes an update.
Forecast predict_arrivals(int gradients, const PredictionInput& input,
                          double limit_s = std::numeric_limits<double>::infinity());

// K-async: updates are followed one after the other.
Forecast predict_arrivals_with_late_work(int gradients, const PredictionInput& input);

}  // namespace syncopate
