#include "experiments/execution/measured_cost.hpp"

#include <algorithm>
#include <exception>

#include "results/tables/progress.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr double set_up_s = 1;         // less than this, and what libraries do first may be most of it
constexpr double long_enough_s = 0.3;  // of the steps by which two samples differ
constexpr double at_most_s = 3;        // of all samples that are told apart so far

struct Sample {
  std::int64_t steps = 0;
  RunCost cost{};
};

// The first steps of the run; nothing if they fail.
std::optional<Sample> sample_of(const Run& run, std::int64_t steps, const Machinery& machinery) {
  Run part = run;
  part.budget.steps = Step{steps};
  Progress progress(Progress::Style::silent, 1, 1);
  const Outcome outcome = execute(part, machinery, progress, [](const Outcome&) {});
  const RunSummary summary = summarise(part, outcome);
  if (summary.status != RunStatus::finished || summary.steps == 0) return {};
  double bytes = 0;
  for (const auto& [name, contents] : files_of(part, outcome, summary, machinery))
    bytes += static_cast<double>(contents.size());
  return Sample{.steps = summary.steps, .cost = {.host_s = outcome.host_s, .bytes = bytes}};
}

// A line through both: what each step takes, and what the two evaluations at the beginning and the end take with all
// that is done once.
struct Line {
  double per_step = 0, fixed = 0;
};
Line line_through(const Sample& a, const Sample& b, double RunCost::*of) {
  const double per_step = std::max(0.0, (b.cost.*of - a.cost.*of) / static_cast<double>(b.steps - a.steps));
  return {.per_step = per_step, .fixed = std::max(0.0, a.cost.*of - per_step * static_cast<double>(a.steps))};
}

KnownCost extrapolated(const Run& run, const Sample& before, const Sample& last) {
  const std::int64_t steps = planned_steps(run)->value();
  const auto of_steps = static_cast<double>(steps);
  const double evaluations =
      2 + of_steps / static_cast<double>(std::max<std::int64_t>(1, run.evaluation.every_steps.value()));
  const Line time = line_through(before, last, &RunCost::host_s), space = line_through(before, last, &RunCost::bytes);
  return {.kind = run.work_kind,
          .method = run.method,
          .steps = steps,
          .micro_batches = planned_micro_batches(run).value_or(0),
          .cost = {.host_s = time.per_step * of_steps + time.fixed / 2 * evaluations,
                   .bytes = space.per_step * of_steps + space.fixed},
          .fixed_bytes = space.fixed};
}

}  // namespace

std::optional<KnownCost> measured_cost(const Run& run, const Machinery& machinery) {
  const std::optional<Step> planned = planned_steps(run);
  constexpr std::int64_t shortest = 64;  // the first 21 of them are made
  if (machinery.mpi || !planned || planned->value() < shortest) return {};
  try {
    std::optional<Sample> before, last;
    double spent_s = 0;
    for (std::int64_t steps = 1; steps <= planned->value() / 4; steps *= 4) {
      const std::optional<Sample> sample = sample_of(run, steps, machinery);
      if (!sample || (last && sample->steps <= last->steps)) return {};
      const bool sets_up = steps == 1 && sample->cost.host_s < set_up_s;
      spent_s += sample->cost.host_s;
      before = last;
      last = sets_up ? std::nullopt : sample;
      const bool differ = before && last->cost.host_s - before->cost.host_s > long_enough_s;
      if (differ || (before && spent_s > at_most_s)) break;
    }
    if (!before || !last) return {};
    return extrapolated(run, *before, *last);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself says so
    return {};
  }
}

}  // namespace syncopate
