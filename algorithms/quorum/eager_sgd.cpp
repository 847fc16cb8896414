#include "algorithms/quorum/eager_sgd.hpp"

#include <limits>
#include <utility>

namespace syncopate {

void EagerSgd::run(Worker& worker) const {
  while (worker.budget_left()) {
    const Step round = worker.step();  // the one that it arrives at
    Gradient gradient = worker.compute_step_gradient();
    int arrived = 0;
    for (const PartialSum& one : worker.partial_all_reduce_sum(std::move(gradient), activation(worker, round),
                                                               options_.late, options_.missed)) {
      worker.descend(one.sum / (worker.size() * worker.micro_batches()));
      arrived = one.arrived;
    }
    const bool all_are_there = arrived == worker.size();  // nobody has left
    if (all_are_there && ends(options_.average_every, round)) worker.average_model({.group_size = worker.size()});
    worker.publish();
  }
}

bool EagerSgd::ends(Step every, Step round) { return every > Step{0} && (round.value() + 1) % every.value() == 0; }

Activation EagerSgd::activation(const Worker& worker, Step round) const {
  if (ends(options_.synchronous_every, round) || ends(options_.average_every, round)) return {.quorum = worker.size()};
  if (options_.activation == EagerOptions::Activation::solo) return {.quorum = 1};
  return {.rank = Rank{static_cast<int>(worker.uniform(round, Drawn::together) * worker.size())}};
}

std::unique_ptr<Algorithm> make_eager_sgd(Settings& settings, const AlgorithmContext&) {
  using Activation = EagerOptions::Activation;
  enum class Form { paper, released, replayed };
  constexpr std::int64_t every_of_released_code = 32, most = std::numeric_limits<std::int64_t>::max();
  EagerOptions options;
  const Form form = settings.choice(
      {"variant", "What is done about late workers, where the keys below do not say it."},
      {{"paper", Form::paper}, {"released", Form::released}, {"replayed", Form::replayed}}, Form::paper);
  options.activation =
      settings
          .choice<Activation>({"activation", "Whom an all-reduce waits for: the first, or a random one."},
                              {{"solo", Activation::solo}, {"majority", Activation::majority}})
          .value_or(Activation::solo);
  options.late = settings.choice({"late", "Whether a late gradient is added to the next one or dropped."},
                                 {{"accumulate", LateGradient::accumulate}, {"drop", LateGradient::drop}},
                                 form == Form::released ? LateGradient::drop : LateGradient::accumulate,
                                 "\"accumulate\"; with variant \"released\" \"drop\"");
  options.missed = settings.choice(
      {"missed", "Whether a late worker steps along all sums that it has missed, or the newest alone."},
      {{"newest", MissedSums::newest}, {"all", MissedSums::all}},
      form == Form::replayed ? MissedSums::all : MissedSums::newest, "\"newest\"; with variant \"replayed\" \"all\"");
  const bool limits = form != Form::paper && options.activation == Activation::solo;
  options.synchronous_every = settings.integer(
      {"synchronous_every", "Every how many steps all wait for all; 0: never.", "steps"}, 0, most,
      Stated(limits ? every_of_released_code : 0, "0; with \"solo\" and variant \"released\" or \"replayed\" 32"));
  options.average_every = settings.integer(
      {"average_every", "Every how many steps all wait for all, and average their models; 0: never.", "steps"}, 0, most,
      Stated(form == Form::paper ? std::int64_t{100} : 0, "100; with variant \"released\" or \"replayed\" 0"));
  return std::make_unique<EagerSgd>(options);
}

}  // namespace syncopate
