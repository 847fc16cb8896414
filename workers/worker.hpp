// A worker as algorithms see it, with its own clock, model and progress. It behaves the same on both clusters.
//
// A worker that loses its state in an outage (workers/time/outages.hpp) takes the newest model and computes the
// micro-batch again. Algorithms do not notice, unless they keep the worker's work in variables (ResetOnOutage). The
// newest model is
// - after an all-reduce, average, group's average, or broadcast: the model at that last agreement, with its moments.
//   Local steps since then are lost: they count as dropped and their time as discarded. The worker does not repeat
//   them, so nobody waits for them;
// - with a server that holds the whole model, while the worker computes a whole step's gradient without a deadline: the
//   server's model. The worker asks for it, which costs a message each way, and computes the whole step with it;
// - the model that the method declares (Worker::declare_newest);
// - else the model that the worker received last, or, in methods with report_steps, the model of its last step.
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

// Caches a value derived from gathered numbers, once per process. With thousands of simulated workers, deriving it in
// each would cost more than the rest of the run.
class PerProcessCache {
 public:
  // Returns the value that `derive` gave at the first call for `gathered`. Keeps only the last value, until the next
  // gather.
  template <typename Value, typename Gathered, typename Derive>
  std::shared_ptr<const Value> get(const std::shared_ptr<const Gathered>& gathered, const Derive& derive) {
    // Compares control blocks; the weak pointer keeps its own alive, so no later object can have the same one.
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

// A run ends at the first limit that is reached. At least one is set.
struct Budget {
  std::optional<Step> steps{};
  std::optional<double> seconds{};
  std::optional<std::int64_t> samples{};
  std::optional<Bytes> bytes{};
};

enum class OfEmbeddings;  // workers/training/model_average.hpp
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
  // Steps that all workers have done before the run begins; for time-only runs.
  Step first_step{};
  int micro_batches = 1;                     // M: micro-batches per optimizer step and worker
  std::int64_t samples_per_micro_batch = 1;  // for the samples budget and the reports
  RunObserver* observer = nullptr;           // may be null
  RunRecord* record = nullptr;               // may be null
  ModelStatePtr initial_model{};             // where all start; null in time-only runs
  std::uint64_t seed = 0;                    // for the methods' own random choices
  // By worker: the steps after which it has used up its data (none: never). Empty: no worker ever does.
  std::vector<std::optional<Step>> data_of{};
  // Evaluate moving averages of published models; none: evaluate the models themselves.
  std::optional<MovingAverageOptions> average{};
  std::shared_ptr<const Compressor> compressor{};  // for sums of gradients; null: sums are dense
  Compressors average_compressors{};               // for averages of models; empty: averages are dense
  Compressors message_compressors{};  // for gradients or differences that workers send to servers; empty: dense
  std::shared_ptr<PerProcessCache> derived = std::make_shared<PerProcessCache>();  // one per process
};

// Who clips gradients, in runs that clip them and have a server.
enum class ClippedBy {
  worker,  // each worker clips its own gradient before it sends it; the server's steps clip nothing
  // The server clips the whole gradient, because workers send parts without a meaning of their own (gradient codes).
  server,
};

// Options of an optimizer step.
struct StepOptions {
  double rate_factor = 1;  // multiplies the schedule's learning rate
  // The weight of this update, for example by its staleness. It also multiplies this step's rate, so weight decay and
  // adaptive optimizers follow it. The reported learning rate does not include it.
  double weight = 1;
  ClippedBy clipped_by = ClippedBy::worker;  // for a server's step
  // False: a step beyond those that the file plans. Budget, schedule and reports do not count it.
  bool is_planned = true;
  // For a server's step: its micro-batches, if the gradient has some twice. For a worker's: those planned, if not M.
  std::optional<std::int64_t> micro_batches{};
  bool keeps_second_moment = false;  // the optimizer keeps its second moment (Optimizer::beta1_of_frozen)
};

// The default argument: a call without options then puts none on the stacks of thousands of workers.
inline constexpr StepOptions usual_step{};

// Which participants' progress decides whether budget is left.
enum class BudgetView {
  agreed,  // all workers' progress at the last collective, so all decide alike
  // This worker's progress by its own clock, as if all had taken the same steps. Ends a long round of local steps.
  local,
  others,  // the other workers' progress; they go on when this worker's own data are used up
  server,  // a server counts all workers' work; here only the clock and the worker's own data matter
};

// Who shares a random number.
enum class Drawn {
  alone,     // each participant draws its own number
  together,  // all participants draw the same number, for choices that they make alike
};

// Asks for one number per tensor of a model.
struct EachTensor {};
inline constexpr EachTensor each_tensor{};

// The common part of workers and servers: a clock, a model, and a place in the training.
class Participant {
 public:
  using CalledFrom = SourceLine;  // where in the algorithm, for explanations of a deadlock

  Participant(const RunContext& context, Rank rank);  // the context outlives the participant
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }  // N, the number of workers
  Rank server() const;                // serves this worker; for a region's server, the global server
  int micro_batches() const { return context_.micro_batches; }  // M

  Time now() const { return context_.cluster.now(rank_); }
  Step step() const { return step_; }  // optimizer steps done, which is also the version of the model
  // The schedule's learning rate for the next step, or `ahead` steps later.
  double learning_rate(Step ahead = {}) const;
  // Replaces the schedule: from step `from` on, `learning_rate` counts the steps since then.
  void follow(const LearningRate& learning_rate, Step from);
  // The global model's steps take the schedule's rate times `factor`. Rows of later publications report that rate; a
  // call before the first step also changes the row of step 0. A server's steps call this, and so do methods that
  // publish models built elsewhere.
  void scale_rate(double factor) {
    const bool is_first = step_ == Step{0} && factor != rate_factor_;
    rate_factor_ = factor;
    if (is_first && is_heard()) context_.observer->on_first_rate(factor * learning_rate());
  }

  // False once the budget or this worker's own data are used up. About the budget all workers get the same answer after
  // the same collective: time, samples and bytes are those of the last agreement.
  bool budget_left(BudgetView judged = BudgetView::agreed) const;
  // Optimizer steps that the budget still allows; very large if it is not counted in steps.
  Step steps_left() const {
    if (!context_.budget.steps) return Step{std::numeric_limits<Step::Rep>::max() / 2};
    return std::max(Step{0}, *context_.budget.steps + extra_steps_ - file_step());
  }

  // Parameters and BatchNorm statistics, without moments.
  ModelStatePtr model() const;
  // Takes another model's parameters and BatchNorm statistics; this participant's moments stay, or follow `moments`.
  void set_model(const ModelStatePtr& model) { model_ = context_.training.adopt(model_, model); }
  void set_model(const ModelStatePtr& model, StatePolicy moments);

  // Sum of weight x model, for example combine({{0.5, a}, {0.5, b}}); null in time-only runs. Returns a promise: the
  // sum is computed in the background, once its terms are. BatchNorm statistics are combined in the same way, or taken
  // from `buffers_of`.
  ModelStatePtr combine(const std::vector<WeightedState>& terms, const ModelStatePtr& buffers_of = nullptr) const {
    return context_.training.combine(terms, buffers_of);
  }
  // The model's number of parameters; in runs without a model, the number in the experiment file.
  std::int64_t parameters() const { return context_.training.parameter_bytes().value() / 4; }
  // `whole` with the parameters of one slice replaced by those of `part`. Slice 0 also brings BatchNorm statistics.
  // Null in time-only runs.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice) const {
    return context_.training.with_slice(whole, part, slice);
  }
  // (1 - share) x from + share x to, with one share per tensor in the order of the flat vector, or one for all. Exact
  // at 0 and 1. BatchNorm statistics are those of `to`, or, if all shares are 0, of `from`.
  ModelStatePtr combine(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares) const {
    return context_.training.combine_tensors(from, to, shares);
  }
  // The weighted mean of differences that keeps their mean length (training/model_average.hpp); null in time-only runs.
  ModelStatePtr norm_preserving_mean(const std::vector<WeightedState>& differences, Slice slice,
                                     OfEmbeddings embeddings) const;
  // The L2 distance of two models. Like the numbers below, it waits for the arithmetic, and is NaN in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b) const { return context_.training.distance(a, b); }
  // Distances by tensor, in the order of the flat vector; empty in time-only runs.
  std::vector<double> distance(const ModelStatePtr& a, const ModelStatePtr& b, EachTensor) const {
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

  // A uniform random number in (0, 1) for this step, the same on both clusters.
  double uniform(Step step, Drawn drawn = Drawn::alone) const;

  // Whether a participant has ended, as far as this one knows.
  bool has_left(Rank other) const { return context_.cluster.has_left(rank_, other); }

  // Sends a message to any participant. In runs that compress messages, a worker's gradient, or difference between
  // models, goes as a packet (workers/compression/compressed_exchanges.hpp).
  void send(Rank to, Message&& message, CalledFrom at = CalledFrom::current());

  // "This is the global model now": the observer decides whether to evaluate. Every worker may run the same line: only
  // publications of worker 0, of the only server, or of the global server count. If the run asks for it, the moving
  // average of published models is evaluated instead, except for an ensemble.
  void publish() { publish(model_); }
  void publish(const ModelStatePtr& model) {
    if (is_heard()) publish(Publication{.model = model});
  }
  void publish(Publication publication);  // fills in all but the models; keeps the given step if it is later

  // "This is my model now", for methods in which no participant has the global model. Every worker calls it after each
  // step, and the observer decides whether to evaluate. It costs no time on either clock. Give `weight` and
  // `evaluated`; the rest is filled in. Returns the model to evaluate: the worker's, or their moving average if the run
  // asks for it.
  ModelStatePtr publish(WorkerModel published);

  // Ends the run as failed, with the time and this reason.
  [[noreturn]] void fail(const std::string& why) const;

 protected:
  ~Participant();
  // Takes the server's answers to this worker's packets out of its message.
  [[gnu::noinline]] void receive_answers(Message& from_server);
  // Whether the observer listens to this participant's publications of the global model.
  bool is_heard() const {
    const bool is_server = rank_.value == size_;
    return context_.observer && (rank_.value == 0 || (is_server && !context_.cluster.servers().hold_slices()));
  }
  // BudgetView::local at the given time.
  bool budget_left_at(Time time) const;
  // Steps done plus `ahead`, in steps of the experiment file, rounded down.
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
  // Every step touches these members, so they stand together.
  const RunContext& context_;  // shared by all workers, so it stays in the cache
  Rank rank_;
  int size_;
  Step step_{};
  std::int64_t taken_ = 0;                                        // micro-batches begun
  std::int64_t data_ = std::numeric_limits<std::int64_t>::max();  // micro-batches in a worker's own data
  ModelStatePtr model_;
  std::int64_t kept_total_ = 0;  // without collectives: micro-batches in the gradients of its steps
  Contribution since_sync_{};    // workers only
  std::unique_ptr<CompressedMessages> compressed_messages_;  // workers only; null: messages are dense
};

inline Rank Participant::server() const { return context_.cluster.servers().server_of(rank_, size_); }

template <typename Value>
class ResetOnOutage;
class CompressedSum;
class CompressedAverage;
struct SentDifference;

// Which samples a step's micro-batches take, and which durations.
enum class Samples {
  // The samples of the worker's step; if the step begins again, the samples after those.
  of_step,
  // The worker's next samples, whatever its step is, so none comes twice in an epoch. After a deadline the same samples
  // come again, with other durations.
  in_turn,
};

// Which missed sums a late worker gets from a partial all-reduce.
enum class MissedSums {
  all,     // all missed sums, oldest first
  newest,  // only the newest sum, as from a single buffer; the steps of the others count as taken
};

// Counts of micro-batches that are summed along with the gradient.
enum class Counted {
  none,
  micro_batches,  // one number
  // One number per tensor: how many micro-batches contributed to its gradient. (One number in all in runs without a
  // model.) They differ if a deadline has cut some micro-batches (Preempt::layer). The result is weighted: divided by
  // its micro_batches(), or by 1 if there are none, each tensor is the mean over its own micro-batches (or 0).
  by_tensor,
};

struct SumOptions {
  Counted counted = Counted::none;
  std::optional<std::int64_t>
      planned{};  // micro-batches of this worker's step; those not in the sum were dropped. None: M
  // This worker's micro-batches in the sum that have normalisation statistics. The number is summed along. None: the
  // counted micro-batches.
  std::optional<std::int64_t> with_statistics{};
  // A computed gradient that this worker leaves out of the sum (may be null). It is lost, unless the sum is compressed
  // and keeps it (CompressionOptions::dropped).
  const Gradient* dropped = nullptr;
  bool is_dense = false;  // even if the run compresses sums
};
inline constexpr SumOptions usual_sum{};

struct ReceiveOptions {
  std::optional<Rank> from{};  // none: from any participant
  Time until = never;          // now(): do not wait
};
inline constexpr ReceiveOptions next_message{};

class Worker final : public Participant {
 public:
  Worker(const RunContext& context, Rank rank);
  ~Worker();

  // Extends a budget of steps by `extra`; other budgets stay. With `stretch` the learning rate's schedule is stretched
  // to the new end; without, it stays at its last value.
  void extend_budget(Step extra, bool stretch);

  // The gradient of the next micro-batch (mean over its samples) at the worker's own model. Returns nothing if the
  // deadline passes first, or, with Preempt::layer, a gradient that is cut(). Micro-batches are numbered from 0 in each
  // step.
  std::optional<Gradient> compute_gradient(const Deadline& deadline = {}) {
    return compute_gradient({rank_, step_, next_micro_batch_}, deadline);
  }
  // The same on samples of another worker's data, or of an earlier step. The duration is the next micro-batch's.
  std::optional<Gradient> compute_gradient(const MicroBatch& samples, const Deadline& deadline = {});
  // How long the last micro-batch took, with the pause before the next one, which now() does not include yet.
  Duration micro_batch_time(const Gradient& last) const {
    return last.compute_time() + context_.cluster.sleep_after(rank_, {rank_, step_, next_micro_batch_ - 1});
  }

  // The sum over M micro-batches, not yet divided: the gradient of a whole step. Returns nothing if the deadline passes
  // first, if this worker's data are used up, or if the deadline is a message that nobody is left to send.
  Gradient compute_step_gradient(Samples samples = Samples::of_step) {
    return samples == Samples::of_step ? compute_step() : compute_turn();
  }
  std::optional<Gradient> compute_step_gradient(const Deadline& deadline, Samples samples = Samples::of_step);

  // Takes one optimizer step on the worker's own model along `gradient`, at the schedule's learning rate.
  void descend(const Gradient& gradient, const StepOptions& options = usual_step);
  // Drops a computed gradient: its time counts as discarded.
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

  // Declares the newest model, for a method that keeps it in a variable. A worker that loses its state before the next
  // agreement takes this model. Local steps since the last agreement are still lost.
  void declare_newest(const ModelStatePtr& model) {
    if (!may_lose_state_) return;
    if (!recovery_) recovery_ = {model, since_sync_.kept, kept_total_, since_sync_.compute_time};
    recovery_->model = model;
  }

  // Sums the gradient over all workers. Afterwards all hold the same gradient, whose micro_batches() count those of
  // all. The step along it belongs to the same row of steps.csv as the sum. In runs that compress, the result is the
  // sum of all packets.
  void all_reduce_sum(Gradient& gradient, const SumOptions& options = usual_sum, CalledFrom at = CalledFrom::current());

  // Replaces the worker's model by the mean over all workers, or over a group, weighted by `how.weight` (equal if all
  // are 0). Returns whether budget is left, as if all workers had taken the same steps; all members of the average get
  // the same answer.
  // In runs that compress averages, the result is the common model at which local steps began, plus the mean of all
  // workers' packed differences to it, with equal weights (workers/compression/compressed_exchanges.hpp).
  bool average_model(const Averaging& how = {}, CalledFrom at = CalledFrom::current());

  // Ends a round of local steps like an average, without averaging.
  void barrier(CalledFrom at = CalledFrom::current()) {
    agreed_ = context_.cluster.barrier(rank_, {"barrier", at}, steps_since_sync());
    recovery_.reset();  // the round's steps are booked now
  }

  // Gathers `numbers` (of one length on all workers) in the order of the ranks and returns the result of `derive` for
  // them. All workers derive the same value, so workers that share a process derive it once.
  template <typename Derive>
  auto all_gather(std::span<const double> numbers, const Derive& derive, CalledFrom at = CalledFrom::current()) {
    using Value = std::invoke_result_t<const Derive&, std::span<const double>>;
    const SharedNumbers all = context_.cluster.all_gather(rank_, numbers, {"all_gather", at});
    return context_.derived->get<Value>(all, [&] { return derive(std::span(*all)); });
  }

  // `start` begins a collective that goes on while this worker computes (Collective::all_reduce, Collective::average);
  // `finish` waits for its end. The worker's steps are booked at the start. A worker that loses its state goes back to
  // the later of the two calls.
  StartedCollective start(Collective what, CalledFrom at = CalledFrom::current());
  CollectiveResult finish(StartedCollective started, CalledFrom at = CalledFrom::current());

  // An all-reduce that does not wait for all workers (see Collective). Take one step, `descend`, along each of the sums
  // that it returns. Rounds are numbered like steps, alike on all workers.
  std::vector<PartialSum> partial_all_reduce_sum(Gradient gradient, const Activation& activation, LateGradient late,
                                                 MissedSums missed = MissedSums::all,
                                                 CalledFrom at = CalledFrom::current());

  // Books the steps since the last call into a row of steps.csv. Methods with neither collectives nor a server call it
  // after each step.
  void report_steps() {
    context_.cluster.report_steps(rank_, steps_since_sync());
    recovery_.reset();
  }

  // Waits for the server's next model and adopts it with its step. Returns false if the server has ended, if it has
  // sent its last model (which is adopted), or if this worker's data are used up. With several servers it waits for one
  // slice from each, all of one version; worker 0 then publishes the whole model, which nobody else has.
  bool receive_model(CalledFrom at = CalledFrom::current());
  // The same for a server that holds the whole model; `numbers` receives the numbers sent along.
  bool receive_model(std::vector<double>& numbers, CalledFrom at = CalledFrom::current());
  // Adopts the model or slice of a message from `receive`, with the server's step, if servers send models unasked.
  void adopt(const Message& from_server);
  // Sends a step's sum over M micro-batches, labelled with the step of the model it was computed at. With several
  // servers each gets its slice. In runs that clip gradients the worker clips it first (Training::clipped): weights and
  // means are the server's. Parts of a gradient code are not clipped.
  void send_gradient(Gradient gradient, ClippedBy clipped_by = ClippedBy::worker,
                     CalledFrom at = CalledFrom::current());

  // Returns the next message; nothing once `until` has passed, or if no participant is left to send one.
  ReceivedMessage receive(const ReceiveOptions& which = next_message, CalledFrom at = CalledFrom::current());

 private:
  // State at the beginning of the local steps since the last agreement. A worker that loses its state goes back to it.
  struct Recovery {
    ModelStatePtr model;
    std::int64_t kept = 0;  // these three: values of the counters below
    std::int64_t kept_total = 0;
    Duration compute_time{};
  };
  // Counts how often outages restart a micro-batch, or a server's step.
  struct Attempts {
    MicroBatch of;         // the first one if it is a step
    bool is_step = false;  // a whole step
    std::int64_t restarts = 0;
  };
  template <typename Value>
  friend class ResetOnOutage;

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
  void ask_server_for_model(CalledFrom at);
  template <typename Slot>
  [[gnu::noinline]] Gradient compute_step_with_outages(const Slot& slot_of);
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
  bool receive_whole_model(std::vector<double>* numbers, CalledFrom at);
  bool receive_slices(CalledFrom at);
  void send_slices(const Gradient& gradient, CalledFrom at);
  void start_from(Step version);
  void check_progress();

  // Every step touches these and the last members of Participant, so they stand together.
  int next_micro_batch_ = 0;
  bool may_lose_state_;
  bool steps_are_versions_ = false;  // its step is that of the server's model
  bool has_last_model_ = false;      // received from a server that has ended
  Step cancelled_turns_{};           // steps of Samples::in_turn that a deadline cancelled
  std::vector<Step> slice_steps_;    // with several servers: the version of each slice
  int sums_under_way_ = 0;           // started and not finished: the steps along them come first
  std::int64_t kept_before_ = 0;     // at the agreement before the last one
  int idle_rounds_ = 0;              // successive collectives that added no micro-batch
  int states_lost_ = 0;
  std::unique_ptr<CompressedSum> compressed_sum_;          // null: sums are dense
  int compressed_at_loss_ = 0;                             // states lost by the last compressed sum or average
  std::unique_ptr<CompressedAverage> compressed_average_;  // null: averages are dense
  ModelStatePtr steps_began_at_;      // compressed averages: the model at which local steps began; null: no step since
  std::optional<Recovery> recovery_;  // if state may be lost: from the first local step on
};

// A method's variable that an outage resets to Value(): `ResetOnOutage<Step> taken(worker);`. The worker must outlive
// it.
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
  int losses_;  // states that the worker had lost at the last use
  Value value_;
};

}  // namespace syncopate
