#include "algorithms/local_sgd/overlapped_rounds.hpp"

#include <utility>

namespace syncopate {

bool AverageUnderWay::rounds_left() const {
  const bool is_first = started_ && !has_come_;
  return is_first ? worker_.steps_left() > Step{0} : worker_.budget_left();
}

void AverageUnderWay::start(const ModelStatePtr& mine, Participant::Here at) {
  started_.emplace(worker_.start(Collective::average(mine, {.policy = policy_}), at));
}

ModelStatePtr AverageUnderWay::finish(Participant::Here at) {
  StartedCollective started = std::move(*started_);
  started_.reset();
  has_come_ = true;
  return worker_.finish(std::move(started), at).model;
}

StatePolicies read_overlapped_policies(Settings& settings) {
  StatePolicies policies;
  read_buffer_policy(settings, policies);
  return policies;
}

}  // namespace syncopate
