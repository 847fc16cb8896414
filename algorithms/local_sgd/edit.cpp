#include "algorithms/local_sgd/edit.hpp"

#include <fmt/format.h>

#include <array>

namespace syncopate {

namespace {

// Indices of the numbers that a worker gathers after its norms if EditOptions::sends_steps(), and their number.
constexpr std::size_t kept = 0, passed = 1, rates = 2, has_ended = 3, of_steps = 4;

RoundMeeting conclude(std::span<const double> all, std::size_t modules, bool has_model, const EditOptions& options,
                      std::span<const NormStatistics> before) {
  RoundMeeting met;
  std::vector<double> norms, steps;
  double all_passed = 0, all_kept = 0, all_rates = 0;
  bool is_end = false;
  for (; !all.empty(); all = all.subspan(modules + (options.sends_steps() ? of_steps : 0))) {
    const std::span<const double> own = all.first(modules);
    if (has_model) norms.insert(norms.end(), own.begin(), own.end());
    if (!options.sends_steps()) continue;
    const std::span<const double> work = all.subspan(modules, of_steps);
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

// Returns exp(-norm / T) for each norm, divided by its value for the smallest norm, and 0 for an outlier (none).
std::vector<double> exponentials(std::span<const std::optional<double>> norms, double temperature) {
  double shortest = PenaltyOptions::infinity;
  for (const auto& norm : norms) shortest = std::min(shortest, norm.value_or(shortest));
  std::vector<double> result;
  for (const auto& norm : norms) result.push_back(norm ? std::exp((shortest - *norm) / temperature) : 0);
  return result;
}

// Returns N times the workers' weights of one module; all 0 if all workers are outliers.
std::vector<double> factors_of(std::span<const std::optional<double>> norms, std::span<const double> steps,
                               const PenaltyOptions& options) {
  const auto workers = static_cast<double>(norms.size());
  const bool are_finite = std::ranges::all_of(norms, [](const auto& norm) { return std::isfinite(norm.value_or(0)); });
  std::vector<double> factors =
      are_finite ? exponentials(norms, options.temperature) : std::vector<double>(norms.size(), 1);
  const double sum = std::accumulate(factors.begin(), factors.end(), 0.0);
  const double all_steps = std::accumulate(steps.begin(), steps.end(), 0.0);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (!norms[i]) continue;
    factors[i] *= workers / sum;
    if (options.step_share == 0 || all_steps == 0) continue;
    factors[i] = (1 - options.step_share) * factors[i] + options.step_share * workers * steps[i] / all_steps;
  }
  return factors;
}

PenaltyOptions read_penalty(Settings& settings) {
  PenaltyOptions options;
  options.outlier_factor =
      settings.number({"outlier_factor", "Deviations above the mean from which a norm is an outlier; inf: never."},
                      Range::positive(), options.outlier_factor);
  options.outlier_warmup = static_cast<int>(settings.integer(
      {"outlier_warmup", "Number of rounds at the start in which no norm counts as an outlier (W).", "rounds"}, 1,
      1'000'000, options.outlier_warmup));
  options.outlier_smoothing =
      settings.number({"outlier_smoothing", "Weight of a new norm in the moving mean and the moving variance (a)."},
                      Range{.low = 0, .high = 1, .low_open = true, .high_open = true}, options.outlier_smoothing);
  if (options.outlier_warmup < shortest_warmup(options))
    settings.fault("outlier_warmup",
                   fmt::format("must be at least {} with this factor and smoothing: mean and variance begin at 0, and "
                               "after fewer rounds even a constant norm can be an outlier in every round",
                               shortest_warmup(options)));
  options.temperature = settings.number(
      {"temperature", "Temperature T of the workers' weights, a softmax of -norm / T; inf: equal weights."},
      Range::positive(), options.temperature);
  options.step_share = settings.number({"step_share", "Share of a weight that depends on steps, not norms (r)."},
                                       Range::between(0, 1), options.step_share);
  options.clip_norm =
      settings.number({"clip_norm", "Largest norm of the sum of pseudo-gradients; inf: no limit (phi)."},
                      Range::positive(), options.clip_norm);
  return options;
}

// Reads `sync_seconds`, the time that ends rounds, and three keys which are faults without it. Returns whether the file
// has `sync_seconds`.
bool read_timed_rounds(Settings& settings, TimedRounds& rounds, const BudgetCheck& work) {
  using From = TimedRounds::CountedFrom;
  constexpr Step most = 1'000'000'000'000;
  const auto seconds = settings.optional_number(
      {"sync_seconds", "Time after which a worker's round ends with its current step (A-EDiT), instead of `period`.",
       "s", "`period` is given"},
      Range::finite_positive());
  constexpr std::array keys = {"counted_from", "minimum_steps", "warmup_steps"};
  for (const char* key : keys)
    if (!seconds && settings.has(key))
      settings.fault(key, "needs sync_seconds instead of `period`: rounds that end by steps do not have this key");
  if (seconds) rounds.length = from_seconds(*seconds);
  rounds.counted_from = settings.choice(
      {"counted_from", "Whether sync_seconds begins at the last synchronisation's end, or a worker's arrival at it."},
      {{"end", From::end}, {"arrival", From::arrival}}, From::end);
  rounds.minimum_steps = settings.integer(
      {"minimum_steps", "If all workers together have taken fewer steps, a round lasts sync_seconds longer.", "steps"},
      1, most.value(), rounds.minimum_steps);
  if (seconds) work.check(settings, "minimum_steps", rounds.minimum_steps);
  rounds.warmup_steps = settings.integer({"warmup_steps", "Steps of synchronous SGD before the first round.", "steps"},
                                         0, most.value(), 0);
  if (!seconds)
    for (const char* key : keys) settings.leave_out(key);
  return seconds.has_value();
}

}  // namespace

void Edit::run(Worker& worker) const {
  const bool is_timed = options_.is_timed();
  train_together(worker, is_timed ? options_.timed.warmup_steps : options_.period->synchronous_steps(), options_.state);
  const bool from_arrival = options_.timed.counted_from == TimedRounds::CountedFrom::arrival;
  std::shared_ptr<const RoundMeeting> met;
  OuterState outer;
  Time counted_from = worker.now();
  while (worker.budget_left()) {
    const ModelStatePtr last = worker.model();
    RoundWork work(worker);
    do {
      take_steps(worker, counted_from, work);
      const Time arrival = worker.now();
      met = meet(worker, options_, last, work, met);
      counted_from = from_arrival ? arrival : worker.now();
    } while (met->is_put_off);
    if (is_timed) worker.skip_steps(met->longest - work.passed);
    worker.set_model(worker.combine(last, worker.model(), met->penalty.factors_of(worker.rank())));
    worker.average_model({.policy = options_.state.average});
    const double rate = options_.sends_steps() ? met->inner_rate : work.mean_rate();
    const OuterStep at{.last = last, .average = clip(worker, last, met->penalty), .inner_rate = rate};
    worker.set_model(take_outer_step(worker, at, met->penalty, outer));
    publish(worker, options_.state);
    if (!from_arrival) counted_from = worker.now();
  }
}

void Edit::take_steps(Worker& worker, Time counted_from, RoundWork& work) const {
  constexpr Step endless = 1'000'000'000'000;
  const bool is_timed = options_.is_timed();
  const Step most =
      is_timed ? endless : options_.period->at(worker.step(), worker.learning_rate(), worker.steps_left());
  for (Step taken{}; taken < most && worker.budget_left(BudgetView::local); ++taken) {
    work.rates += worker.learning_rate();
    const Gradient sum = worker.compute_step_gradient(is_timed ? Samples::in_turn : Samples::of_step);
    worker.descend(sum / worker.micro_batches());
    ++work.passed;
    ++*work.kept;
    if (is_timed && worker.now() - counted_from >= options_.timed.length) break;
  }
}

// Returns the worker's model, the average, clipped to a maximum distance from the last model. A module in which all
// workers are outliers keeps its last values.
ModelStatePtr Edit::clip(const Worker& worker, const ModelStatePtr& last, const Penalty& penalty) const {
  const std::vector<bool>& rolled_back = penalty.rolled_back;
  const bool rolls_back = std::ranges::find(rolled_back, true) != rolled_back.end();
  if (options_.penalty.clip_norm == PenaltyOptions::infinity && !rolls_back) return worker.model();
  const std::vector<double> norms = worker.distances(worker.model(), last);
  std::vector<double> factors;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const double norm = options_.clip_scope == EditOptions::Scope::model ? norm_of(norms) : norms[i];
    factors.push_back(rolled_back[rolled_back.size() == 1 ? 0 : i] ? 0 : clip_factor(norm, options_.penalty.clip_norm));
  }
  return worker.combine(last, worker.model(), factors);
}

ModelStatePtr Edit::take_outer_step(const Worker& worker, const OuterStep& at, const Penalty& penalty,
                                    OuterState& outer) const {
  const OuterState before = outer;
  const ModelStatePtr next = options_.outer(worker, at, outer);
  std::vector<double> moves;
  for (const bool is_back : penalty.rolled_back) moves.push_back(is_back ? 0 : 1);
  if (before.first) outer.first = worker.combine(before.first, outer.first, moves);
  if (before.second) outer.second = worker.combine(before.second, outer.second, moves);
  return worker.combine(at.last, next, moves);
}

std::optional<Communicated> Edit::communication(const CommunicationInput& input) const {
  constexpr std::int64_t each = sizeof(double);
  if (options_.is_timed() || !options_.numbers_sent()) return std::nullopt;
  const Bytes gathered{each * input.workers * *options_.numbers_sent()};
  return communicated_in_rounds(*options_.period, options_.state.average, input,
                                {.beside_average = all_gather_bytes(input.workers, gathered)});
}

std::unique_ptr<Algorithm> make_edit(Settings& settings, const AlgorithmContext& context) {
  using Scope = EditOptions::Scope;
  EditOptions options;
  const bool has_period = settings.has("period");
  const bool is_timed = read_timed_rounds(settings, options.timed, context.work);
  if (is_timed && has_period)
    settings.fault("sync_seconds", "must not be given together with `period`: rounds end either by time or by steps");
  if (!is_timed && !has_period) settings.fault("algorithm", "needs a table `period` (EDiT), or sync_seconds (A-EDiT)");
  if (has_period) options.period = read_sync_period(settings, context);
  options.outer = make_outer_optimizer(settings.section(
      {"outer", "The optimizer that steps along the mean of the workers' pseudo-gradients, weighted and clipped."}));
  options.penalty = read_penalty(settings);
  options.scope = settings.choice({"scope", "The unit of weights and outliers: each tensor, or the whole model."},
                                  {{"tensor", Scope::tensor}, {"model", Scope::model}}, options.scope);
  options.clip_scope =
      settings.choice({"clip_scope", "The unit of clipping."}, {{"tensor", Scope::tensor}, {"model", Scope::model}},
                      options.scope, "as `scope`");
  options.state = read_state_policies(settings);
  options.tensors = context.time_only ? std::optional(1) : context.tensors;
  return std::make_unique<Edit>(std::move(options));
}

std::optional<std::int64_t> EditOptions::numbers_sent() const {
  const bool is_whole = scope == Scope::model;
  if (!is_whole && !tensors) return std::nullopt;
  return (is_whole ? 1 : *tensors) + static_cast<std::int64_t>(sends_steps() ? of_steps : 0);
}

std::shared_ptr<const RoundMeeting> meet(Worker& worker, const EditOptions& options, const ModelStatePtr& last,
                                         RoundWork& work, const std::shared_ptr<const RoundMeeting>& before) {
  std::vector<double> mine = worker.distances(worker.model(), last);
  const bool has_model = !mine.empty();
  if (!has_model)
    mine.assign(static_cast<std::size_t>(options.tensors.value_or(1)), std::numeric_limits<double>::quiet_NaN());
  if (options.scope == EditOptions::Scope::model) mine = {norm_of(mine)};
  const std::size_t modules = mine.size();
  if (options.sends_steps())
    mine.insert(mine.end(), {static_cast<double>((*work.kept).value()), static_cast<double>(work.passed.value()),
                             work.rates, worker.budget_left(BudgetView::local) ? 0.0 : 1.0});
  return worker.all_gather(mine, [&](std::span<const double> all) {
    const std::span<const NormStatistics> statistics =
        before ? std::span(before->penalty.statistics) : std::span<const NormStatistics>();
    return conclude(all, modules, has_model, options, statistics);
  });
}

int shortest_warmup(const PenaltyOptions& options) {
  const double q = 1 - options.outlier_smoothing, square = options.outlier_factor * options.outlier_factor;
  // Solves q^(W - 1) <= square (1 - q^W) for W.
  const double warmup = std::log(square * q / (1 + square * q)) / std::log(q);
  return options.finds_outliers() ? std::max(1, static_cast<int>(std::ceil(warmup - 1e-9))) : 1;
}

Penalty penalise(std::span<const NormStatistics> before, std::span<const double> norms, std::span<const double> steps,
                 int modules, const PenaltyOptions& options) {
  const auto width = static_cast<std::size_t>(modules), workers = norms.size() / width;
  Penalty penalty{.modules = modules};
  penalty.statistics.assign(before.begin(), before.end());
  penalty.statistics.resize(norms.size());
  penalty.factors.resize(norms.size());
  for (std::size_t module = 0; module < width; ++module) {
    // If no worker's norm is finite, the training has diverged. Then no norm is an outlier, so that the mean shows it.
    bool has_diverged = true;
    for (std::size_t i = module; i < norms.size(); i += width) has_diverged = has_diverged && !std::isfinite(norms[i]);
    std::vector<std::optional<double>> counted;
    for (std::size_t i = module; i < norms.size(); i += width) {
      NormStatistics& statistics = penalty.statistics[i];
      const bool is_outlier = !has_diverged && statistics.is_outlier(norms[i], options);
      if (options.finds_outliers() && !is_outlier) statistics.add(norms[i], options);
      counted.push_back(is_outlier ? std::nullopt : std::optional(norms[i]));
    }
    const std::vector<double> factors = factors_of(counted, steps, options);
    for (std::size_t worker = 0; worker < workers; ++worker) penalty.factors[worker * width + module] = factors[worker];
    penalty.rolled_back.push_back(std::ranges::none_of(counted, [](const auto& norm) { return norm.has_value(); }));
  }
  return penalty;
}

}  // namespace syncopate
