// Streaming DiLoCo: a model's fragments are synchronised one after the other, each once in a round of H local steps,
// and each average is under way while the workers take tau steps more. An outer optimizer steps along it, and the
// workers take the new fragment on, or mix it with their own.
// Source:  Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch";
//          the rules after others' code of it (pytorch/torchft).
// Shapes:  gradient, parameters, outer momentum: (d,) flat float32; fragment p: (d / P,) of them.
//          Units: delay in local steps, mixing without one.
// Cost:    an all-reduce of d / P floats per fragment and round, or what a compression of it exchanges: as much as
//          DiLoCo in all, 1 / P of it at a time. Two more vectors of d floats per worker. With steps of c and an
//          all-reduce time of A, H steps take H c + P max(0, A(d / P) - tau c) where tau <= H / P, with a longer delay
//          max(H c, P A(d / P)). A worker late by less than tau c - A delays nobody; one that is slower for good sets
//          the pace.
// Differs: fragments are equal slices (rounds.hpp); the paper's are layers. A fragment's average starts at its turn, p
//          H / P steps into the round (p = 1 to P), and comes back tau steps later; the code starts it tau steps before
//          its turn, which shifts all by tau steps. The code wants H to be a multiple of P, and tau < H / P, so that
//          one average is under way at a time; here turns are rounded up, and tau <= H. The workers' models are
//          averaged, whose mean lies as far from the outer model as the mean of their differences. Where tau = H a
//          fragment's next average starts before the outer step of the last one, so that its outer gradient is the
//          distance to the stepped model, not to the one at its start. A worker's fragment becomes (1 - mixing) new +
//          mixing own: 0 takes the new one, 1 keeps the own one. The tau steps made meanwhile are not added back. Each
//          fragment has its own outer momentum. With `compression` the fragment's outer gradient travels, its
//          difference to the outer model, with error feedback a residual for each worker and fragment. The paper's have
//          4 bits without a residual; `fp4` is after it, in a format that is not established as the paper's, nor is its
//          outer learning rate. The outer model is evaluated: each fragment as it is after its last outer step. After
//          the last step averages under way are waited for; steps since a fragment's last turn are in no outer model,
//          unless there is one fragment alone. Moments stay with their workers. A worker that loses its state goes back
//          to its copy of the last time that it started or finished an average; started averages go on. If one leaves,
//          the run ends and says why.
// Checks:  P = 1, tau = 0, mixing = 0 is DiLoCo bit for bit; P fragments, tau = 0, a plain outer step of rate 1: each
//          fragment's own Local SGD; mixing = 1: workers that train alone; a recursion in double precision.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "algorithms/local_sgd/overlapped_rounds.hpp"

namespace syncopate {

struct StreamingOptions {
  Fragments fragments{1};
  Step delay{};       // tau
  double mixing = 0;  // alpha
};

class StreamingDiloco : public Algorithm {
 public:
  StreamingDiloco(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer,
                  StreamingOptions options, const StatePolicies& policies)
      : period_(std::move(period)), outer_(std::move(outer)), options_(std::move(options)), policies_(policies) {}

  void run(Worker& worker) const override {
    train_together(worker, period_->synchronous_steps(), policies_);
    options_.fragments.check(worker);
    OuterFragments outer(worker, options_.fragments, *outer_, options_.mixing, policies_);
    PlannedSteps steps(worker);
    const auto train_until = [&](Step step) { steps.take_until(step, [&](double rate) { outer.add_step(rate); }); };
    while (steps.steps_left() && (outer.is_first() || worker.budget_left())) {
      const Step begin = steps.planned(), round = steps.round(*period_);
      for (int fragment = 0; fragment < options_.fragments.count(); ++fragment) {
        const Step turn = begin + options_.fragments.offset(fragment, round);
        while (outer.are_due_before(turn)) {
          train_until(outer.next_due());
          outer.finish_next();
        }
        train_until(turn);
        outer.start(fragment, turn + options_.delay);
        while (outer.are_due_before(turn + 1)) outer.finish_next();
      }
    }
    while (outer.are_under_way()) outer.finish_next();
  }

  Traits traits() const override {
    Traits traits{.follows_clock = false,
                  .judges_budget_locally = true,
                  .publishes_rounds = true,
                  .averages_models = true,
                  .averaged_slices = options_.fragments.count(),
                  .waits_for_averages = false};
    if (options_.delay == Step{0}) traits.lockstep_from_step = 0;  // nothing is under way while anybody computes
    return traits;
  }

  // All fragments of a round are as much as the whole model.
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    Communicated sum = communicated_in_rounds(*period_, policies_.average, input);
    const Step together = std::min(period_->synchronous_steps(), input.steps);
    sum.rounds += (sum.rounds - together.value()) * (options_.fragments.count() - 1);
    return sum;
  }

 private:
  std::shared_ptr<const SyncPeriod> period_;
  std::shared_ptr<const OuterOptimizer> outer_;
  StreamingOptions options_;
  StatePolicies policies_;
};

// The shortest round in the known steps of the run; where the rate is not known, the first round.
inline Step shortest_round(const SyncPeriod& period, const AlgorithmContext& context) {
  constexpr Step endless = std::numeric_limits<Step::Rep>::max() / 2;
  constexpr int most_rounds = 1'000'000;
  Step shortest = endless, done = period.synchronous_steps();
  const Step end = context.learning_rate ? context.total_steps.value_or(done) : done;
  for (int rounds = 0; rounds == 0 || (done < end && rounds < most_rounds); ++rounds) {
    const Step round = period.at(done, context.learning_rate ? context.learning_rate->at(done) : 1.0, endless);
    shortest = std::min(shortest, round);
    done += round;
  }
  return shortest;
}

inline std::unique_ptr<Algorithm> make_streaming_diloco(Settings& settings, const AlgorithmContext& context) {
  const std::size_t faults = settings.faults_so_far();
  auto period = read_sync_period(settings, context);
  const bool has_period = settings.faults_so_far() == faults;
  auto outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  StreamingOptions options{.fragments = read_fragments(settings, {}, context.parameters)};
  options.delay = Step{settings.integer(
      {"delay", "After how many local steps an average is taken in (tau), at most those of a round.", "steps"}, 0,
      1'000'000'000, 0)};
  options.mixing =
      settings.number({"mixing", "How much of a worker's own fragment stays when a new one has come (alpha)."},
                      Range::between(0, 1), 0.0);
  if (const Step round = shortest_round(*period, context); has_period && options.delay > round)
    settings.fault("delay", fmt::format("must be at most {}, the steps of the shortest round", round.value()));
  return std::make_unique<StreamingDiloco>(std::move(period), std::move(outer), std::move(options),
                                           read_overlapped_policies(settings, context));
}

}  // namespace syncopate
