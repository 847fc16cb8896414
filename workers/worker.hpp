// A worker as algorithms see it, with its own clock, model and progress: the same on both clusters.
//
// A worker that loses its state in an outage (workers/time/outages.hpp) takes the newest model and computes the
// micro-batch again. Algorithms do not notice, unless they keep the worker's work in variables (ResetOnOutage). The
// newest model is
// - that of the last agreement: the last step along an all-reduce, average, group's average, or broadcast, with the
//   moments of that time, as a copy made then has them. Local steps since then are lost: they count as dropped and
//   their time as discarded. The worker does not repeat them, so that nobody waits for them;
// - with a server that holds the whole model, where a whole step's gradient is computed without a deadline: the
//   server's. The worker asks for it, which costs a message each way, and computes the whole step at it;
// - where a method declares one, that one;
// - else the model that it received last, or, where steps end in report_steps, that of its last step.
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

// Derives a value of gathered ones once per process: with thousands of simulated workers, each doing it alone would
// cost more than the rest of the run.
class PerProcessCache {
 public:
  // The value that `derive` gave for `gathered` at the first call. Only the last one is kept, until the next gather.
  template <typename Value, typename Gathered, typename Derive>
  std::shared_ptr<const Value> get(const std::shared_ptr<const Gathered>& gathered, const Derive& derive) {
    // Compares control blocks; the weak pointer holds its own, so that nothing later gets the same one.
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
// One for each slice of the model, or one for the whole.
using Compressors = std::vector<std::shared_ptr<const Compressor>>;

// Shared by all participants of a run. The references outlive the run.
struct RunContext {
  Cluster& cluster;
  Training& training;
  const LearningRate& learning_rate;
  Budget budget{};
  Step first_step{};                               // done before the run begins, by all; of runs of time alone
  int micro_batches = 1;                           // M: micro-batches per optimizer step and worker
  std::int64_t samples_per_micro_batch = 1;        // for the samples budget and the reports
  RunObserver* observer = nullptr;                 // may be null
  RunRecord* record = nullptr;                     // may be null
  ModelStatePtr initial_model{};                   // where all start; null in time-only runs
  std::uint64_t seed = 0;                          // of methods' own random choices
  std::vector<std::optional<Step>> data_of{};      // steps after which a worker has used up its data; empty: never
  std::optional<MovingAverageOptions> average{};   // of published models; none: these are evaluated themselves
  std::shared_ptr<const Compressor> compressor{};  // of sums of gradients; null: they are dense
  Compressors average_compressors{};               // of averages of models; empty: they are dense
  Compressors message_compressors{};  // of gradients, or differences, that workers send to servers; empty: dense
  std::shared_ptr<PerProcessCache> derived = std::make_shared<PerProcessCache>();  // of the workers of this process
};

// Who clips gradients where the run clips them and there is a server.
enum class ClippedBy {
  worker,  // each worker its own, before it sends it; the server's steps clip nothing
  server,  // the server the whole, where workers send parts that mean nothing alone (those of a code)
};

// A step that is not the usual one.
struct StepOptions {
  double rate_factor = 1;  // of the schedule's learning rate
  // The weight of this update, for example by its staleness. It multiplies the rate of this step too, so that weight
  // decay and adaptive optimizers follow it, but not the reported learning rate.
  double weight = 1;
  ClippedBy clipped_by = ClippedBy::worker;  // of a server's step
  bool is_planned = true;  // false: one more than the file plans; neither budget, nor schedule, nor reports count it
  // A server's step: its micro-batches, if the gradient has some twice. A worker's: those planned, if not M.
  std::optional<std::int64_t> micro_batches{};
  bool keeps_second_moment = false;  // of the optimizer (Optimizer::beta1_of_frozen)
};

// A call without options brings none onto the stacks of thousands of workers.
inline constexpr StepOptions usual_step{};

// Whose view decides whether budget is left.
enum class BudgetView {
  agreed,  // all workers alike, by what they agreed on in the last collective
  local,   // this worker by its own clock, as if all had taken as many steps: ends a long round of local steps
  others,  // the others, who go on when this worker's own data are used up
  server,  // a server, which counts everybody's work: here its own data and the clock alone end a worker's
};

// Who draws a random number.
enum class Drawn {
  alone,     // this participant: a number of its own
  together,  // all participants: the same number, for choices that are agreed beforehand
};

// Asks for a number for each tensor of a model.
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
  int size() const { return size_; }                            // N, the number of workers
  Rank server() const;                                          // a worker's; a region's server has the global one
  int micro_batches() const { return context_.micro_batches; }  // M

  Time now() const { return context_.cluster.now(rank_); }
  Step step() const { return step_; }  // optimizer steps done, which is also the version of the model
  // The schedule's rate for the next step, or `ahead` steps later.
  double learning_rate(Step ahead = {}) const;
  // From this step on `learning_rate` is the schedule, by the steps since then.
  void follow(const LearningRate& learning_rate, Step from);
  // The global model's steps take the schedule's rate times `factor`: rows of later publications report that, and
  // before the first step the row of step 0. A server's steps call it; so do publishers of others' models.
  void scale_rate(double factor) {
    const bool is_first = step_ == Step{0} && factor != rate_factor_;
    rate_factor_ = factor;
    if (is_first && is_heard()) context_.observer->on_first_rate(factor * learning_rate());
  }

  // False once the budget is used up, or this worker's own data are. All workers get the same answer after the same
  // collective: time, samples and bytes are those of the last agreement.
  bool budget_left(BudgetView judged = BudgetView::agreed) const;
  // Optimizer steps that the budget still allows; very large if it is not counted in steps.
  Step steps_left() const {
    if (!context_.budget.steps) return Step{std::numeric_limits<Step::Rep>::max() / 2};
    return std::max(Step{0}, *context_.budget.steps + extra_steps_ - file_step());
  }

  // Parameters and BatchNorm statistics. Moments stay with their participant.
  ModelStatePtr model() const;
  // Takes another model's parameters and BatchNorm statistics; the own moments follow `moments`, or stay.
  void set_model(const ModelStatePtr& model) { model_ = context_.training.adopt(model_, model); }
  void set_model(const ModelStatePtr& model, StatePolicy moments);

  // Sum of weight x model, for example combine({{0.5, a}, {0.5, b}}); null in time-only runs. A promise: it is computed
  // beside the run, once its terms are. BatchNorm statistics are combined in the same way, or taken from `buffers_of`.
  ModelStatePtr combine(const std::vector<WeightedState>& terms, const ModelStatePtr& buffers_of = nullptr) const {
    return context_.training.combine(terms, buffers_of);
  }
  // The number of a model's parameters; in runs without a model that of the file.
  std::int64_t parameters() const { return context_.training.parameter_bytes().value() / 4; }
  // `whole` with a slice of parameters from `part`, the first with BatchNorm statistics; null in time-only runs.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice) const {
    return context_.training.with_slice(whole, part, slice);
  }
  // (1 - share) x from + share x to, with a share for each tensor in the order of the flat vector, or one for all. It
  // is exact at 0 and 1. BatchNorm statistics are those of `to`, or, if all shares are 0, of `from`.
  ModelStatePtr combine(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares) const {
    return context_.training.combine_tensors(from, to, shares);
  }
  // The weighted mean of differences that keeps their mean length (training/model_average.hpp); null in time-only runs.
  ModelStatePtr norm_preserving_mean(const std::vector<WeightedState>& differences, Slice slice,
                                     OfEmbeddings embeddings) const;
  // The distance of two models. Like the numbers below, it waits for the arithmetic, and is NaN in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b) const { return context_.training.distance(a, b); }
  // By tensor, in the order of the flat vector; empty in time-only runs.
  std::vector<double> distance(const ModelStatePtr& a, const ModelStatePtr& b, EachTensor) const {
    return context_.training.distances(a, b);
  }
  // The L2 norm of a gradient. The gradient keeps the computed values for later uses.
  double norm(Gradient& gradient) const {
    if (!context_.training.time_only()) gradient = context_.training.share(gradient);
    return context_.training.norm(gradient);
  }
  // The mean loss of the micro-batches of a participant's own gradient.
  double loss(Gradient& gradient) const {
    if (!context_.training.time_only()) gradient = context_.training.share(gradient);
    return context_.training.loss(gradient);
  }

  // A uniform number in (0, 1) for this step, the same on both clusters.
  double uniform(Step step, Drawn drawn = Drawn::alone) const;

  // Whether a participant has ended, as far as is known here.
  bool has_left(Rank other) const { return context_.cluster.has_left(rank_, other); }

  // Sends a message to any participant. Where the run compresses messages, a worker's gradient, or difference between
  // models, goes as a packet (workers/compression/compressed_exchanges.hpp).
  void send(Rank to, Message&& message, CalledFrom at = CalledFrom::current());

  // "This is the global model now": the observer decides whether to evaluate. Only the publication of worker 0, or of
  // the one server or the global one, counts, so that every worker may run the same line. Where the run asks for it,
  // the moving average of published models is evaluated (not of an ensemble).
  void publish() { publish(model_); }
  void publish(const ModelStatePtr& model) {
    if (is_heard()) publish(Publication{.model = model});
  }
  void publish(Publication publication);  // fills in all but the models; the step is the later one

  // "This is my model now", for methods in which nobody has that of all: every worker says so after each step, and the
  // observer decides whether to evaluate. It costs no time on either clock. Give `weight` and `evaluated`; the rest is
  // filled in. Returns the model to evaluate: the worker's, or, where the run asks for it, their moving average.
  ModelStatePtr publish(WorkerModel published);

  // Ends the run with the time and this reason.
  [[noreturn]] void fail(const std::string& why) const;

 protected:
  ~Participant();
  // Takes a server's answers to this worker's packets from its message.
  [[gnu::noinline]] void receive_answers(Message& from_server);
  // Whether its publications are of the global model.
  bool is_heard() const {
    const bool is_server = rank_.value == size_;
    return context_.observer && (rank_.value == 0 || (is_server && !context_.cluster.servers().hold_slices()));
  }
  // BudgetView::local, at this time.
  bool budget_left_at(Time time) const;
  // Steps done, or so many more, in steps of the experiment file, rounded down.
  Step file_step(Step ahead = {}) const;
  // One optimizer step along `gradient`, of the model or a slice of it.
  void take_step(const Gradient& gradient, const StepOptions& options, Clipping clipping, Slice slice = {});

  double steps_per_file_step_ = 1;
  double schedule_stretch_ = 1;
  Step extra_steps_{};
  Step added_steps_{};
  double rate_factor_ = 1;    // of the global model's last step
  std::int64_t surplus_ = 0;  // micro-batches that a worker's steps were planned with beyond M each
  std::optional<AgreedProgress> agreed_;
  std::unique_ptr<MovingAverage> average_;  // of its publications
  struct OwnSchedule {
    LearningRate learning_rate;
    Step from;
  };
  std::unique_ptr<const OwnSchedule> own_schedule_;  // null: the file's
  // Every step touches these, so they stand together.
  const RunContext& context_;  // one for all workers, so that it stays in the cache
  Rank rank_;
  int size_;
  Step step_{};
  std::int64_t taken_ = 0;                                        // micro-batches begun
  std::int64_t data_ = std::numeric_limits<std::int64_t>::max();  // micro-batches that a worker has
  ModelStatePtr model_;
  std::int64_t kept_total_ = 0;                              // without collectives: micro-batches descended along
  Contribution since_sync_{};                                // a worker's
  std::unique_ptr<CompressedMessages> compressed_messages_;  // a worker's; null: messages are dense
};

inline Rank Participant::server() const { return context_.cluster.servers().server_of(rank_, size_); }

template <typename Value>
class ResetOnOutage;
class CompressedSum;
class CompressedAverage;
struct SentDifference;

// Which samples a step's micro-batches have, and whose durations they take.
enum class Samples {
  of_step,  // those of the worker's step; when it begins the step again, the ones that follow
  in_turn,  // the worker's next ones, whatever its step is, so that none comes twice in an epoch. After a deadline they
            // come again with other durations
};

// Which of the missed sums a worker gets that is late for a partial all-reduce.
enum class MissedSums {
  all,     // each, oldest first
  newest,  // the newest, as from a single buffer; the others' steps are taken as done
};

// Counts of micro-batches that travel along with a sum.
enum class Counted {
  none,
  micro_batches,  // one number
  // One number per tensor (in runs without a model one in all): how many micro-batches it has gradients from. They
  // differ where a deadline has cut some (Preempt::layer). The sum comes back weighted: divided by its micro_batches(),
  // or by 1 if there are none, each tensor's part is the mean over its own (or 0).
  by_tensor,
};

struct SumOptions {
  Counted counted = Counted::none;
  std::optional<std::int64_t>
      planned{};  // micro-batches of this worker's step; those not in the sum were dropped. None: M
  // This worker's micro-batches with normalisation statistics in the sum; the number goes along. None: those counted.
  std::optional<std::int64_t> with_statistics{};
  // A computed gradient that this worker leaves out of the sum (may be null). A compressed sum may keep it
  // (CompressionOptions::dropped); else it is lost.
  const Gradient* dropped = nullptr;
  bool is_dense = false;  // whatever the run compresses
};
inline constexpr SumOptions usual_sum{};

struct ReceiveOptions {
  std::optional<Rank> from{};  // none: from anybody
  Time until = never;          // now(): do not wait
};
inline constexpr ReceiveOptions next_message{};

class Worker final : public Participant {
 public:
  Worker(const RunContext& context, Rank rank);
  ~Worker();

  // Extends a budget of steps by `extra`; other budgets stay. `stretch` stretches the learning rate's schedule, which
  // else stays at its end.
  void extend_budget(Step extra, bool stretch);

  // The next micro-batch's gradient (mean over its samples) at the own model; nothing if the deadline passes first, or,
  // with Preempt::layer, a gradient that is cut(). Micro-batches are numbered from 0 in each step.
  std::optional<Gradient> compute_gradient(const Deadline& deadline = {}) {
    return compute_gradient({rank_, step_, next_micro_batch_}, deadline);
  }
  // The same on samples of another worker's data, or of an earlier step; the time is the next micro-batch's.
  std::optional<Gradient> compute_gradient(const MicroBatch& samples, const Deadline& deadline = {});
  // How long the last micro-batch took, with the pause before the next one, which now() does not include yet.
  Duration micro_batch_time(const Gradient& last) const {
    return last.compute_time() + context_.cluster.sleep_after(rank_, {rank_, step_, next_micro_batch_ - 1});
  }

  // Sum over M micro-batches: a whole step's gradient, not yet divided; nothing if the deadline passes first, if this
  // worker's data are used up, or if nobody is left who could send the message that it computes until.
  Gradient compute_step_gradient(Samples samples = Samples::of_step) {
    return samples == Samples::of_step ? compute_step() : compute_turn();
  }
  std::optional<Gradient> compute_step_gradient(const Deadline& deadline, Samples samples = Samples::of_step);

  // One optimizer step on the own model along `gradient`, at the schedule's learning rate.
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

  // Declares the newest model, where a method keeps that in a variable: a worker that loses its state before the next
  // agreement takes this one. Local steps since the last agreement are still lost.
  void declare_newest(const ModelStatePtr& model) {
    if (!may_lose_state_) return;
    if (!recovery_) recovery_ = {model, since_sync_.kept, kept_total_, since_sync_.compute_time};
    recovery_->model = model;
  }

  // Sums over all workers; afterwards all hold the same gradient, whose micro_batches() are those of all. The step
  // along it belongs to the sum's row of steps.csv. Where the run compresses, it is the sum of all packets.
  void all_reduce_sum(Gradient& gradient, const SumOptions& options = usual_sum, CalledFrom at = CalledFrom::current());

  // The mean of all models, or of a group's, weighted by `how.weight` (equal if all are 0). Returns whether budget is
  // left, as if all had taken as many steps: the same answer for all who have averaged. Where the run compresses
  // averages, it is the common model that local steps began at + the mean of all workers' packed differences to it
  // (workers/compression/compressed_exchanges.hpp), with equal weights.
  bool average_model(const Averaging& how = {}, CalledFrom at = CalledFrom::current());

  // Ends a round of local steps, as an average does.
  void barrier(CalledFrom at = CalledFrom::current()) {
    agreed_ = context_.cluster.barrier(rank_, {"barrier", at}, steps_since_sync());
    recovery_.reset();  // its steps are booked
  }

  // The result of `derive` for everybody's numbers in the order of the ranks; of one length on all workers. All derive
  // the same, so it is done once where several workers share a process.
  template <typename Derive>
  auto all_gather(std::span<const double> numbers, const Derive& derive, CalledFrom at = CalledFrom::current()) {
    using Value = std::invoke_result_t<const Derive&, std::span<const double>>;
    const SharedNumbers all = context_.cluster.all_gather(rank_, numbers, {"all_gather", at});
    return context_.derived->get<Value>(all, [&] { return derive(std::span(*all)); });
  }

  // start: a collective goes on while this worker computes (Collective::all_reduce, Collective::average). finish: waits
  // for its end. The worker's steps count at the start. A worker that loses its state goes back to the last of both.
  StartedCollective start(Collective what, CalledFrom at = CalledFrom::current());
  CollectiveResult finish(StartedCollective started, CalledFrom at = CalledFrom::current());

  // An all-reduce that does not wait for everybody (see Collective). Take one step, `descend`, along each of the sums
  // that it returns. Rounds are numbered like steps, on all workers alike.
  std::vector<PartialSum> partial_all_reduce_sum(Gradient gradient, const Activation& activation, LateGradient late,
                                                 MissedSums missed = MissedSums::all,
                                                 CalledFrom at = CalledFrom::current());

  // For methods with neither collectives nor a server, after each step: it becomes part of a row of steps.csv.
  void report_steps() {
    context_.cluster.report_steps(rank_, steps_since_sync());
    recovery_.reset();
  }

  // With a server: waits for its next model and adopts it with its step. False when the server has ended, or has sent
  // its last model (which is adopted), or this worker's data are used up. With several servers: waits for a slice from
  // each, all of one version; worker 0 then publishes the whole, which nobody else has.
  bool receive_model(CalledFrom at = CalledFrom::current());
  // The same from a server that holds the whole model, with the numbers that came along.
  bool receive_model(std::vector<double>& numbers, CalledFrom at = CalledFrom::current());
  // Adopts a message of `receive` with the server's step, where the server sends models or slices unasked.
  void adopt(const Message& from_server);
  // Sends a step's sum over M micro-batches, labelled with the step of the model it was computed at; with several
  // servers to each its slice. Where the run clips gradients, it is clipped first (Training::clipped): weights and
  // means are the server's. A part of a code is not clipped.
  void send_gradient(Gradient gradient, ClippedBy clipped_by = ClippedBy::worker,
                     CalledFrom at = CalledFrom::current());

  // The next message; nothing once `until` has passed, or nobody is left who could send one.
  ReceivedMessage receive(const ReceiveOptions& which = next_message, CalledFrom at = CalledFrom::current());

 private:
  // A worker that loses its state goes back to this: the beginning of its local steps since the last agreement.
  struct Recovery {
    ModelStatePtr model;
    std::int64_t kept = 0;  // these three: of the counts below
    std::int64_t kept_total = 0;
    Duration compute_time{};
  };
  // A micro-batch, or a server's step, that outages restart again and again.
  struct Attempts {
    MicroBatch of;         // the first one of a step
    bool is_step = false;  // a whole one
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
  ModelStatePtr steps_began_at_;                           // where they are not: of local steps since an average
  std::optional<Recovery> recovery_;                       // where state may be lost: from the first local step on
};

// A method's variable that an outage resets to Value(): `ResetOnOutage<Step> taken(worker);`. The worker outlives it.
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
  int losses_;  // of the worker's state, at the last use
  Value value_;
};

}  // namespace syncopate
