// Accounting of a run's time, micro-batches and bytes: accounts, spans (parts of a timeline), rows of steps.csv, and
// totals.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// Every worker-second counts as exactly one of these five activities. Over all N workers they sum to N x T (T: the
// run's end).
enum class Activity { compute, discarded, wait, communicate, down };
inline constexpr std::size_t activities = 5;
inline constexpr std::array<const char*, activities> activity_names = {"compute", "discarded", "wait", "communicate",
                                                                       "down"};
struct Account {
  std::array<Duration, activities> time{};
  Duration& operator[](Activity activity) { return time[static_cast<std::size_t>(activity)]; }
  Duration operator[](Activity activity) const { return time[static_cast<std::size_t>(activity)]; }
  void lose(Duration spent) {
    (*this)[Activity::compute] -= spent;
    (*this)[Activity::discarded] += spent;
  }
  Duration total() const { return std::accumulate(time.begin(), time.end(), Duration{}); }
};

inline constexpr const char* micro_batch_name = "micro-batch";

// A part of a participant's time, for timelines. A participant's spans have neither gaps nor overlaps. If a gradient is
// dropped later, the spans of its micro-batches become discarded work, so a worker's spans sum to its Account.
struct Span {
  Activity activity{};
  Time begin{};
  Time end{};
  const char* what = "";   // valid until the program ends: "micro-batch", "all_reduce_sum", "receive", ...
  Step step{-1};           // the micro-batch's step, or the worker's last step; -1: none
  int micro_batch = -1;    // -1: not a micro-batch
  bool completed = false;  // a micro-batch that ran to its end, kept or not
  Duration duration() const { return end - begin; }
};

struct SpanLabel {
  const char* what = "algorithm";  // the default: time between two calls of the cluster
  Step step{-1};
  int micro_batch = -1;
};

inline SpanLabel label_of(const MicroBatch& micro_batch) {
  return {micro_batch_name, micro_batch.step, micro_batch.index};
}

// One transfer over a server's link.
struct LinkUse {
  Time begin{};
  Time end{};
  std::optional<Rank> other{};  // the participant at the other end; empty: a collective
};
// The transfers over a server's link in each direction, in order, with gaps between them.
struct LinkTracks {
  std::vector<LinkUse> in, out;
};

struct Timeline {
  std::vector<std::vector<Span>> tracks;  // by rank, servers last; each from the start of the run, without gaps
  std::vector<LinkTracks> links{};        // by server; empty if no transfer passed a shared link
  int workers = 0;
  Time end{};    // end of the run
  Time until{};  // end of the tracks: the end of the run, unless a limit cut them
  bool capped = false;
};

class SpanRecorder {
 public:
  // A participant's recording ends at the first limit, but completes a step that has begun. Workers share `spans`
  // equally, because one simulated worker may run far ahead. If there are servers, they share half of `spans`.
  struct Limits {
    Duration time = Duration::max();
    std::int64_t spans = std::numeric_limits<std::int64_t>::max();
  };

  SpanRecorder(int workers, int servers, const Limits& limits);

  // Adds a span from the end of the participant's last one to `end`, unless it is empty.
  void add(Rank rank, Activity activity, Time end, const SpanLabel& label);

  // Adds a transfer over a server's link. Transfers of one direction must be added in the order of their begins.
  void add_use(Rank server, bool is_in, const LinkUse& transfer);

  // The fate of a gradient of this worker that took `computed`.
  struct Fate {
    Rank worker{};
    Duration computed{};
    Activity is{};  // compute: kept; discarded: lost
  };
  // Records a fate. A gradient does not say which micro-batches are in it. So this function looks for undecided ones
  // that together take exactly `computed`: with servers the worker's first ones, without servers its last ones.
  // Undecided micro-batches count as kept, so without servers only losses need recording.
  void decide(const Fate& fate);
  void keep(Rank worker, Duration computed) {
    if (servers_ > 0) decide({worker, computed, Activity::compute});
  }
  void lose(Rank worker, Duration computed) { decide({worker, computed, Activity::discarded}); }

  // If the workers' spans are in another process, fates are only collected after collect_fates(). The other process
  // decides them in order.
  void collect_fates() { collected_.emplace(); }
  const std::optional<std::vector<Fate>>& collected_fates() const { return collected_; }

  // Removes the spans beyond `end` and returns their time, with all completed micro-batches as compute. Returns nullopt
  // if recording of this participant ended earlier.
  struct Removed {
    Account account;
    Duration micro_batches{};  // compute time that was spent in micro-batches
  };
  std::optional<Removed> remove_beyond(Rank rank, Time end);

  // Extends each track by waiting to `end`, the end of the run, and returns all tracks.
  Timeline finish(Time end);

  // The following functions move a participant's spans to another recorder with the same limits.
  const Limits& limits() const { return limits_; }
  const std::vector<Span>& spans(Rank rank) const { return tracks_[rank].spans; }
  bool stopped(Rank rank) const { return tracks_[rank].stopped; }
  void stop(Rank rank) { tracks_[rank].stopped = true; }
  void move_in(Rank rank, const std::vector<Span>& spans);

 private:
  struct Track {
    std::vector<Span> spans;
    std::vector<std::size_t> open;  // indices of micro-batches in `spans` whose fate is undecided
    std::int64_t most_spans = 0;
    Time at{};          // end of the last span, recorded or not
    Time stopped_at{};  // end of the last recorded span
    // The time of the micro-batches after stopped_at, because one fate may concern them and recorded ones. With
    // servers: cumulative, after each micro-batch; without servers: only the total.
    std::vector<Duration> unrecorded;
    Step step{-1};
    bool stopped = false;
  };
  struct LinkWay {
    std::vector<LinkUse> transfers;
    Time stopped_at{};  // begin of the first unrecorded transfer
    bool stopped = false;
  };
  struct Run {
    std::size_t first = 0;  // index into `open`
    std::size_t count = 0;
  };

  std::optional<Run> find_run(const Track& track, Duration total, bool of_one_step) const;
  static std::optional<Run> find_begun_run(const Track& track, Duration total);
  static void decide_run(Track& track, const Run& run, Activity fate);
  void decide_amount(Track& track, Duration amount, Activity fate) const;

  int workers_;
  int servers_;
  Limits limits_;
  ByRank<Track> tracks_;
  std::vector<LinkWay> link_ways_;  // per server its incoming, then its outgoing link; empty before any transfer
  std::optional<std::vector<Fate>> collected_;
};

// A row of steps.csv: a step that all workers take together, or the workers' own steps until they synchronise.
struct StepRow {
  Step step{};  // at the end of the row
  Time end{};
  Duration duration{};
  std::int64_t kept = 0;
  std::int64_t dropped = 0;
  Step period{};  // the longest Contribution::period
  Bytes bytes{};  // sent by all workers during the row

  void add(const Contribution& part) {
    kept += part.kept;
    dropped += part.dropped();
    step = std::max(step, part.step);
    period = std::max(period, part.period);
  }
  // Merges a part of the same row that was summed separately. The row ends when its last part ends.
  void merge(const StepRow& part) {
    add({.kept = part.kept, .planned = part.kept + part.dropped, .step = part.step, .period = part.period});
    end = std::max(end, part.end);
    bytes += part.bytes;
  }
};

// Whether workers or servers decide which gradients are kept.
enum class DecidedBy { workers, servers };

// How many of a worker's micro-batches were computed, kept and dropped, and how much computation time that was.
struct Tally {
  std::int64_t computed = 0;   // micro-batches whose gradients exist
  std::int64_t cancelled = 0;  // micro-batches that a message cut short
  std::int64_t kept = 0;       // micro-batches that are in a model
  std::int64_t missing = 0;    // planned micro-batches that workers have left out of their sums
  Duration kept_time{};
  Duration computed_time{};
  Duration discarded_time{};  // of gradients that workers have discarded

  // Only servers know which micro-batches they keep. All others that were begun count as dropped, their time as lost.
  std::int64_t dropped(DecidedBy who) const {
    return who == DecidedBy::servers ? computed + cancelled - kept : missing;
  }
  Duration lost_time(DecidedBy who) const {
    return who == DecidedBy::servers ? computed_time - kept_time : discarded_time;
  }

  // Adds another participant's tally of the same worker, because each participant may know only some of the fates.
  Tally& operator+=(const Tally& other);
};

// One participant's account: its time, and the fate of its micro-batches. Clusters book nowhere else, so that clock,
// account, spans, counts and rows agree.
class Book {
 public:
  Book() = default;
  Book(Rank self, Time begin, SpanRecorder* spans) : now_(begin), spans_(spans), self_(self) {}

  Time now() const { return now_; }

  // Books the time from now() to `end`; nothing if `end` has passed.
  void pass(Activity activity, Time end, const SpanLabel& label) {
    end = end > now_ ? end : now_;
    if (spans_) spans_->add(self_, activity, end, label);
    account_[activity] += end - now_;
    now_ = end;
  }

  // Advances the clock beyond the end of the run. This time is in no account.
  void pass_unbooked(Time end) {
    unbooked_ += end - now_;
    now_ = end;
  }

  // met_at(): the last time at which the participant met others. Since then its clock has run ahead of theirs.
  void meet() { met_at_ = now_; }
  Time met_at() const { return met_at_; }

  void compute(std::int64_t micro_batches, Duration time) {
    tally_.computed += micro_batches;
    tally_.computed_time += time;
  }
  void cancel() { ++tally_.cancelled; }
  void lose(Duration time) {
    if (spans_) spans_->lose(self_, time);
    tally_.discarded_time += time;
  }
  void keep(const BookedTime& work) {
    if (spans_) spans_->keep(self_, work.time);
    tally_.kept += work.micro_batches;
    tally_.kept_time += work.time;
  }
  // Books the worker's part of a row of steps.csv.
  void contribute(const Contribution& part, StepRow& row) {
    if (spans_) spans_->keep(self_, part.compute_time);
    tally_.kept += part.kept;
    tally_.missing += part.dropped();
    tally_.kept_time += part.compute_time;
    row.add(part);
  }
  // Counts micro-batches as dropped if they were planned for a row that never comes.
  void drop(std::int64_t micro_batches) { tally_.missing += micro_batches; }

  // The time as it was booked: work that was lost afterwards still counts as compute.
  const Account& account() const { return account_; }
  const Tally& tally() const { return tally_; }

  // The account up to `end`, the end of the run, with lost work as discarded. A worker has either waited for the end,
  // or run beyond it with work that came too late. `down_beyond`: the time of its outages after the end.
  Account account_at(Time end, Duration down_beyond, DecidedBy who) const;

  // Removes the time beyond `end`, also from the spans, because on a wall clock the end of the run is past when it
  // becomes known. Returns the removed compute time: with spans only that of micro-batches.
  Duration take_back(Time end);

  // Serialises everything except the owner and the spans.
  void serialise(auto& archive) { archive(now_, met_at_, unbooked_, account_, tally_); }

 private:
  Time now_ = start_time;
  Time met_at_ = start_time;
  Duration unbooked_{};
  Account account_;
  SpanRecorder* spans_ = nullptr;  // null: spans are not recorded
  Tally tally_;
  Rank self_{};
};

// The arrival of a gradient, or of a model to average, at a collective of all workers or at a server.
// Source:  Chen et al. 2016, Figures 3 and 4: the time of the k-th gradient since the start of its iteration.
struct GradientArrival {
  Time round_begin{};
  Step step{};  // at the end of the round: the step in steps.csv, or the server's own step
  Rank worker{};
  Duration since{};  // from round_begin to the arrival; negative if the previous round had not ended then
};

// Records arrivals at numbered rounds. Keeps the begin of each round, because an arrival may belong to an earlier one.
class NumberedRounds {
 public:
  // `into`: null if arrivals are not recorded. The first round begins at `begin`.
  NumberedRounds(std::vector<GradientArrival>* into, Time begin) : into_(into) { begin_next(begin); }

  void begin_next(Time at) {
    if (into_) begins_.push_back(at);
  }
  std::int64_t begun() const { return static_cast<std::int64_t>(begins_.size()); }
  // Round 0 ends with step 1.
  void arrive(std::int64_t round, Rank worker, Time at) {
    if (!into_ || round >= begun()) return;
    const Time begin = begins_[static_cast<std::size_t>(round)];
    into_->push_back({begin, Step{round + 1}, worker, at - begin});
  }

  void serialise(auto& archive) { archive(begins_); }

 private:
  std::vector<GradientArrival>* into_;
  std::vector<Time> begins_;  // by round
};

// How to evaluate methods in which each worker has its own model and there is no global model.
enum class IndividualModels {
  mean,  // evaluate the mean of the models
  each,  // evaluate each model and report the mean of the results
};

// The models of all workers at one time, as part of a publication.
struct ModelsOfWorkers {
  std::vector<WeightedState> models{};  // in the order of the ranks
  IndividualModels evaluated = IndividualModels::mean;
};

// A worker's model after a step, as the worker publishes it.
struct WorkerModel {
  Rank worker{};
  ModelStatePtr model{};  // null in time-only runs
  double weight = 1;      // in a mean, relative to the weights of the other workers' models
  IndividualModels evaluated = IndividualModels::mean;
  Step step{};
  Time time{};
  std::int64_t samples = 0;
  Bytes bytes{};
  double learning_rate = 0;
};

// The global model, as it is published.
struct Publication {
  ModelStatePtr model{};                    // null in time-only runs
  std::vector<ModelStatePtr> ensemble{};    // if not empty: instead evaluate the mean of these models' predictions
  ModelsOfWorkers own{};                    // if not empty: the models whose mean is `model`
  std::vector<MicroBatch> recalibration{};  // if not empty: first estimate BatchNorm statistics on these samples
  Step step{};                              // optimizer steps, as the experiment file counts them
  double surplus_steps = 0;                 // micro-batches that a worker planned beyond M per step, divided by M
  Time time{};
  std::int64_t samples = 0;  // samples that went into the model
  Bytes bytes{};
  double learning_rate = 0;
};

// Observes a run: closed rows of steps.csv, and models to evaluate. On the simulated cluster all calls come from the
// simulating thread. Under MPI only rank 0 (rows of collectives) and the publishing rank call it.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_row(const StepRow& row) = 0;
  // Takes no time, neither on the virtual clock nor on that of an MPI run.
  virtual void on_publish(const Publication& publication) = 0;
  // The learning rate of the first step, to record at step 0, if it differs from the file's schedule.
  virtual void on_first_rate(double) {}

  // Called after each step of a worker or a server, on the simulated cluster only.
  virtual bool wants_step_gradient(Step) const { return false; }
  virtual void on_step_gradient(Step, Time, const Gradient&) {}
  virtual bool wants_worker_models(Step) const { return false; }
  virtual void on_worker_model(WorkerModel&&) {}

  // For methods in which workers have their own models. Under MPI each observer receives only its own worker's models.
  // Whether the observer wants each worker's model after the worker has taken this step.
  virtual bool wants_individual_models(Step) const { return false; }
  virtual void on_individual_model(WorkerModel&&) {}
  virtual void on_individual_models_end(Rank) {}  // this worker publishes no more models
};

struct MicroBatchTime {
  Rank worker{};
  Step step{};  // step and index of the slot that decided the duration
  int index = 0;
  Duration duration{};
  Duration added{};  // its injected part: delays, and the slowdown of a slow worker that computes for real
};

// Optional records of a run, in addition to its rows and models. A record that is nullopt is off.
struct RunRecord {
  std::optional<SpanRecorder> spans{};
  std::optional<std::vector<MicroBatchTime>> durations{};
  std::optional<std::vector<GradientArrival>> arrivals{};
};

inline std::vector<GradientArrival>* arrivals_of(RunRecord* record) {
  return record && record->arrivals ? &*record->arrivals : nullptr;
}

struct RunTotals {
  Time end{};                           // T
  std::vector<Account> accounts;        // per worker (servers are not workers)
  std::vector<std::int64_t> kept;       // micro-batches per worker that are in a model
  std::vector<std::int64_t> dropped;    // micro-batches per worker that were begun or finished but are in no model
  std::vector<std::int64_t> staleness;  // [k]: number of gradients that a server kept k steps after their model
  // Bytes are counted in the same way for all networks (workers/time/network.hpp). Messages from workers to a server
  // are counted when they arrive, so that messages too late for the run are not counted. All others are counted when
  // sent.
  Bytes bytes{};
  std::int64_t collectives = 0;  // all-reduces, averages (including those of groups), gathers, broadcasts, barriers
  std::int64_t messages = 0;
  // Only for pace = "emulate" under MPI, where real arithmetic must fit into drawn durations; otherwise empty or 0.
  std::vector<std::int64_t> emulated;  // number of micro-batches with a drawn duration, per worker
  std::vector<std::int64_t> overruns;  // number of these that took longer than drawn
  Duration overrun_excess{};           // total excess over the drawn durations

  void add(const Account& account, const Tally& tally, DecidedBy who) {
    accounts.push_back(account);
    kept.push_back(tally.kept);
    dropped.push_back(tally.dropped(who));
  }
};

// The rows of steps.csv of a run, in order. Every cluster closes its rows here.
class StepRows {
 public:
  explicit StepRows(RunObserver* observer) : observer_(observer) {}  // `observer` may be null

  // Closes a row. It lasts from the end of the previous row and includes the bytes sent since then.
  void close(StepRow row, Time end, Bytes sent_so_far) {
    row.end = end;
    row.duration = end - std::exchange(begin_, end);
    row.bytes = sent_so_far - std::exchange(sent_, sent_so_far);
    if (observer_) observer_->on_row(row);
  }

  void close(Collective::Kind kind, const StepRow& row, Time end, Bytes sent_so_far) {
    if (is_row(kind, row)) close(row, end, sent_so_far);
  }
  static bool is_row(Collective::Kind kind, const StepRow& row) {
    return properties_of(kind).makes_row || row.kept + row.dropped > 0;
  }

  Time begin() const { return begin_; }
  Bytes sent() const { return sent_; }

  void serialise(auto& archive) { archive(begin_, sent_); }

 private:
  RunObserver* observer_;
  Time begin_ = start_time;  // end of the last closed row
  Bytes sent_{};             // until then
};

}  // namespace syncopate
