#include "algorithms/method/gradient_round.hpp"

#include <utility>

namespace syncopate {

bool GradientRound::take(const Message& message, const AcceptOptions& options, double weight) {
  if (!server_.accept(message, options)) return false;
  if (givers_.empty()) first_weight_ = weight;
  const double relative = weight / first_weight_;
  sum_ += relative == 1 ? message.gradient : message.gradient * relative;
  relative_weights_ += relative;
  givers_.push_back(message.from);
  return true;
}

void GradientRound::step(double rate_factor) {
  server_.descend(std::exchange(sum_, {}) / (relative_weights_ * server_.micro_batches()),
                  {.rate_factor = rate_factor, .weight = first_weight_ * (relative_weights_ / gradients())});
  relative_weights_ = 0;
  givers_.clear();
  server_.publish();
}

}  // namespace syncopate
