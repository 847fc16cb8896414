#include "algorithms/gossip/stochastic_gradient_push.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/gossip/gossip.hpp"

namespace syncopate {
namespace {

// The directed exponential graph: in step k everybody sends to the worker 2^(k mod L) ranks further, where L is the
// number of powers of two below N; 0 for one worker, which has nobody to send to.
int powers(const Worker& worker) { return std::bit_width(static_cast<unsigned>(worker.size() - 1)); }
// To whom a worker sends in this step, or, with direction -1, who sends to it.
Rank peer(const Worker& worker, Step step, int direction = 1) {
  const int distance = 1 << (step.value() % powers(worker));
  return Rank{(worker.rank().value + worker.size() + direction * distance) % worker.size()};
}

// The messages that a worker is sent, one per step, as far as they are to be mixed in.
class Pushes {
 public:
  Pushes(Worker& worker, Gossip& gossip) : worker_(worker), gossip_(gossip) {}

  void take_what_has_come() {
    while (auto message = gossip_.try_receive()) take(std::move(*message));
  }
  // Waits for those of all steps up to this one.
  void take_until(Step last) {
    for (; next_ <= last; ++next_)
      while (taken_.erase(next_) == 0) {
        auto message = gossip_.receive_from(peer(worker_, next_, -1));
        if (!message) break;  // its sender has stopped
        take(std::move(*message));
      }
  }
  // Makes the model the mean of itself and those of the messages, weighted; returns the sum of the weights.
  double mix(double weight) {
    if (messages_.empty()) return weight;
    double total = weight;
    for (const Message& message : messages_) total += message.numbers.front();
    std::vector<WeightedState> terms = {{weight / total, worker_.model()}};
    for (const Message& message : messages_) terms.push_back({message.numbers.front() / total, message.model});
    worker_.set_model(worker_.combine(terms));
    messages_.clear();
    return total;
  }

 private:
  void take(Message message) {
    taken_.insert(message.step);
    messages_.push_back(std::move(message));
  }

  Worker& worker_;
  Gossip& gossip_;
  Step next_{};           // to be waited for
  std::set<Step> taken_;  // from there on: of faster workers, or without waiting
  std::vector<Message> messages_;
};

}  // namespace

// Messages in transit hold back at most one half of the weight each. What is missing beyond that does not come back.
void StochasticGradientPush::check_weight(const Worker& worker, double weight) const {
  constexpr int spare = 3;
  if (weight >= std::ldexp(1.0, -static_cast<int>(overlap_.value()) - spare)) return;
  throw RunFailure(fmt::format(
      "at {:.6f} s: worker {} has a weight of {:.2g} left and could only diverge: too many of those who send "
      "to it have left",
      to_seconds(worker.now()), worker.rank().value, weight));
}

void StochasticGradientPush::run(Worker& worker) const {
  Gossip gossip(worker);
  Pushes pushes(worker, gossip);
  double weight = 1;  // w; the model is z = x / w
  while (worker.budget_left()) {
    const Step step = worker.step();
    check_weight(worker, weight);
    worker.descend(worker.compute_step_gradient() / worker.micro_batches(), {.rate_factor = 1 / weight});
    if (worker.size() > 1) {
      if (!gossip.has_stopped(peer(worker, step))) {
        weight /= 2;
        worker.send(peer(worker, step), Message::of_model(step, worker.model(), {weight}));
      }
      if (overlap_ > Step{0}) pushes.take_what_has_come();
      pushes.take_until(step - overlap_);
      weight = pushes.mix(weight);
    }
    worker.finish_round();
    gossip.publish_own();
  }
  if (worker.size() > 1) pushes.take_until(worker.step() - 1);
  weight = pushes.mix(weight);
  std::vector<Rank> listeners;
  for (Step step; step < Step{powers(worker)}; ++step) listeners.push_back(peer(worker, step));
  gossip.stop(listeners, weight);
}

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext&) {
  constexpr std::int64_t most_steps = 16;  // a weight halves in each step without a message
  return std::make_unique<StochasticGradientPush>(Step{settings.integer(
      {"overlap_steps", "How many steps a message may be under way while its receiver goes on.", "steps"}, 0,
      most_steps, 0)});
}

}  // namespace syncopate
