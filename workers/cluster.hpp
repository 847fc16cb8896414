// The seam between methods and what they run on. Worker and Server (worker.hpp) are written on top
// of it once; SimulatedCluster (virtual clock, all workers in one process) and MpiCluster (wall
// clock, one worker per process) implement it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"
#include "workers/units.hpp"

namespace syncopate {

// What becomes of a micro-batch that is running when the deadline passes.
// Source: Giladi et al. 2023, Algorithm 1, and the two trainers of its reference repository (dropcompute).
enum class Preempt {
  discard,     // stops at the deadline and is lost (Algorithm 1 of the paper; the default)
  microbatch,  // finishes and counts; only the next one is not started (reference code, BERT-Large)
  backward,    // finishes if its backward pass has begun, else is lost after its forward pass (BERT-1.5B)
};

struct Deadline {
  Deadline(Time at = never, Preempt preempt = Preempt::discard, double forward_share = 1.0 / 3)  // NOLINT
      : at(at), preempt(preempt), forward_share(forward_share) {}
  Time at;
  Preempt preempt;
  double forward_share;  // of a micro-batch's duration, for Preempt::backward
};

// When a micro-batch that starts at `start` and would take `duration` ends, and whether it counts.
// Strictness as in the sources: discard keeps what ends before the deadline; the code's checks stop
// what is past it.
struct MicroBatchEnd {
  Time at;
  bool kept;
};
MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline);

// Where in an algorithm a worker waits, for explanations of a deadlock.
struct Place {
  const char* operation = "";
  std::source_location at;
};

struct Message {
  Rank from{};
  Step step{};            // version of the model that this message carries or was computed from
  Gradient gradient{};    // empty, or
  ModelStatePtr model{};  // null in time-only runs too
  bool carries_model = false;
};

// Every worker-second is exactly one of these five; over all workers they sum to N x T.
enum class Activity { compute, discarded, wait, communicate, down };
inline constexpr std::size_t activities = 5;
inline constexpr std::array<const char*, activities> activity_names = {"compute", "discarded", "wait", "communicate",
                                                                       "down"};
struct Account {
  std::array<Duration, activities> time{};
  Duration& operator[](Activity activity) { return time[static_cast<std::size_t>(activity)]; }
  Duration operator[](Activity activity) const { return time[static_cast<std::size_t>(activity)]; }
  Duration total() const;
};

// What a worker brings to a collective, for the row of steps.csv that it becomes.
struct Contribution {
  std::int64_t kept = 0;     // micro-batches in what is reduced
  std::int64_t planned = 0;  // micro-batches without any dropping
  Step step{};               // optimizer steps done when the round ends
  Step period{};             // optimizer steps since the last synchronisation
};

// Totals after a collective, the same on every participant, so that all decide alike.
struct Agreement {
  Time time{};                     // completion (simulated) or last arrival (MPI)
  std::int64_t micro_batches = 0;  // kept so far, over all workers
  Bytes bytes{};                   // sent so far, over all workers
};

// A step or round, as steps.csv shows it.
struct Round {
  Step step{};
  Time end{};
  Duration duration{};
  std::int64_t kept = 0;
  std::int64_t dropped = 0;
  Step period{};
  Bytes bytes{};  // sent in this round, over all workers
};

// Listens to a run. On the simulated cluster all calls come from the simulating thread; under MPI
// only rank 0 (rounds of collectives) and the publishing rank call.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_round(const Round& round) = 0;
  // `state` is the global model after `step` steps; `samples` went into it. Costs no time on either clock.
  virtual void on_publish(const ModelStatePtr& state, Step step, Time time, std::int64_t samples, Bytes bytes) = 0;
};

struct RunTotals {
  Time end{};                         // T
  std::vector<Account> accounts;      // per worker (the server is not a worker)
  std::vector<std::int64_t> kept;     // micro-batches per worker that ended up in a model
  std::vector<std::int64_t> dropped;  // micro-batches per worker, begun or finished, that did not
  Bytes bytes{};
  std::int64_t collectives = 0;
  std::int64_t messages = 0;
};

// A run that cannot go on: what, which worker, when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The user interrupted the run (Ctrl-C).
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

class Cluster {
 public:
  using Program = std::function<void(Rank)>;

  virtual ~Cluster() = default;

  virtual int workers() const = 0;
  Rank server() const { return Rank{workers()}; }  // the rank of a server, where a method has one

  // Runs the programs of all participants of this process to their end. `serve` is null for methods
  // without a server. Throws RunFailure (a deadlock, a lost rank), Interrupted, or what a program threw.
  virtual RunTotals run(const Program& work, const Program& serve) = 0;

  // The calls below are made from within the programs, each by participant `self`.
  virtual Time now(Rank self) const = 0;

  // The gradient of one micro-batch, or nothing if the deadline stopped it.
  virtual std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& micro_batch,
                                                   const Deadline& deadline) = 0;

  // The sum over micro-batches first.index .. first.index + count - 1 of a step, without a deadline.
  virtual Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);

  // Collectives: all workers (not the server) must take part, with the same operation.
  virtual Agreement all_reduce_sum(Rank self, Gradient& gradient, const Contribution& contribution, Place place) = 0;
  virtual Agreement average(Rank self, ModelStatePtr& state, const AveragePolicy& policy,
                            const Contribution& contribution, Place place) = 0;
  virtual Agreement broadcast(Rank self, ModelStatePtr& state, Rank root, Place place) = 0;
  virtual Agreement barrier(Rank self, Place place) = 0;

  // Messages arrive in (time, sequence) order. Sending does not block. receive gives nothing once
  // `until` has passed, or when nobody is left who could send.
  virtual void send(Rank self, Rank to, Message message, Place place) = 0;
  virtual std::optional<Message> receive(Rank self, Time until, Place place) = 0;

  // Books the gradient's compute time as discarded, and its micro-batches as dropped, with its worker.
  virtual void discard(Rank self, const Message& message) = 0;
  // Books the gradient's micro-batches as kept with the worker that sent it.
  virtual void keep(Rank self, const Message& message) = 0;

  virtual Bytes bytes_sent() const = 0;
};

}  // namespace syncopate
