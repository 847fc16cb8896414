// PyTorch's post-local SGD: at first gradients are averaged over all workers, later only within groups (the workers of
// a node), at every step. Models are averaged over all workers now and then, optionally more often over groups.
// Source:  Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD"; PyTorch's hook post_localSGD, its
//          PeriodicModelAverager and its HierarchicalModelAverager (`levels`; arXiv 2010.12998).
//   steps have indices t = 0, 1, ...; before `start` gradients are averaged over all, from then on within groups.
//   After the optimizer's step t models are averaged if t >= warmup and
//     without levels: (t - warmup) mod period = 0, over all workers;
//     with levels:    t mod period = 0 for a period, over the groups of the longest such period, or over all workers.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    before `start` one all-reduce of P floats per step, then one within each group; one per average of models.
// Differs: a last average follows the last step. BatchNorm statistics are averaged with the models; how PyTorch's DDP
//          treats them is not confirmed here. Moments, also momentum, stay with their worker, as in PyTorch: the
//          workers of a group have equal moments, groups do not. Groups are workers of consecutive ranks; the last one
//          may be smaller, and its models count as much as others. A group whose budget ends within a period takes no
//          more steps, and takes part in the averages that are due until one of all workers. Since PyTorch counts steps
//          from 0, the first step in groups is averaged at once if warmup = start. Averages of models that are still
//          equal (warmup < start) are made as in PyTorch; each has its own row in steps.csv. The rule "post-local" of
//          `local-sgd` has no groups, and its first average follows a whole period. `hierarchical-sgd` averages models
//          within groups, not gradients: with momentum the two differ.
// Checks:  one group of all workers, or start = infinity, is synchronous SGD bit for bit; groups of one are Local SGD
//          with kept moments whose first average follows one step; indices of both averagers; an independent
//          reference.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

struct PostLocalOptions {
  // Averages of models over groups of this many workers.
  struct Level {
    int group_size = 1;
    Step period{1};
  };
  Step start{};                 // start_localSGD_iter
  Step warmup{};                // warmup_steps of the averager
  Step period{1};               // between averages of models over all workers
  int group_size = 1;           // workers that average gradients from `start` on
  std::vector<Level> levels{};  // with ascending sizes and periods; empty: PyTorch's PeriodicModelAverager
  StatePolicies policies{};
};

class PostLocalSgd : public Algorithm {
 public:
  explicit PostLocalSgd(PostLocalOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override {
    const int all = worker.size();
    const Step end = worker.step() + worker.steps_left();
    bool goes_on = true, are_equal = true;  // whether budget is left, and whether all workers have the same model
    for (Step step = worker.step();; ++step) {
      goes_on = goes_on && worker.budget_left();
      if (!goes_on && are_equal) return;
      if (goes_on)
        goes_on = take_step(worker, step);
      else
        step = std::min(next_average(step), end - 1);
      are_equal = are_equal && members_of_sum(step, all) == all;
      const int averaged = step + 1 == end && !are_equal ? all : members_of_average(step, all);
      if (averaged == all) {
        goes_on = worker.average_model({.policy = options_.policies.average});
        are_equal = true;
      } else if (averaged > 1) {
        goes_on = worker.average_model({.policy = options_.policies.average, .group_size = averaged});
      }
      if (are_equal) publish(worker, options_.policies);
    }
  }

  // The number of workers whose gradients are averaged at the step with this index.
  int members_of_sum(Step step, int all) const {
    return step < options_.start ? all : std::min(options_.group_size, all);
  }

  // The number of workers whose models are averaged after the step with this index; 0: none.
  int members_of_average(Step step, int all) const {
    if (step < options_.warmup) return 0;
    if ((step - begin_of_periods()).value() % options_.period.value() == 0) return all;
    for (auto level = options_.levels.rbegin(); level != options_.levels.rend(); ++level)
      if (step.value() % level->period.value() == 0) return std::min(level->group_size, all);
    return 0;
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .settles_after = std::max(options_.start, options_.warmup),
            .publishes_rounds = true,
            .exchanged_whole = "sums of gradients within groups and averages of models would need separate residuals"};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const int all = input.workers;
    Communicated sum;
    bool are_equal = true;
    for (Step step{}; step < input.steps; ++step) {
      const int summed = members_of_sum(step, all);
      are_equal = are_equal && summed == all;
      const int averaged = step + 1 == input.steps && !are_equal ? all : members_of_average(step, all);
      are_equal = are_equal || averaged == all;
      sum.rounds += (summed == all ? 1 : 0) + (averaged == all ? 1 : 0);
      sum.bytes += input.within_groups(summed, input.parameter_bytes);
      if (averaged > 0) sum.bytes += input.within_groups(averaged, input.payload_of(options_.policies.average));
    }
    return sum;
  }

 private:
  bool take_step(Worker& worker, Step step) const {
    const int members = members_of_sum(step, worker.size());
    Gradient sum = worker.compute_step_gradient();
    bool goes_on = true;
    if (members == worker.size())
      worker.all_reduce_sum(sum);
    else
      goes_on = worker.all_reduce_sum(sum, InGroup{members});
    worker.descend(sum / static_cast<double>(sum.micro_batches()));
    return goes_on;
  }

  // Only without levels do the averager's periods begin at the warm-up's end.
  Step begin_of_periods() const { return options_.levels.empty() ? options_.warmup : Step{}; }

  // The first index from `step` on after which an average is due.
  Step next_average(Step step) const {
    const Step from = std::max(step, options_.warmup), begin = begin_of_periods();
    const auto next = [&](Step period) {
      const Step::Rep past = (from - begin).value() % period.value();
      return past == 0 ? from : from + period - Step{past};
    };
    Step first = next(options_.period);
    for (const auto& level : options_.levels) first = std::min(first, next(level.period));
    return first;
  }

  PostLocalOptions options_;
};

inline std::unique_ptr<Algorithm> make_post_local_sgd(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most_steps = 1'000'000'000;
  PostLocalOptions options;
  options.start = settings.integer(
      {"start", "Steps in which gradients are averaged over all workers (start_localSGD_iter).", "steps"}, 0,
      most_steps);
  options.warmup = settings.integer(
      {"warmup", "Index of the first step after which models may be averaged (the averager's warmup_steps).", "steps"},
      0, most_steps, Stated<std::int64_t>(options.start.value(), "as `start`"));
  options.period =
      settings.integer({"period", "Steps between averages of all workers' models.", "steps"}, 1, most_steps);
  const Stated<std::int64_t> workers(context.workers, "workers");
  const bool sums = settings.flag({"post_local_gradient_allreduce",
                                   "Whether groups average gradients from `start` on; if not, workers train alone."},
                                  true);
  std::optional<Stated<std::int64_t>> usual;
  if (context.node_size) usual = Stated<std::int64_t>(*context.node_size, "the network's groups");
  if (!context.node_size && !sums) usual = Stated<std::int64_t>(1);
  const std::int64_t size = settings.integer(
      {"group_size",
       "How many workers average gradients from `start` on; by default a group of the network, if it has some."},
      1, workers, usual);
  options.group_size = sums ? static_cast<int>(size) : 1;
  int inner = options.group_size;
  Step shorter{};
  if (settings.has("levels"))
    for (Settings& table :
         settings.sections({"levels",
                            "Averages of groups' models between those of all workers (HierarchicalModelAverager).",
                            {},
                            "there are none"})) {
      PostLocalOptions::Level level;
      level.group_size = static_cast<int>(
          table.integer({"group_size", "How many workers of consecutive ranks average their models."}, 1, workers));
      level.period = table.integer({"period", "Steps between averages of the group's models.", "steps"}, 1, most_steps);
      if (level.group_size % inner != 0 || (level.group_size == inner && !options.levels.empty()))
        table.fault(
            "group_size",
            fmt::format("must be a multiple of {}, the size of the groups inside: groups must not overlap", inner));
      if (level.period <= shorter || level.period >= options.period)
        table.fault("period", "must be longer than that of smaller groups, and shorter than that of all workers");
      inner = std::max(1, level.group_size);
      shorter = level.period;
      options.levels.push_back(level);
    }
  options.policies = read_buffer_policies(settings);
  return std::make_unique<PostLocalSgd>(std::move(options));
}

}  // namespace syncopate
