// A parameter server: holds the model, or a slice of it, and steps along those gradients of workers that it keeps.
//
// Servers of servers (Servers::of_regions): the workers of each region have their own server, which holds a whole
// model, takes their messages, and hears of the other regions through the global server, the first one. The global
// server serves the regions' servers. Its model is evaluated, and it makes the rows of steps.csv. Each server judges
// the budget by the work it knows of.
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

// To whom a server sends its model.
enum class Receivers {
  all,  // every worker that has not ended
  // Each that has delivered its gradient (or not begun yet) and lacks this version: accepted ones wait for the next
  // version, late ones get the newest at once.
  waiting,
};

// Which gradients a server accepts.
struct AcceptOptions {
  std::optional<Step> maximum_staleness{};  // in steps since the model that it was computed at; none: any
  Duration maximum_age = longest_duration;  // since that model was sent
  bool is_needed = true;                    // false: it is discarded however new it is
  // The staleness of a difference, if its method knows that the sender had not taken the newest model sent to it.
  std::optional<Step> staleness{};
  std::int64_t copies = 0;  // micro-batches of it that another worker has already brought: they count as dropped
};

inline constexpr AcceptOptions any_gradient{};

class Server final : public Participant {
 public:
  Server(const RunContext& context, Rank rank);

  // How many of this server's workers (the global server's are the regions' servers) have not ended, and how many of
  // `also` have. A method that waits for gradients waits for no more; `also` are workers whose gradients it has.
  int workers_left(std::span<const Rank> also = {}) const;

  // The next message to arrive; nothing if, instead, a worker has left: look at workers_left() again. This function
  // answers requests for a model: at once, or with the next version (Receivers::waiting) if this one is on its way.
  ReceivedMessage receive(Time until = never, CalledFrom at = CalledFrom::current());
  // The next message to arrive; nothing once all whom it serves have left and nothing is under way from them, or its
  // own server has ended. Calls `on_leave`, if given, once for each that has left.
  ReceivedMessage receive_until_all_left(const std::function<void(Rank)>& on_leave = {},
                                         CalledFrom at = CalledFrom::current());

  // Sends the current model, labelled with its step unless another label is given, and numbers along with it.
  void send_model(Rank to, CalledFrom at = CalledFrom::current()) { send_model(to, step_, at); }
  void send_model(Rank to, Step label, CalledFrom at = CalledFrom::current()) { send_model(to, label, {}, at); }
  void send_model(Rank to, std::vector<double> numbers, CalledFrom at = CalledFrom::current()) {
    send_model(to, step_, std::move(numbers), at);
  }
  // The same with a slice of the model alone, where there is one server.
  void send_model(Rank to, Slice part, std::vector<double> numbers, CalledFrom at = CalledFrom::current());
  void send_model(Receivers to, CalledFrom at = CalledFrom::current()) { send_model(to, {}, at); }
  void send_model(Receivers to, const std::vector<double>& numbers, CalledFrom at = CalledFrom::current());

  // Call it once for each received gradient or difference. It is accepted, and counts as kept, unless it is staler or
  // older than it may be, or not needed; then it is discarded. Returns its staleness if it is accepted: the steps of
  // this server since the model that it was computed at, for a difference since its sender got one. With the global
  // server's model a region's server learns of everybody's work.
  std::optional<Step> accept(const Message& message, const AcceptOptions& options = any_gradient);

  // Declares that a step uses so many gradients; a step of the experiment file uses one of each worker (N). Budget,
  // schedule and reports then go by the file's steps. Call it before the first step.
  void set_gradients_per_step(int gradients) { steps_per_file_step_ = static_cast<double>(size_) / gradients; }
  // One step of the global model, or of its slice. Rows of steps.csv are steps of the experiment file.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // For methods whose workers send results of their own steps: a step to this model, made with so many micro-batches
  // more. The server's step() is then the file's: one for M micro-batches of each worker, within the budget.
  void descend(const ModelStatePtr& to, std::int64_t micro_batches);
  // For methods whose workers step on their own: one has taken so many. The server's step is their mean, rounded down.
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
  int reported_left_;                       // of those that it serves, except those whose leaving it has reported
  ByRank<char> is_reported_;                // whose leaving it has reported
  Step version_{};                          // `step_`, unless that counts workers' own steps
  ByRank<std::optional<Step>> version_of_;  // of the last model sent to each worker; none: nothing was sent yet
  ByRank<Time> sent_at_;                    // when that was
  ByRank<char> is_listed_;                  // in one of the two lists
  std::vector<Rank> waiting_;               // workers without the current version, to be sent it
  std::vector<Rank> waiting_for_next_;      // workers that have delivered at the current version
  ByRank<Step> steps_of_;                   // of each worker on its own
  Step steps_of_all_{};                     // their sum
  std::int64_t stale_in_a_row_ = 0;         // gradients, since the last accepted one
  StepRow row_;                             // the open one
  StepRows rows_;
  NumberedRounds versions_;  // for the record of arrivals
  struct OfPackets {
    std::int64_t heard = 0;                // the number of the last one, plus 1
    std::vector<std::int64_t> rejected{};  // those that the worker has not been told
  };
  ByRank<OfPackets> packets_of_{};  // empty: nobody wants to know
};

// Runs a server's program to its end. Servers with slices then send worker 0 the last model, which nobody else has.
void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program);

}  // namespace syncopate
