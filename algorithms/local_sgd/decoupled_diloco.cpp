#include "algorithms/local_sgd/decoupled_diloco.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "algorithms/local_sgd/fragment_learner.hpp"

namespace syncopate {

void DecoupledDiLoCo::run(Worker& worker) const {
  FragmentLearner learner(worker, options_.fragments.count(), options_.minimum_steps, options_.workers_subtract());
  while (worker.budget_left(Judged::by_server) && !worker.has_left(learner.server())) {
    learner.take_local_step();
    learner.take_up_fragments();
    learner.answer_if_due();
  }
  learner.leave();
}

void DecoupledDiLoCo::serve(Server& server) const {
  options_.fragments.check(server);
  GraceWindow grace(options_.grace.value_or(GraceOptions{}));
  FragmentAnswers answers(server, options_.fragments.count(), options_.late);
  ModelStatePtr momentum;
  OpenRound round;
  while (server.budget_left()) {
    answers.open(round);
    const Slice fragment = round.fragment(options_.fragments.count());
    const Time begun = std::max(round.begins, server.now());
    answers.wait_until(begun);
    answers.collect(options_.quorum.value_or(server.size()), never);
    grace.note_quorum(to_seconds(server.now() - begun));
    answers.collect(server.size(), later(server.now(), from_seconds(grace.length_s())));
    const std::vector<FragmentAnswer> taken = answers.take();
    if (taken.empty()) return;  // all have left

    const AnswerTotals totals(taken, server.micro_batches());
    grace.note_step(totals.slowest_step_s);
    if (totals.slowest_sync_s) grace.note_sync(*totals.slowest_sync_s);
    server.descend(stepped(server, fragment, taken, momentum), totals.micro_batches);
    server.publish();
    if (!server.budget_left()) return;
    round = {.number = round.number + Step{1}, .begins = begun, .last_ended = server.now()};
    if (options_.local_steps)  // the launch floor
      round.begins = later(begun, from_seconds(options_.steps_per_round() * *grace.step_s()));
    for (const Rank worker : Ranks(server.size()))
      if (!server.has_left(worker)) server.send_model(worker, fragment, round.numbers());
  }
}

ModelStatePtr DecoupledDiLoCo::stepped(const Server& server, Slice fragment, const std::vector<FragmentAnswer>& answers,
                                       ModelStatePtr& momentum) const {
  const ModelStatePtr last = server.model();
  std::vector<WeightedState> differences;
  for (const FragmentAnswer& answer : answers) {
    ModelStatePtr difference = answer.model;
    if (!options_.workers_subtract()) difference = server.combine({{1, last}, {-1, answer.model}}, answer.model);
    differences.push_back({weight_of(answer.micro_batches, answer.steps), difference});
  }
  const ModelStatePtr merged = merge(server, options_.merge, std::move(differences), fragment);
  const ModelStatePtr average = server.combine({{1, last}, {-1, merged}}, merged);
  // Of several fragments each moves its own part of the momentum.
  if (fragment.count > 1 && !momentum) momentum = server.combine({{1, last}, {-1, last}}, last);
  ModelStatePtr moved = momentum;
  const ModelStatePtr next =
      options_.outer->step(server, {.last = last, .average = average, .inner_rate = server.learning_rate()}, moved);
  momentum = momentum ? server.with_slice(momentum, moved, fragment) : moved;
  return server.with_slice(last, next, fragment);
}

// The card.
std::unique_ptr<Algorithm> make_decoupled_diloco(Settings& settings, const AlgorithmContext& context) {
  DecoupledOptions options;
  if (const auto quorum = settings.optional_integer(
          {"quorum", "How many workers must have answered before a round may end (K).", "workers", "all"}, 1,
          Stated<std::int64_t>(context.workers, "the number of workers")))
    options.quorum = static_cast<int>(*quorum);
  options.fragments = read_fragments(settings, 1, context.parameters);
  const WorkInBudget work = context.work.of(context.workers);
  if (const auto steps = settings.optional_integer(
          {"local_steps", "A round begins no sooner than steps / fragments of the step time after the one before (H).",
           "steps", "at the end of the one before"},
          1, 1'000'000'000))
    options.local_steps = work.check(settings, "local_steps", *steps, options.fragments.count());
  options.minimum_steps = settings.integer(
      {"minimum_steps", "A worker answers once it has taken so many since it got the fragment.", "steps"}, 1,
      1'000'000'000, 1);
  work.check(settings, "minimum_steps", options.minimum_steps.value());
  if (settings.has("grace")) {
    options.grace = read_grace(settings.section(
        {"grace", "How long further answers are waited for once there is a quorum; without it: not."}));
    if (!options.quorum) settings.fault("grace", "needs a quorum: without one a round waits for all workers anyway");
    if (options.quorum == context.workers)
      settings.fault("grace", "must be left out: a quorum of all workers leaves nobody to wait for");
  }
  options.merge = read_merge_rule(settings);
  using Anchor = DecoupledOptions::Anchor;
  options.anchor = settings.choice({"anchor",
                                    "What a worker's part is subtracted from: the server's last value, or what "
                                    "the worker itself began from."},
                                   {{"server", Anchor::server}, {"base", Anchor::base}}, options.anchor);
  options.late = settings.choice({"late",
                                  "Whether answers to a round that has ended are dropped, or count in their "
                                  "fragment's next round."},
                                 {{"drop", LateAnswers::drop}, {"count", LateAnswers::count}}, options.late);
  Settings outer = settings.section({"outer", "The optimizer that steps along the merged outer gradients."});
  options.outer = make_outer_optimizer(outer);
  return std::make_unique<DecoupledDiLoCo>(options);
}

}  // namespace syncopate
