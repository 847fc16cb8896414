// Bounded delay: a task is an iteration to which every worker contributes one gradient. A worker may start its
// iteration t once all tasks up to t - tau - 1 are finished; the server steps once per finished task.
// Source:  Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per worker and step P floats up and P down, and the waits; the server keeps up to N (tau + 1) gradients.
// Differs: a step goes along the mean of the task's gradients (in the paper their sum, with a suitable rate); each
//          worker clips its gradients. Stale synchronous parallel with slack tau waits in the same way, but steps along
//          each gradient, so its models also contain parts of unfinished iterations. A worker takes the newest model
//          when it starts an iteration, and starts none for which the budget has no step. The last gradient of a worker
//          that has left may arrive after its task is finished; it then counts for the oldest unfinished task.
// Checks:  tau = 0 equals synchronous SGD bit for bit; staleness never above tau; N gradients in each step.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "algorithms/asynchronous/staleness.hpp"
#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class BoundedDelay : public GradientPerModel {
 public:
  // maximum_delay: tau, at least 0.
  explicit BoundedDelay(std::int64_t maximum_delay) : maximum_delay_(maximum_delay) {}

  void serve(Server& server) const override {
    WorkerClocks clocks(server.size());
    Tasks tasks(server.size());
    std::vector<Rank> held;  // workers that wait until more tasks are finished
    const auto start_iteration = [&](Rank worker) {
      if (!clocks.has(worker) || !server.budget_left()) return;
      const std::int64_t ahead = clocks.ahead_of_slowest(worker);
      if (ahead > maximum_delay_) return held.push_back(worker);
      if (Step{ahead} < server.steps_left()) server.send_model(worker);
    };
    const auto finish_tasks = [&] {
      while (tasks.finished() < clocks.slowest()) tasks.finish_oldest(server);
      for (const Rank worker : std::exchange(held, {})) start_iteration(worker);
    };
    const std::function<void(Rank)> on_leave = [&](Rank worker) {
      // Once all workers have left, tasks.end() finishes the remaining tasks, after gradients in flight have arrived.
      if (clocks.remove(worker) && server.workers_left() > 0) finish_tasks();
    };
    server.send_model(Receivers::all);
    while (server.budget_left()) {
      auto message = server.receive_until_all_left(on_leave);
      if (!message) break;
      const Rank worker = message->from;
      tasks.add(std::move(message));
      if (!clocks.has(worker)) continue;  // it left before its last gradient arrived
      if (clocks.tick(worker)) finish_tasks();
      start_iteration(worker);
    }
    tasks.end(server);
  }

 private:
  // Gradients of the unfinished tasks.
  class Tasks {
   public:
    explicit Tasks(int workers) : iterations_of_(workers, 0) {}

    std::int64_t finished() const { return finished_; }
    // Adds the message's gradient to the task of its worker's next iteration.
    void add(ReceivedMessage message) {
      const std::int64_t task = std::max(finished_, iterations_of_[message->from]++);
      parts_[task].push_back(std::move(message));
    }
    void finish_oldest(Server& server) {
      GradientRound round(server);
      for (const ReceivedMessage& part : parts_.begin()->second) round.take(*part);
      round.step();
      parts_.erase(parts_.begin());
      ++finished_;
    }
    // At the end of the run, steps along the gradients of unfinished tasks that have arrived, within the budget.
    void end(Server& server) {
      while (!parts_.empty() && server.budget_left()) finish_oldest(server);
      for (const auto& [task, parts] : parts_)
        for (const ReceivedMessage& part : parts) server.accept(*part, {.is_needed = false});
    }

   private:
    ByRank<std::int64_t> iterations_of_;                          // iterations that each worker has delivered
    std::map<std::int64_t, std::vector<ReceivedMessage>> parts_;  // by task
    std::int64_t finished_ = 0;
  };

  std::int64_t maximum_delay_;
};

inline std::unique_ptr<Algorithm> make_bounded_delay(Settings& settings, const AlgorithmContext&) {
  return std::make_unique<BoundedDelay>(settings.integer(
      {"maximum_delay", "How many earlier tasks may be unfinished when an iteration starts (tau).", "tasks"}, 0,
      std::numeric_limits<std::int64_t>::max()));
}

}  // namespace syncopate
