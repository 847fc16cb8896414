// HALoS: asynchronous Local SGD in regions. A worker receives the model of its region's local server, takes H local
// steps and sends the difference. The local server steps along it and returns its newest model at once. After K
// differences since its last merge it sends U = (its model after that merge) - (its newest model) to the global server,
// and continues. The global server steps along U and answers with its model Theta. When the answer arrives, the local
// server merges: its model becomes (1 - alpha) of itself + alpha Theta. Nobody waits.
// Source:  Kim et al. 2025, HALoS (ICML 2025, arXiv 2506.04531); the algorithm by the authors' published code
//          (utnslab/halos).
// Shapes:  gradient, parameters, difference, U: (P,) flat float32.
// Cost:    in a region 2 P floats per round of a worker; between regions 2 P floats per K or more differences of a
//          region. A local server stores its model, the model after the merge, and the state of its rule. Workers'
//          differences may be compressed. U is sent in full: compression would need a residual of the local server,
//          which paper and code do not have.
// Differs: local and global servers may have any rule of delta_exchange.hpp. The published rule is delayed Nesterov for
//          both; n times their rate is the same rate here. The authors' n for larger models, and the requirements of
//          their proof, are not established. As published, differences that a local server receives between U and the
//          merge are in its model and in no U; no second U is sent before the merge. DyLU compares a worker with its
//          region's fastest one; the authors' simulation knows all speeds. async_local_sgd.hpp describes moments, lost
//          states and schedules. A local server counts steps by its region's work, or, if the global server's count was
//          higher at the merge, by that plus its region's work since.
//          Budget: the global server ends the run. Each U reports how much its region has computed since the previous
//          U; the last U may exceed the rest of the budget. Differences that local servers receive after their last U
//          count as kept, but are in no global model. So a run may exceed its budget by K differences of each region
//          and those in flight. K x H may be as large as the budget, since one region may be the only fast one. But
//          then R equal regions compute R budgets, so keep K small compared with (budget / R) / H. Local servers
//          learn of the end with the last answers. Under a budget of seconds each server ends by its own clock.
//          Leaving: when all workers of a region have left, its server waits for the pending answer, sends a last U,
//          and ends; when all regions have ended, so does the global server.
//          Clock: messages take the time of the network model; the authors' simulation has only bandwidth. In a
//          "two-level" network, and with `racks`, a local server is in the group of its region's first worker (set
//          group_size to a region's size); the global one is in no group. Other networks, and MPI, have no locations.
// Checks:  one region with alpha = 0, or with alpha = 1, K = 1 and a plain global step of rate 1, is asynchronous Local
//          SGD; a recursion in double precision; steps per second, relative to synchronous SGD: (slowest worker's step
//          time) x mean(1 / step time), 5.24 for the paper's 16 speeds.
#pragma once

#include <fmt/format.h>

#include "algorithms/asynchronous/delta_exchange.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct HalosOptions {
  int regions = 1;  // each with the same number of workers
  DeltaExchange rounds{};
  ServerUpdate local_update = make_nesterov_update(1, 0);   // the plain step with rate 1
  ServerUpdate global_update = make_nesterov_update(1, 0);  // the plain step with rate 1
  int merge_every = 1;                                      // K
  double mixing = 1;                                        // alpha
};

class Halos : public Algorithm {
 public:
  explicit Halos(const HalosOptions& options) : options_(options) {}

  void run(Worker& worker) const override { run_rounds(worker, options_.rounds); }

  void serve(Server& server) const override {
    const bool is_global = server.server() == server.rank();
    is_global ? serve_regions(server) : serve_workers(server);
  }

  Traits traits() const override {
    return {.servers = Servers::of_regions(options_.regions),
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .sends_gradients = true,
            .held = {.models = 2, .states = options_.regions + 1.0}};
  }

 private:
  void serve_workers(Server& server) const {
    UpdateState state;
    Dylu steps(options_.rounds, server.size());
    ModelStatePtr merged = server.model();  // model after the last merge
    int differences = 0;                    // differences since the last merge
    std::int64_t micro_batches = 0;         // computed by workers, but not yet reported to the global server
    bool is_answer_due = false;
    const auto send_update = [&] {
      const ModelStatePtr model = server.model();
      const ModelStatePtr update = server.combine({{1, merged}, {-1, model}}, model);  // U
      const BookedTime work{.micro_batches = std::exchange(micro_batches, 0)};
      server.send(server.server(), Message::of_difference(server.step(), update, work));
      is_answer_due = true;
    };
    const auto merge = [&](const Message& global) {
      server.accept(global);
      const double alpha = options_.mixing;
      if (global.model && alpha > 0)
        server.set_model(server.combine({{1 - alpha, server.model()}, {alpha, global.model}}));
      merged = server.model();
      differences = 0;
      is_answer_due = false;
    };
    server.send_model(Receivers::all, steps.numbers_for(Rank{0}));  // no measurements yet
    while (const auto message = server.receive_until_all_left()) {
      if (message->from == server.server()) {
        merge(*message);
        continue;
      }
      steps.add(*message, server.micro_batches());
      server.accept(*message);
      options_.local_update.take(server, *message, 1, state);
      micro_batches += message->work().micro_batches;
      if (++differences == options_.merge_every) send_update();
      if (!server.budget_left(BudgetView::server)) return;
      server.send_model(message->from, steps.numbers_for(message->from));
    }
    options_.local_update.end(server, state);
    const auto has_global_server = [&] { return !server.has_left(server.server()); };
    while (is_answer_due && has_global_server())
      if (const auto answer = server.receive()) merge(*answer);
    if (differences > 0 && has_global_server()) send_update();
  }

  void serve_regions(Server& server) const {
    UpdateState state;
    while (const auto update = server.receive_until_all_left()) {
      options_.global_update.take(server, *update, 1, state);
      if (!server.budget_left()) return;
      server.send_model(update->from);
    }
    options_.global_update.end(server, state);
  }

  HalosOptions options_;
};

inline std::unique_ptr<Algorithm> make_halos(Settings& settings, const AlgorithmContext& context) {
  HalosOptions options;
  options.regions = static_cast<int>(settings.integer(
      {"regions", "How many regions the workers form, of consecutive ranks, each with a local server."}, 1,
      Stated(context.workers, "workers")));
  if (!context.are_divided_by(options.regions)) {
    settings.fault("regions",
                   fmt::format("must divide the number of workers, {}: regions have equal sizes", context.workers));
    options.regions = 1;
  }
  options.rounds = read_delta_exchange(settings, context);
  options.rounds.moments = read_moments_of_rounds(settings);
  Settings local = settings.section({"local_update", "A local server's step along its workers' differences."});
  // The limit is the whole budget, since one very fast region may use all of it.
  const BudgetCheck differences = context.work.of(options.rounds.fewest_steps().value());
  options.local_update = make_server_update(local, differences);
  Settings global =
      settings.section({"global_update", "The global server's step along the local servers' differences."});
  options.merge_every = static_cast<int>(settings.integer(
      {"merge_every", "Number of differences after which a local server sends their sum to the global server (K).",
       "differences"},
      1, 1'000'000'000));
  options.merge_every = static_cast<int>(differences.check(settings, "merge_every", options.merge_every));
  options.global_update = make_server_update(global, differences.of(options.merge_every));
  options.mixing = settings.number({"mixing", "Share of the global model in a local server's merged model (alpha)."},
                                   Range::between(0, 1));
  return std::make_unique<Halos>(options);
}

}  // namespace syncopate
