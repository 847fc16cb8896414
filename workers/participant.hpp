// What workers and servers have in common: a clock, a model, and a place in the training.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/cluster/run_record.hpp"
#include "workers/derived_once.hpp"
#include "workers/random/random.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/moving_average.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// When a run ends: the first limit that is reached. At least one is set.
struct Budget {
  std::optional<Step> steps{};
  std::optional<double> seconds{};
  std::optional<std::int64_t> samples{};
  std::optional<Bytes> bytes{};
};

enum class OfEmbeddings;  // workers/training/norm_preserving_mean.hpp
class CompressedMessages;
class Compressor;
// Of each slice of the model; of the whole: one.
using Compressors = std::vector<std::shared_ptr<const Compressor>>;

// What all participants of a run share. The references outlive the run.
struct RunContext {
  Cluster& cluster;
  Training& training;
  const LearningRate& learning_rate;
  Budget budget{};
  int micro_batches = 1;                           // M: micro-batches per optimizer step and worker
  std::int64_t samples_per_micro_batch = 1;        // for the samples budget and the reports
  RunObserver* observer = nullptr;                 // may be null
  RunRecord* record = nullptr;                     // may be null
  ModelStatePtr initial_model{};                   // where all start; null in time-only runs
  std::uint64_t seed = 0;                          // of methods' own random choices
  std::vector<std::optional<Step>> data_of{};      // steps after which a worker has used up its data; empty: never
  std::optional<MovingAverageOptions> average{};   // of what is published; none: that itself
  std::shared_ptr<const Compressor> compressor{};  // of sums of gradients; null: they are dense
  Compressors average_compressors{};               // of averages of models; none: they are dense
  Compressors message_compressors{};  // of gradients, or differences, that workers send to servers; likewise
  std::shared_ptr<DerivedOnce> derived = std::make_shared<DerivedOnce>();  // of the workers of this process
};

// Who clips gradients where the run clips them and there is a server.
enum class ClippedBy {
  worker,  // each worker its own, before it sends it; the server's steps clip nothing
  server,  // the server the whole, where what workers send are parts that mean nothing alone (those of a code)
};

// A step that is not the usual one.
struct StepOptions {
  double rate_factor = 1;  // of the learning rate that the schedule gives
  // The weight of this update, for example by its staleness: multiplies the rate of this step too, so that weight
  // decay and adaptive optimizers follow it. It is no part of the learning rate that is reported.
  double weight = 1;
  ClippedBy clipped_by = ClippedBy::worker;  // of a server's step
  bool is_planned = true;  // false: one more than the file plans; neither budget, nor schedule, nor reports count it
  // That a server's step is made of, where the gradient has some twice; that a worker has for its step, its own or one
  // of all, without any dropping, where these are not M.
  std::optional<std::int64_t> micro_batches{};
  bool keeps_second_moment = false;  // of the optimizer (Optimizer::beta1_of_frozen)
};

// A call without options brings none onto the stacks of thousands of workers.
inline constexpr StepOptions usual_step{};

// Who judges what is left of the budget.
enum class Judged {
  together,   // all workers alike, by what they agreed on in the last collective
  alone,      // this worker by its own clock, as if all had taken as many steps: ends a long round of local steps
  by_others,  // the others, who go on when this worker's own data are used up
  by_server,  // a server, which counts everybody's work: here its own data and the clock alone end a worker's
};

// Who draws a random number.
enum class Drawn {
  alone,     // this participant: a number of its own
  together,  // all participants: the same number, for choices that are agreed beforehand
};

// Says that a number is asked for of each tensor of a model by itself.
struct EachTensor {};
inline constexpr EachTensor each_tensor{};

class Participant {
 public:
  using Here = SourceLine;  // where in the algorithm, for explanations of a deadlock

  Participant(const RunContext& context, Rank rank);  // the context outlives the participant
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }                            // N, the number of workers
  Rank server() const;                                          // a worker's; a region's server has the global one
  int micro_batches() const { return context_.micro_batches; }  // M

  Time now() const { return context_.cluster.now(rank_); }
  Step step() const { return step_; }  // optimizer steps done, which is also the version of the model
  // That the schedule gives to the next step, or to the one after so many more.
  double learning_rate(Step ahead = {}) const;
  // From this step on the schedule is this one, by the steps since then.
  void follow(const LearningRate& learning_rate, Step from);
  // The global model's steps take the schedule's rate times this: the rows of what is published from here on say so, and
  // before the first step that of step 0. A server's steps call it; so does who publishes models that others step.
  void scale_rate(double factor);

  // False once the budget is used up, or this worker's own data are. Methods that synchronise may rely on all workers
  // getting the same answer after the same collective: time, samples and bytes are those of the last agreement.
  bool budget_left(Judged judged = Judged::together) const;
  // Optimizer steps that the budget still allows; very large when it is not counted in steps.
  Step steps_left() const;

  // Parameters and BatchNorm statistics. Moments stay with their participant.
  ModelStatePtr model() const;
  // Takes on another model's parameters and BatchNorm statistics; the own moments stay, or begin anew.
  void set_model(const ModelStatePtr& model) { model_ = context_.training.adopt(model_, model); }
  void set_model(const ModelStatePtr& model, StatePolicy moments);

  // Sum of weight x model, for example combine({{0.5, a}, {0.5, b}}); null in time-only runs. A promise:
  // it is computed beside the run, once its terms are. BatchNorm statistics are combined likewise, or
  // taken from `buffers_of`.
  ModelStatePtr combine(const std::vector<WeightedState>& terms, const ModelStatePtr& buffers_of = nullptr) const {
    return context_.training.combine(terms, buffers_of);
  }
  // How many numbers a model has; of runs without one, as many as their file says.
  std::int64_t parameters() const { return context_.training.parameter_bytes().value() / 4; }
  // `whole` with a slice of its parameters from `part`, and its BatchNorm statistics too if it is the first one; null
  // in time-only runs.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice) const {
    return context_.training.with_slice(whole, part, slice);
  }
  // (1 - share) x from + share x to, with a share for each tensor in the order of the flat vector, or one for all:
  // exactly the one at 0 and the other at 1. BatchNorm statistics are those of `to`, or, where all shares are 0, of
  // `from`.
  ModelStatePtr combine(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares) const {
    return context_.training.combine_tensors(from, to, shares);
  }
  // The weighted mean of differences that keeps their mean length, by tensors (training/norm_preserving_mean.hpp);
  // null in time-only runs.
  ModelStatePtr norm_preserving_mean(const std::vector<WeightedState>& differences, Slice slice,
                                     OfEmbeddings embeddings) const;
  // Between two models' parameters, for rules that look at what was computed: it waits for the arithmetic, and is NaN
  // in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b) const { return context_.training.distance(a, b); }
  // The same of each tensor, in the order of the flat vector; in time-only runs there are none.
  std::vector<double> distance(const ModelStatePtr& a, const ModelStatePtr& b, EachTensor) const {
    return context_.training.distances(a, b);
  }
  // L2 norm of a gradient, likewise. What is computed for it serves all that is done with the gradient from here on.
  double norm(Gradient& gradient) const;
  // Mean loss of the micro-batches that a gradient of one's own is of, likewise.
  double loss(Gradient& gradient) const;

  // A uniform number in (0, 1) for this step, the same on both clusters.
  double uniform(Step step, Drawn drawn = Drawn::alone) const;

  // Whether a participant has ended, as far as is known here.
  bool has_left(Rank other) const { return context_.cluster.has_left(rank_, other); }

  // Messages between any two participants. Where the run compresses messages, a worker's gradient, or difference between
  // models, goes as a packet (workers/compression/compressed_messages.hpp).
  void send(Rank to, Message&& message, Here at = Here::current());

  // "This is the global model now": the observer decides whether to evaluate. Only the publication of worker 0, or of
  // the one server or the global one, counts, so that every worker may run the same line. Where the run asks for it,
  // what is evaluated is the moving average of what is published (not of an ensemble).
  void publish() { publish(model_); }
  void publish(const ModelStatePtr& model) {
    if (is_heard()) publish(Publication{.model = model});
  }
  void publish(Publication publication);  // fills in when and after what; of the steps the later

  // "This is my model now", for methods in which nobody has that of all: every worker says so after each step, and the
  // observer decides whether to evaluate. It costs no time on either clock. Weight and what is to be evaluated are
  // given, the rest is filled in. Returned is the model, or, where the run asks for it, the moving average of the
  // worker's models, which is then what is evaluated.
  ModelStatePtr publish(OwnModel said);

  // Ends the run, for this reason, which time goes before.
  [[noreturn]] void fail(const std::string& why) const;

 protected:
  ~Participant();
  // Of a message with answers to what this worker has sent.
  [[gnu::noinline]] void hear(Message& from_server);
  // Whether its publications are those of the global model.
  bool is_heard() const {
    const bool is_server = rank_.value == size_;
    return context_.observer && (rank_.value == 0 || (is_server && !context_.cluster.servers().hold_slices()));
  }
  // Whether it is left at this time, judged alone.
  bool budget_left_at(Time time) const;
  // Steps done, or so many more, in steps of the experiment file, rounded down.
  Step file_step(Step ahead = {}) const;
  // One optimizer step along `gradient`, or that of a slice of the model.
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
  // What every step touches, together.
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

}  // namespace syncopate
