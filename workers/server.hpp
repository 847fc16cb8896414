// A parameter server: holds the model, or a slice of it, and steps along the workers' gradients that it accepts.
//
// Regions (Servers::of_regions): the workers of each region have a server of their own. It holds a whole model, takes
// their messages, and learns of the other regions through the global server, which is the first one. The global server
// serves the regions' servers. Its model is evaluated, and it makes the rows of steps.csv. Each server judges the
// budget by the work that it knows of.
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

// Which workers a server sends its model to.
enum class Receivers {
  all,  // every worker that has not ended
  // Each worker that lacks this version and has delivered its gradient, or not begun yet. A worker whose gradient was
  // accepted waits for the next version; a late one gets the newest at once.
  waiting,
};

// Which gradients a server accepts.
struct AcceptOptions {
  // In steps since the model that the gradient was computed at; none: any staleness is accepted.
  std::optional<Step> maximum_staleness{};
  Duration maximum_age = longest_duration;  // since the server sent that model
  bool is_needed = true;                    // false: discard the gradient even if it is new enough
  // The staleness of a difference, if the method knows that the sender had not taken the newest model sent to it.
  std::optional<Step> staleness{};
  std::int64_t copies = 0;  // its micro-batches that another worker has already delivered: they count as dropped
};

inline constexpr AcceptOptions any_gradient{};

class Server final : public Participant {
 public:
  Server(const RunContext& context, Rank rank);

  // The number of workers (for the global server: regions' servers) that have not ended, plus those of `also` that
  // have. A method waits for no more gradients than that; `also` are the workers whose gradients it already has.
  int workers_left(std::span<const Rank> also = {}) const;

  // Returns the next message, or nothing if a worker has left instead: look at workers_left() again. Requests for a
  // model are answered here: at once, or with the next version (Receivers::waiting) if the current one is on its way.
  ReceivedMessage receive(Time until = never, CalledFrom at = CalledFrom::current());
  // Returns the next message; nothing once all that this server serves have left and none of their messages is under
  // way, or once its own server has ended. Calls `on_leave`, if given, once for each that has left.
  ReceivedMessage receive_until_all_left(const std::function<void(Rank)>& on_leave = {},
                                         CalledFrom at = CalledFrom::current());

  // Sends the current model and `numbers`, labelled with the server's step unless another label is given.
  void send_model(Rank to, CalledFrom at = CalledFrom::current()) { send_model(to, step_, at); }
  void send_model(Rank to, Step label, CalledFrom at = CalledFrom::current()) { send_model(to, label, {}, at); }
  void send_model(Rank to, std::vector<double> numbers, CalledFrom at = CalledFrom::current()) {
    send_model(to, step_, std::move(numbers), at);
  }
  // The same for a slice of the model, in methods with one server.
  void send_model(Rank to, Slice part, std::vector<double> numbers, CalledFrom at = CalledFrom::current());
  void send_model(Receivers to, CalledFrom at = CalledFrom::current()) { send_model(to, {}, at); }
  void send_model(Receivers to, const std::vector<double>& numbers, CalledFrom at = CalledFrom::current());

  // Accepts or discards a received gradient or difference. Call it once for each. It is accepted, and counts as kept,
  // unless it is too stale, too old, or not needed.
  // Returns the staleness if it is accepted: this server's steps since the model that the gradient was computed at, or,
  // for a difference, since its sender got a model. For the global server's model, a region's server records the work
  // of all regions.
  std::optional<Step> accept(const Message& message, const AcceptOptions& options = any_gradient);

  // Declares that a step uses this many gradients. (A step of the experiment file uses N, one of each worker.) Budget,
  // schedule and reports then count the file's steps. Call it before the first step.
  void set_gradients_per_step(int gradients) { steps_per_file_step_ = static_cast<double>(size_) / gradients; }
  // Takes one step of the global model, or of its slice. Rows of steps.csv are steps of the experiment file.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // Steps to this model, which `micro_batches` more micro-batches went into; for methods whose workers send results of
  // their own steps. step() then counts steps of the file, each of M micro-batches per worker, within the budget.
  void descend(const ModelStatePtr& to, std::int64_t micro_batches);
  // Records that a worker has taken `steps` steps on its own; for methods whose workers step on their own. The server's
  // step is the mean over the workers, rounded down.
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
  void send_model(Rank to, Step label, std::vector<double>&& numbers, CalledFrom at);
  void send_version(Rank to, Message&& message, Slice part, CalledFrom at);
  void send_counted(Rank to, Message&& message, Slice part, CalledFrom at);
  [[gnu::noinline]] void open(Message& compressed);
  [[gnu::noinline]] void answer(Rank worker, Message& with_model);

  Slice slice_;                             // the part of the parameters that this server holds
  int reported_left_;                       // served participants whose leaving it has not reported yet
  ByRank<char> is_reported_;                // whether it has reported this participant's leaving
  Step version_{};                          // step_, unless that counts the workers' own steps
  ByRank<std::optional<Step>> version_of_;  // version last sent to each worker; none: nothing sent yet
  ByRank<Time> sent_at_;                    // when that model was sent
  ByRank<char> is_listed_;                  // in one of the two lists below
  std::vector<Rank> waiting_;               // workers that lack the current version and will get it
  std::vector<Rank> waiting_for_next_;      // workers that have delivered a gradient of the current version
  ByRank<Step> steps_of_;                   // steps that each worker has taken on its own
  Step steps_of_all_{};                     // the sum of steps_of_
  std::int64_t stale_in_a_row_ = 0;         // gradients rejected as stale since the last accepted one
  StepRow row_;                             // the row in progress
  StepRows rows_;
  NumberedRounds versions_;  // for the record of arrivals
  struct OfPackets {
    std::int64_t heard = 0;                // number of the last packet received, plus 1
    std::vector<std::int64_t> rejected{};  // rejected packets not yet reported to the worker
  };
  ByRank<OfPackets> packets_of_{};  // empty: rejected packets are not tracked
};

// Runs a server's program to its end. Servers with slices then send worker 0 the last model, which nobody else has.
void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program);

}  // namespace syncopate
