// Asynchronous Local SGD: a worker takes the server's model, takes H local steps, and sends the difference start - end,
// along which the server steps as its rule says; nobody waits for anybody, or all who come within a grace window do.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": delayed Nesterov, dynamic local
//          updates (DyLU), grace; Nguyen et al. 2022 (FedBuff): a buffer, weights by staleness.
// Shapes:  gradient, parameters, difference: (P,) flat float32.   Units: grace in seconds, staleness in updates.
// Cost:    per H local steps P floats up and P down; of DyLU 8 bytes more each way.
// Differs: rules of the server: server_update.hpp, numbers of steps: steps_by_speed.hpp. The authors' published toy
//          weights by 1 / sqrt(N), also times (1 + s)^(-1/2), and makes the inner optimizer's state anew in each round;
//          HALoS' version of the method keeps it. Both are options; weights of 1 and kept moments are the default.
//          Data: each worker goes through its own part by its own count; the toy takes the part visited least.
//          Schedule: the learning rate of a local step is that of the step which all had come to on average when its
//          model was sent, and of its own steps since, as in HALoS; the toy counts the steps of a part of the data
//          alone. A grace window ends early when all workers are in it, and with the budget. Whose data are used up
//          sends the steps that it has; a lost state takes them with it, and the worker begins anew from the newest
//          model, with as many steps. FedBuff's last buffer, which is not full, counts once all workers have left.
//          Rounds that are under way at the end are dropped; the last one may hold more steps than the budget has left.
// Checks:  H = 1 with plain SGD is asynchronous SGD, with a buffer of K softsync; in a window of all it is Local SGD or
//          DiLoCo; steps per second against synchronous SGD: (slowest step) x mean(1 / step).
#pragma once

#include <memory>
#include <optional>

#include "algorithms/asynchronous/difference_rounds.hpp"
#include "algorithms/asynchronous/server_update.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct AsyncLocalOptions {
  Step local_steps{1};                           // H
  std::optional<DynamicSteps> steps_by_speed{};  // none: all take H
  std::shared_ptr<const ServerUpdate> update{};  // null: the plain step of rate 1
  DifferenceWeight weight{};
  std::optional<Step> maximum_staleness{};  // none: no difference is dropped
  Duration grace{};                         // 0: there is no window
  StatePolicy moments = StatePolicy::keep;  // of a worker's optimizer, at each round's start; or reset
};

class AsyncLocalSgd : public Algorithm {
 public:
  explicit AsyncLocalSgd(const AsyncLocalOptions& options);

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .settles_after = options_.local_steps,  // all begin together, and may go on so
            .cycle = options_.local_steps,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .sends_gradients = true,
            .rejects_gradients = options_.maximum_staleness.has_value()};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  DifferenceRounds rounds() const { return {options_.local_steps, options_.steps_by_speed, options_.moments}; }

  AsyncLocalOptions options_;
};

std::unique_ptr<Algorithm> make_async_local_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
