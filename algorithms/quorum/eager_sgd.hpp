// Eager SGD: an all-reduce takes place when the first worker arrives (solo), or when a randomly chosen worker arrives
// (majority: half of the workers have then arrived on average). An absent worker contributes nothing, and catches up
// later.
// Source:  Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step, whichever workers contribute; one more per average of models.
// Differs: the mean is over all N workers, and the gradient of an absent one counts as zero. There are three
//          variants, whose parts can also be chosen separately. "paper" (default; our understanding, not confirmed): a
//          late gradient is added to its worker's next contribution. A late worker gets only the newest of the sums
//          that it has missed, since there is one receive buffer. So models drift apart, and are averaged from time to
//          time (how often is our choice). "released" (our reading of the ResNet code): a late gradient is overwritten,
//          models are not averaged, and with solo every 32nd round waits for all workers. "replayed" (ours): a late
//          worker steps along every sum in order, so that all models are equal after equal numbers of steps. In all
//          variants a late worker joins the newest round next; in the code it may go through each round. The samples of
//          missed rounds are skipped (backup_workers.hpp).
// Checks:  hand-worked timelines of late workers that get the newest sum, or all sums; if every round is synchronous,
//          it equals synchronous SGD bit for bit; (N + 1) / 2 contributors on average (majority); step times of solo
//          under exponential times.
#pragma once

#include <limits>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct EagerOptions {
  enum class Activation { solo, majority };
  Activation activation = Activation::solo;
  LateGradient late = LateGradient::accumulate;
  MissedSums missed = MissedSums::newest;
  Step synchronous_every{0};  // 0: never
  Step average_every{0};      // 0: never; models are no longer averaged once a worker has left
};

class EagerSgd : public Algorithm {
 public:
  explicit EagerSgd(const EagerOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    while (worker.budget_left()) {
      const Step round = worker.step();  // the round to which this gradient belongs
      Gradient gradient = worker.compute_step_gradient();
      int arrived = 0;
      for (const PartialSum& one : worker.partial_all_reduce_sum(std::move(gradient), activation(worker, round),
                                                                 options_.late, options_.missed)) {
        worker.descend(one.sum / (worker.size() * worker.micro_batches()));
        arrived = one.arrived;
      }
      const bool all_are_there = arrived == worker.size();  // no worker has left
      if (all_are_there && ends(options_.average_every, round)) worker.average_model({.group_size = worker.size()});
      worker.publish();
    }
  }

  Traits traits() const override {
    return {.exchanged_whole =
                "a sum is over the workers that have arrived, including stale gradients, and compressed sums need all "
                "workers"};
  }

 private:
  // Whether `round` is the last one of a group of `every` rounds; `every` = 0: never.
  static bool ends(Step every, Step round) { return every > Step{0} && (round.value() + 1) % every.value() == 0; }

  Activation activation(const Worker& worker, Step round) const {
    if (ends(options_.synchronous_every, round) || ends(options_.average_every, round))
      return {.quorum = worker.size()};
    if (options_.activation == EagerOptions::Activation::solo) return {.quorum = 1};
    return {.rank = Rank{static_cast<int>(worker.uniform(round, Drawn::together) * worker.size())}};
  }

  EagerOptions options_;
};

inline std::unique_ptr<Algorithm> make_eager_sgd(Settings& settings, const AlgorithmContext&) {
  using Activation = EagerOptions::Activation;
  enum class Form { paper, released, replayed };
  constexpr std::int64_t every_of_released_code = 32, most = std::numeric_limits<std::int64_t>::max();
  EagerOptions options;
  const Form form = settings.choice(
      {"variant", "Which treatment of late workers sets the defaults of the other keys."},
      {{"paper", Form::paper}, {"released", Form::released}, {"replayed", Form::replayed}}, Form::paper);
  options.activation =
      settings
          .choice<Activation>({"activation", "Which worker an all-reduce waits for: the first, or a random one."},
                              {{"solo", Activation::solo}, {"majority", Activation::majority}})
          .value_or(Activation::solo);
  options.late = settings.choice({"late", "Whether a late gradient is added to the next one or dropped."},
                                 {{"accumulate", LateGradient::accumulate}, {"drop", LateGradient::drop}},
                                 form == Form::released ? LateGradient::drop : LateGradient::accumulate,
                                 "\"accumulate\"; \"drop\" with variant \"released\"");
  options.missed = settings.choice(
      {"missed", "Whether a late worker steps along all sums that it has missed, or only the newest."},
      {{"newest", MissedSums::newest}, {"all", MissedSums::all}},
      form == Form::replayed ? MissedSums::all : MissedSums::newest, "\"newest\"; \"all\" with variant \"replayed\"");
  const bool limits = form != Form::paper && options.activation == Activation::solo;
  options.synchronous_every = settings.integer(
      {"synchronous_every", "Number of steps after which all workers wait for each other; 0: never.", "steps"}, 0, most,
      Stated(limits ? every_of_released_code : 0, "0; 32 with \"solo\" and variant \"released\" or \"replayed\""));
  options.average_every = settings.integer(
      {"average_every", "Number of steps after which all workers average their models; 0: never.", "steps"}, 0, most,
      Stated(form == Form::paper ? std::int64_t{100} : 0, "100; 0 with variant \"released\" or \"replayed\""));
  return std::make_unique<EagerSgd>(options);
}

}  // namespace syncopate
