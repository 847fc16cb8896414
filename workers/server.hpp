// A parameter server: holds the model, or with several servers a slice of it, and steps along the
// gradients that workers send. It decides which to keep.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "workers/cluster/step_rows.hpp"
#include "workers/participant.hpp"

namespace syncopate {

class Server : public Participant {
 public:
  using Here = SourceLine;

  Server(const RunContext& context, Rank rank);

  // Workers that have not ended. A method that waits for a number of gradients waits for no more than these.
  int workers_left() const { return context_.cluster.workers_left(rank_); }
  bool has_left(Rank worker) const { return context_.cluster.has_left(rank_, worker); }

  // The next message to arrive; nothing if, instead, a worker has left: look at workers_left() again. Requests for a
  // model are answered in here: at once, or with the next version (send_model_to_waiting) where the present one is on
  // its way already.
  ReceivedMessage receive(Here at = Here::current()) { return receive_until(never, at); }
  ReceivedMessage receive_until(Time until, Here at = Here::current());
  // The next message to arrive; nothing once all workers have left and nothing is under way. Calls `on_leave`,
  // if there is one, for each that has left, once.
  ReceivedMessage receive_until_all_left(const std::function<void(Rank)>& on_leave = {}, Here at = Here::current());

  // Sends the current model, labelled with its step unless another label is given.
  void send_model(Rank to, Here at = Here::current()) { send_model(to, step_, at); }
  void send_model(Rank to, Step label, Here at = Here::current());
  void send_model_to_all(Here at = Here::current());
  // Its receiver need not compute at it any more (Worker::receive_model tells).
  void send_last_model(Rank to, Here at = Here::current());
  // Sends it to each worker that has delivered its gradient (or not begun yet) and does not have this
  // version: those that were accepted wait for the next version, late ones get the newest at once.
  void send_model_to_waiting(Here at = Here::current());
  void send(Rank to, Message&& message, Here at = Here::current());

  // When a worker was sent its last model, also because it had lost that of before.
  Time model_sent_at(Rank worker) const { return sent_at_[static_cast<std::size_t>(worker.value)]; }

  // Steps since the model that a gradient was computed at.
  Step staleness(const Message& message) const { return step_ - message.step; }

  // What becomes of a received gradient: exactly one of the two, for the accounts.
  // `copies` of its micro-batches are in the model already, by another worker's message: they count as dropped.
  void keep(const Message& message, std::int64_t copies = 0);
  void discard(const Message& message);

  // For methods whose workers step on their own: how far the training has come, for the reports.
  void advance_to(Step step, std::int64_t micro_batches) {
    step_ = step;
    kept_total_ = micro_batches;
  }

  // One step of the global model, or of its slice. Rows of steps.csv are steps of the experiment file.
  void descend(const Gradient& gradient) { descend(gradient, gradient.micro_batches()); }
  // The same where a code has put micro-batches into several messages: `micro_batches` counts each once.
  void descend(const Gradient& gradient, std::int64_t micro_batches);

 private:
  void discard(const Work& work);

  Slice slice_;                        // the part of the parameters that this server holds
  int reported_left_;                  // workers of whose leaving nobody has been told
  std::vector<char> is_told_of_;       // workers of whose leaving somebody has
  std::vector<Step> version_of_;       // of the last model sent to each worker
  std::vector<Time> sent_at_;          // when that was
  std::vector<char> is_listed_;        // in one of the two lists
  std::vector<int> waiting_;           // workers without the current version, to be sent it
  std::vector<int> waiting_for_next_;  // workers that have delivered at the current version
  StepRow row_;                        // the one that is open
  StepRows rows_;
};

}  // namespace syncopate
