// Asynchronous decentralised SGD (AD-PSGD): a worker mixes its model half and half with one random neighbour at a time,
// and steps along a gradient that was taken at an earlier model of its own. Nobody waits.
// Source:  Lian et al. 2018, "Asynchronous Decentralized Parallel Stochastic Gradient Descent".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per exchange one model each way, at most one exchange per step of an active worker; N - 1 models at the very
//          end, for what is evaluated.
// Differs: a partner answers between two of its micro-batches: the more a step has, the sooner. In released codes a
//          communication thread answers in their middle. An active worker goes on with its steps meanwhile, and asks
//          again once it has its answer. `overlap_steps` bounds for how many steps; with 0 the mixing comes before the
//          step is taken, as in the paper's X W - gamma g. Half of the difference of the two models that were sent is
//          added to what each has by then. That is the paper's average where nothing has changed, and keeps the mean of
//          all models in any case. All micro-batches of a step are taken at the model that it began with; weight decay
//          and the norms of layer-wise optimizers are those of the mixed model. Active workers ask and passive ones
//          answer, so that no two wait for each other: by default the odd and the even ranks, of which all pairs are
//          neighbours (as in facebookresearch/stochastic_gradient_push; not established for the paper), or the two
//          sides of a graph. An exchange with a worker that has left is none; one that is down answers when it is up.
//          One that loses its state goes on from what it was sent last (gossip.hpp), and takes half of the answer under
//          way. The paper's own proof, step and weights could not be read.
// Checks:  one worker equals SGD bit for bit; two equal workers whose exchanges end within a step equal D-PSGD; the
//          mean of all models is preserved under any delays; messages and times of equal workers; the last worker's sum
//          of steps is the run's time.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Exchanges: an active worker asks a random passive neighbour for its model, one at a time, and both end up with half
// of each. With s and m the models that an active and a passive worker send, the one adds (m - s) / 2 to its model of
// then, the other (s - m) / 2, so that the mean of all models stays. A worker that has lost its state, and s with it,
// ends up with half of m and half of its new model.
class PairExchanges {
 public:
  PairExchanges(Worker& worker, Gossip& gossip, const Bipartition& bipartition)
      : worker_(worker),
        gossip_(gossip),
        bipartition_(bipartition),
        is_active_(bipartition.is_active(worker.rank())),
        sent_(worker),
        mixed_(worker) {}

  // Begins a step: the model that gradients are taken at stays the worker's, what is mixed meanwhile goes beside it. An
  // active worker that waits for no answer asks somebody.
  void begin_step() {
    *mixed_ = worker_.model();
    if (is_active_ && !asked_) ask();
  }

  // Answers those who have asked, and takes in the answer if it has come.
  void take_what_has_come() {
    for (const auto& message : gossip_.receive_what_has_come()) meet(*message);
    if (asked_ && gossip_.has_stopped(asked_->partner)) await_answer();  // which may have come before its end
  }

  // Waits for an answer that was asked for this many steps ago or more: none is left before the step under way ends.
  void wait_for_older_than(Step steps) {
    if (asked_ && worker_.step() - asked_->step >= steps) await_answer();
  }

  // The mixed model becomes the worker's.
  void end_step() { worker_.set_model(mixed()); }

  // Waits for the answer under way, if there is one, after the last step.
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

  // In the place of one that has stopped the next one that has not.
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
    asked_.reset();  // it has stopped without one
  }

  // Moments and, with steps taken since it asked, an active worker's BatchNorm statistics are its own: a difference of
  // variances might be none.
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

  // A worker that loses its state goes on with the model that it then has.
  ModelStatePtr& mixed() {
    ModelStatePtr& mixed = *mixed_;
    if (!mixed) mixed = worker_.model();
    return mixed;
  }

  Worker& worker_;
  Gossip& gossip_;
  const Bipartition& bipartition_;
  bool is_active_;
  std::optional<Asked> asked_;
  ResetOnOutage<ModelStatePtr> sent_;  // to the one asked
  ResetOnOutage<ModelStatePtr> mixed_;
};

struct PairOptions {
  std::optional<Step> overlap_steps{};  // for how many steps an answer may be under way; none: for any number
  std::shared_ptr<const Bipartition> bipartition = nullptr;  // null: even ranks and odd ones
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
    gossip.stop(
        worker.rank() == Rank{0} ? bipartition.all_partners(Rank{0}) : std::vector<Rank>(),  // who else may wait
        {.others_may_wait = true});
  }

  Traits traits() const override {
    return {.sends_to_neighbours = true, .held = {.models = 2.5}, .exchanged_whole = models_of_neighbours};
  }

 private:
  PairOptions options_;
};

inline std::unique_ptr<Algorithm> make_ad_psgd(Settings& settings, const AlgorithmContext& context) {
  constexpr int most_workers_of_graph = 65'536;  // whose neighbours are listed
  PairOptions options;
  const GossipGraphPtr graph =
      read_graph(settings, context, Mixing::in_pairs,
                 "Who may meet whom, with two sides; left out: all pairs of an even rank and an odd one.");
  if (graph && context.workers_known && graph->workers() > most_workers_of_graph) {
    settings.fault("graph", fmt::format("is for at most {} workers, found {}; left out, for any number",
                                        most_workers_of_graph, graph->workers()));
  } else if (graph && context.workers_known) {
    if (auto bipartition = Bipartition::of(*graph))
      options.bipartition = std::make_shared<Bipartition>(*std::move(bipartition));
    else
      settings.fault("graph", "must have two sides, within which no workers are linked (bipartite)");
  }
  constexpr std::int64_t most_steps = 1'000'000;
  if (const auto overlap = settings.optional_integer(
          {"overlap_steps", "After how many steps an active worker waits for the answer that it has asked for.",
           "steps", "it never waits"},
          0, most_steps))
    options.overlap_steps = Step{*overlap};
  options.evaluated = read_individual_models(settings);
  return std::make_unique<AdPsgd>(std::move(options));
}

}  // namespace syncopate
