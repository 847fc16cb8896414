#include "algorithms/asynchronous/delta_exchange.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace syncopate {

namespace {

// Looking for a message lets all other participants reach this worker's time, so the result is up to date. No message
// is lost: the server sends a worker none before it has received the worker's difference.
bool server_has_ended(Worker& worker) {
  worker.receive({.from = worker.server(), .until = worker.now()});
  return worker.has_left(worker.server());
}

Message difference_after_local_steps(Worker& worker, Step steps) {
  ModelStatePtr start = worker.model();
  BookedTime work;
  Step taken{};
  do {
    ResetOnOutage<bool> has_state(worker, true);
    const Gradient gradient = worker.compute_step_gradient(Samples::in_turn);
    if (!*has_state) {  // an outage has erased the worker's state: the round begins again from the newest model
      worker.discard(Gradient(nullptr, work.micro_batches, work.time));
      worker.set_model(worker.model(), StatePolicy::reset);
      start = worker.model();
      work = {};
      taken = 0;
    }
    worker.descend(gradient / worker.micro_batches());
    work.micro_batches += gradient.micro_batches();
    work.time += gradient.compute_time();
  } while (++taken < steps && worker.budget_left(BudgetView::server) && !server_has_ended(worker));
  const ModelStatePtr end = worker.model();
  return Message::of_difference(worker.step(), worker.combine({{1, start}, {-1, end}}, end), work);
}

// The sum of the terms that are not null, with the first one's BatchNorm statistics; null in time-only runs.
ModelStatePtr sum_of(Server& server, std::initializer_list<WeightedState> terms) {
  std::vector<WeightedState> present;
  for (const WeightedState& term : terms)
    if (term.state) present.push_back(term);
  return present.empty() ? nullptr : server.combine(present, present.front().state);
}

// theta -= rate (g.weight g + m.weight m), with the BatchNorm statistics of g.
void step(Server& server, double rate, const WeightedState& g, const WeightedState& m, std::int64_t micro_batches) {
  server.descend(sum_of(server, {{-rate * g.weight, g.state}, {1, server.model()}, {-rate * m.weight, m.state}}),
                 micro_batches);
  server.publish();
}

// m = momentum m + g;  theta -= rate (g + momentum m).
void nesterov_step(Server& server, double rate, double momentum, const WeightedState& g, std::int64_t micro_batches,
                   UpdateState& state) {
  ModelStatePtr& m = state.moments.first;
  if (momentum > 0) m = sum_of(server, {g, {momentum, m}});
  step(server, rate, g, {momentum, m}, micro_batches);
}

// An adaptive outer step, in which the weighted difference takes the place of the workers' mean progress.
ServerUpdate make_adaptive_update(const OuterOptimizer& optimizer) {
  return {.take = [=](Server& server, const Message& difference, double weight, UpdateState& state) {
    // The optimizer's model is 0, so that rounding does not depend on the size of the parameters.
    const ModelStatePtr& g = difference.model;
    const OuterStep at{.last = server.combine({{0, g}}, g), .average = server.combine({{-weight, g}}, g)};
    const ModelStatePtr moved = optimizer(server, at, state.moments);
    server.descend(sum_of(server, {{1, moved}, {1, server.model()}}), difference.work().micro_batches);
    server.publish();
  }};
}

std::optional<DynamicSteps> read_dynamic_steps(Settings& settings, Step most) {
  using Rounding = DynamicSteps::Rounding;
  const auto rounding = settings.choice<std::optional<Rounding>>(
      {"steps_by_speed", "Whether slower workers take fewer local steps (DyLU), and how the number is rounded."},
      {{"no", std::nullopt}, {"up", Rounding::up}, {"down", Rounding::down}}, std::nullopt);
  if (!rounding) return std::nullopt;
  DynamicSteps rule{.rounding = *rounding};
  rule.minimum = settings.integer({"minimum_steps", "Minimum of local steps.", "steps"}, 1,
                                  Stated(most.value(), "local_steps"), 1);
  return rule;
}

double read_rate(Settings& settings, std::optional<Stated<double>> fallback = {}) {
  return settings.number({"rate", "How far a step goes along a difference."}, Range::finite_positive(), fallback);
}
double read_momentum(Settings& settings, std::optional<Stated<double>> fallback = {}) {
  return settings.number({"momentum", "Share of the last steps that the next one keeps (beta)."}, Range::below_one(),
                         fallback);
}

ServerUpdate read_plain(Settings& settings, const BudgetCheck&) {
  return make_nesterov_update(read_rate(settings, 1.0), 0);
}

ServerUpdate read_nesterov(Settings& settings, const BudgetCheck&) {
  const double rate = read_rate(settings);
  return make_nesterov_update(rate, read_momentum(settings));
}

ServerUpdate read_look_ahead(Settings& settings, const BudgetCheck&) {
  LookAhead options{.rate = read_rate(settings)};
  options.momentum = read_momentum(settings);
  using HandOut = LookAhead::HandOut;
  options.hand_out = settings.choice(
      {"hand_out", "Whether workers receive the newest model, or the model to which the momentum alone would move it."},
      {{"newest", HandOut::newest}, {"ahead", HandOut::ahead}}, options.hand_out);
  if (!settings.has("hand_out")) settings.leave_out("hand_out");
  return make_look_ahead_update(options);
}

ServerUpdate read_adam(Settings& settings, const BudgetCheck&) {
  const auto adam = std::ranges::find(outer_optimizers(), "adam", &OuterOptimizerRow::name);
  return make_adaptive_update(adam->make(settings));
}

ServerUpdate read_delayed(Settings& settings, const BudgetCheck& differences) {
  DelayedNesterov options;
  options.rate = read_rate(settings);
  options.momentum = read_momentum(settings);
  options.every = static_cast<int>(settings.integer(
      {"every", "Number of differences whose mean is added to the momentum at once (n).", "differences"}, 1,
      1'000'000));
  differences.check(settings, "every", options.every);
  options.share = settings.number({"share", "Share of the momentum in each step but the n-th (c), at most 1 / n."},
                                  Range{.low = 0, .high = 1.0 / options.every}, 0.0);
  return make_delayed_nesterov_update(options);
}

ServerUpdate read_buffered(Settings& settings, const BudgetCheck& differences) {
  Buffered options;
  options.size = static_cast<int>(
      settings.integer({"size", "How many differences make a step (K).", "differences"}, 1, 1'000'000));
  differences.check(settings, "size", options.size);
  options.rate = read_rate(settings, 1.0);
  options.momentum = read_momentum(settings, 0.0);
  using Reduce = Buffered::Reduce;
  options.reduce =
      settings.choice({"reduce", "Whether a step goes along the mean of the weighted differences, or their sum."},
                      {{"mean", Reduce::mean}, {"sum", Reduce::sum}}, options.reduce);
  return make_buffered_update(options);
}

using ServerUpdateRow = RuleRow<ServerUpdate(Settings&, const BudgetCheck&)>;
constexpr std::array update_rows = {
    ServerUpdateRow{"plain", "a step of `rate` along each difference", read_plain},
    ServerUpdateRow{"nesterov", "a step with Nesterov's momentum along each difference", read_nesterov},
    ServerUpdateRow{"look-ahead", "a step along each difference and a running mean of all (momentum look-ahead)",
                    read_look_ahead},
    ServerUpdateRow{"adam", "the running mean of differences divided by the root of their mean square (CGAD)",
                    read_adam},
    ServerUpdateRow{"delayed-nesterov", "a plain step along each difference, with momentum at every n-th (DN)",
                    read_delayed},
    ServerUpdateRow{"buffered", "a step along the mean of every K differences (FedBuff)", read_buffered},
};

}  // namespace

Step DynamicSteps::at(double share_of_fastest, Step most) const {
  constexpr double rounded_away = 1e-9;  // rounding errors of summed times must not make equal speeds differ
  const double steps = share_of_fastest * static_cast<double>(most.value());
  const double whole = rounding == Rounding::up ? std::ceil(steps - rounded_away) : std::floor(steps + rounded_away);
  return std::max(minimum, Step{static_cast<Step::Rep>(whole)});
}

void Dylu::measure(Rank worker, std::int64_t steps, double seconds) {
  Pace& pace = pace_[worker];
  pace.steps += steps;
  pace.seconds += seconds;
  pace.steps_per_s = pace.seconds > 0 ? static_cast<double>(pace.steps) / pace.seconds : 0;
  if (pace.steps_per_s > pace_[fastest_].steps_per_s) fastest_ = worker;
  if (worker != fastest_) return;
  for (const Rank other : Ranks(pace_.size()))
    if (pace_[other].steps_per_s > pace_[fastest_].steps_per_s) fastest_ = other;
}

void run_rounds(Worker& worker, const DeltaExchange& rounds) {
  std::vector<double> numbers;
  while (worker.receive_model(&numbers)) {
    const Time begun = worker.now();
    if (rounds.moments == StatePolicy::reset) worker.set_model(worker.model(), StatePolicy::reset);
    const Step steps = numbers.empty() ? rounds.local_steps : Step{static_cast<Step::Rep>(numbers.front())};
    Message difference = difference_after_local_steps(worker, steps);
    if (!numbers.empty()) difference.numbers = {to_seconds(worker.now() - begun)};
    worker.send(worker.server(), std::move(difference));
  }
}

DeltaExchange read_delta_exchange(Settings& settings, const AlgorithmContext& context) {
  DeltaExchange rounds;
  rounds.local_steps =
      settings.integer({"local_steps", "Local steps in one difference (H).", "steps"}, 1, 1'000'000'000);
  rounds.local_steps = context.work.of(context.workers).check(settings, "local_steps", rounds.local_steps.value());
  rounds.dylu = read_dynamic_steps(settings, rounds.local_steps);
  return rounds;
}

StatePolicy read_moments_of_rounds(Settings& settings, StatePolicy usual) {
  return settings.choice({"moments", "Treatment of a worker's optimizer moments when it receives a model."},
                         {{"keep", StatePolicy::keep}, {"reset", StatePolicy::reset}}, usual);
}

ServerUpdate make_nesterov_update(double rate, double momentum) {
  return {.take = [=](Server& server, const Message& difference, double weight, UpdateState& state) {
    nesterov_step(server, rate, momentum, {weight, difference.model}, difference.work().micro_batches, state);
  }};
}

ServerUpdate make_look_ahead_update(const LookAhead& options) {
  return {.take = [options](Server& server, const Message& difference, double weight, UpdateState& state) {
    const double beta = options.momentum, rate = options.rate;
    WeightedState g{weight, difference.model};
    ModelStatePtr& m = state.moments.first;
    const ModelStatePtr before = m;
    if (options.correction) g = {1, options.correction(server, sum_of(server, {g}), before)};
    m = sum_of(server, {{(1 - beta) * g.weight, g.state}, {beta, before}});
    const std::int64_t micro_batches = difference.work().micro_batches;
    if (options.hand_out == LookAhead::HandOut::newest) return step(server, rate, g, {beta, m}, micro_batches);
    const double ahead = rate * beta;  // the server's model is theta - ahead m, before and after the step
    server.descend(sum_of(server, {{-rate * g.weight, g.state}, {1, server.model()}, {ahead, before}, {-2 * ahead, m}}),
                   micro_batches);
    server.publish(sum_of(server, {{1, server.model()}, {ahead, m}}));
  }};
}

ServerUpdate make_delayed_nesterov_update(const DelayedNesterov& options) {
  return {.take = [options](Server& server, const Message& difference, double weight, UpdateState& state) {
    const double n = options.every, c = options.share, beta = options.momentum;
    ModelStatePtr& m = state.moments.first;
    state.sum = sum_of(server, {{weight, difference.model}, {1, state.sum}});
    const bool is_nth = ++state.count == options.every;
    if (is_nth) {
      m = sum_of(server, {{1 / n, std::exchange(state.sum, nullptr)}, {beta, m}});
      state.count = 0;
    }
    const double share = is_nth ? 1 - c * n + c : c;
    step(server, options.rate, {weight / n, difference.model}, {share * beta, m}, difference.work().micro_batches);
  }};
}

ServerUpdate make_buffered_update(const Buffered& options) {
  const auto end = [options](Server& server, UpdateState& state) {
    if (state.count == 0) return;
    const double weight = options.reduce == Buffered::Reduce::mean ? 1.0 / state.count : 1.0;
    const std::int64_t micro_batches = std::exchange(state.micro_batches, 0);
    nesterov_step(server, options.rate, options.momentum, {weight, std::exchange(state.sum, nullptr)}, micro_batches,
                  state);
    state.count = 0;
  };
  const auto take = [options, end](Server& server, const Message& difference, double weight, UpdateState& state) {
    state.sum = sum_of(server, {{weight, difference.model}, {1, state.sum}});
    state.micro_batches += difference.work().micro_batches;
    if (++state.count == options.size) end(server, state);
  };
  return {.take = take, .differences = options.size, .end = end};
}

ServerUpdate make_server_update(Settings settings, const BudgetCheck& differences) {
  const auto* const row = settings.row({"name", "The server's step along a difference."}, update_rows);
  if (!row)  // without a known name no key of a rule is reported as unknown
    for (const std::string_view key :
         {"rate", "momentum", "hand_out", "beta1", "beta2", "tau", "every", "share", "size", "reduce"})
      static_cast<void>(settings.has(key));
  return row ? row->make(settings, differences) : make_nesterov_update(1, 0);
}

}  // namespace syncopate
