// Asynchronous decentralised SGD (AD-PSGD): a worker averages its model with one random neighbour's model at a time,
// and steps along a gradient taken at one of its earlier models. No worker waits for another.
// Source:  Lian et al. 2018, "Asynchronous Decentralized Parallel Stochastic Gradient Descent".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per exchange one model each way, at most one exchange per step of an active worker; N - 1 models at the very
//          end, for evaluation.
// Differs: active workers ask and passive ones answer, so that no two wait for each other. By default odd ranks are
//          active and even ones passive, and each odd rank is a neighbour of each even one (as in
//          facebookresearch/stochastic_gradient_push; not established for the paper). A passive worker answers between
//          two of its micro-batches, so it answers sooner if its steps have more of them; in released codes a
//          communication thread answers during a micro-batch. An active worker continues its steps while it waits, and
//          asks again once it has its answer. `overlap_steps` limits the steps that it takes meanwhile; with 0 the
//          mixing precedes the step, as in the paper's X W - gamma g. Each worker adds half of the difference of the
//          two sent models to its current model. This is the paper's average if its model has not changed since it was
//          sent, and always preserves the mean of all models. All micro-batches of a step are computed at the model
//          that the step began with; weight decay and the norms of layer-wise optimizers are those of the mixed model.
//          If the partner has left, there is no exchange; a worker that is down answers when it is up. A worker that
//          loses its state continues from the last model that it received (gossip.hpp), and adds half of the pending
//          answer. We have not read the paper's proof, step and weights.
// Checks:  one worker equals SGD bit for bit; two equal workers whose exchanges end within a step equal D-PSGD; the
//          mean of all models is preserved under any delays; messages and times of equal workers; the run takes the
//          time that its last worker's steps take.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// A worker's exchanges in pairs. An active and a passive worker send each other the models s and m. The active one adds
// (m - s) / 2 to its current model, the passive one (s - m) / 2, so that the mean of all models is preserved. An active
// worker that has lost its state, and s with it, takes the mean of m and its new model.
class PairExchanges {
 public:
  PairExchanges(Worker& worker, Gossip& gossip, const Bipartition& bipartition)
      : worker_(worker),
        gossip_(gossip),
        bipartition_(bipartition),
        is_active_(bipartition.is_active(worker.rank())),
        sent_(worker),
        mixed_(worker) {}

  // Begins a step. Gradients are taken at the worker's model; mixing during the step changes a copy of it. An active
  // worker without a pending request asks a partner.
  void begin_step() {
    *mixed_ = worker_.model();
    if (is_active_ && !asked_) ask();
  }

  // Answers the requests that have arrived, and mixes in the answer to this worker's own request if it has arrived.
  void take_what_has_come() {
    for (const auto& message : gossip_.receive_what_has_come()) meet(*message);
    if (asked_ && gossip_.has_stopped(asked_->partner)) await_answer();  // it may have answered before it stopped
  }

  // Waits for the pending answer if it was requested this many steps ago or more.
  void wait_for_older_than(Step steps) {
    if (asked_ && worker_.step() - asked_->step >= steps) await_answer();
  }

  void end_step() { worker_.set_model(mixed()); }

  // After the last step: waits for the pending answer, if any.
  void end() {
    *mixed_ = worker_.model();
    take_what_has_come();
    if (asked_) await_answer();
    worker_.set_model(mixed());
  }

 private:
  struct Asked {
    Rank partner{};
    Step step{};
  };

  void ask() {
    const auto partner = draw_partner();
    if (!partner) return;
    asked_ = {*partner, worker_.step()};
    *sent_ = mixed();
    worker_.send(*partner, Message::of_model(worker_.step(), mixed()));
  }

  // Draws a partner. If that one has stopped, takes the next one that has not; none if all have stopped.
  std::optional<Rank> draw_partner() const {
    const int count = bipartition_.partners(worker_.rank());
    const int drawn = std::min(static_cast<int>(worker_.uniform(worker_.step()) * count), count - 1);
    for (int passed = 0; passed < count; ++passed) {
      const Rank partner = bipartition_.partner(worker_.rank(), (drawn + passed) % count);
      if (!gossip_.has_stopped(partner)) return partner;
    }
    return std::nullopt;
  }

  void await_answer() {
    if (const auto message = gossip_.receive_from(asked_->partner)) return meet(*message);
    asked_.reset();  // the partner has stopped without answering
  }

  // Mixes in the message's model; a passive worker answers first. Moments are not mixed. Nor are BatchNorm statistics
  // if an active worker has taken steps since it asked: sums of variances with negative weights may be negative.
  void meet(const Message& message) {
    if (!is_active_) {
      worker_.send(message.from, Message::of_model(worker_.step(), mixed()));
      mixed() = worker_.combine({{0.5, mixed()}, {0.5, message.model}});
      return;
    }
    asked_.reset();
    const ModelStatePtr sent = std::exchange(*sent_, nullptr);
    mixed() = !sent || sent == mixed() ? worker_.combine({{0.5, mixed()}, {0.5, message.model}})
                                       : worker_.combine({{1, mixed()}, {0.5, message.model}, {-0.5, sent}}, mixed());
  }

  ModelStatePtr& mixed() {  // the worker's new model if an outage has erased the mixed one
    ModelStatePtr& mixed = *mixed_;
    if (!mixed) mixed = worker_.model();
    return mixed;
  }

  Worker& worker_;
  Gossip& gossip_;
  const Bipartition& bipartition_;
  bool is_active_;
  std::optional<Asked> asked_;
  ResetOnOutage<ModelStatePtr> sent_;  // model sent to the partner
  ResetOnOutage<ModelStatePtr> mixed_;
};

struct PairOptions {
  std::optional<Step> overlap_steps{};  // number of steps for which an answer may be pending; none: no limit
  std::shared_ptr<const Bipartition> bipartition = nullptr;  // null: even and odd ranks
  IndividualModels evaluated = IndividualModels::mean;
};

class AdPsgd : public Algorithm {
 public:
  explicit AdPsgd(PairOptions options = {}) : options_(std::move(options)) {}

  void run(Worker& worker) const override {
    const Bipartition by_parity = Bipartition::by_parity(worker.size());
    const Bipartition& bipartition = options_.bipartition ? *options_.bipartition : by_parity;
    Gossip gossip(worker, options_.evaluated);
    PairExchanges exchanges(worker, gossip, bipartition);
    while (worker.budget_left()) {
      exchanges.begin_step();
      Gradient sum;
      for (int m = 0; m < worker.micro_batches(); ++m) {
        sum += *worker.compute_gradient();
        exchanges.take_what_has_come();
      }
      if (options_.overlap_steps) exchanges.wait_for_older_than(*options_.overlap_steps);
      exchanges.end_step();
      worker.descend(sum / worker.micro_batches());
      gossip.end_step();
    }
    exchanges.end();
    gossip.stop(  // with the workers that may still wait for an answer
        worker.rank() == Rank{0} ? bipartition.all_partners(Rank{0}) : std::vector<Rank>(), {.others_may_wait = true});
  }

  Traits traits() const override {
    return {.sends_to_neighbours = true, .held = {.models = 2.5}, .exchanged_whole = models_of_neighbours};
  }

 private:
  PairOptions options_;
};

inline std::unique_ptr<Algorithm> make_ad_psgd(Settings& settings, const AlgorithmContext& context) {
  constexpr int most_workers_of_graph = 65'536;  // a limit, because all links are stored
  PairOptions options;
  const GossipGraphPtr graph =
      read_graph(settings, context, Mixing::in_pairs,
                 "Which workers may exchange models; default: all pairs of an even and an odd rank.");
  if (graph && context.workers_known && graph->workers() > most_workers_of_graph) {
    settings.fault("graph", fmt::format("allows at most {} workers, found {}; leave it out for any number of workers",
                                        most_workers_of_graph, graph->workers()));
  } else if (graph && context.workers_known) {
    if (auto bipartition = Bipartition::of(*graph))
      options.bipartition = std::make_shared<Bipartition>(*std::move(bipartition));
    else
      settings.fault("graph", "must be bipartite: two sides, with links only between them");
  }
  constexpr std::int64_t most_steps = 1'000'000;
  options.overlap_steps = settings.optional_integer(
      {"overlap_steps", "After how many steps an active worker waits for the answer to its request.", "steps",
       "it never waits"},
      0, most_steps);
  options.evaluated = read_individual_models(settings);
  return std::make_unique<AdPsgd>(std::move(options));
}

}  // namespace syncopate
