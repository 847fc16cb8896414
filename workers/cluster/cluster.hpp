// The seam between methods and what they run on. Worker and Server (worker.hpp) are written on top
// of it once; SimulatedCluster (virtual clock, all workers in one process) and MpiCluster (wall
// clock, one worker per process) implement it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/process/interrupt.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"
#include "workers/units/source_line.hpp"
#include "workers/units/units.hpp"

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
  // The arrival of a message, at once if one is there already: how a server cancels late work.
  static Deadline until_message() {
    Deadline deadline;
    deadline.at_message = true;
    return deadline;
  }
  Time at;
  Preempt preempt;
  double forward_share;     // of a micro-batch's duration, for Preempt::backward
  bool at_message = false;  // what is in flight is lost then, whatever `preempt` says
};

// When a micro-batch that starts at `start` and would take `duration` ends, and whether it counts.
// Strictness as in the sources: discard keeps what ends before the deadline; the code's checks stop
// what is past it.
struct MicroBatchEnd {
  Time at;
  bool kept;
};
MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline);
// The part of a micro-batch's duration that is its forward pass, for Preempt::backward.
Duration forward_pass(Duration duration, const Deadline& deadline);

// Where in an algorithm a worker waits, for explanations of a deadlock.
struct Place {
  const char* operation = "";
  SourceLine at;
};

struct Message {
  Step step{};            // version of the model that this message carries or was computed from
  Gradient gradient{};    // empty, or
  ModelStatePtr model{};  // null in time-only runs too
  bool carries_model = false;
  Rank from{};
  std::vector<double> numbers{};  // travel along, 8 bytes each
  std::int64_t kept = 0;          // from a server: micro-batches in its model
  Slice slice{};                  // which part of the parameters the gradient or the model stands for
};

// Where received messages come from, and go back to: thousands of workers send millions of them.
class MessagePool {
 public:
  virtual void take_back(Message* message) = 0;

 protected:
  ~MessagePool() = default;
};
struct GiveBack {
  MessagePool* pool = nullptr;  // null: the message stands alone
  void operator()(Message* message) const { pool ? pool->take_back(message) : delete message; }
};
// A message that has come, or null. It does not outlive the run.
using ReceivedMessage = std::unique_ptr<Message, GiveBack>;

// Bytes that the message takes on the network: 4 per parameter of its slice (8 for a wide gradient), 8 per
// number. A message without values costs its latency alone.
inline Bytes message_bytes(const Message& message, Bytes parameter_bytes) {
  const bool has_values = message.carries_model || message.gradient.micro_batches() > 0;
  Bytes::Rep bytes = 8 * static_cast<Bytes::Rep>(message.numbers.size());
  if (has_values) {
    const Bytes::Rep floats = parameter_bytes.value() / 4;
    bytes += (message.gradient.wide() ? 8 : 4) * (message.slice.end(floats) - message.slice.begin(floats));
  }
  return Bytes{bytes};
}

// One copy for all who gathered it.
using SharedNumbers = std::shared_ptr<const std::vector<double>>;

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
  Duration compute_time{};   // spent on what is kept, for finish_round
};

// When a partial all-reduce takes place: once `quorum` workers have arrived at it, or once `rank` has. All
// workers give the same for the same round. Workers that have ended are not waited for.
struct Activation {
  int quorum = 1;
  std::optional<Rank> rank{};  // instead of the quorum
};

// What becomes of a gradient that comes after its round has taken place.
enum class LateGradient {
  drop,        // it is lost
  accumulate,  // it is added to what this worker contributes to the next round, also while it computes again
};

// What a worker passes to average: how, and as which part.
struct Averaging {
  AveragePolicy policy{};
  double weight = 1;   // of this worker's model; the weights are divided by their sum (all 0: equal)
  int group_size = 0;  // average within groups of so many workers of consecutive ranks; 0: over all
};

// Totals after a collective, the same on every participant, so that all decide alike.
struct Agreement {
  Time time{};                     // completion (simulated) or last arrival (MPI)
  std::int64_t micro_batches = 0;  // kept so far, over all workers
  Bytes bytes{};                   // sent so far, over all workers
};

// One round of partial all-reduces, as every worker gets it.
struct PartialSum {
  Gradient sum{};
  int contributors = 0;  // workers whose gradients are in it
  Agreement agreement{};
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

// "This is the global model now."
struct Publication {
  ModelStatePtr model{};                    // null in time-only runs
  std::vector<ModelStatePtr> ensemble{};    // if not empty: evaluate the mean of their predictions instead
  std::vector<MicroBatch> recalibration{};  // if not empty: estimate BatchNorm statistics on these before evaluating
  Step step{};                              // in steps of the experiment file
  Time time{};
  std::int64_t samples = 0;  // that went into the model
  Bytes bytes{};
  double learning_rate = 0;
};

// Listens to a run. On the simulated cluster all calls come from the simulating thread; under MPI
// only rank 0 (rounds of collectives) and the publishing rank call.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_round(const Round& round) = 0;
  // Costs no time on either clock.
  virtual void on_publish(const Publication& publication) = 0;
};

// What a run comes to.
struct RunTotals {
  Time end{};                           // T
  std::vector<Account> accounts;        // per worker (the server is not a worker)
  std::vector<std::int64_t> kept;       // micro-batches per worker that ended up in a model
  std::vector<std::int64_t> dropped;    // micro-batches per worker, begun or finished, that did not
  std::vector<std::int64_t> staleness;  // [k]: gradients that a server kept k steps after their model
  // Communication by one ruler, whatever the network (see workers/network/network.hpp). Messages from workers to a
  // server count once they have reached it, so that what comes too late for the run does not; others when sent.
  Bytes bytes{};
  std::int64_t collectives = 0;  // all-reduces, averages (of a group too), gathers, broadcasts, barriers
  std::int64_t messages = 0;
  // Where real arithmetic is to fit into drawn durations (pace = "emulate" under MPI); else empty or 0.
  std::vector<std::int64_t> emulated;  // such micro-batches per worker
  std::vector<std::int64_t> overruns;  // those of them that took longer
  Duration overrun_excess{};           // by so much, together
};

// A run that cannot go on: what, which worker, when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Cluster {
 public:
  using Program = std::function<void(Rank)>;

  virtual ~Cluster() = default;

  virtual int workers() const = 0;
  virtual int servers() const = 0;
  // The rank of a server, where a method has one or several.
  Rank server(int shard = 0) const { return Rank{workers() + shard}; }
  bool is_server(Rank rank) const { return rank.value >= workers(); }

  // Runs the programs of all participants of this process to their end. `serve` is null for methods
  // without a server. A worker that ends before the others has left: servers are told (receive), partial
  // all-reduces go on without it, and a collective that needs it fails with that reason.
  // Throws RunFailure (a deadlock, a lost rank), Interrupted, or what a program threw.
  virtual RunTotals run(const Program& work, const Program& serve) = 0;

  // The calls below are made from within the programs, each by participant `self`.
  virtual Time now(Rank self) const = 0;

  // Workers that have not ended, as far as is known here.
  virtual int workers_left(Rank self) = 0;
  // Whether a worker has, as far as is known here.
  virtual bool has_left(Rank self, Rank worker) const = 0;

  // The gradient of the micro-batch `samples`, or nothing if the deadline stopped it, or if an outage took the
  // worker's state (see has_lost_state). `slot` decides how long it takes; the two differ where a worker computes
  // what was another's, or was dropped before.
  virtual std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                                   const MicroBatch& samples, const Deadline& deadline) = 0;

  // Outages (workers/delays/outages.hpp): whether one of this worker's may take its state.
  virtual bool may_lose_state(Rank) const { return false; }
  // Whether one has in the last compute_gradient. The worker is up again; the micro-batch was lost. Asked once.
  virtual bool has_lost_state(Rank) { return false; }

  // The sum over micro-batches first.index .. first.index + count - 1 of a step, without a deadline. Not for a
  // worker that may lose its state.
  virtual Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);

  // The sleep that follows a micro-batch, where delays are sleeps (workers/delays/pauses.hpp); else none.
  virtual Duration sleep_after(Rank, const MicroBatch&) const { return {}; }

  // Collectives: all workers (not the servers) must take part, with the same operation; those of a group
  // where an average is one over groups.
  // The agreement of a group is on its time alone.
  // `numbers`, as many on each worker, are summed along with the gradient (4 bytes each on the network).
  virtual Agreement all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                   const Contribution& contribution, Place place) = 0;
  virtual Agreement average(Rank self, ModelStatePtr& state, const Averaging& averaging,
                            const Contribution& contribution, Place place) = 0;
  virtual Agreement broadcast(Rank self, ModelStatePtr& state, Rank root, Place place) = 0;
  // A row of steps.csv where somebody contributes.
  virtual Agreement barrier(Rank self, Place place, const Contribution& contribution = {}) = 0;
  // Everybody's numbers in the order of the ranks; as many on each worker.
  virtual SharedNumbers all_gather(Rank self, std::span<const double> numbers, Place place) = 0;

  // All-reduces that do not wait for everybody. A worker arrives at the round after the last one whose
  // result it has got. If that has not taken place yet, its gradient is part of it, and the call returns
  // its result once it is complete. If it has, the gradient is late (see LateGradient), and the results of
  // all rounds since then are returned at once, oldest first.
  virtual std::vector<PartialSum> partial_all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                                     LateGradient late, const Contribution& contribution,
                                                     Place place) = 0;

  // Books a worker's steps where a method has neither collectives nor a server: rounds of equal number are
  // one row of steps.csv. Takes no time.
  virtual void finish_round(Rank self, const Contribution& contribution) = 0;

  // Messages arrive in (time, sequence) order. Sending does not block. receive gives the first one, of
  // `from` alone if that is given; nothing once `until` has passed, or when nobody is left who could send,
  // or, to a server, when a worker has left since it last asked or was told.
  virtual void send(Rank self, Rank to, Message&& message, Place place) = 0;
  virtual ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) = 0;

  // Books the gradient's compute time as discarded, and its micro-batches as dropped, with its worker.
  virtual void discard(Rank self, const Message& message) = 0;
  // Books the gradient's micro-batches as kept with the worker that sent it, and its staleness in steps.
  virtual void keep(Rank self, const Message& message, Step staleness) = 0;

  virtual Bytes bytes_sent() const = 0;
};

}  // namespace syncopate
