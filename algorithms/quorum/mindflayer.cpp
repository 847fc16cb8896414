#include "algorithms/quorum/mindflayer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace syncopate {

namespace {

// Sends the worker's next gradient, or a note if the deadline's time passes first. Returns false if neither was
// possible: the next model has arrived, or the worker's data are used up.
bool make_trial(Worker& worker, const Deadline& deadline) {
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

}  // namespace

std::int64_t MindflayerOptions::trials_of_all(int workers) const {
  const auto others = static_cast<std::int64_t>(of_workers.size());
  return std::accumulate(of_workers.begin(), of_workers.end(), (workers - others) * usual.count,
                         [](std::int64_t sum, const auto& own) { return sum + own.second.count; });
}

void Mindflayer::run(Worker& worker) const {
  const MindflayerOptions::Trials& own = options_.of(worker.rank());
  while (worker.receive_model())
    for (int trial = 0; trial < own.count; ++trial)
      if (!make_trial(worker, Deadline::until_message_or(later(worker.now(), own.limit)))) break;
}

void Mindflayer::serve(Server& server) const {
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

void ClippingRennala::run(Worker& worker) const {
  while (worker.receive_model())
    while (make_trial(worker, Deadline::until_message_or(later(worker.now(), options_.limit)))) continue;
}

void ClippingRennala::serve(Server& server) const {
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

namespace {

constexpr std::int64_t most_trials = 1'000'000;
const Key limit_key{"limit_s", "Time after which an unfinished gradient is abandoned; inf: never.", "s"};
const Key probability_key{"arrival_probability",
                          "Probability that a trial finishes in time (p_i); sums are divided by the expected number.",
                          "", "1, for limit_s = inf"};
const Key count_key{"trials_per_worker", "Trials of each worker per step (B_i), whether they finish or not."};
constexpr Range probabilities{.low = 0, .high = 1, .low_open = true};

// Reads one table of `groups`. Each worker may be in at most one group.
void read_group(Settings& group, const AlgorithmContext& context, const BudgetCheck& work, double usual_limit_s,
                MindflayerOptions& options) {
  constexpr std::string_view usual = "that outside groups";
  const std::size_t faults = group.faults_so_far();
  const auto ranks =
      group.integers({"workers", "The workers of the group, by rank."}, 0, Stated(context.workers - 1, "workers - 1"));
  if (ranks.empty() && group.faults_so_far() == faults) group.fault("workers", "must name at least one worker");
  MindflayerOptions::Trials trials = options.usual;
  trials.count = static_cast<int>(group.integer(count_key, 1, most_trials, Stated(options.usual.count, usual)));
  work.check(group, count_key.name, trials.count);
  const double limit_s = group.number(limit_key, Range::positive(), Stated(usual_limit_s, usual));
  trials.limit = from_seconds(limit_s);
  const bool is_done_always = group.has(limit_key.name) && std::isinf(limit_s);
  trials.arrival_probability = group.number(probability_key, probabilities,
                                            Stated(is_done_always ? 1 : options.usual.arrival_probability, usual));
  if (group.has(limit_key.name) && !is_done_always && !group.has(probability_key.name))
    group.fault(probability_key.name, "must be given, because the group has its own limit_s");
  for (const std::int64_t rank : ranks)
    if (!options.of_workers.emplace(static_cast<int>(rank), trials).second)
      group.fault("workers", fmt::format("must list each worker once, in one group; worker {} is listed twice", rank));
}

std::unique_ptr<Algorithm> make_own_trials(Settings& settings, const AlgorithmContext& context) {
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
  options.usual.count = static_cast<int>(settings.integer(count_key, 1, most_trials, options.usual.count));
  work.check(settings, count_key.name, options.usual.count);
  const std::size_t faults = settings.faults_so_far();
  const double limit_s = settings.number(limit_key, Range::positive());
  options.usual.limit = from_seconds(limit_s);
  const auto probability = settings.optional_number(probability_key, probabilities);
  options.usual.arrival_probability = probability.value_or(1);
  if (!probability && !std::isinf(limit_s) && !is_of_other_rule && settings.faults_so_far() == faults)
    settings.fault(probability_key.name,
                   "must be given unless limit_s = inf: steps are divided by the share of trials that finish in time");
  for (Settings& group : settings.sections({"groups", "Workers with another limit, or another number of trials."}))
    read_group(group, context, work, limit_s, options);
  if (options.trials_of_all(context.workers) > std::numeric_limits<int>::max())
    settings.fault(count_key.name, "must be smaller: all workers together may make at most 2147483647 trials per step");
  return std::make_unique<Mindflayer>(std::move(options));
}

std::unique_ptr<Algorithm> make_clipping_rennala(Settings& settings, const AlgorithmContext& context) {
  ClippingRennalaOptions options;
  options.trials = static_cast<int>(settings.integer(
      {"trials", "Trials of all workers together per step (S), whether they finish or not."}, 1, 1'000'000));
  // Only a budget in steps is checked: how many samples a trial uses is not known in advance.
  BudgetCheck::of_steps(context.total_steps, context.workers).check(settings, "trials", options.trials);
  options.limit = from_seconds(settings.number(limit_key, Range::positive()));
  options.correction =
      settings.number({"correction", "Factor of the mean over trials; 1 / (share that finishes) makes steps unbiased."},
                      Range::positive(), options.correction);
  return std::make_unique<ClippingRennala>(options);
}

}  // namespace

std::unique_ptr<Algorithm> make_mindflayer(Settings& settings, const AlgorithmContext& context) {
  enum class Rule { mindflayer, clipping_rennala };
  const auto rule = settings.choice(
      {"rule", "Whether each worker has a fixed number of trials per step, or all workers together have `trials`."},
      {{"mindflayer", Rule::mindflayer}, {"clipping-rennala", Rule::clipping_rennala}}, Rule::mindflayer);
  return rule == Rule::mindflayer ? make_own_trials(settings, context) : make_clipping_rennala(settings, context);
}

}  // namespace syncopate
