// The interface through which an algorithm runs on one worker. A worker has its own clock, model and progress. The
// interface behaves in the same way on the simulated cluster and under MPI.
//
// A worker that loses its state in an outage (workers/time/outages.hpp) takes the newest model and computes the
// micro-batch again. Algorithms need no code for this, unless they keep the worker's results in variables
// (ResetOnOutage). The newest model is one of these:
// - After an all-reduce or an average (of all workers or a group): the model and its optimizer moments at the last such
//   collective, called the last agreement. Local steps since then are lost: they count as dropped and their time as
//   discarded. The worker does not repeat them, so no other worker waits for them.
// - With a server that holds the whole model, while the worker computes a whole step's gradient without a deadline: the
//   server's model. The worker requests it, which costs a message each way, and computes the whole step with it.
// - If the method has declared a model (Worker::declare_newest): that model.
// - In all other cases: the model that the worker received last or, in methods that call report_steps, the model after
//   its last reported step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/cluster.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/model_average.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// Caches a value that all workers derive from the same gathered numbers, so that each process computes it once. With
// thousands of simulated workers, computing it for each of them would cost more than the rest of the run.
class PerProcessCache {
 public:
  // Returns the result of `derive` from the first call with this `gathered`. Caches only the latest gather's value.
  template <typename Value, typename Gathered, typename Derive>
  std::shared_ptr<const Value> get(const std::shared_ptr<const Gathered>& gathered, const Derive& derive) {
    // Compares control blocks. The weak pointer keeps its own alive, so no later object can reuse the address.
    const bool is_same = !gathered_.owner_before(gathered) && !gathered.owner_before(gathered_);
    if (!value_ || !is_same) {
      value_ = std::make_shared<const Value>(derive());
      gathered_ = gathered;
    }
    return std::static_pointer_cast<const Value>(value_);
  }

 private:
  std::weak_ptr<const void> gathered_;
  std::shared_ptr<const void> value_;
};

// Limits of a run. It ends as soon as one of them is reached; at least one is set.
struct Budget {
  std::optional<Step> steps{};
  std::optional<double> seconds{};
  std::optional<std::int64_t> samples{};
  std::optional<Bytes> bytes{};
};

class CompressedMessages;
class Compressor;
// One compressor per slice of the model, or one for the whole model.
using Compressors = std::vector<std::shared_ptr<const Compressor>>;

// Shared by all participants of a run. The references outlive the run.
struct RunContext {
  Cluster& cluster;
  Training& training;
  const LearningRate& learning_rate;
  Budget budget{};
  // Steps that all workers have completed before the run begins. Used by time-only runs.
  Step first_step{};
  int micro_batches = 1;                     // M: micro-batches per optimizer step and worker
  std::int64_t samples_per_micro_batch = 1;  // for the samples budget and the reports
  RunObserver* observer = nullptr;           // may be null
  RunRecord* record = nullptr;               // may be null
  ModelStatePtr initial_model{};             // the model with which all participants start; null in time-only runs
  std::uint64_t seed = 0;                    // for the methods' own random choices
  // Per worker: the number of steps after which its data are used up; nullopt: never. Empty: nullopt for all.
  std::vector<std::optional<Step>> data_of{};
  // If set, moving averages of the published models are evaluated instead of the models themselves.
  std::optional<MovingAverageOptions> average{};
  std::shared_ptr<const Compressor> compressor{};  // for sums of gradients; null: sums are dense
  Compressors average_compressors{};               // for averages of models; empty: averages are dense
  Compressors message_compressors{};  // for gradients or differences that workers send to servers; empty: dense
  std::shared_ptr<PerProcessCache> derived = std::make_shared<PerProcessCache>();  // one cache per process
};

// The participant that clips gradients, in runs with a server that clip gradients.
enum class ClippedBy {
  worker,  // each worker clips its own gradient before it sends it; the server's steps clip nothing
  // The server clips the whole gradient, because workers send parts that are not gradients themselves (gradient codes).
  server,
};

struct StepOptions {
  double rate_factor = 1;  // multiplies the schedule's learning rate
  // The weight of this update, for example a function of its staleness. It multiplies this step's learning rate, so it
  // also scales weight decay and the steps of adaptive optimizers. The reported learning rate does not include it.
  double weight = 1;
  ClippedBy clipped_by = ClippedBy::worker;  // used by a server's step only
  // False: a step beyond those that the experiment file plans. Budget, schedule and reports do not count it.
  bool is_planned = true;
  // For a server's step: the number of different micro-batches, if the gradient contains some of them twice. For a
  // worker's step: the number of planned micro-batches, if it is not M.
  std::optional<std::int64_t> micro_batches{};
  bool keeps_second_moment = false;  // this step does not update the second moment (Optimizer::beta1_of_frozen)
};

// The default argument. As a shared constant it takes no space on the stacks of thousands of workers.
inline constexpr StepOptions usual_step{};

// The participants whose progress decides whether budget is left.
enum class BudgetView {
  agreed,  // all workers' progress at the last collective, so all get the same answer
  // This worker's clock and steps, as if all others took equally many steps. Can end a long round of local steps.
  local,
  others,  // as `agreed`, but ignores whether this worker's own data are used up, since the others continue
  server,  // checks only the clock and the worker's own data, because the server counts all workers' steps
};

// Whether participants draw equal random numbers.
enum class Drawn {
  alone,     // every participant draws a different number
  together,  // all participants draw the same number, so that they make the same choice
};

// The common part of workers and servers: a clock, a model, and a place in the training.
class Participant {
 public:
  using CalledFrom = SourceLine;  // the algorithm's line that made the call, for reports of a deadlock

  Participant(const RunContext& context, Rank rank);  // the context outlives the participant
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }  // N, the number of workers
  // The server of this worker; for a region's server: the global server.
  Rank server() const { return context_.cluster.servers().server_of(rank_, size_); }
  int micro_batches() const { return context_.micro_batches; }  // M

  Time now() const { return context_.cluster.now(rank_); }
  Step step() const { return step_; }  // number of completed optimizer steps, which is also the version of the model
  // The schedule's learning rate for the next step, or for the step `ahead` steps after it.
  double learning_rate(Step ahead = {}) const;
  // Replaces the schedule from step `from` on. `learning_rate` is evaluated at the number of steps since `from`.
  void follow(const LearningRate& learning_rate, Step from);
  // Declares that steps of the global model use the schedule's rate times `factor`. Later publications report that rate
  // in their rows; a call before the first step also changes the row of step 0. Called by a server's steps, and by
  // methods that publish models which they did not build with `descend`.
  void scale_rate(double factor) {
    const bool is_first = step_ == Step{0} && factor != rate_factor_;
    rate_factor_ = factor;
    if (is_first && is_heard()) context_.observer->on_first_rate(factor * learning_rate());
  }

  // False once the budget or this worker's own data are used up. Time, samples and bytes are those of the last
  // agreement, so after the same collective all workers get the same answer about the budget.
  bool budget_left(BudgetView judged = BudgetView::agreed) const;
  // Optimizer steps that the budget still allows; very large if it is not counted in steps.
  Step steps_left() const {
    if (!context_.budget.steps) return Step{std::numeric_limits<Step::Rep>::max() / 2};
    return std::max(Step{0}, *context_.budget.steps + extra_steps_ - file_step());
  }

  // Parameters and BatchNorm statistics, without moments.
  ModelStatePtr model() const;
  // Adopts another model's parameters and BatchNorm statistics. Keeps this participant's optimizer moments, or applies
  // the policy `moments` to them.
  void set_model(const ModelStatePtr& model) { model_ = context_.training.adopt(model_, model); }
  void set_model(const ModelStatePtr& model, StatePolicy moments);

  // Returns the sum of weight x model, for example combine({{0.5, a}, {0.5, b}}); null in time-only runs. The result is
  // a promise: the sum is computed in the background as soon as its terms are known. BatchNorm statistics are summed
  // with the same weights, or copied from `buffers_of` if it is given.
  ModelStatePtr combine(const std::vector<WeightedState>& terms, const ModelStatePtr& buffers_of = nullptr) const {
    return context_.training.combine(terms, buffers_of);
  }
  // The model's number of parameters; in runs without a model, the number in the experiment file.
  std::int64_t parameters() const { return context_.training.parameter_bytes().value() / 4; }
  // Returns `whole` with the parameters of one slice replaced by those of `part`. Slice 0 also replaces the BatchNorm
  // statistics. Null in time-only runs.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice) const {
    return context_.training.with_slice(whole, part, slice);
  }
  // Returns (1 - share) x from + share x to, with one share per tensor in the order of the flat vector, or one for all.
  // Exact for shares 0 and 1. BatchNorm statistics are those of `to`, or those of `from` if all shares are 0.
  ModelStatePtr combine(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares) const {
    return context_.training.combine_tensors(from, to, shares);
  }
  // A model computed element by element from others (Training::elementwise); null in time-only runs.
  ModelStatePtr elementwise(std::span<const ModelStatePtr> inputs, std::uint64_t rule,
                            const Training::ElementRule& work) const {
    return context_.training.elementwise(inputs, rule, work);
  }
  // The weighted mean of differences that keeps their mean length (training/model_average.hpp); null in time-only runs.
  ModelStatePtr norm_preserving_mean(const std::vector<WeightedState>& differences, Slice slice,
                                     OfEmbeddings embeddings) const;
  // The L2 distance of two models. This and the functions below wait until the models or gradients are computed; single
  // numbers are NaN in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b) const { return context_.training.distance(a, b); }
  // Distances by tensor, in the order of the flat vector; empty in time-only runs.
  std::vector<double> distances(const ModelStatePtr& a, const ModelStatePtr& b) const {
    return context_.training.distances(a, b);
  }
  // The L2 norm of a gradient. The gradient keeps the computed values for later uses.
  double norm(Gradient& gradient) const {
    if (!context_.training.time_only()) gradient = context_.training.share(gradient);
    return context_.training.norm(gradient);
  }
  // The mean loss of the micro-batches of this participant's own gradient.
  double loss(Gradient& gradient) const {
    if (!context_.training.time_only()) gradient = context_.training.share(gradient);
    return context_.training.loss(gradient);
  }

  // The gradient as a sum that is evaluated once, for methods that use a gradient in several steps.
  Gradient shared(const Gradient& gradient) const {
    return context_.training.time_only() ? gradient : context_.training.share(gradient);
  }
  // The weight of this participant's model in an average: `weight`, or for by_samples the number of its samples.
  double model_weight(double weight) const { return context_.training.model_weight(weight, rank_); }

  // A uniform random number in (0, 1) for this step, the same on the simulated cluster and under MPI.
  double uniform(Step step, Drawn drawn = Drawn::alone) const;

  // Whether this participant knows that another one has ended.
  bool has_left(Rank other) const { return context_.cluster.has_left(rank_, other); }

  // Sends a message to any participant. In runs that compress messages, a worker's gradients and differences between
  // models are sent as compressed packets (workers/compression/compressed_exchanges.hpp).
  void send(Rank to, Message&& message, CalledFrom at = CalledFrom::current());

  // Declares `model` (default: this participant's) the current global model, which the observer may evaluate. All
  // workers may call this; only publications of worker 0, of the only server, or of the global server count. With
  // RunContext::average, the moving average of published models is evaluated instead, except for an ensemble.
  void publish() { publish(model_); }
  void publish(const ModelStatePtr& model) {
    if (is_heard()) publish(Publication{.model = model});
  }
  void publish(Publication publication);  // sets the other fields; keeps the given step if it is later

  // Declares this worker's current model, for methods in which no participant has the global model. Every worker calls
  // it after each step, and the observer decides whether to evaluate. The call costs no time on the virtual or the real
  // clock. Set `weight` and `evaluated`; the function sets the other fields. Returns the model to evaluate: the
  // worker's own, or its moving average if RunContext::average is set.
  ModelStatePtr publish(WorkerModel published);

  // Throws RunFailure with the current time and this reason, which ends the run as failed.
  [[noreturn]] void fail(const std::string& why) const;

 protected:
  ~Participant();
  // Removes the server's acknowledgements of this worker's packets from the message and records them.
  [[gnu::noinline]] void receive_answers(Message& from_server);
  // Whether the observer listens to this participant's publications of the global model.
  bool is_heard() const {
    const bool is_server = rank_.value == size_;
    return context_.observer && (rank_.value == 0 || (is_server && !context_.cluster.servers().hold_slices()));
  }
  // BudgetView::local at the given time.
  bool budget_left_at(Time time) const;
  // Completed steps plus `ahead`, converted to steps of the experiment file and rounded down.
  Step file_step(Step ahead = {}) const;
  // Takes one optimizer step along `gradient`, on the model or a slice of it.
  void take_step(const Gradient& gradient, const StepOptions& options, Clipping clipping, Slice slice = {});

  double steps_per_file_step_ = 1;
  double schedule_stretch_ = 1;
  Step extra_steps_{};
  Step added_steps_{};
  double rate_factor_ = 1;    // at the global model's last step
  std::int64_t surplus_ = 0;  // micro-batches planned beyond M per step, over all of a worker's steps
  std::optional<AgreedProgress> agreed_;
  std::unique_ptr<MovingAverage> average_;  // moving average of published models
  struct OwnSchedule {
    LearningRate learning_rate;
    Step from;
  };
  std::unique_ptr<const OwnSchedule> own_schedule_;  // null: the file's schedule
  // Every step uses the members below, so they are next to each other in memory.
  const RunContext& context_;  // shared by all workers, so it stays in the cache
  Rank rank_;
  int size_;
  Step step_{};
  std::int64_t taken_ = 0;                                        // number of micro-batches begun
  std::int64_t data_ = std::numeric_limits<std::int64_t>::max();  // number of micro-batches in a worker's own data
  ModelStatePtr model_;
  std::int64_t kept_total_ = 0;  // micro-batches in this participant's steps; for methods without collectives
  Contribution since_sync_{};    // workers only
  std::unique_ptr<CompressedMessages> compressed_messages_;  // workers only; null: messages are dense
};

template <typename Value>
class ResetOnOutage;
class CompressedSum;
class CompressedAverage;
struct SentDifference;

// The samples and durations of a step's micro-batches.
enum class Samples {
  // The samples that belong to the worker's step number. If the step is repeated, the samples that follow these.
  of_step,
  // The worker's next unused samples, independently of its step number, so that no sample is used twice in an epoch. If
  // a deadline cancels the step, the next one uses the same samples, with other durations.
  in_turn,
};

// The missed sums that a late worker gets from a partial all-reduce.
enum class MissedSums {
  all,     // all missed sums, oldest first
  newest,  // only the newest sum, as with a single receive buffer; steps of the other sums count as taken
};

// Counts of micro-batches that are summed along with the gradient.
enum class Counted {
  none,
  micro_batches,  // one number
  // One number per tensor: how many micro-batches contributed to its gradient. (Runs without a model use a single
  // number.) The counts differ if a deadline has cut some micro-batches (Preempt::layer). The sum is rescaled per
  // tensor. Divided by its micro_batches() (by 1 if that is 0), each tensor is the mean over the micro-batches that
  // contributed to it, or 0 if none did.
  by_tensor,
};

struct SumOptions {
  Counted counted = Counted::none;
  std::optional<std::int64_t>
      planned{};  // this worker's planned micro-batches; those missing in the sum count as dropped. Nullopt: M
  // This worker's number of micro-batches in the sum that have normalisation statistics. It is summed along with the
  // gradient. Nullopt: the number of counted micro-batches.
  std::optional<std::int64_t> with_statistics{};
  // A computed gradient that this worker leaves out of the sum; may be null. It is lost, unless the run compresses sums
  // and adds it to the compressor's residual (CompressionOptions::dropped).
  const Gradient* dropped = nullptr;
  bool is_dense = false;  // true: do not compress this sum, even if the run compresses sums
};
inline constexpr SumOptions usual_sum{};

// A group of this many workers of consecutive ranks; the last group may be smaller.
struct InGroup {
  int size = 1;
};

struct ReceiveOptions {
  std::optional<Rank> from{};  // nullopt: from any participant
  Time until = never;          // now(): do not wait
};
inline constexpr ReceiveOptions next_message{};

class Worker final : public Participant {
 public:
  Worker(const RunContext& context, Rank rank);
  ~Worker();

  // Extends a budget of steps by `extra`; does not change other budgets. With `stretch` the learning rate's schedule is
  // stretched to the new end; without it, the additional steps use the schedule's values beyond its old end.
  void extend_budget(Step extra, bool stretch);

  // Returns the gradient of the next micro-batch (mean over its samples) at the worker's own model. If the deadline
  // passes first, returns nothing or, with Preempt::layer, a gradient that is cut(). Micro-batches are numbered from 0
  // in each step.
  std::optional<Gradient> compute_gradient(const Deadline& deadline = {}) {
    return compute_gradient({rank_, step_, next_micro_batch_}, deadline);
  }
  // The same with the samples of another worker or an earlier step. Takes the time of this worker's next micro-batch.
  std::optional<Gradient> compute_gradient(const MicroBatch& samples, const Deadline& deadline = {});
  // How long the last micro-batch took, plus the pause before the next one, which now() does not include yet.
  Duration micro_batch_time(const Gradient& last) const {
    return last.compute_time() + context_.cluster.sleep_after(rank_, {rank_, step_, next_micro_batch_ - 1});
  }

  // Returns the gradient of a whole step as a sum over M micro-batches, not divided by M. The overload with a deadline
  // returns nothing if the deadline passes first or this worker's data are used up. It also returns nothing if the
  // deadline is a message and no participant is left to send one.
  Gradient compute_step_gradient(Samples samples = Samples::of_step);
  std::optional<Gradient> compute_step_gradient(const Deadline& deadline, Samples samples = Samples::of_step);

  // Takes one optimizer step on the worker's own model along `gradient`, at the schedule's learning rate.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // Takes a step along `gradient`, calls `work`, and undoes the step. The step changes neither the optimizer's moments
  // nor the number of steps.
  template <typename Work>
  void tentatively(const Gradient& gradient, const Work& work) {
    const ModelStatePtr before = model_;
    if (model_) model_ = context_.training.descend(std::move(model_), gradient, learning_rate());
    work();
    model_ = before;
  }
  // Drops a computed gradient and counts its time as discarded.
  void discard(const Gradient& gradient) {
    context_.cluster.discard(rank_, {rank_, gradient.micro_batches(), gradient.compute_time()});
  }
  // Skips local steps; their micro-batches count as dropped.
  void skip_steps(Step steps) {
    since_sync_.planned += steps.value() * micro_batches();
    since_sync_.period += steps;
    step_ += steps;
    next_micro_batch_ = 0;
  }

  // Declares the newest model, for methods that store it in a variable. If the worker loses its state before the next
  // agreement, it continues with this model. Local steps since the last agreement are lost nevertheless.
  void declare_newest(const ModelStatePtr& model) {
    if (!may_lose_state_) return;
    if (!recovery_) recovery_ = {model, since_sync_.kept, kept_total_, since_sync_.compute_time};
    recovery_->model = model;
  }

  // Sums the gradient over all workers. Afterwards every worker has the same gradient, whose micro_batches() is the
  // number of all workers' micro-batches. The sum and the step along it belong to one row of steps.csv. In runs that
  // compress sums, the result is the sum of all compressed packets.
  void all_reduce_sum(Gradient& gradient, const SumOptions& options = usual_sum, CalledFrom at = CalledFrom::current());
  // Sums the gradient over this worker's group, uncompressed. The step along the sum counts as a local step: the next
  // collective of all workers books it. Returns whether budget is left, assuming that all workers took the same number
  // of steps; all members get the same answer. A group of one worker makes no collective.
  bool all_reduce_sum(Gradient& gradient, InGroup group, CalledFrom at = CalledFrom::current());

  // Replaces the worker's model by the mean over all workers, or over a group, weighted by `how.weight` (equal if all
  // are 0). Returns whether budget is left, assuming that all workers took the same number of steps. All members of the
  // average get the same answer. In runs that compress averages, the result is the common model at which local steps
  // began, plus the mean of all workers' packed differences to it (workers/compression/compressed_exchanges.hpp).
  // Weights are then equal.
  bool average_model(const Averaging& how = {}, CalledFrom at = CalledFrom::current());

  // Ends a round of local steps as average_model does, but without averaging.
  void barrier(CalledFrom at = CalledFrom::current()) {
    agreed_ = context_.cluster.barrier(rank_, {"barrier", at}, steps_since_sync());
    recovery_.reset();  // the round's steps have been booked
  }

  // Gathers `numbers` from all workers, in the order of their ranks, and returns derive(all of them). All workers must
  // pass equally many numbers. They derive the same value, so workers in one process compute it once.
  template <typename Derive>
  auto all_gather(std::span<const double> numbers, const Derive& derive, CalledFrom at = CalledFrom::current()) {
    using Value = std::invoke_result_t<const Derive&, std::span<const double>>;
    const SharedNumbers all = context_.cluster.all_gather(rank_, numbers, {"all_gather", at});
    return context_.derived->get<Value>(all, [&] { return derive(std::span(*all)); });
  }

  // `start` begins a collective that runs while this worker computes (Collective::all_reduce, Collective::average), and
  // `finish` waits for its end. The worker's steps are booked at the start. A worker that loses its state goes back to
  // the last `start` or `finish`.
  StartedCollective start(Collective what, CalledFrom at = CalledFrom::current());
  CollectiveResult finish(StartedCollective started, CalledFrom at = CalledFrom::current());
  // Whether a started collective has ended by this worker's time. Under MPI a worker learns of the end late, between
  // micro-batches. Not for partial all-reduces.
  bool has_ended(const StartedCollective& started, CalledFrom at = CalledFrom::current()) {
    return context_.cluster.has_ended(rank_, started, {"has_ended", at});
  }

  // An all-reduce that does not wait for all workers (see Collective). Call `descend` once for each returned sum.
  // Rounds are numbered like steps, with the same numbers on all workers.
  std::vector<PartialSum> partial_all_reduce_sum(Gradient gradient, const Activation& activation, LateGradient late,
                                                 MissedSums missed = MissedSums::all,
                                                 CalledFrom at = CalledFrom::current());

  // Books the steps since the last call in steps.csv. Methods without collectives and server call it after each step.
  void report_steps() {
    context_.cluster.report_steps(rank_, steps_since_sync());
    recovery_.reset();
  }

  // Waits for the server's next model and adopts it together with its step. Returns false if the server has ended, if
  // it has sent its last model (which is still adopted), or if this worker's data are used up. With several servers it
  // waits until it has a slice from each of them, all of the same version. Worker 0 then publishes the whole model,
  // because no server has it.
  // `numbers`, if not null, gets the numbers sent with a whole model.
  bool receive_model(std::vector<double>* numbers = nullptr, CalledFrom at = CalledFrom::current());
  // Adopts the model or slice in a message from `receive`, and the server's step. For servers that send models unasked.
  void adopt(const Message& from_server);
  // Sends a step's sum over M micro-batches, labelled with the step of the model at which it was computed. With several
  // servers each server gets its slice. In runs that clip gradients, the worker clips its gradient before sending
  // (Training::clipped), because the server applies weights and means afterwards. Parts of a gradient code are not
  // clipped.
  void send_gradient(Gradient gradient, ClippedBy clipped_by = ClippedBy::worker,
                     CalledFrom at = CalledFrom::current());

  // Returns the next message, or nothing once `until` has passed or no participant is left to send one.
  ReceivedMessage receive(const ReceiveOptions& which = next_message, CalledFrom at = CalledFrom::current()) {
    return receive_at(which, {"receive", at});
  }

 private:
  // State at the beginning of the local steps since the last agreement. A worker that loses its state goes back to it.
  struct Recovery {
    ModelStatePtr model;
    std::int64_t kept = 0;  // since_sync_.kept; the next two members: kept_total_, since_sync_.compute_time
    std::int64_t kept_total = 0;
    Duration compute_time{};
  };
  // Counts how often outages restarted a micro-batch or, in methods with a server, a step.
  struct Attempts {
    MicroBatch of;         // for a step: its first micro-batch
    bool is_step = false;  // whether a whole step is restarted
    std::int64_t restarts = 0;
  };
  template <typename Value>
  friend class ResetOnOutage;

  std::optional<Gradient> compute_slot(const MicroBatch& slot, const MicroBatch& samples, const Deadline& deadline);
  std::optional<Gradient> compute_turn(const Deadline& deadline);
  bool nobody_can_send() const;
  bool loses_state(Attempts& attempts);
  [[noreturn]] void give_up(const Attempts& attempts) const;
  void recover();
  void ask_server_for_model(CalledFrom at);
  [[gnu::noinline]] Gradient compute_step_with_outages(MicroBatch slot, Samples samples);
  [[gnu::noinline]] void all_reduce_compressed(Gradient& gradient, const SumOptions& options, CalledFrom at);
  [[gnu::noinline]] void all_reduce_weighted(Gradient& gradient, const SumOptions& options, CalledFrom at);
  Collective compressed(Collective&& average);
  [[gnu::noinline]] bool average_compressed(const Averaging& how, CalledFrom at);
  ModelStatePtr common_mean(const SentDifference& mine, const SharedPackets& packets);
  Contribution steps_since_sync() {
    Contribution contribution = std::exchange(since_sync_, {});
    contribution.step = step_;
    return contribution;
  }
  void agree(const AgreedProgress& agreed) {
    agreed_ = agreed;
    check_progress();
    recovery_.reset();
  }
  Contribution contribution_with(const Gradient& gradient, std::optional<std::int64_t> planned = {});
  void book_local_step(const Gradient& gradient, std::int64_t planned);
  ReceivedMessage receive_at(const ReceiveOptions& which, const Place& place);
  bool receive_slices(CalledFrom at);
  void send_slices(const Gradient& gradient, CalledFrom at);
  void start_from(Step version);
  void check_progress();

  // Every step uses these members and the last ones of Participant, so they are next to each other in memory.
  int next_micro_batch_ = 0;
  bool may_lose_state_;
  bool steps_are_versions_ = false;  // step() is the version of the server's model
  bool has_last_model_ = false;      // received the last model of a server that has ended
  Step cancelled_turns_{};           // steps with Samples::in_turn that a deadline cancelled
  std::vector<Step> slice_steps_;    // with several servers: the version of each slice
  int sums_under_way_ = 0;           // sums started and not finished; steps along them come before those of later sums
  std::int64_t kept_before_ = 0;     // micro-batches at the agreement before the last one
  int idle_rounds_ = 0;              // successive collectives that added no micro-batch
  int states_lost_ = 0;
  std::unique_ptr<CompressedSum> compressed_sum_;          // null: sums are dense
  std::unique_ptr<CompressedAverage> compressed_average_;  // null: averages are dense
  ModelStatePtr steps_began_at_;  // for compressed averages: the model at which local steps began; null: no step since
  std::optional<Recovery> recovery_;  // set from the first local step on, if the worker may lose its state
};

// A variable of a method that is reset to Value() when the worker loses its state: `ResetOnOutage<Step>
// taken(worker);`. The worker must outlive it.
template <typename Value>
class ResetOnOutage {
 public:
  explicit ResetOnOutage(const Worker& worker, Value value = Value())
      : worker_(worker), losses_(worker.states_lost_), value_(std::move(value)) {}

  Value& operator*() {
    if (std::exchange(losses_, worker_.states_lost_) != worker_.states_lost_) value_ = Value();
    return value_;
  }

 private:
  const Worker& worker_;
  int losses_;  // number of states that the worker had lost at the last use
  Value value_;
};

}  // namespace syncopate
