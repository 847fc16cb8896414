#include "algorithms/local_sgd/overlapped_rounds.hpp"

#include <utility>

namespace syncopate {

bool AverageUnderWay::rounds_left() const {
  const bool is_first = started_ && !has_come_;
  return steps_.steps_left() && (is_first || worker_.budget_left());
}

double AverageUnderWay::take_round(const SyncPeriod& period, LocalSteps& steps) {
  MeanRate rate;
  steps.begin_round();
  steps_.take_until(steps_.planned() + steps_.round(period), steps, [&](double of_step) { rate.add(of_step); });
  return rate.value();
}

void AverageUnderWay::start(const ModelStatePtr& mine, const ModelStatePtr& from, Participant::CalledFrom at) {
  started_.emplace(worker_.start(Collective::average(mine, {.policy = policy_, .weight = weight_, .from = from}), at));
}

ModelStatePtr AverageUnderWay::finish(Participant::CalledFrom at) {
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

// With compression, workers send the fragment's difference to the outer model, that is, its outer gradient.
void OuterFragments::start(int fragment, Step due) {
  Own& own = own_[static_cast<std::size_t>(fragment)];
  const Averaging averaging{.policy = policies_.average,
                            .weight = policies_.model_weight(),
                            .slice = fragments_.slice(fragment),
                            .from = model_,
                            .rest_is_needed = false};
  under_way_.push_back(
      {fragment, due, own.rate.value(), worker_.start(Collective::average(worker_.model(), averaging))});
  own = {.has_state = own.has_state};
}

void OuterFragments::finish_next() {
  auto [fragment, due, rate, average] = std::move(under_way_.front());
  under_way_.pop_front();
  const ModelStatePtr mean = worker_.finish(std::move(average)).model;
  has_come_ = true;
  const Slice slice = fragments_.slice(fragment);
  bool& has_state = own_[static_cast<std::size_t>(fragment)].has_state;
  OuterState state = std::exchange(has_state, true) ? state_ : OuterState();
  const ModelStatePtr stepped = outer_.step(worker_, {.last = model_, .average = mean, .inner_rate = rate}, state);
  model_ = worker_.with_slice(model_, stepped, slice);
  state_ = syncopate::with_slice(worker_, state_, state, slice);
  const ModelStatePtr own = worker_.model();
  const ModelStatePtr mixed = worker_.combine({{1 - mixing_, model_}, {mixing_, own}});
  worker_.set_model(worker_.with_slice(own, mixed, slice));
  publish(worker_, policies_, model_);
}

}  // namespace syncopate
