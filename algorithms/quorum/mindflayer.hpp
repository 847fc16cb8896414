// MindFlayer SGD: a server's step consists of trials, that is, of gradients that workers give up after a time limit.
// Each worker makes a fixed number of trials at the server's newest model, successful or not. The sum of the
// gradients of successful trials is divided by their expected number.
// Source:  Maranjyan, Shaikh Omar, Richtarik, "MindFlayer SGD", UAI 2025, arXiv 2410.04285; class FixedClipping
//          (fixed_clipping_master) of the authors' published code (vectozavr/ringmaster-lmo), which is taken for the
//          paper's method.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: limits in seconds on each worker's clock.
// Cost:    per step N models down and B_1 + ... + B_N messages up, with P floats if the trial succeeds, else with none.
// Differs: worker i makes B_i trials with the time limit t_i, each of which succeeds with probability p_i. The step
//          goes along (sum of the successful gradients) / (sum of p_i B_i). We have not read the paper's text; the
//          formula is FixedClipping's. It is not established how the paper chooses t_i, B_i and p_i: the file gives
//          all of them. If all p_i are wrong by a factor, so is the learning rate. A worker that has made its trials
//          waits for the next model. A step whose trials have all failed has a gradient of zero, so that steps stay
//          unbiased; momentum and weight decay still act. If a worker leaves within a step, the trials that it has made
//          count. A trial is a step of M micro-batches, with one limit; in the code it is one gradient.
//          `rule = "clipping-rennala"` is another class of the same code (below). Not implemented: the code's other
//          classes named after MindFlayer, in which the clock ends a step (mindflayer_master,
//          mindflayer_clientwise_master, clipping_mindflayer_master).
// Checks:  with infinite limits and one trial per worker it is synchronous SGD bit for bit; a hand-worked timeline with
//          different limits, trials and probabilities; a step without any success; the mean over many runs is the same
//          with limited and unlimited trials; a limit that no trial ever meets ends the run with a message.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

struct MindflayerOptions {
  struct Trials {
    int count = 1;                      // B_i
    Duration limit = longest_duration;  // t_i, for each trial
    double arrival_probability = 1;     // p_i, probability that a trial succeeds
  };
  Trials usual{};
  std::map<int, Trials> of_workers{};  // by rank: workers with other values

  const Trials& of(Rank worker) const {
    const auto own = of_workers.find(worker.value);
    return own == of_workers.end() ? usual : own->second;
  }
  std::int64_t trials_of_all(int workers) const {
    const auto others = static_cast<std::int64_t>(of_workers.size());
    return std::accumulate(of_workers.begin(), of_workers.end(), (workers - others) * usual.count,
                           [](std::int64_t sum, const auto& own) { return sum + own.second.count; });
  }
};

// Sends the worker's next gradient, or a note if the deadline's time passes first. Returns false if neither was
// possible: the next model has arrived, or the worker's data are used up.
inline bool make_trial(Worker& worker, const Deadline& deadline) {
  if (auto gradient = worker.compute_step_gradient(deadline, Samples::in_turn))
    worker.send_gradient(*std::move(gradient));
  else if (worker.now() >= deadline.at)
    worker.send(worker.server(), Message::note(worker.step()));
  else
    return false;
  return true;
}

// Fails the run after very many successive failed trials. Otherwise it would never end if the limit of trials were
// below every worker's time.
class FailedTrials {
 public:
  explicit FailedTrials(Server& server) : server_(server) {}

  void count(bool succeeded, Duration limit) {
    constexpr std::int64_t most_per_worker = 1000;
    in_a_row_ = succeeded ? 0 : in_a_row_ + 1;
    if (in_a_row_ > most_per_worker * server_.size())
      server_.fail(
          fmt::format("none of the last {} trials finished within limit_s ({:g} s)", in_a_row_, to_seconds(limit)));
  }

 private:
  Server& server_;
  std::int64_t in_a_row_ = 0;
};

class Mindflayer : public Algorithm {
 public:
  explicit Mindflayer(MindflayerOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override {
    const MindflayerOptions::Trials& own = options_.of(worker.rank());
    while (worker.receive_model())
      for (int trial = 0; trial < own.count; ++trial)
        if (!make_trial(worker, Deadline::until_message(later(worker.now(), own.limit)))) break;
  }

  void serve(Server& server) const override {
    server.set_gradients_per_step(static_cast<int>(options_.trials_of_all(server.size())));
    FailedTrials failed(server);
    while (server.budget_left()) {
      server.send_model(Receivers::all);
      Gradient sum;
      ByRank<int> made(server.size(), 0);
      const auto count_missing = [&] {
        std::int64_t missing = 0;
        for (const Rank worker : Ranks(server.size()))
          if (made[worker] < options_.of(worker).count && !server.has_left(worker)) ++missing;
        return missing;
      };
      for (std::int64_t missing = count_missing(); missing > 0;) {
        const auto trial = server.receive();
        if (!trial) missing = count_missing();  // a worker has left
        if (!trial) continue;
        const MindflayerOptions::Trials& own = options_.of(trial->from);
        const bool succeeded = trial->kind == Message::Kind::gradient;
        if (succeeded && server.accept(*trial, {.maximum_staleness = 0})) sum += trial->gradient;
        failed.count(succeeded, own.limit);
        if (trial->step != server.step()) continue;  // sent in an earlier step by a worker that has left
        if (++made[trial->from] == own.count && !server.has_left(trial->from)) --missing;
      }
      double expected = 0;  // expected number of successful trials
      for (const Rank worker : Ranks(server.size())) expected += made[worker] * options_.of(worker).arrival_probability;
      if (expected == 0) return;  // all workers have left
      server.descend(std::move(sum) / (expected * server.micro_batches()));
      server.publish();
    }
  }

  Traits traits() const override {
    return {.servers = 1, .steps_along_fresh_mean = true, .sends_gradients = true, .held = {.models = 0, .moments = 0}};
  }

 private:
  MindflayerOptions options_;
};

// Clipping Rennala, `rule = "clipping-rennala"` of the method `mindflayer`: K-batch-sync in which each gradient has a
// time limit. A worker abandons a gradient that is not finished by then and begins the next one. A step ends after S
// trials of all workers together, successful or not.
// Source:  class ClippingRennala (clipping_rennala_master) of the published code of MindFlayer's authors
//          (vectozavr/ringmaster-lmo). It is not the paper's method.
// Cost:    per step N models down and S or more messages up, with P floats if the trial succeeds, else with none.
// Differs: the step goes along `correction` x (sum of the gradients) / S. By default the factor is 1, as in the code;
//          the inverse of the success rate makes the step unbiased. A trial is a step of M micro-batches. All workers
//          have the same limit; in the code each has its own. A step whose trials have all failed continues until one
//          succeeds, and S then counts all of them. Work that is in progress at the end of a step is cancelled and not
//          counted. If a server's own link carries too few gradients, see k_batch_sync.hpp. Before results version 6
//          this was the only rule of `mindflayer`.
// Checks:  an infinite limit is K-batch-sync with K = S bit for bit; with exponential times X of mean mu and limit t,
//          many trials take S E[min(X, t)] / N, and a share 1 - exp(-t / mu) succeeds; a hand-worked timeline; a limit
//          that no trial ever meets ends the run with a message.
struct ClippingRennalaOptions {
  int trials = 1;                     // S, trials per step of all workers together
  Duration limit = longest_duration;  // for each trial
  double correction = 1;              // factor of the mean over trials
};

class ClippingRennala : public FreshGradients {
 public:
  explicit ClippingRennala(const ClippingRennalaOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    while (worker.receive_model())
      while (make_trial(worker, Deadline::until_message(later(worker.now(), options_.limit)))) continue;
  }

  void serve(Server& server) const override {
    server.set_gradients_per_step(options_.trials);
    FailedTrials failed(server);
    while (server.budget_left()) {
      server.send_model(Receivers::all);
      Gradient sum;
      int trials = 0;
      do {
        const auto trial = server.receive_until_all_left();
        if (!trial) return;
        const bool succeeded = trial->kind == Message::Kind::gradient;
        if (succeeded && server.accept(*trial, {.maximum_staleness = 0})) sum += trial->gradient;
        if (trial->step == server.step()) ++trials;
        failed.count(succeeded, options_.limit);
      } while (trials < options_.trials || sum.micro_batches() == 0);
      server.descend(sum * (options_.correction / (trials * server.micro_batches())));
      server.publish();
    }
  }

 private:
  ClippingRennalaOptions options_;
};

inline constexpr std::int64_t most_trials = 1'000'000;
inline const Key trial_limit_key{"limit_s", "Time after which an unfinished gradient is abandoned; inf: never.", "s"};
inline const Key trial_probability_key{
    "arrival_probability", "Probability that a trial finishes in time (p_i); sums are divided by the expected number.",
    "", "1, for limit_s = inf"};
inline const Key trial_count_key{"trials_per_worker",
                                 "Trials of each worker per step (B_i), whether they finish or not."};
inline constexpr Range trial_probabilities{.low = 0, .high = 1, .low_open = true};

// Reads one table of `groups`. Each worker may be in at most one group.
inline void read_trials_of_group(Settings& group, const AlgorithmContext& context, const BudgetCheck& work,
                                 double usual_limit_s, MindflayerOptions& options) {
  constexpr std::string_view usual = "that outside groups";
  const std::size_t faults = group.faults_so_far();
  const auto ranks =
      group.integers({"workers", "The workers of the group, by rank."}, 0, Stated(context.workers - 1, "workers - 1"));
  if (ranks.empty() && group.faults_so_far() == faults) group.fault("workers", "must name at least one worker");
  MindflayerOptions::Trials trials = options.usual;
  trials.count = static_cast<int>(group.integer(trial_count_key, 1, most_trials, Stated(options.usual.count, usual)));
  work.check(group, trial_count_key.name, trials.count);
  const double limit_s = group.number(trial_limit_key, Range::positive(), Stated(usual_limit_s, usual));
  trials.limit = from_seconds(limit_s);
  const bool is_done_always = group.has(trial_limit_key.name) && std::isinf(limit_s);
  trials.arrival_probability = group.number(trial_probability_key, trial_probabilities,
                                            Stated(is_done_always ? 1 : options.usual.arrival_probability, usual));
  if (group.has(trial_limit_key.name) && !is_done_always && !group.has(trial_probability_key.name))
    group.fault(trial_probability_key.name, "must be given, because the group has its own limit_s");
  for (const std::int64_t rank : ranks)
    if (!options.of_workers.emplace(static_cast<int>(rank), trials).second)
      group.fault("workers", fmt::format("must list each worker once, in one group; worker {} is listed twice", rank));
}

inline std::unique_ptr<Algorithm> make_own_trials(Settings& settings, const AlgorithmContext& context) {
  MindflayerOptions options;
  bool is_of_other_rule = false;
  for (const char* const key : {"trials", "correction"}) {
    if (!settings.has(key)) continue;
    if (!is_of_other_rule)
      settings.fault(key,
                     "is a key of rule = \"clipping-rennala\", the only rule before results version 6: set that rule, "
                     "or use trials_per_worker and arrival_probability");
    is_of_other_rule = true;
  }
  const BudgetCheck work = BudgetCheck::of_steps(context.total_steps, context.workers).of(context.workers);
  options.usual.count = static_cast<int>(settings.integer(trial_count_key, 1, most_trials, options.usual.count));
  work.check(settings, trial_count_key.name, options.usual.count);
  const std::size_t faults = settings.faults_so_far();
  const double limit_s = settings.number(trial_limit_key, Range::positive());
  options.usual.limit = from_seconds(limit_s);
  const auto probability = settings.optional_number(trial_probability_key, trial_probabilities);
  options.usual.arrival_probability = probability.value_or(1);
  if (!probability && !std::isinf(limit_s) && !is_of_other_rule && settings.faults_so_far() == faults)
    settings.fault(trial_probability_key.name,
                   "must be given unless limit_s = inf: steps are divided by the share of trials that finish in time");
  for (Settings& group : settings.sections({"groups", "Workers with another limit, or another number of trials."}))
    read_trials_of_group(group, context, work, limit_s, options);
  if (options.trials_of_all(context.workers) > std::numeric_limits<int>::max())
    settings.fault(trial_count_key.name,
                   "must be smaller: all workers together may make at most 2147483647 trials per step");
  return std::make_unique<Mindflayer>(std::move(options));
}

inline std::unique_ptr<Algorithm> make_clipping_rennala(Settings& settings, const AlgorithmContext& context) {
  ClippingRennalaOptions options;
  options.trials = static_cast<int>(settings.integer(
      {"trials", "Trials of all workers together per step (S), whether they finish or not."}, 1, 1'000'000));
  // Only a budget in steps is checked: how many samples a trial uses is not known in advance.
  BudgetCheck::of_steps(context.total_steps, context.workers).check(settings, "trials", options.trials);
  options.limit = from_seconds(settings.number(trial_limit_key, Range::positive()));
  options.correction =
      settings.number({"correction", "Factor of the mean over trials; 1 / (share that finishes) makes steps unbiased."},
                      Range::positive(), options.correction);
  return std::make_unique<ClippingRennala>(options);
}

inline std::unique_ptr<Algorithm> make_mindflayer(Settings& settings, const AlgorithmContext& context) {
  enum class Rule { mindflayer, clipping_rennala };
  const auto rule = settings.choice(
      {"rule", "Whether each worker has a fixed number of trials per step, or all workers together have `trials`."},
      {{"mindflayer", Rule::mindflayer}, {"clipping-rennala", Rule::clipping_rennala}}, Rule::mindflayer);
  return rule == Rule::mindflayer ? make_own_trials(settings, context) : make_clipping_rennala(settings, context);
}

}  // namespace syncopate
