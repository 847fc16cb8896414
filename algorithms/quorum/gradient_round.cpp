#include "algorithms/quorum/gradient_round.hpp"

#include <utility>

namespace syncopate {

bool GradientRound::take(const Message& message, const AcceptOptions& options, double weight) {
  if (!server_.accept(message, options)) return false;
  sum_ += weight == 1 ? message.gradient : message.gradient * weight;
  givers_.push_back(message.from);
  return true;
}

void GradientRound::step(double rate_factor) {
  server_.descend(std::exchange(sum_, {}) / (gradients() * server_.micro_batches()), {.rate_factor = rate_factor});
  givers_.clear();
  server_.publish();
}

}  // namespace syncopate
