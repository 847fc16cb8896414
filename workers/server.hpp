// A parameter server: holds the model or a slice of it, accepts or rejects the workers' gradients, and takes optimizer
// steps along the accepted ones.
//
// With regions (Servers::of_regions), the workers of each region have their own server. It holds a whole model,
// receives its workers' messages, and exchanges models with the global server, which is the first server. The global
// server serves the regions' servers: its model is evaluated, and its steps are the rows of steps.csv. Each server
// compares the budget with the work that it knows of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/worker.hpp"

namespace syncopate {

enum class Receivers {
  all,  // all workers that have not ended
  // All workers that lack the current version and either have delivered their gradient or have not begun yet. A worker
  // that delivered a gradient of the current version waits for the next version; a late worker gets the newest at once.
  waiting,
};

struct AcceptOptions {
  // The most steps since the model at which the gradient was computed; nullopt: any staleness is accepted.
  std::optional<Step> maximum_staleness{};
  Duration maximum_age = longest_duration;  // most time since the server last sent the sender a model
  bool is_needed = true;                    // false: discard the gradient even if it is new enough
  // Overrides the staleness of a difference, if the sender did not use the newest model sent to it.
  std::optional<Step> staleness{};
  std::int64_t copies = 0;  // micro-batches that another worker has already delivered; they count as dropped
};

inline constexpr AcceptOptions any_gradient{};

class Server final : public Participant {
 public:
  Server(const RunContext& context, Rank rank);

  // The number of workers (for the global server: of regions' servers) that have not ended, plus those in `also` that
  // have ended. This is the largest number of gradients for which a method may wait. Pass in `also` the workers whose
  // gradients the server already has.
  int workers_left(std::span<const Rank> also = {}) const;

  // Returns the next message, or nothing if `until` has passed or a worker has left; check workers_left() then. Handles
  // requests for a model itself: sends the model at once or, if the sender was already sent the current version, sends
  // the next version (Receivers::waiting).
  ReceivedMessage receive(Time until = never, CalledFrom at = CalledFrom::current());
  // Returns the next message. Returns nothing once all participants that this server serves have left and all their
  // messages have arrived, or once its own (global) server has ended. Calls `on_leave`, if given, once for each
  // participant that has left.
  ReceivedMessage receive_until_all_left(const std::function<void(Rank)>& on_leave = {},
                                         CalledFrom at = CalledFrom::current());

  // Sends the current model and `numbers`, labelled with the server's step.
  void send_model(Rank to, std::vector<double> numbers = {}, CalledFrom at = CalledFrom::current()) {
    send_version(to, Message::of_model(step_, model_, std::move(numbers)), slice_, at);
  }
  void send_model(Receivers to, const std::vector<double>& numbers = {}, CalledFrom at = CalledFrom::current());
  // Sends the current model, labelled with `label`.
  void send_model(Rank to, Step label, CalledFrom at = CalledFrom::current()) {
    send_version(to, Message::of_model(label, model_), slice_, at);
  }
  // Sends a slice of the model, in methods with one server.
  void send_model(Rank to, Slice part, std::vector<double> numbers, CalledFrom at = CalledFrom::current()) {
    send_version(to, Message::of_model(step_, model_, std::move(numbers)), part, at);
  }

  // Accepts or discards a received gradient or difference; call it once for each message. The gradient is accepted and
  // counts as kept, unless it is too stale, too old, or not needed. Returns the staleness if the gradient is accepted:
  // the number of this server's steps since the gradient's model. For a difference, counts the steps since the model
  // that was last sent to its sender. If the message is the global server's model, records the work of all regions and
  // returns 0.
  std::optional<Step> accept(const Message& message, const AcceptOptions& options = any_gradient);

  // Declares how many gradients a step of this server uses. A step of the experiment file uses N gradients, one from
  // each worker. Budget, schedule and reports then convert to the file's steps. Call it before the first step.
  void set_gradients_per_step(int gradients) { steps_per_file_step_ = static_cast<double>(size_) / gradients; }
  // Takes one optimizer step of the global model or of this server's slice. Each row of steps.csv is a step of the
  // experiment file.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // Replaces the model by `to`, which includes `micro_batches` more micro-batches than the last one. Use it if workers
  // send the results of their own steps. step() then counts steps of the experiment file (M micro-batches per worker)
  // and does not exceed the budget.
  void descend(const ModelStatePtr& to, std::int64_t micro_batches);
  // Records that a worker has taken `steps` local steps in total, for methods with local steps. The server's step is
  // the mean over the workers, rounded down.
  void record_steps(Rank worker, Step steps);

 private:
  friend void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program);

  void discard(const BookedTime& work) {
    if (slice_.index == 0) context_.cluster.discard(rank_, work);
    row_.add({.planned = work.micro_batches});
  }
  void begin_versions() {
    while (versions_.begun() > 0 && versions_.begun() <= step_.value()) versions_.begin_next(now());
  }
  Ranks served() const { return context_.cluster.servers().served_by(rank_, size_); }
  void close_row(Step row_before) {
    if (file_step() == row_before) return;
    row_.add({.step = file_step(), .period = file_step() - row_before});
    rows_.close(std::exchange(row_, {}), now(), context_.cluster.bytes_sent());
  }
  void count_work(std::int64_t micro_batches);
  void send_version(Rank to, Message&& message, Slice part, CalledFrom at);
  void send_counted(Rank to, Message&& message, Slice part, CalledFrom at);
  [[gnu::noinline]] void open(Message& compressed);
  [[gnu::noinline]] void answer(Rank worker, Message& with_model);

  Slice slice_;                             // the slice of the parameters that this server holds
  int reported_left_;                       // number of served participants for which on_leave was not called yet
  ByRank<char> is_reported_;                // whether on_leave was called for this participant
  Step version_{};                          // equals step_, unless step_ counts the workers' local steps
  ByRank<std::optional<Step>> version_of_;  // version last sent to each worker; nullopt: nothing sent yet
  ByRank<Time> sent_at_;                    // when that version was sent
  ByRank<char> is_listed_;                  // whether the worker is in one of the two lists below
  std::vector<Rank> waiting_;               // workers that lack the current version; it will be sent to them
  std::vector<Rank> waiting_for_next_;      // workers that have delivered a gradient of the current version
  ByRank<Step> steps_of_;                   // local steps of each worker
  Step steps_of_all_{};                     // the sum of steps_of_
  std::int64_t stale_in_a_row_ = 0;         // gradients rejected as stale since the last accepted one
  StepRow row_;                             // the row of steps.csv in progress
  StepRows rows_;
  NumberedRounds versions_;  // records the arrivals of gradients
  struct OfPackets {
    std::int64_t heard = 0;                // number of the last packet received, plus 1
    std::vector<std::int64_t> rejected{};  // rejected packets not yet reported to the worker
  };
  ByRank<OfPackets> packets_of_{};  // empty: rejected packets are not tracked
};

// Runs a server's program to its end. Servers that hold slices then send worker 0 their last slices, from which worker
// 0 assembles the final model.
void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program);

}  // namespace syncopate
