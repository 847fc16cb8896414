#include "algorithms/local_sgd/overlapped_rounds.hpp"

#include <utility>

namespace syncopate {

bool AverageUnderWay::rounds_left() const {
  const bool is_first = started_ && !has_come_;
  return steps_.steps_left() && (is_first || worker_.budget_left());
}

double AverageUnderWay::take_round(const SyncPeriod& period) {
  double rates = 0;
  Step taken{};
  steps_.take_until(steps_.planned() + steps_.round(period), [&](double rate) {
    rates += rate;
    ++taken;
  });
  return taken > 0 ? rates / static_cast<double>(taken.value()) : 0;
}

void AverageUnderWay::start(const ModelStatePtr& mine, const ModelStatePtr& from, Participant::Here at) {
  started_.emplace(worker_.start(Collective::average(mine, {.policy = policy_, .weight = weight_, .from = from}), at));
}

ModelStatePtr AverageUnderWay::finish(Participant::Here at) {
  StartedCollective started = std::move(*started_);
  started_.reset();
  has_come_ = true;
  return worker_.finish(std::move(started), at).model;
}

StatePolicies read_overlapped_policies(Settings& settings, const AlgorithmContext& context) {
  StatePolicies policies;
  read_buffer_policy(settings, policies);
  read_model_weights(settings, context.divides_data, policies);
  return policies;
}

}  // namespace syncopate
