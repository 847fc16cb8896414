// What an algorithm sees: a worker with its own clock, model and progress. Everything here works alike on
// the simulated cluster and under MPI. (The server, where a method has one, is in server.hpp.)
//
// A worker that loses its state in an outage (workers/delays/outages.hpp) takes up the newest model and computes the
// micro-batch anew; algorithms do not notice, unless they keep something in variables (states_lost). The newest model
// is
// - that of the last agreement: the last step along an all-reduce, average, group's average, or broadcast, with
//   the moments that the worker had then, since these are what a copy made at that time holds (and where all step
//   along sums, what every other worker holds). Its local steps since then are lost: dropped, their time discarded;
//   their places in the round have passed, so that nobody waits for them again.
// - with one server, where a whole step's gradient is computed without a deadline: the server's. The worker asks
//   for it, which costs a message each way, and computes the whole step at it.
// - where a method declares it, that one;
// - else the model that it received last, or, where steps end in finish_round, that of its last step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/participant.hpp"

namespace syncopate {

class Worker : public Participant {
 public:
  using Here = SourceLine;  // where in the algorithm, for explanations of a deadlock

  Worker(const RunContext& context, Rank rank);

  // False once the budget or this worker's own data are used up.
  bool budget_left() const { return data_left() && Participant::budget_left(); }
  bool data_left() const { return taken_ < data_; }

  // The next micro-batch's gradient (mean over its samples) at the own model; nothing if the
  // deadline passes first. Micro-batches of a step are numbered 0, 1, ... anew after each step.
  std::optional<Gradient> compute_gradient(const Deadline& deadline = {});

  // The same on other samples: those of another worker's part of the data, or of a step gone by. The time
  // it takes is that of the next micro-batch all the same.
  std::optional<Gradient> compute_gradient_on(const MicroBatch& samples, const Deadline& deadline = {});
  // Names the samples of the micro-batch that compute_gradient would take next.
  MicroBatch next_micro_batch() const { return {rank_, step_, next_micro_batch_}; }

  // The sleep that follows the micro-batch computed last, where delays are sleeps of the program; else none.
  Duration sleep_after() const { return context_.cluster.sleep_after(rank_, {rank_, step_, next_micro_batch_ - 1}); }

  // Declares how many micro-batches the step under way plans, where that is not M: those of them that are not
  // kept count as dropped.
  void plan_micro_batches(std::int64_t planned) { planned_ = planned; }

  // Sum over M micro-batches without a deadline: a whole step's gradient, not yet divided.
  Gradient compute_step_gradient();
  // The same for a worker whose steps are not those of its model: samples and durations are those of its own
  // step 0, 1, ..., so that it computes on no sample twice in an epoch, at however few or many versions.
  Gradient compute_own_step_gradient();
  // The same; nothing if a message arrives first.
  std::optional<Gradient> compute_step_gradient_until_message();

  void descend(const Gradient& gradient);
  // Gives up a gradient that has been computed: its time counts as discarded.
  void discard(const Gradient& gradient);
  // Passes `steps` local steps over without taking them; their micro-batches count as dropped.
  void skip_steps(Step steps);

  // Whether this worker, by its own clock and as if all took as many steps as it, is within the
  // budget: to end a long round of local steps. Workers may get different answers.
  bool budget_left_alone() const;

  // How often this worker has lost its state: what a method keeps of its own work in variables is then gone too.
  int states_lost() const { return states_lost_; }
  // Declares the newest model where a method keeps that in a variable: a worker that loses its state before the
  // next agreement takes up this one. Local steps since the last agreement are lost all the same.
  void declare_newest(const ModelStatePtr& model);

  // Sums over all workers; afterwards all hold the same gradient, whose micro_batches() are those of all. The step
  // along it that follows belongs to the sum's row of steps.csv. `numbers` are summed along.
  void all_reduce_sum(Gradient& gradient, Here at = Here::current()) { all_reduce_sum(gradient, {}, at); }
  void all_reduce_sum(Gradient& gradient, std::span<double> numbers, Here at = Here::current());

  // The mean of all models, weighted by `weight` (equal if all are 0).
  void average_model(const AveragePolicy& policy, Here at = Here::current()) { average_model(policy, 1.0, at); }
  void average_model(const AveragePolicy& policy, double weight, Here at = Here::current());
  // The mean within this worker's group: groups of `group_size` consecutive ranks, the last may be smaller.
  // Whether budget is left, as if all had taken as many steps: the same answer for the whole group.
  bool average_in_group(const AveragePolicy& policy, int group_size, Here at = Here::current());

  void broadcast_model(Rank root, Here at = Here::current());
  void barrier(Here at = Here::current());  // ends a round of local steps, as an average does
  // Everybody's numbers in the order of the ranks; as many on each worker. One copy for all.
  SharedNumbers all_gather(std::span<const double> numbers, Here at = Here::current());

  // A collective that goes on while this worker computes (Collective::all_reduce, Collective::average), and its end,
  // for which finish waits, with what comes back. What the worker has done counts at the start, and a worker that loses
  // its state goes back to its model of then, or of the last finish.
  StartedCollective start(Collective what, Here at = Here::current());
  CollectiveResult finish(StartedCollective started, Here at = Here::current());

  // An all-reduce that does not wait for everybody (see Cluster). One step, `descend`, follows along each of
  // the sums that it returns.
  std::vector<PartialSum> partial_all_reduce_sum(Gradient gradient, const Activation& activation, LateGradient late,
                                                 Here at = Here::current());

  // For methods with neither collectives nor a server, after each step: it becomes part of a row of steps.csv.
  void finish_round();

  // With a server: waits for its next model and adopts it with its step; false when the server has ended, or
  // has sent its last model (which is adopted), or this worker's data are used up. With several servers: for a
  // slice from each; with Versions::equal on until all are of one version.
  enum class Versions { any, equal };
  bool receive_model(Here at = Here::current()) { return receive_model(Versions::any, at); }
  bool receive_model(Versions versions, Here at = Here::current());
  // Labels the gradient with the step of the model it was computed at. With several servers: to each its slice.
  void send_gradient(Gradient gradient, Here at = Here::current());

  // Whether another worker has ended, as far as is known here.
  bool has_left(Rank worker) const { return context_.cluster.has_left(rank_, worker); }

  // Messages between any two participants.
  void send(Rank to, Message&& message, Here at = Here::current());
  void send_to_server(Message message, Here at = Here::current()) {
    send(context_.cluster.server(), std::move(message), at);
  }
  ReceivedMessage receive(Here at = Here::current());
  ReceivedMessage receive_from(Rank from, Here at = Here::current());
  ReceivedMessage try_receive(Here at = Here::current());
  ReceivedMessage receive_until(Time until, Here at = Here::current());

 private:
  // What a worker goes back to that loses its state: where its local steps since the last agreement began.
  struct Agreed {
    ModelStatePtr model;
    std::int64_t kept = 0;  // these three: of the counts below
    std::int64_t kept_total = 0;
    Duration compute_time{};
  };
  // A micro-batch, or a server's step, that outages make begin again and again.
  struct Attempts {
    MicroBatch of;         // of a step the first
    bool is_step = false;  // as a whole
    std::int64_t restarts = 0;
  };
  bool loses_state(Attempts& attempts);
  [[noreturn]] void give_up(const Attempts& attempts) const;
  void go_back_to_agreed();
  void ask_server_for_model(Here at);
  template <typename Slot>
  [[gnu::noinline]] Gradient compute_step_with_outages(const Slot& slot_of);
  Contribution contribution_with(const Gradient& gradient);
  bool receive_whole_model(Here at);
  bool receive_slices(Versions versions, Here at);
  void send_slices(const Gradient& gradient, Here at);
  void start_from(Step version);
  void check_progress();
  bool budget_left_at(Time time) const;
  std::int64_t take_planned() { return std::exchange(planned_, std::nullopt).value_or(micro_batches()); }

  // What every step touches stands together, also with what Participant has last.
  std::int64_t taken_ = 0;  // micro-batches begun
  std::int64_t data_;       // micro-batches this worker has
  int next_micro_batch_ = 0;
  bool may_lose_state_;
  bool steps_are_versions_ = false;  // its step is that of the server's model
  bool has_last_model_ = false;      // of a server that has ended
  std::vector<Step> slice_steps_;    // with several servers: version of each slice
  Contribution since_sync_{};
  int sums_under_way_ = 0;               // started and not finished: the steps along them come first
  std::optional<std::int64_t> planned_;  // of the step under way; none: M
  std::int64_t kept_before_ = 0;         // by the agreement before
  int idle_rounds_ = 0;                  // collectives in a row that added nothing
  int states_lost_ = 0;
  std::optional<Agreed> agreed_model_;  // where state may be lost: from the first local step on
};

}  // namespace syncopate
