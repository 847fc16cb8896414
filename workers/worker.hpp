// What an algorithm sees: a worker with its own clock, model and progress. Everything here works alike on
// the simulated cluster and under MPI. (The server, where a method has one, is in server.hpp.)
//
// A worker that loses its state in an outage (workers/delays/outages.hpp) takes up the newest model and computes the
// micro-batch anew; algorithms do not notice, unless they keep something of its work in variables (LostWithState). The
// newest model is
// - that of the last agreement: the last step along an all-reduce, average, group's average, or broadcast, with
//   the moments that the worker had then, since these are what a copy made at that time holds (and where all step
//   along sums, what every other worker holds). Its local steps since then are lost: they count as dropped and their
//   time as discarded. They are not taken again, so that nobody waits for them.
// - with a server that holds the whole model, where a whole step's gradient is computed without a deadline: the
//   server's. The worker asks for it, which costs a message each way, and computes the whole step at it.
// - where a method declares it, that one;
// - else the model that it received last, or, where steps end in report_steps, that of its last step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "workers/participant.hpp"

namespace syncopate {

template <typename Value>
class LostWithState;
class CompressedSum;
class CompressedAverage;
struct SentDifference;

// Which samples a step's micro-batches have, and whose durations they take.
enum class Samples {
  of_step,  // those of the worker's step; where the step is begun anew, the ones that follow
  in_turn,  // the worker's next ones, whatever its step is, so that none comes twice in an epoch. What a deadline cuts
            // off has other durations when its turn comes again
};

// What a worker gets that is late for a partial all-reduce: of the sums since the last that it has got
enum class MissedSums {
  all,     // each, oldest first
  newest,  // the newest, as from a single buffer; the others' steps are taken as done
};

// What goes along with a sum, to say of how many micro-batches it is.
enum class Counted {
  none,
  micro_batches,  // one number
  // One number per tensor, in runs without a model one in all: how many micro-batches it has gradients from, which
  // differ where a deadline has cut some (Preempt::layer). The sum comes back weighted, so that divided by its
  // micro_batches(), or by 1 if there are none, each tensor's part is the mean over those (or 0).
  by_tensor,
};

struct SumOptions {
  Counted counted = Counted::none;
  std::optional<std::int64_t> planned{};  // micro-batches of this worker's step: what is not in the sum was dropped;
                                          // none: M
  // Micro-batches of this worker whose normalisation statistics are in the sum; the number goes along. None: those
  // that the sum counts.
  std::optional<std::int64_t> with_statistics{};
  // What this worker has computed and leaves out of the sum. A compressed sum may take it up into what is not sent yet
  // (CompressionOptions::dropped); else it is lost. Null: nothing.
  const Gradient* dropped = nullptr;
  bool is_dense = false;  // whatever the run compresses
};
inline constexpr SumOptions usual_sum{};

struct ReceiveOptions {
  std::optional<Rank> from{};  // none: of anybody
  Time until = never;          // now(): what has come already
};
inline constexpr ReceiveOptions next_message{};

class Worker final : public Participant {
 public:
  Worker(const RunContext& context, Rank rank);
  ~Worker();

  // Lets the run go on for `extra` steps more than the budget says; nothing if it is not counted in steps.
  // With `stretch` the schedule of the learning rate is stretched to the new length, else it stays at its end.
  void extend_budget(Step extra, bool stretch);

  // The next micro-batch's gradient (mean over its samples) at the own model; nothing if the
  // deadline passes first, or, of Preempt::layer, a gradient that is cut(). Micro-batches of a step are numbered
  // 0, 1, ... anew after each step.
  std::optional<Gradient> compute_gradient(const Deadline& deadline = {});
  // The same on other samples: those of another worker's part of the data, or of a step gone by. The time
  // it takes is that of the next micro-batch all the same.
  std::optional<Gradient> compute_gradient(const MicroBatch& samples, const Deadline& deadline = {});
  // What a timer of its own shows of the micro-batch computed last: how long it took, with the pause that it makes
  // before the next one. The step's clock, now(), has not seen the pause yet.
  Duration micro_batch_time(const Gradient& last) const;

  // Sum over M micro-batches: a whole step's gradient, not yet divided; nothing if the deadline passes first, or if
  // this worker's data are used up, or nobody is left who could send the message that it computes until.
  Gradient compute_step_gradient(Samples samples = Samples::of_step) {
    return samples == Samples::of_step ? compute_step() : compute_turn();
  }
  std::optional<Gradient> compute_step_gradient(const Deadline& deadline, Samples samples = Samples::of_step);

  // One optimizer step on the own model along `gradient`, at the schedule's learning rate.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // Gives up a gradient that has been computed: its time counts as discarded.
  void discard(const Gradient& gradient);
  // Leaves out `steps` local steps; their micro-batches count as dropped.
  void skip_steps(Step steps);

  // Declares the newest model where a method keeps that in a variable: a worker that loses its state before the
  // next agreement takes up this one. Local steps since the last agreement are lost all the same.
  void declare_newest(const ModelStatePtr& model);

  // Sums over all workers; afterwards all hold the same gradient, whose micro_batches() are those of all. The step
  // along it that follows belongs to the sum's row of steps.csv.
  // Where the run compresses, what comes back is what the others can make of everybody's packets (workers/compression).
  void all_reduce_sum(Gradient& gradient, const SumOptions& options = usual_sum, Here at = Here::current());

  // The mean of all models, or of a group's, weighted by `how.weight` (equal if all are 0). Whether budget is left
  // then, as if all had taken as many steps: the same answer for all who have averaged.
  // Where the run compresses averages, it is the common model that local steps began at + the mean of what the workers
  // have sent of their differences to it (workers/compression/compressed_average.hpp): of all workers with equal
  // weight.
  bool average_model(const Averaging& how = {}, Here at = Here::current());

  void barrier(Here at = Here::current());  // ends a round of local steps, as an average does

  // What `derive` makes of everybody's numbers, of which each worker has as many, in the order of the ranks. All
  // derive the same, so that it is done once where several workers share a process.
  template <typename Derive>
  auto all_gather(std::span<const double> numbers, const Derive& derive, Here at = Here::current()) {
    using Value = std::invoke_result_t<const Derive&, std::span<const double>>;
    const SharedNumbers all = context_.cluster.all_gather(rank_, numbers, {"all_gather", at});
    return context_.derived->get<Value>(all, [&] { return derive(std::span(*all)); });
  }

  // A collective that goes on while this worker computes (Collective::all_reduce, Collective::average), and its end,
  // for which finish waits, with what comes back. What the worker has done counts at the start, and a worker that loses
  // its state goes back to its model of then, or of the last finish.
  StartedCollective start(Collective what, Here at = Here::current());
  CollectiveResult finish(StartedCollective started, Here at = Here::current());

  // An all-reduce that does not wait for everybody (see Cluster). One step, `descend`, follows along each of
  // the sums that it returns. Rounds are numbered like steps, on all workers alike.
  std::vector<PartialSum> partial_all_reduce_sum(Gradient gradient, const Activation& activation, LateGradient late,
                                                 MissedSums missed = MissedSums::all, Here at = Here::current());

  // For methods with neither collectives nor a server, after each step: it becomes part of a row of steps.csv.
  void report_steps();

  // With a server: waits for its next model and adopts it with its step; false when the server has ended, or
  // has sent its last model (which is adopted), or this worker's data are used up. With several servers: for a
  // slice from each, all of one version; worker 0 then publishes what nobody else holds as a whole.
  bool receive_model(Here at = Here::current());
  // The same from a server that holds the whole model, and the numbers that came along.
  bool receive_model(std::vector<double>& numbers, Here at = Here::current());
  // For methods whose server sends models, or slices of its model, to workers that do not wait for them: adopts what
  // has come by `receive`, with the server's step.
  void take_up(const Message& from_server);
  // Labels the gradient, a step's sum over M micro-batches, with the step of the model it was computed at. With several
  // servers: to each its slice. Where the run clips gradients, what is sent is clipped (Training::clipped), before
  // anything else is made of it: weights and means are the server's. A part of a code is not.
  void send_gradient(Gradient gradient, ClippedBy clipped_by = ClippedBy::worker, Here at = Here::current());

  // The next message; nothing once `until` has passed, or nobody is left who could send one.
  ReceivedMessage receive(const ReceiveOptions& which = next_message, Here at = Here::current());

 private:
  // What a worker goes back to that loses its state: where its local steps since the last agreement began.
  struct Recovery {
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
  template <typename Value>
  friend class LostWithState;

  bool data_left() const { return taken_ < data_; }
  std::optional<Gradient> compute_slot(const MicroBatch& slot, const MicroBatch& samples, const Deadline& deadline);
  Step take_turn();
  Gradient compute_step();
  Gradient compute_turn();
  std::optional<Gradient> compute_turn(const Deadline& deadline);
  bool nobody_can_send() const;
  bool loses_state(Attempts& attempts);
  [[noreturn]] void give_up(const Attempts& attempts) const;
  void recover();
  void ask_server_for_model(Here at);
  template <typename Slot>
  [[gnu::noinline]] Gradient compute_step_with_outages(const Slot& slot_of);
  [[gnu::noinline]] void all_reduce_compressed(Gradient& gradient, const SumOptions& options, Here at);
  [[gnu::noinline]] void all_reduce_weighted(Gradient& gradient, const SumOptions& options, Here at);
  Collective compressed(Collective&& average);
  [[gnu::noinline]] bool average_compressed(const Averaging& how, Here at);
  ModelStatePtr common_mean(const SentDifference& mine, const SharedPackets& packets);
  Contribution contribution_with(const Gradient& gradient, std::optional<std::int64_t> planned = {});
  bool receive_whole_model(std::vector<double>* numbers, Here at);
  bool receive_slices(Here at);
  void send_slices(const Gradient& gradient, Here at);
  void start_from(Step version);
  void check_progress();

  // What every step touches stands together, also with what Participant has last.
  int next_micro_batch_ = 0;
  bool may_lose_state_;
  bool steps_are_versions_ = false;  // its step is that of the server's model
  bool has_last_model_ = false;      // of a server that has ended
  Step cancelled_turns_{};           // steps of Samples::in_turn that met a deadline
  std::vector<Step> slice_steps_;    // with several servers: version of each slice
  int sums_under_way_ = 0;           // started and not finished: the steps along them come first
  std::int64_t kept_before_ = 0;     // by the agreement before
  int idle_rounds_ = 0;              // collectives in a row that added nothing
  int states_lost_ = 0;
  std::unique_ptr<CompressedSum> compressed_sum_;          // null: sums are dense
  int compressed_at_loss_ = 0;                             // states lost by the last sum, or average
  std::unique_ptr<CompressedAverage> compressed_average_;  // null: averages are dense
  ModelStatePtr steps_began_at_;                           // where they are not: by local steps since an average
  std::optional<Recovery> recovery_;                       // where state may be lost: from the first local step on
};

}  // namespace syncopate
