// NoLoCo: after H local steps random pairs of workers exchange their outer models and their progress, and each takes an
// outer step along the pair's mean progress and towards the pair's mean model. There is no collective.
// Source:  Kolehmainen et al. 2025, "NoLoCo: No-all-reduce Low Communication Training Method for Large Models"; its
//          authors' code. With the means g of theta - phi and p of phi over a pair:
//   m_i <- mu m_i + rate g + pull (p - phi_i);  phi_i <- phi_i + m_i;  theta_i <- phi_i
// Shapes:  gradient, parameters theta, outer model phi, momentum m: (P,) flat float32.
// Cost:    2 P floats sent and received per worker and H steps; a worker waits only for its partner. At the end N - 1
//          models are sent for evaluation.
// Differs: in the code, and by default here, the pull towards the pair's mean model has the outer rate's value. With an
//          odd number of workers one has no partner in a round, and neither has one whose partner has stopped: they
//          step along their own progress. Pairs are drawn from this project's random streams. The half of the paper
//          about pipelines is left out. A worker that loses its state continues from the last outer model that a
//          partner sent it, without momentum. Each worker orders all ranks by random numbers in each round.
// Checks:  four workers in random pairs against the recursion; their mean follows DiLoCo with heavy-ball momentum; a
//          pair against an independent reference.
#pragma once

#include <algorithm>
#include <utility>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

struct NoLocoOptions {
  Step local_steps{50};  // H
  double rate = 0.7;
  double momentum = 0.5;  // mu
  double pull = 0.7;      // towards the pair's mean outer model
  IndividualModels evaluated = IndividualModels::mean;
};

// Returns the worker's partner in this round, or the worker itself if it has none. All workers draw the same order of
// ranks, in which neighbours are partners.
inline Rank partner_in(const Worker& worker, Step round) {
  using Drawing = std::pair<double, Rank>;
  std::vector<Drawing> order;
  for (const Rank rank : Ranks(worker.size()))
    order.emplace_back(worker.uniform(Step{round.value() * worker.size() + rank.value}, Drawn::together), rank);
  std::ranges::sort(order);
  const auto own = std::ranges::find(order, worker.rank(), &Drawing::second);
  const auto place = static_cast<std::size_t>(own - order.begin()), other = place ^ 1u;
  return order[other < order.size() ? other : place].second;
}

class NoLoco : public Algorithm {
 public:
  explicit NoLoco(const NoLocoOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    Gossip gossip(worker, options_.evaluated);
    ResetOnOutage<ModelStatePtr> momentum(worker, nullptr);
    for (Step round{}; worker.budget_left(); ++round) {
      ResetOnOutage<ModelStatePtr> outer(worker, worker.model());
      for (Step taken{};;) {
        worker.descend(worker.compute_step_gradient() / worker.micro_batches());
        if (++taken == options_.local_steps || !worker.budget_left()) break;
        gossip.end_step();
      }
      if (!*outer) *outer = worker.model();  // an outage has erased it, so this round has no progress
      worker.set_model(outer_step(worker, gossip, partner_in(worker, round), *outer, *momentum));
      gossip.end_step();
    }
    std::vector<Rank> others;
    for (const Rank other : Ranks(worker.size())) others.push_back(other);
    gossip.stop(others, {});
  }

  Traits traits() const override {
    return {.sends_to_neighbours = true,
            .follows_clock = false,
            .settles_after = options_.local_steps,
            .cycle = options_.local_steps,
            .held = {.models = 4},
            .exchanged_whole = models_of_neighbours};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Bytes::Rep model = input.parameter_bytes.value(), last = (input.workers - 1) * (model + 8);
    const std::int64_t steps = input.steps.value(), length = options_.local_steps.value();
    const std::int64_t messages = (steps + length - 1) / length * 2 * (input.workers - input.workers % 2);
    return Communicated{steps, Bytes{messages * model + last}};
  }

 private:
  ModelStatePtr outer_step(Worker& worker, Gossip& gossip, Rank partner, const ModelStatePtr& phi,
                           ModelStatePtr& momentum) const {
    const ModelStatePtr theta = worker.model();
    ModelStatePtr phi_of_other = phi, theta_of_other = theta;
    if (!gossip.has_stopped(partner)) {
      worker.send(partner, Message::of_model(worker.step(), theta));
      worker.send(partner, Message::of_model(worker.step(), phi));  // last, since it replaces a model that is lost
      const auto first = gossip.receive_from(partner);
      const auto second = first ? gossip.receive_from(partner) : nullptr;
      if (second) theta_of_other = first->model, phi_of_other = second->model;
    }
    const double progress = options_.rate / 2, of_mean = (options_.pull - options_.rate) / 2;
    std::vector<WeightedState> sum = {
        {progress, theta}, {progress, theta_of_other}, {of_mean - options_.pull, phi}, {of_mean, phi_of_other}};
    if (momentum) sum.push_back({options_.momentum, momentum});
    momentum = worker.combine(sum, theta);
    return worker.combine({{1, phi}, {1, momentum}}, theta);
  }

  NoLocoOptions options_;
};

inline std::unique_ptr<Algorithm> make_noloco(Settings& settings, const AlgorithmContext& context) {
  NoLocoOptions options;
  options.local_steps = settings.integer({"local_steps", "Local steps between two exchanges (H).", "steps"}, 1,
                                         1'000'000'000, options.local_steps.value());
  options.local_steps = context.work.of(context.workers).check(settings, "local_steps", options.local_steps.value());
  options.rate = settings.number({"rate", "Outer learning rate: how far a step goes along the pair's mean progress."},
                                 Range::finite_positive(), options.rate);
  options.pull = settings.number({"pull", "How far a step goes towards the pair's mean outer model."},
                                 Range::finite_from_zero(), Stated(options.rate, "rate"));
  options.momentum = settings.number({"momentum", "Outer momentum (mu)."}, Range::below_one(), options.momentum);
  options.evaluated = read_individual_models(settings);
  return std::make_unique<NoLoco>(options);
}

}  // namespace syncopate
