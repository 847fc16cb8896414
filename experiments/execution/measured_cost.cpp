#include "experiments/execution/measured_cost.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "results/tables/progress.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr double set_up_s = 1;         // less than this, and what libraries do first may be most of it
constexpr double long_enough_s = 0.3;  // of the steps by which two samples differ
constexpr double clear_share = 0.25;   // of the smaller sample, most of which may be evaluations, that vary
constexpr double at_most_s = 10;       // of all samples that are told apart so far

struct Sample {
  double share = 0;  // of the budget
  std::int64_t steps = 0;
  RunCost cost{};
};

void cut(Budget& budget, double share) {
  const auto part = [share](std::int64_t whole) {
    return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(whole)));
  };
  if (budget.steps) budget.steps = Step{part(budget.steps->value())};
  if (budget.seconds) *budget.seconds *= share;
  if (budget.samples) budget.samples = part(*budget.samples);
  if (budget.bytes) budget.bytes = Bytes{part(budget.bytes->value())};
}

double share_of(const Budget& budget, const RunSummary& summary) {
  double share = 0;
  const auto reached = [&share](auto value, auto limit) {
    share = std::max(share, static_cast<double>(value) / static_cast<double>(limit));
  };
  if (budget.steps) reached(summary.steps, budget.steps->value());
  if (budget.seconds) reached(summary.end_time_s, *budget.seconds);
  if (budget.samples) reached(summary.samples, *budget.samples);
  if (budget.bytes) reached(summary.communicated_bytes, budget.bytes->value());
  return share;
}

// The first steps of the run, up to about this share of its budget, of which there may be none; nothing if they fail.
std::optional<Sample> sample_of(const Run& run, double share, const Machinery& machinery) {
  Run part = run;
  cut(part.budget, share);
  Progress progress(Progress::Style::silent, 1, 1);
  const Outcome outcome = execute(part, machinery, progress, [](const Outcome&) {});
  const RunSummary summary = summarise(part, outcome);
  if (summary.status != RunStatus::finished) return {};
  double bytes = 0;
  for (const auto& [name, contents] : files_of(part, outcome, summary, machinery))
    bytes += static_cast<double>(contents.size());
  return Sample{.share = share_of(run.budget, summary),
                .steps = summary.steps,
                .cost = {.host_s = outcome.host_s, .bytes = bytes}};
}

// A line through both: what all of the budget takes, and what the two evaluations at the beginning and the end take
// with all that is done once.
struct Line {
  double all = 0, fixed = 0;
};
Line line_through(const Sample& a, const Sample& b, double RunCost::*of) {
  const double all = std::max(0.0, (b.cost.*of - a.cost.*of) / (b.share - a.share));
  return {.all = all, .fixed = std::max(0.0, a.cost.*of - all * a.share)};
}

// What one of [measurements] takes, by the first steps with and without the one before them.
double measurement_s(const Run& run, double share, const Machinery& machinery) {
  if (run.measurements.every_steps == Step{}) return 0;
  Run without = run;
  without.measurements = {};
  const auto with_it = sample_of(run, share, machinery), without_it = sample_of(without, share, machinery);
  if (!with_it || !without_it || with_it->steps == 0) return 0;
  const auto measured = 1 + with_it->steps / run.measurements.every_steps.value();
  return std::max(0.0, with_it->cost.host_s - without_it->cost.host_s) / static_cast<double>(measured);
}

// How often something is done along the run beside its beginning and its end.
double times_along(const Run& run, double steps) {
  if (run.evaluation.every_duration > Duration{} && run.budget.seconds)
    return *run.budget.seconds / to_seconds(run.evaluation.every_duration);
  return steps / static_cast<double>(std::max<std::int64_t>(1, run.evaluation.every_steps.value()));
}

KnownCost extrapolated(const Run& run, const Sample& before, const Sample& last, double measurement_s) {
  const double steps = static_cast<double>(last.steps) / last.share;
  const Line time = line_through(before, last, &RunCost::host_s), space = line_through(before, last, &RunCost::bytes);
  const double measurements =
      measurement_s > 0 ? 1 + steps / static_cast<double>(run.measurements.every_steps.value()) : 0;
  return {.kind = run.work_kind,
          .method = run.method,
          .steps = std::llround(steps),
          .micro_batches = steps * run.cluster.workers * run.cluster.micro_batches,
          .cost = {.host_s = time.all + time.fixed / 2 * (2 + times_along(run, steps)) + measurement_s * measurements,
                   .bytes = space.all + space.fixed},
          .fixed_bytes = space.fixed};
}

}  // namespace

std::optional<KnownCost> measured_cost(const Run& run, const Machinery& machinery) {
  const std::optional<Step> planned = planned_steps(run);
  constexpr std::int64_t shortest = 64;  // the first 21 of them are made
  if (machinery.together() || (planned && planned->value() < shortest)) return {};
  try {
    constexpr double smallest_share = 1.0 / 4096;  // of a budget that does not count steps
    Run unmeasured = run;
    unmeasured.measurements = {};
    std::optional<Sample> before, last;
    double spent_s = 0;
    bool is_first = true;
    const double first = planned ? 1.0 / static_cast<double>(planned->value()) : smallest_share;
    for (double share = first; share <= 0.25; share *= 4) {
      const std::optional<Sample> sample = sample_of(unmeasured, share, machinery);
      if (!sample) return {};
      if (sample->steps <= (last ? last->steps : 0)) continue;
      const bool sets_up = std::exchange(is_first, false) && sample->cost.host_s < set_up_s;
      spent_s += sample->cost.host_s;
      before = last;
      last = sets_up ? std::nullopt : sample;
      const bool differ = before && last->cost.host_s - before->cost.host_s >
                                        std::max(long_enough_s, clear_share * before->cost.host_s);
      if (differ || (before && spent_s > at_most_s)) break;
    }
    if (!before || !last || static_cast<double>(last->steps) < last->share * static_cast<double>(shortest)) return {};
    return extrapolated(run, *before, *last, measurement_s(run, before->share, machinery));
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself says so
    return {};
  }
}

}  // namespace syncopate
