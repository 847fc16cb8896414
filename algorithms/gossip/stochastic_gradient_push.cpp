#include "algorithms/gossip/stochastic_gradient_push.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/gossip/gossip.hpp"

namespace syncopate {
namespace {

// The directed exponential graph: in step k everybody sends to the worker 2^(k mod L) ranks further, where L is
// the number of powers of two below N.
class ExponentialGraph {
 public:
  explicit ExponentialGraph(const Worker& worker)
      : rank_(worker.rank().value),
        size_(worker.size()),
        distances_(std::bit_width(static_cast<unsigned>(size_ - 1))) {}

  Rank receiver(Step step) const { return Rank{(rank_ + distance(step)) % size_}; }
  Rank sender(Step step) const { return Rank{(rank_ + size_ - distance(step)) % size_}; }
  std::vector<Rank> receivers() const {
    std::vector<Rank> all;
    for (Step step; step < Step{distances_}; ++step) all.push_back(receiver(step));
    return all;
  }

 private:
  int distance(Step step) const { return 1 << (step.value() % distances_); }

  int rank_;
  int size_;
  int distances_;  // L; 0 for one worker, which has nobody to send to
};

// The messages that a worker is sent, one per step.
class Pushes {
 public:
  Pushes(Gossip& gossip, Step overlap) : gossip_(gossip), overlap_(overlap) {}

  // Those to be taken in after this step: waits for none of the last `overlap` steps.
  std::vector<Message> receive(Step step, Rank sender) {
    std::vector<Message> messages;
    if (early_.erase(step) == 0) awaited_[step] = sender;
    if (overlap_ > Step{0})
      while (auto message = gossip_.try_receive()) take(std::move(*message), messages);
    await(step - overlap_, messages);
    return messages;
  }
  // Those that are still on their way after the last step.
  std::vector<Message> receive_rest(Step last) {
    std::vector<Message> messages;
    await(last, messages);
    return messages;
  }

 private:
  // Waits for the messages of all steps up to this one.
  void await(Step step, std::vector<Message>& messages) {
    while (!awaited_.empty() && awaited_.begin()->first <= step) {
      if (auto message = gossip_.receive_from(awaited_.begin()->second))
        take(std::move(*message), messages);
      else
        awaited_.erase(awaited_.begin());  // its sender has stopped
    }
  }
  void take(Message message, std::vector<Message>& messages) {
    if (awaited_.erase(message.step) == 0) early_.insert(message.step);
    messages.push_back(std::move(message));
  }

  Gossip& gossip_;
  Step overlap_;
  std::map<Step, Rank> awaited_;  // by step
  std::set<Step> early_;          // steps of faster workers, whose messages have been taken in already
};

// The mean of the own model and those of the messages, weighted; returns the sum of the weights.
double mix(Worker& worker, double weight, const std::vector<Message>& messages) {
  if (messages.empty()) return weight;
  double total = weight;
  for (const Message& message : messages) total += message.numbers.front();
  std::vector<WeightedState> terms = {{weight / total, worker.model()}};
  for (const Message& message : messages) terms.push_back({message.numbers.front() / total, message.model});
  worker.set_model(worker.combine(terms));
  return total;
}

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
  const ExponentialGraph graph(worker);
  Gossip gossip(worker);
  Pushes pushes(gossip, overlap_);
  double weight = 1;  // w; the model is z = x / w
  while (worker.budget_left()) {
    const Step step = worker.step();
    check_weight(worker, weight);
    worker.descend(worker.compute_step_gradient() / worker.micro_batches(), {.rate_factor = 1 / weight});
    if (worker.size() > 1) {
      if (!gossip.has_stopped(graph.receiver(step))) {
        weight /= 2;
        worker.send(graph.receiver(step), Message::of_model(step, worker.model(), {weight}));
      }
      weight = mix(worker, weight, pushes.receive(step, graph.sender(step)));
    }
    worker.finish_round();
    gossip.publish_own();
  }
  weight = mix(worker, weight, pushes.receive_rest(worker.step()));
  gossip.stop(graph.receivers(), weight);
}

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext&) {
  constexpr std::int64_t most_steps = 16;  // a weight halves in each step without a message
  return std::make_unique<StochasticGradientPush>(Step{settings.integer("overlap_steps", 0, most_steps, 0)});
}

}  // namespace syncopate
