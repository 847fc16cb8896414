// Stochastic gradient push (SGP): each worker sends shares of its model along a graph; by default half of it to one
// other worker per step, in turn to those 1, 2, 4, ... ranks further. Weights that are sent with the models (push-sum)
// correct for workers that receive more or less than they send.
// Source:  Assran et al. 2019, "Stochastic Gradient Push for Distributed Deep Learning"; facebookresearch/
//          stochastic_gradient_push, gossip_module/distributed.py.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per exchange a worker sends its model and weight to each receiver (by default one). There is one exchange
//          per step; with overlap one per `overlap_steps` steps, or with "released" up to one per step. At the very end
//          N - 1 models are sent.
// Differs: workers store z = x / w and w, not x and w. Then x - eta g is a step of eta / w from z, and mixing takes the
//          mean of the z weighted by w, which is the same in exact arithmetic. The default graph is the paper's
//          directed exponential one; only the columns of W need to sum to 1. Nothing is sent to a worker that has left;
//          messages in flight to it are lost, both x and w. If all senders of a worker have left, its weight falls
//          towards 0, and the run fails with that reason. A worker that loses its state continues from the last z that
//          it received (gossip.hpp), with w = 1. It loses its own x and w and the messages that it has received but not
//          mixed; messages in flight to it are not lost. So the sum of all w, N before, changes by 1 minus the lost w.
//          The evaluated mean uses the remaining weights.
//          Overlap has two forms. "paper" (our reading of the paper's second algorithm): a worker sends in every tau-th
//          step, and then waits for the messages of the previous exchange. The graph advances by exchanges, not by
//          steps, so that all links are used. "released": before each gradient a worker receives the messages of its
//          last exchange if they have arrived or are tau steps old (synch_freq = tau - 1), and only then sends again.
//          Ranks reach different numbers of exchanges, and messages to a worker that has ended are lost.
// Checks:  one worker equals SGD bit for bit; the sums of w and of x are preserved; without gradients 2^k workers agree
//          after k steps, and all workers on the complete graph after each step; both forms of overlap against
//          implementations in double precision.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "algorithms/gossip/gossip.hpp"

namespace syncopate {

struct PushOptions {
  enum class Overlap { paper, released };
  Step overlap_steps{0};  // tau; 0: every step waits for the messages of its own exchange
  Overlap overlap = Overlap::paper;
  IndividualModels evaluated = IndividualModels::mean;
  GossipGraphPtr graph = nullptr;  // null: one receiver in turn, 1, 2, 4, ... ranks further

  bool is_released() const { return overlap == Overlap::released && overlap_steps > Step{0}; }
};

class StochasticGradientPush : public Algorithm {
 public:
  explicit StochasticGradientPush(const PushOptions& options = {}) : options_(options) {}

  void run(Worker& worker) const override {
    const Step overlap = options_.overlap_steps;
    const bool is_released = options_.is_released();
    const GossipGraphPtr graph = graph_of(worker.size());
    const double least = least_weight(options_, *graph);
    Gossip gossip(worker, options_.evaluated);
    Pushes pushes(worker, gossip, *graph);
    while (worker.budget_left()) {
      pushes.check_weight(least);
      if (is_released) exchange_as_released(worker, overlap, pushes);
      const Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
      worker.descend(gradient, {.rate_factor = 1 / pushes.weight()});
      if (!is_released) exchange_as_in_paper(worker, overlap, pushes);
      gossip.end_step(pushes.weight());
    }
    pushes.take_before(pushes.exchanges());
    if (is_released) pushes.take_what_has_come();
    pushes.mix_all();
    gossip.stop(graph->all_receivers(worker.rank()), {.weight = pushes.weight(), .others_may_wait = is_released});
  }

  Traits traits() const override {
    return {.sends_to_neighbours = true,
            .follows_clock = options_.overlap_steps > Step{0},
            .held = {.models = 2.5, .moments = 1.5},
            .exchanged_whole = models_of_neighbours};
  }

  std::string remark(int workers) const override { return graph_of(workers)->remark(); }

  // None for the released form, in which the number of messages depends on which workers are late.
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Step every = std::max(options_.overlap_steps, Step{1});
    if (options_.is_released()) return std::nullopt;
    const Step exchanges = (input.steps.value() + every.value() - 1) / every.value();
    const std::int64_t messages = graph_of(input.workers)->messages_in(exchanges) + input.workers - 1;
    return Communicated{input.steps.value(), Bytes{messages * (input.parameter_bytes.value() + 8)}};
  }

 private:
  // A worker's exchanges of push-sum: in exchange r every worker sends shares of its model along the graph's links of
  // that exchange, and keeps the rest.
  class Pushes {
   public:
    Pushes(Worker& worker, Gossip& gossip, const GossipGraph& graph)
        : worker_(worker), gossip_(gossip), links_(graph, worker.rank()), weight_(worker), received_(worker) {}

    double weight() { return (*weight_).value; }  // w; the model is z = x / w
    Step exchanges() const { return sent_; }      // number of exchanges begun
    Step begun_at() const { return begun_at_; }   // step in which the last exchange began

    // Fails the run if the weight is below `least` and all senders have left, since the missing weight then never comes
    // back. While there are senders, it may be in flight.
    void check_weight(double least) {
      const auto has_left = [this](const Neighbour& link) { return gossip_.has_stopped(link.worker); };
      const auto have_left = [&](const std::vector<Neighbour>& links) { return std::ranges::all_of(links, has_left); };
      if (weight() >= least || !std::ranges::all_of(links_.senders_by_turn(), have_left)) return;
      worker_.fail(
          fmt::format("worker {} has a weight of {:.2g} left and could only diverge: all workers that send to it have "
                      "left",
                      worker_.rank().value, weight()));
    }

    // Begins the next exchange: sends shares to its receivers, unless they have stopped.
    void send() {
      begun_at_ = worker_.step();
      const Step exchange = sent_;
      ++sent_;
      double& weight = (*weight_).value;
      const double whole = weight;
      for (const auto& [receiver, share] : links_.receivers(exchange)) {
        if (gossip_.has_stopped(receiver)) continue;
        weight -= whole * share;
        worker_.send(receiver, Message::of_model(exchange, worker_.model(), {whole * share}));
      }
    }

    void take_what_has_come() {
      for (const auto& message : gossip_.receive_what_has_come()) take(*message);
    }

    // Waits for the messages of all exchanges before `exchange`.
    void take_before(Step exchange) {
      for (; next_ < exchange; ++next_)
        for (const Neighbour& link : links_.senders(next_))
          while (taken_.erase({next_, link.worker}) == 0) {
            const auto message = gossip_.receive_from(link.worker);
            if (!message) break;  // the sender has stopped
            take(*message);
          }
    }

    // Whether all messages of `exchange` have arrived, except those that never will.
    bool has(Step exchange) const {
      return exchange < next_ || std::ranges::all_of(links_.senders(exchange), [&](const Neighbour& link) {
               return taken_.contains({exchange, link.worker}) || gossip_.has_stopped(link.worker);
             });
    }

    // Replaces the model by the weighted mean of itself and the received models of exchanges before `exchange`.
    void mix_before(Step exchange) {
      std::vector<WeightedState> terms = {{weight(), worker_.model()}};
      auto& received = *received_;
      while (!received.empty() && received.begin()->first.first < exchange)
        terms.push_back(std::move(received.extract(received.begin()).mapped()));
      if (terms.size() == 1) return;
      const WeightedState mean = weighted_mean(worker_, std::move(terms));
      worker_.set_model(mean.state);
      (*weight_).value = mean.weight;
    }

    void mix_all() {
      const auto& received = *received_;
      if (!received.empty()) mix_before(received.rbegin()->first.first + 1);
    }

   private:
    using Source = std::pair<Step, Rank>;  // exchange and sender
    struct Weight {
      double value = 1;
    };

    void take(const Message& message) {
      const Source source{message.step, message.from};
      taken_.insert(source);
      (*received_)[source] = {message.numbers.front(), message.model};
    }

    Worker& worker_;
    Gossip& gossip_;
    LinksOfWorker links_;
    ResetOnOutage<Weight> weight_;
    Step sent_{};
    Step begun_at_{};
    Step next_{};             // first exchange whose messages may be missing
    std::set<Source> taken_;  // messages of exchange next_ and later that have arrived, even if an outage erased them
    ResetOnOutage<std::map<Source, WeightedState>> received_;
  };

  // The weight below which a worker without senders fails: an eighth of the smallest weight while no worker has left.
  // With overlap, weight that a worker has sent may still be in flight, so the limit is lower. In the released form
  // fast workers send more often than slow ones send to them, so they have still less weight.
  static double least_weight(const PushOptions& options, const GossipGraph& graph) {
    const double healthy = graph.least_weight() / 8;
    if (options.overlap_steps == Step{0}) return healthy;
    return healthy * graph.least_kept() / (options.is_released() ? 64 : 1);
  }

  // Called after each step. Begins an exchange every max(tau, 1) steps, and waits for the messages of all earlier
  // exchanges; with tau = 0 also for the messages of the new exchange.
  static void exchange_as_in_paper(const Worker& worker, Step overlap, Pushes& pushes) {
    const Step step = worker.step() - 1;  // the step just taken
    if (step.value() % std::max<Step::Rep>(overlap.value(), 1) == 0) pushes.send();
    if (overlap > Step{0}) pushes.take_what_has_come();
    pushes.take_before(pushes.exchanges() - (overlap > Step{0} ? 1 : 0));
    pushes.mix_all();
  }

  // Called before each gradient. Begins the next exchange once all messages of the last one have arrived; waits for
  // them only if tau steps have passed since.
  static void exchange_as_released(const Worker& worker, Step overlap, Pushes& pushes) {
    const Step begun = pushes.exchanges();
    if (begun > Step{0}) {
      pushes.take_what_has_come();
      if (worker.step() - pushes.begun_at() >= overlap) pushes.take_before(begun);
      if (!pushes.has(begun - 1)) return;
      pushes.mix_before(begun);
    }
    pushes.send();
  }

  GossipGraphPtr graph_of(int workers) const { return options_.graph ? options_.graph : one_peer_exponential(workers); }

  PushOptions options_;
};

inline std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext& context) {
  using Overlap = PushOptions::Overlap;
  constexpr std::int64_t most_steps = 1'000'000;
  PushOptions options;
  options.overlap_steps = settings.integer(
      {"overlap_steps", "Number of steps that a worker takes while its messages are in flight (tau).", "steps"}, 0,
      most_steps, 0);
  options.overlap =
      settings.choice({"overlap", "When workers send: every tau steps (paper), or once the last message has arrived."},
                      {{"paper", Overlap::paper}, {"released", Overlap::released}}, options.overlap);
  if (options.overlap == Overlap::released && options.overlap_steps == Step{0})
    settings.fault("overlap", "needs overlap_steps of at least 1");
  options.graph = read_graph(settings, context, Mixing::column_stochastic,
                             "Which workers send to which; default: in turn to the worker 1, 2, 4, ... ranks further.");
  options.evaluated = read_individual_models(settings);
  return std::make_unique<StochasticGradientPush>(options);
}

}  // namespace syncopate
