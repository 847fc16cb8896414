#include "algorithms/gossip/stochastic_gradient_push.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"

namespace syncopate {
namespace {

// The messages that a worker is sent, one per step, as far as they are to be mixed in.
class Pushes {
 public:
  Pushes(Worker& worker, Gossip& gossip, const ExponentialGraph& graph)
      : worker_(worker), gossip_(gossip), graph_(graph) {}

  void take(const Message& message) {
    taken_.insert(message.step);
    received_.push_back({message.numbers.front(), message.model});
  }
  // Waits for those of all steps up to this one.
  void take_until(Step last) {
    for (; next_ <= last; ++next_)
      while (taken_.erase(next_) == 0) {
        const auto message = gossip_.receive_from(graph_.sender(worker_.rank(), next_));
        if (!message) break;  // its sender has stopped
        take(*message);
      }
  }
  // Makes the model the mean of itself and those of the messages, weighted; returns the sum of the weights.
  double mix(double weight) {
    if (received_.empty()) return weight;
    received_.insert(received_.begin(), {weight, worker_.model()});
    const WeightedState mean = gossip_.mean(std::exchange(received_, {}));
    worker_.set_model(mean.state);
    return mean.weight;
  }

 private:
  Worker& worker_;
  Gossip& gossip_;
  const ExponentialGraph& graph_;
  Step next_{};           // to be waited for
  std::set<Step> taken_;  // from there on: of faster workers, or without waiting
  std::vector<WeightedState> received_;
};

}  // namespace

// Messages in transit hold back at most one half of the weight each. What is missing beyond that does not come back.
void StochasticGradientPush::check_weight(const Worker& worker, double weight) const {
  constexpr int spare = 3;
  if (weight >= std::ldexp(1.0, -static_cast<int>(overlap_.value()) - spare)) return;
  worker.fail(fmt::format(
      "worker {} has a weight of {:.2g} left and could only diverge: too many of those who send to it have left",
      worker.rank().value, weight));
}

void StochasticGradientPush::run(Worker& worker) const {
  const ExponentialGraph graph(worker.size());
  Gossip gossip(worker);
  Pushes pushes(worker, gossip, graph);
  double weight = 1;  // w; the model is z = x / w
  while (worker.budget_left()) {
    const Step step = worker.step();
    const Rank receiver = graph.receiver(worker.rank(), step);
    check_weight(worker, weight);
    worker.descend(worker.compute_step_gradient() / worker.micro_batches(), {.rate_factor = 1 / weight});
    if (!gossip.has_stopped(receiver)) {
      weight /= 2;
      worker.send(receiver, Message::of_model(step, worker.model(), {weight}));
    }
    if (overlap_ > Step{0})
      for (const auto& message : gossip.receive_what_has_come()) pushes.take(*message);
    pushes.take_until(step - overlap_);
    weight = pushes.mix(weight);
    worker.report_steps();
    gossip.publish_own();
  }
  pushes.take_until(worker.step() - 1);
  gossip.stop(graph.receivers(worker.rank()), pushes.mix(weight));
}

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext&) {
  constexpr std::int64_t most_steps = 16;  // a weight halves in each step without a message
  return std::make_unique<StochasticGradientPush>(Step{settings.integer(
      {"overlap_steps", "How many steps a message may be under way while its receiver goes on.", "steps"}, 0,
      most_steps, 0)});
}

}  // namespace syncopate
