// Ringleader ASGD: asynchronous SGD that steps along the mean over workers of each worker's mean gradient, so that fast
// workers do not weigh more. Every gradient is used.
// Source:  Maranjyan and Richtarik 2025, "Ringleader ASGD"; its authors' code.
//   A cycle has two phases. In the first each gradient joins its worker's mean, and the worker starts again at the same
//   model, until every worker has a gradient. In the second there are N steps, each along (1 / N) sum_i mean_i. The
//   first follows at once; each other worker's next gradient joins its mean and makes a step, and the worker gets the
//   new model. Further gradients of workers that have had their step count for the next cycle.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down; the server keeps 2 N vectors of P floats, and adds N of them in each
//          step. Nobody waits for others.
// Differs: in the code a cycle is one step, here each of its N. A worker that has left no longer takes part: its
//          gradients stay in the means of their cycle. The learning rate is that of asynchronous SGD (`rate_scaling`):
//          with "linear", the default, the N steps of a cycle go as far as one step of synchronous SGD.
// Checks:  one worker is SGD; workers with different data and speeds converge to the mean of the minima; an independent
//          event simulation.
#pragma once

#include "algorithms/asynchronous/staleness.hpp"
#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class Ringleader : public GradientPerModel {
 public:
  explicit Ringleader(const UpdateRate& rate = {}) : rate_(rate) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    ByRank<MeanOfWorker> now(server.size()), next(server.size());
    std::vector<ReceivedMessage> unused, unused_of_next;  // gradients that are in no step yet
    ByRank<char> is_served(server.size(), 0);
    bool steps = false;  // whether the cycle is in its second phase
    const auto all = [&](const auto& holds) {
      for (const Rank worker : Ranks(server.size()))
        if (!server.has_left(worker) && !holds(worker)) return false;
      return true;
    };
    const auto has_gradient = [&](Rank worker) { return now[worker].count > 0; };
    const auto step = [&] {
      StepOptions options{.rate_factor = rate_.of_update(1, server.size()), .micro_batches = 0};
      for (const ReceivedMessage& gradient : std::exchange(unused, {})) {
        *options.micro_batches += gradient->gradient.micro_batches();
        server.accept(*gradient);
      }
      server.descend(mean_of_means(now, server.micro_batches()), options);
      server.publish();
    };
    server.send_model(Receivers::all);
    while (auto message = server.receive_until_all_left()) {
      const Rank from = message->from;
      const bool is_later = steps && is_served[from];
      (is_later ? next : now)[from].add(server, message->gradient);
      (is_later ? unused_of_next : unused).push_back(std::move(message));
      if (!is_later && (steps || all(has_gradient))) {
        steps = true;
        is_served[from] = 1;
        step();
        if (!server.budget_left()) break;
      }
      if (steps && all([&](Rank worker) { return is_served[worker] != 0; })) {
        now = std::exchange(next, ByRank<MeanOfWorker>(server.size()));
        unused = std::exchange(unused_of_next, {});
        is_served = ByRank<char>(server.size(), 0);
        steps = false;
      }
      server.send_model(from);
    }
    for (const auto* rest : {&unused, &unused_of_next})
      for (const ReceivedMessage& gradient : *rest) server.accept(*gradient, {.is_needed = false});
  }

  Traits traits() const override {
    Traits traits = GradientPerModel::traits();
    traits.held.models = 3;
    return traits;
  }

 private:
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_ringleader(Settings& settings, const AlgorithmContext&) {
  return std::make_unique<Ringleader>(read_rate_scaling(settings));
}

}  // namespace syncopate
