// What an algorithm sees: a worker (and a server, where a method has one) with its own clock, model
// and progress. Everything here works alike on the simulated cluster and under MPI.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <source_location>

#include "workers/cluster.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/training.hpp"
#include "workers/units.hpp"

namespace syncopate {

// When a run ends: the first limit that is reached. At least one is set.
struct Budget {
  std::optional<Step> steps{};
  std::optional<double> seconds{};
  std::optional<std::int64_t> samples{};
  std::optional<Bytes> bytes{};
};

// What all participants of a run share. The references outlive the run.
struct RunContext {
  Cluster& cluster;
  Training& training;
  const LearningRate& learning_rate;
  Budget budget{};
  int micro_batches = 1;                     // M: micro-batches per optimizer step and worker
  std::int64_t samples_per_micro_batch = 1;  // for the samples budget and the reports
  RunObserver* observer = nullptr;           // may be null
  ModelStatePtr initial_model{};             // where all start; null in time-only runs
};

class Participant {
 public:
  Participant(const RunContext& context, Rank rank);  // the context outlives the participant
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }                            // N, the number of workers
  int micro_batches() const { return context_.micro_batches; }  // M

  Time now() const { return context_.cluster.now(rank_); }
  Step step() const { return step_; }  // optimizer steps done: the t of learning rate and schedules
  double learning_rate() const { return context_.learning_rate.at(step_); }

  // False once the budget is used up. Methods that synchronise may rely on all workers getting the
  // same answer after the same collective: time, samples and bytes are those of the last agreement.
  bool budget_left() const;
  // Optimizer steps that the budget still allows; very large when it is not counted in steps.
  Step steps_left() const;

  const ModelStatePtr& model() const { return model_; }

  // Values for rules that look at what was computed; they wait for the arithmetic. loss: the mean over
  // the gradient's micro-batches; NaN in time-only runs, and after an all-reduce under MPI.
  double loss(const Gradient& gradient) const { return context_.training.loss(gradient); }
  double norm(const Gradient& gradient) const { return context_.training.norm(gradient); }

  // One optimizer step on the own model along `gradient`, at the current learning rate.
  void descend(const Gradient& gradient);

  // "This is the global model now": the observer decides whether to evaluate. Only the publication
  // of worker 0, or of the server, counts, so that every worker may run the same line.
  void publish();

 protected:
  const RunContext& context_;  // one for all workers, so that it stays in the cache
  Rank rank_;
  int size_;
  Step step_{};
  ModelStatePtr model_;
  std::optional<Agreement> agreed_;
  std::int64_t kept_total_ = 0;  // server: micro-batches descended along
};

class Worker : public Participant {
 public:
  using Participant::Participant;

  // The next micro-batch's gradient (mean over its samples) at the own model; nothing if the
  // deadline passes first. Micro-batches of a step are numbered 0, 1, ... anew after each step.
  std::optional<Gradient> compute_gradient(const Deadline& deadline = {});

  // Sum over M micro-batches without a deadline: a whole step's gradient, not yet divided.
  Gradient compute_step_gradient();

  void descend(const Gradient& gradient);

  // Whether this worker, by its own clock and as if all took as many steps as it, is within the
  // budget: to end a long round of local steps. Workers may get different answers.
  bool budget_left_alone() const;

  // Sums over all workers; afterwards all hold the same gradient. One step along it, `descend`, follows:
  // in steps.csv the two are one row.
  void all_reduce_sum(Gradient& gradient, std::source_location at = std::source_location::current());
  void average_model(const AveragePolicy& policy, std::source_location at = std::source_location::current());
  void broadcast_model(Rank root, std::source_location at = std::source_location::current());
  void barrier(std::source_location at = std::source_location::current());

  // With a server: waits for its newest model and adopts it with its step; false when the server
  // has ended. send_gradient labels the gradient with the step of the model it was computed at.
  bool receive_model(std::source_location at = std::source_location::current());
  void send_gradient(Gradient gradient, std::source_location at = std::source_location::current());

  // Messages between any two participants.
  void send(Rank to, Message message, std::source_location at = std::source_location::current());
  std::optional<Message> receive(std::source_location at = std::source_location::current());
  std::optional<Message> try_receive(std::source_location at = std::source_location::current());
  std::optional<Message> receive_until(Time until, std::source_location at = std::source_location::current());

 private:
  int next_micro_batch_ = 0;
  bool has_reduced_ = false;  // the next step goes along an all-reduced gradient
  Contribution since_sync_{};
};

class Server : public Participant {
 public:
  Server(const RunContext& context, Rank rank);

  // The next gradient to arrive; nothing when all workers have ended.
  std::optional<Message> receive(std::source_location at = std::source_location::current());
  std::optional<Message> receive_until(Time until, std::source_location at = std::source_location::current());

  // Sends the current model to each worker that has delivered its gradient (or not begun yet) and
  // does not have this version: those that were accepted wait for the next version, late ones get
  // the newest at once.
  void send_model_to_waiting(std::source_location at = std::source_location::current());

  // What becomes of a received gradient: exactly one of the two, for the accounts.
  void keep(const Message& message);
  void discard(const Message& message);

  // One step of the global model; a row of steps.csv.
  void descend(const Gradient& gradient);

 private:
  std::vector<Step> version_of_;       // of the last model sent to each worker
  std::vector<int> waiting_;           // workers without the current version, to be sent it
  std::vector<int> waiting_for_next_;  // workers that have delivered at the current version
  std::int64_t dropped_since_step_ = 0;
  Time last_step_end_{};
  Bytes last_bytes_{};
};

}  // namespace syncopate
