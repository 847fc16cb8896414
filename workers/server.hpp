// A parameter server: holds the model, or with several servers a slice of it, and steps along the
// gradients that workers send. It decides which to keep.
//
// Servers of servers (Servers::of_regions): the workers of each region have a server of their own, which holds a whole
// model, takes what they send, and hears of the other regions through the global server, the first one. The global
// server serves the regions' servers. Its model is the one that is evaluated, and rows of steps.csv are of what it
// knows of. Each server judges the budget by what it knows.
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
  all,      // every worker that has not ended
  waiting,  // each that has delivered its gradient (or not begun yet) and does not have this version: those that were
            // accepted wait for the next version, late ones get the newest at once
};

// Which gradients a server accepts.
struct AcceptOptions {
  std::optional<Step> maximum_staleness{};  // in steps since the model that it was computed at; none: however many
  Duration maximum_age = longest_duration;  // since that model was sent
  bool is_needed = true;                    // false: it is discarded however new it is
  std::optional<Step>
      staleness{};          // of a difference, where its method knows that its sender had not taken up the newest
                            // model that it was sent
  std::int64_t copies = 0;  // micro-batches of it that another worker has already brought: they count as dropped
};

inline constexpr AcceptOptions any_gradient{};

class Server final : public Participant {
 public:
  Server(const RunContext& context, Rank rank);

  // Workers whose server this is that have not ended, and those of `also` that have. A method that waits for a number
  // of gradients waits for no more than these, `also` being those whose gradients it has. The global server's are the
  // regions' servers.
  int workers_left(std::span<const Rank> also = {}) const;

  // The next message to arrive; nothing if, instead, a worker has left: look at workers_left() again. Requests for a
  // model are answered in here: at once, or with the next version (Receivers::waiting) where the present one is on its
  // way already.
  ReceivedMessage receive(Time until = never, Here at = Here::current());
  // The next message to arrive; nothing once all whom it serves have left and nothing is under way from them, or its
  // own server has ended. Calls `on_leave`, if there is one, for each that has left, once.
  ReceivedMessage receive_until_all_left(const std::function<void(Rank)>& on_leave = {}, Here at = Here::current());

  // Sends the current model, labelled with its step unless another label is given, and numbers along with it.
  void send_model(Rank to, Here at = Here::current()) { send_model(to, step_, at); }
  void send_model(Rank to, Step label, Here at = Here::current()) { send_model(to, label, {}, at); }
  void send_model(Rank to, std::vector<double> numbers, Here at = Here::current()) {
    send_model(to, step_, std::move(numbers), at);
  }
  // The same with a slice of the model alone, of one server.
  void send_model(Rank to, Slice part, std::vector<double> numbers, Here at = Here::current());
  void send_model(Receivers to, Here at = Here::current()) { send_model(to, {}, at); }
  void send_model(Receivers to, const std::vector<double>& numbers, Here at = Here::current());

  // What becomes of a received gradient or difference, which every one needs once: it is accepted, and counts as kept,
  // unless it is staler or older than it may be, or not needed; then it is discarded. Its staleness, if it is accepted:
  // the steps of this server since the model that it was computed at, of a difference since its sender got one.
  // Of the model that a region's server gets from the global one: this one knows of as much work of everybody's then.
  std::optional<Step> accept(const Message& message, const AcceptOptions& options = any_gradient);

  // Declares that a step uses so many gradients, where one of the experiment file uses one of each worker (not said:
  // N). Budget, schedule and reports then go by the file's steps, so that equal budgets mean equal samples. Called
  // before the first step.
  void set_gradients_per_step(int gradients) { steps_per_file_step_ = static_cast<double>(size_) / gradients; }
  // One step of the global model, or of its slice. Rows of steps.csv are steps of the experiment file.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // For methods whose workers send what has come of steps of their own: a step to this model, which has been made with
  // so many micro-batches more. The server's step() is then that of the experiment file: one for M micro-batches of
  // each worker, up to the last of the budget.
  void descend(const ModelStatePtr& to, std::int64_t micro_batches);
  // For methods whose workers step on their own: one of them has taken so many steps by now. The server's step is then
  // the mean of all workers', rounded down.
  void note_steps(Rank worker, Step steps);

 private:
  friend void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program);

  void discard(const Work& work);
  void begin_versions();
  Ranks served() const { return context_.cluster.servers().served_by(rank_, size_); }
  void close_row(Step row_before);
  void count_work(std::int64_t micro_batches);
  void send_model(Rank to, Step label, std::vector<double>&& numbers, Here at);
  void send_counted(Rank to, Message&& message, Here at);
  [[gnu::noinline]] void open(Message& compressed);
  [[gnu::noinline]] void answer(Rank worker, Message& with_model);
  void send_last_model(Rank to, Here at);

  Slice slice_;                             // the part of the parameters that this server holds
  int reported_left_;                       // of whom it serves: of whose leaving nobody has been told
  ByRank<char> is_told_of_;                 // of whose leaving somebody has
  Step version_{};                          // which `step_` is, but where it counts workers' own steps
  ByRank<std::optional<Step>> version_of_;  // of the last model sent to each worker; none: nothing was sent yet
  ByRank<Time> sent_at_;                    // when that was
  ByRank<char> is_listed_;                  // in one of the two lists
  std::vector<Rank> waiting_;               // workers without the current version, to be sent it
  std::vector<Rank> waiting_for_next_;      // workers that have delivered at the current version
  ByRank<Step> steps_of_;                   // that each worker has taken on its own
  Step steps_of_all_{};                     // their sum
  std::int64_t stale_in_a_row_ = 0;         // gradients, since the last one that was accepted
  StepRow row_;                             // the one that is open
  StepRows rows_;
  NumberedRounds versions_;  // for the record of arrivals
  struct OfPackets {
    std::int64_t heard = 0;                // the number of the last one, and 1
    std::vector<std::int64_t> rejected{};  // of which its worker has not been told
  };
  ByRank<OfPackets> packets_of_{};  // empty: nobody wants to know
};

// Runs a server's program to its end. Of servers that hold slices each then sends worker 0 its slice of the last model,
// since nobody else holds the whole.
void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program);

}  // namespace syncopate
