// Asynchronous Local SGD: a worker receives the server's model, takes H local steps, and sends the difference
// start - end. The server steps along the difference by a rule. Nobody waits, unless there is a grace window: then
// workers whose differences arrive soon after another one wait until the window ends.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": delayed Nesterov, dynamic local
//          updates (DyLU), grace; Nguyen et al. 2022 (FedBuff): a buffer, weights by staleness.
// Shapes:  gradient, parameters, difference: (P,) flat float32.   Units: grace in seconds, staleness in updates.
// Cost:    per H local steps P floats up and P down; with DyLU 8 bytes more each way.
// Differs: delta_exchange.hpp describes the server's rules and the numbers of steps. The code that the authors
//          published (a toy) weighs a difference of staleness s by 1 / sqrt(N), or by that times (1 + s)^(-1/2), and
//          resets the inner optimizer in each round; HALoS' version keeps it. Here these are options; weights of 1 and
//          kept moments are the default. Each worker goes through its own part of the data by its own count of steps;
//          the toy takes the part that was visited least. As in HALoS, a local step has the schedule's rate at step
//          m + n: m is the mean step of all workers when the round's model was sent, n the number of the worker's own
//          steps since then. The toy counts only the steps of one part of the data. A grace window ends early when all
//          workers are in it, or when the budget ends. A worker whose data are used up sends the difference of the
//          steps that it has taken. A worker that loses its state begins the round again from the newest model. Once
//          all workers have left, FedBuff's last buffer is used even if it is not full. Rounds in progress at the end
//          are dropped; the last round may exceed the budget's steps.
// Checks:  H = 1 with plain SGD is asynchronous SGD, and with a buffer of K it is softsync; with a grace window for all
//          workers it is Local SGD or DiLoCo; steps per second, relative to synchronous SGD: (slowest worker's step
//          time) x mean(1 / step time).
#pragma once

#include <algorithm>
#include <limits>

#include "algorithms/asynchronous/delta_exchange.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct AsyncLocalOptions {
  DeltaExchange rounds{};
  ServerUpdate update = make_nesterov_update(1, 0);  // the plain step with rate 1
  DifferenceWeight weight{};
  std::optional<Step> maximum_staleness{};  // none: no difference is dropped
  Duration grace{};                         // length of the grace window; 0: no window
};

class AsyncLocalSgd : public Algorithm {
 public:
  explicit AsyncLocalSgd(const AsyncLocalOptions& options) : options_(options) {}

  void run(Worker& worker) const override { run_rounds(worker, options_.rounds); }

  void serve(Server& server) const override {
    UpdateState state;
    Dylu steps(options_.rounds, server.size());
    std::vector<Rank> in_window;
    const auto take = [&](const Message& difference) {
      in_window.push_back(difference.from);
      steps.add(difference, server.micro_batches());
      if (const auto staleness = server.accept(difference, {.maximum_staleness = options_.maximum_staleness}))
        options_.update.take(server, difference, options_.weight.of(*staleness, server.size()), state);
    };
    for (const Rank worker : Ranks(server.size())) server.send_model(worker, steps.numbers_for(worker));
    while (const auto first = server.receive_until_all_left()) {
      const Time end = later(server.now(), options_.grace);
      take(*first);
      while (server.now() < end && server.budget_left() && server.workers_left(in_window) > std::ssize(in_window))
        if (const auto next = server.receive(end)) take(*next);
      if (!server.budget_left()) return;
      for (const Rank worker : in_window) server.send_model(worker, steps.numbers_for(worker));
      in_window.clear();
    }
    options_.update.end(server, state);
  }

  Traits traits() const override {
    return {.servers = 1,
            // All workers begin together, so the first rounds may end together.
            .settles_after = options_.rounds.local_steps,
            .cycle = options_.rounds.local_steps,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .sends_gradients = true,
            .rejects_gradients = options_.maximum_staleness.has_value(),
            .held = {.models = 2}};
  }

  // The number of differences follows from the budget, since each has H steps. All but the last are answered.
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    if (options_.rounds.dylu || options_.maximum_staleness || options_.grace > Duration{}) return std::nullopt;
    const std::int64_t of_update = options_.update.differences * options_.rounds.local_steps.value();
    const std::int64_t updates = (input.workers * input.steps.value() + of_update - 1) / of_update;
    const std::int64_t differences = updates * options_.update.differences;
    const std::int64_t models = differences + input.workers - 1;
    const std::int64_t of_difference = input.packet.value_or(input.parameter_bytes).value();
    return Communicated{std::min(updates, input.steps.value()),
                        Bytes{differences * of_difference + models * input.parameter_bytes.value()}};
  }

 private:
  AsyncLocalOptions options_;
};

// Reads the method's keys, with `options` as their defaults. `read_update` returns the server's rule.
template <typename ReadUpdate>
std::unique_ptr<Algorithm> read_async_local(Settings& settings, const AlgorithmContext& context,
                                            AsyncLocalOptions options, const ReadUpdate& read_update) {
  const StatePolicy usual_moments = options.rounds.moments;
  options.rounds = read_delta_exchange(settings, context);
  options.update = read_update(context.work.of(options.rounds.fewest_steps().value()));
  options.weight.by_workers = settings.choice({"rate_scaling", "The factor of each difference."},
                                              {{"none", false}, {"1/sqrt(N)", true}}, options.weight.by_workers);
  options.weight.staleness_exponent = settings.number(
      {"staleness_exponent", "A difference has the factor ((1 + its staleness) / (1 + average_staleness))^-a."},
      Range::at_least(0), 0.0);
  options.weight.average_staleness = settings.number(
      {"average_staleness", "The staleness at which the factor of `staleness_exponent` is 1.", "updates"},
      Range::finite_from_zero(), 0.0);
  if (!settings.has("average_staleness")) settings.leave_out("average_staleness");
  if (options.weight.average_staleness > 0 && options.weight.staleness_exponent == 0)
    settings.fault("average_staleness", "needs a staleness_exponent above 0: with 0 all weights are equal");
  options.weight.staleness_decay =
      settings.number({"staleness_decay", "Alpha: a difference is multiplied by e^(-alpha x its staleness)."},
                      Range::finite_from_zero(), 0.0);
  if (!settings.has("staleness_decay")) settings.leave_out("staleness_decay");
  options.weight.staleness_cutoff = settings.optional_number(
      {"staleness_cutoff",
       "A difference is multiplied by (1 + cos(pi x staleness / cutoff)) / 2, and by 0 from this staleness on.",
       "updates", "no such factor"},
      Range::finite_positive());
  options.maximum_staleness = settings.optional_integer(
      {"maximum_staleness",
       "A difference is dropped if the model had more updates since the worker began to compute it.", "updates",
       "none is dropped"},
      0, std::numeric_limits<std::int64_t>::max());
  const double grace_s = settings.number(
      {"grace_s", "Workers whose differences arrive within this time after the first one continue from one model.",
       "s"},
      Range::between(0, 1e9), 0.0);
  options.grace = from_seconds(grace_s);
  options.rounds.moments = read_moments_of_rounds(settings, usual_moments);
  return std::make_unique<AsyncLocalSgd>(options);
}

inline std::unique_ptr<Algorithm> make_async_local_sgd(Settings& settings, const AlgorithmContext& context) {
  return read_async_local(settings, context, {}, [&](const BudgetCheck& differences) {
    return make_server_update(settings.section({"update", "The server's step along the differences."}), differences);
  });
}

}  // namespace syncopate
