#include "algorithms/gossip/wagma_sgd.hpp"

#include <fmt/format.h>

#include <utility>

#include "algorithms/gossip/group_averages.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"
#include "workers/lost_with_state.hpp"

namespace syncopate {
namespace {

// Rounds are numbered by the steps before them, on all workers alike.
void average_in_group(Worker& worker) {
  const Rank server{worker.size()};
  worker.send(server, Message::of_model(worker.step(), worker.model()));
  const auto mean = worker.receive({.from = server});
  if (!mean) return;
  const double own = mean->numbers.front();
  if (own < 1)
    worker.set_model(own > 0 ? worker.combine({{1 - own, mean->model}, {own, worker.model()}}) : mean->model);
}

}  // namespace

void WagmaSgd::run(Worker& worker) const {
  const bool averages_first = options_.order == WagmaOptions::Order::average_first;
  while (worker.budget_left()) {
    LostWithState<bool> has_state(worker, true);
    const Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
    if (!*has_state) worker.set_model(worker.model(), StatePolicy::reset);
    if (averages_first && worker.step() > Step{0}) average_in_group(worker);
    worker.descend(gradient);
    worker.report_steps();
    if (!worker.budget_left()) break;
    if (!averages_first) average_in_group(worker);
    worker.publish(OwnModel{.evaluated = options_.evaluated});
  }
  const bool others_go_on = worker.budget_left(Judged::by_others);
  Message last = Message::farewell();
  if (!others_go_on)
    last = Message::of_last_model(worker.step(), worker.publish(OwnModel{.evaluated = options_.evaluated}));
  last.step = worker.step();
  worker.send(Rank{worker.size()}, std::move(last));
}

void WagmaSgd::serve(Server& server) const {
  GroupAverages averages(server, options_);
  while (const auto first = server.receive_until_all_left()) {
    averages.take(*first);
    while (const auto another = server.receive(server.now())) averages.take(*another);
    averages.begin_if_due();
  }
  averages.publish_last();
}

// All take their own steps and two messages with each, and all wait for the slowest sum of these where a round is
// global; without global rounds, at the end.
Forecast WagmaSgd::forecast(const PredictionInput& input) const {
  const double message_s = input.message_s();
  const auto round_of = [=](Step length, double computing_s, double error_s) {
    const auto steps = static_cast<double>(length.value());
    return RoundTime{
        .time_s = computing_s + 2 * steps * message_s, .communication_s = 2 * steps * message_s, .error_s = error_s};
  };
  const auto by_normal = [=, &input](Step length) -> std::optional<RoundTime> {
    return round_of(length, expected_slowest_sum(input.times, static_cast<double>(length.value())), 0);
  };
  const auto by_drawn = [=, &input](Step length) -> std::optional<RoundTime> {
    const auto drawn = sample_rounds(input.times, length.value());
    if (!drawn) return input.times.has_variance ? by_normal(length) : std::nullopt;
    return round_of(length, drawn->time_s.mean, drawn->time_s.error);
  };
  const auto rounds =
      options_.global_every > Step{0} ? make_constant_period(options_.global_every) : make_swap_period(Step{0});
  return predict_rounds(*rounds, {"slowest normal sum", by_normal, "slowest sampled sum", by_drawn}, input);
}

// After the last step there is no round; all send their last model.
std::optional<Communicated> WagmaSgd::communication(const CommunicationInput& input) const {
  const Bytes::Rep model = input.parameter_bytes.value();
  const Bytes::Rep of_worker = (input.steps.value() - 1) * (2 * model + 8) + model;
  return Communicated{input.steps.value(), Bytes{input.workers * of_worker}};
}

std::unique_ptr<Algorithm> make_wagma_sgd(Settings& settings, const AlgorithmContext& context) {
  using Divisor = WagmaOptions::Divisor;
  using Order = WagmaOptions::Order;
  constexpr std::int64_t most_steps = 1'000'000'000;
  WagmaOptions options;
  const std::size_t faults = settings.faults_so_far();
  options.group_size = static_cast<int>(
      settings.integer({"group_size", "How many workers average together in a round (S); it divides their number."}, 2,
                       Stated(std::max(context.workers, 2), "workers")));
  if (settings.faults_so_far() == faults && !context.are_divided_by(options.group_size))
    settings.fault(
        "group_size",
        fmt::format("must divide the number of workers, {}: groups of a round are equally large", context.workers));
  options.global_every =
      settings.integer({"global_every", "Every how many steps all wait for all and average (tau); 0: never.", "steps"},
                       0, most_steps, options.global_every.value());
  options.divisor = settings.choice(
      {"divisor",
       "By what the sum of S models is divided: S in time and S + 1 late (paper), or always S + 1 (released)."},
      {{"paper", Divisor::paper}, {"released", Divisor::released}}, options.divisor);
  options.order = settings.choice(
      {"order", "Whether models are averaged after the step, or before it, its gradient being taken before both."},
      {{"step-first", Order::step_first}, {"average-first", Order::average_first}}, options.order);
  options.evaluated = read_own_models(settings);
  return std::make_unique<WagmaSgd>(options);
}

}  // namespace syncopate
