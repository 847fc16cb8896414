#include "algorithms/local_sgd/edit_round.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "algorithms/local_sgd/norm_statistics.hpp"

namespace syncopate {
namespace {

// What a worker tells of its steps, after its norms.
constexpr std::size_t kept = 0, passed = 1, rates = 2, has_ended = 3, told = 4;

RoundMeeting conclude(std::span<const double> all, std::size_t modules, bool has_model, const EditOptions& options,
                      std::span<const NormStatistics> before) {
  RoundMeeting met;
  std::vector<double> norms, steps;
  double all_passed = 0, all_kept = 0, all_rates = 0;
  bool is_end = false;
  for (; !all.empty(); all = all.subspan(modules + (options.tells_steps() ? told : 0))) {
    const std::span<const double> own = all.first(modules);
    if (has_model) norms.insert(norms.end(), own.begin(), own.end());
    if (!options.tells_steps()) continue;
    const std::span<const double> work = all.subspan(modules, told);
    steps.push_back(work[kept]);
    met.longest = std::max(met.longest, Step{static_cast<Step::Rep>(work[passed])});
    all_kept += work[kept];
    all_passed += work[passed];
    all_rates += work[rates];
    is_end = is_end || work[has_ended] != 0;
  }
  if (all_passed > 0) met.inner_rate = all_rates / all_passed;
  met.is_put_off = options.is_timed() && !is_end && all_kept < static_cast<double>(options.timed.minimum_steps);
  if (met.is_put_off)
    met.penalty.statistics.assign(before.begin(), before.end());
  else if (has_model)
    met.penalty = penalise(before, norms, steps, static_cast<int>(modules), options.penalty);
  return met;
}

}  // namespace

std::optional<std::int64_t> EditOptions::told_numbers() const {
  const bool is_whole = scope == Scope::model;
  if (!is_whole && !tensors) return std::nullopt;
  return (is_whole ? 1 : *tensors) + static_cast<std::int64_t>(tells_steps() ? told : 0);
}

double norm_of(const std::vector<double>& parts) {
  double squares = 0;
  for (const double part : parts) squares += part * part;
  return std::sqrt(squares);
}

std::shared_ptr<const RoundMeeting> meet(Worker& worker, const EditOptions& options, const ModelStatePtr& last,
                                         RoundWork& work, const std::shared_ptr<const RoundMeeting>& before) {
  std::vector<double> mine = worker.distance(worker.model(), last, each_tensor);
  const bool has_model = !mine.empty();
  if (!has_model)
    mine.assign(static_cast<std::size_t>(options.tensors.value_or(1)), std::numeric_limits<double>::quiet_NaN());
  if (options.scope == EditOptions::Scope::model) mine = {norm_of(mine)};
  const std::size_t modules = mine.size();
  if (options.tells_steps())
    mine.insert(mine.end(), {static_cast<double>((*work.kept).value()), static_cast<double>(work.passed.value()),
                             work.rates, worker.budget_left(Judged::alone) ? 0.0 : 1.0});
  return worker.all_gather(mine, [&](std::span<const double> all) {
    const std::span<const NormStatistics> statistics =
        before ? std::span(before->penalty.statistics) : std::span<const NormStatistics>();
    return conclude(all, modules, has_model, options, statistics);
  });
}

}  // namespace syncopate
