// Where the time, the micro-batches and the bytes of a run go: accounts, spans, rows of steps.csv, and totals.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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

// Every worker-second is exactly one of these five; over all workers they sum to N x T.
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

// A part of a participant's time, for timelines; a participant's spans have neither gaps nor overlaps. Work whose
// gradient is dropped later becomes discarded work, so that the spans of a worker sum to its Account.
struct Span {
  Activity activity{};
  Time begin{};
  Time end{};
  const char* what = "";   // lives as long as the program: "micro-batch", "all_reduce_sum", "receive", ...
  Step step{-1};           // of the micro-batch, or of the worker's last one; -1: none
  int micro_batch = -1;    // -1: not one
  bool completed = false;  // a micro-batch that came to its end, kept or not
  Duration duration() const { return end - begin; }
};

struct SpanLabel {
  const char* what = "algorithm";  // between the calls
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
  std::optional<Rank> other{};  // who sends it, or gets it; none: a collective's
};
// The transfers over a server's link, one after the other, with gaps.
struct LinkTracks {
  std::vector<LinkUse> in, out;
};

struct Timeline {
  std::vector<std::vector<Span>> tracks;  // by rank, servers last; each from the start, without gaps
  std::vector<LinkTracks> links{};        // by server; empty where nothing passed a link that is shared
  int workers = 0;
  Time end{};    // of the run
  Time until{};  // of the tracks: the run's end, unless a limit cut them
  bool capped = false;
};

class SpanRecorder {
 public:
  // Recording ends at the first limit; the spans of a step that has begun still come in. Workers share the number of
  // spans equally (with servers half of it, the servers the other half), since one simulated worker may run far ahead.
  struct Limits {
    Duration time = Duration::max();
    std::int64_t spans = std::numeric_limits<std::int64_t>::max();
  };

  SpanRecorder(int workers, int servers) : SpanRecorder(workers, servers, Limits{}) {}
  SpanRecorder(int workers, int servers, const Limits& limits);

  // Begins where the participant's last span has ended; ignored if it ends there, too. Negative numbers: see Span.
  void add(Rank rank, Activity activity, Time end, const char* what) { add(rank, activity, end, what, Step{-1}, -1); }
  void add(Rank rank, Activity activity, Time end, const char* what, Step step, int micro_batch);

  // A transfer over the link of a server; those of one way come in the order of their begins.
  void add_use(Rank server, bool is_in, const LinkUse& transfer);

  // The fate of a gradient that took the worker so long. A gradient does not say which micro-batches it is made of:
  // they are taken to be undecided ones that last so long together, with servers the worker's first ones, else the
  // last. Micro-batches that stay undecided are kept, so that without servers only losses count.
  void keep(Rank worker, Duration computed) {
    if (servers_ > 0) decide(worker, computed, Activity::compute);
  }
  void lose(Rank worker, Duration computed) { decide(worker, computed, Activity::discarded); }

  // Where a worker's spans are in another process, its fates are collected here, and decided there in their order.
  struct Fate {
    Rank worker{};
    Duration computed{};
    Activity is{};  // compute: kept
  };
  void collect_fates() { collected_.emplace(); }
  const std::optional<std::vector<Fate>>& collected_fates() const { return collected_; }
  void decide(const Fate& fate) { decide(fate.worker, fate.computed, fate.is); }

  // Removes the spans beyond `end`, and returns their time, as it was added; nothing if recording has ended before.
  struct Removed {
    Account account;
    Duration micro_batches{};  // the part of compute that was micro-batches
  };
  std::optional<Removed> remove_beyond(Rank rank, Time end);

  // Ends all tracks at `end`, the end of the run, by waiting.
  Timeline finish(Time end);

  // To move a participant's spans to another recorder of the same limits.
  const Limits& limits() const { return limits_; }
  const std::vector<Span>& spans(Rank rank) const { return tracks_[rank].spans; }
  bool stopped(Rank rank) const { return tracks_[rank].stopped; }
  void stop(Rank rank) { tracks_[rank].stopped = true; }
  void move_in(Rank rank, const std::vector<Span>& spans);

 private:
  struct Track {
    std::vector<Span> spans;
    std::vector<std::size_t> open;  // micro-batches without a fate
    std::int64_t most_spans = 0;
    Time at{};          // the end of the last span, also if it was not recorded
    Time stopped_at{};  // of the last one that was
    // The time of unrecorded micro-batches since then, whose fates may include open ones: summed up to each of them,
    // and without servers up to the last.
    std::vector<Duration> unrecorded;
    Step step{-1};
    bool stopped = false;
  };
  struct LinkWay {
    std::vector<LinkUse> transfers;
    Time stopped_at{};  // the begin of the first that was not recorded
    bool stopped = false;
  };
  struct Run {
    std::size_t first = 0;  // in `open`
    std::size_t count = 0;
  };

  void decide(Rank worker, Duration computed, Activity fate);
  std::optional<Run> find_run(const Track& track, Duration total, bool of_one_step) const;
  static std::optional<Run> find_begun_run(const Track& track, Duration total);
  static void decide_run(Track& track, const Run& run, Activity fate);
  void decide_amount(Track& track, Duration amount, Activity fate) const;

  int workers_;
  int servers_;
  Limits limits_;
  ByRank<Track> tracks_;
  std::vector<LinkWay> link_ways_;  // of servers, the way in and the way out of each; empty before the first transfer
  std::optional<std::vector<Fate>> collected_;
};

Account account_of(const std::vector<Span>& spans);

// A row of steps.csv: a step that all take together, or their own steps until they synchronise.
struct StepRow {
  Step step{};  // at its end
  Time end{};
  Duration duration{};
  std::int64_t kept = 0;
  std::int64_t dropped = 0;
  Step period{};  // the longest of its workers
  Bytes bytes{};  // sent in it, over all workers

  void add(const Contribution& part) {
    kept += part.kept;
    dropped += part.dropped();
    step = std::max(step, part.step);
    period = std::max(period, part.period);
  }
  // Adds a part of the same row that was added up separately. The row ends with the last part.
  void merge(const StepRow& part) {
    add({.kept = part.kept, .planned = part.kept + part.dropped, .step = part.step, .period = part.period});
    end = std::max(end, part.end);
    bytes += part.bytes;
  }
};

// Who decides which of a run's gradients are kept.
enum class DecidedBy { workers, servers };

// The fate of a worker's micro-batches: their number, and the time that they took.
class Tally {
 public:
  // Their gradients exist; a message has ended one.
  void compute(std::int64_t micro_batches, Duration time) {
    computed_ += micro_batches;
    computed_time_ += time;
  }
  void cancel() { ++cancelled_; }
  // They are in a model, or planned and never will be.
  void contribute(const Contribution& part) {
    kept_ += part.kept;
    dropped_ += part.dropped();
    kept_time_ += part.compute_time;
  }
  void keep(const BookedTime& work) {
    kept_ += work.micro_batches;
    kept_time_ += work.time;
  }
  void drop(std::int64_t micro_batches) { dropped_ += micro_batches; }
  void lose(Duration time) { lost_time_ += time; }

  std::int64_t kept() const { return kept_; }
  Duration kept_time() const { return kept_time_; }
  // Servers alone know what they keep: all other micro-batches that were begun are dropped, and their time is lost.
  std::int64_t dropped(DecidedBy who) const {
    return who == DecidedBy::servers ? computed_ + cancelled_ - kept_ : dropped_;
  }
  Duration lost_time(DecidedBy who) const {
    return who == DecidedBy::servers ? computed_time_ - kept_time_ : lost_time_;
  }

  // Several participants may each know a part.
  Tally& operator+=(const Tally& other);
  using Numbers = std::array<std::int64_t, 7>;
  Numbers numbers() const { return std::bit_cast<Numbers>(*this); }
  static Tally of(const Numbers& numbers) { return std::bit_cast<Tally>(numbers); }

 private:
  std::int64_t computed_ = 0;
  std::int64_t cancelled_ = 0;
  std::int64_t kept_ = 0;
  std::int64_t dropped_ = 0;
  Duration kept_time_{};
  Duration computed_time_{};
  Duration lost_time_{};
};

// One participant's book: its time, and the fate of its micro-batches. All clusters enter both here and nowhere else,
// so that clock, account, spans, counts and rows agree.
class Book {
 public:
  Book() = default;
  // `spans`: null where none are asked for.
  Book(Rank self, Time begin, SpanRecorder* spans) : now_(begin), spans_(spans), self_(self) {}

  Time now() const { return now_; }

  // Time passes until `end`; none if that is past.
  void pass(Activity activity, Time end, const SpanLabel& label) {
    end = end > now_ ? end : now_;
    if (spans_) spans_->add(self_, activity, end, label.what, label.step, label.micro_batch);
    account_[activity] += end - now_;
    now_ = end;
  }

  // Time passes after the end of the run, and is in no account.
  void pass_unbooked(Time end) {
    unbooked_ += end - now_;
    now_ = end;
  }

  // The last time that it met others: since then its clock has run ahead.
  void meet() { met_at_ = now_; }
  Time met_at() const { return met_at_; }

  // Micro-batches have come to their end, in this time; a message has ended one.
  void compute(std::int64_t micro_batches, Duration time) { tally_.compute(micro_batches, time); }
  void cancel() { tally_.cancel(); }
  void lose(Duration time) {
    if (spans_) spans_->lose(self_, time);
    tally_.lose(time);
  }
  // A server keeps it.
  void keep(const BookedTime& work) {
    if (spans_) spans_->keep(self_, work.time);
    tally_.keep(work);
  }
  // The worker's part of a row of steps.csv.
  void contribute(const Contribution& part, StepRow& row) {
    if (spans_) spans_->keep(self_, part.compute_time);
    tally_.contribute(part);
    row.add(part);
  }
  // They were planned for a row that does not come any more.
  void drop(std::int64_t micro_batches) { tally_.drop(micro_batches); }

  // As time has passed: work that was lost later counts as computed.
  const Account& account() const { return account_; }
  const Tally& tally() const { return tally_; }

  // The account up to the end of the run, with lost work: the worker has waited for the end, or has run beyond it with
  // work that came too late. `down_beyond`: the time of outages after the end.
  Account account_at(Time end, Duration down_beyond, DecidedBy who) const;

  // On a wall clock the end is past by the time that it is known. Takes back the time beyond it, from the spans too,
  // and returns how much of that was compute (of micro-batches alone where spans tell them apart).
  Duration take_back(Time end);

  // Archives all but its owner and the spans.
  template <typename Archive>
  void serialise(Archive& archive) {
    archive(now_, met_at_, unbooked_, account_, tally_);
  }

 private:
  Time now_ = start_time;
  Time met_at_ = start_time;
  Duration unbooked_{};
  Account account_;
  SpanRecorder* spans_ = nullptr;
  Tally tally_;
  Rank self_{};
};

// When gradients, or models to be averaged, arrive at a collective of all workers, or at a server.
// Source:  Chen et al. 2016, Figures 3 and 4: the time of the k-th gradient since its iteration began.
struct GradientArrival {
  Time round_begin{};
  Step step{};  // at the round's end: that of the row of steps.csv, or the server's own
  Rank worker{};
  Duration since{};  // the round began; negative if its part was started before the round before had ended
};

// Numbered rounds, where an arrival may belong to an earlier one.
class NumberedRounds {
 public:
  // `into`: null where arrivals are not recorded; then nothing is kept. The first round begins here.
  NumberedRounds(std::vector<GradientArrival>* into, Time begin) : into_(into) { begin_next(begin); }

  void begin_next(Time at) {
    if (into_) begins_.push_back(at);
  }
  std::int64_t begun() const { return static_cast<std::int64_t>(begins_.size()); }
  // Round 0 leads to step 1.
  void arrive(std::int64_t round, Rank worker, Time at) {
    if (!into_ || round >= begun()) return;
    const Time begin = begins_[static_cast<std::size_t>(round)];
    into_->push_back({begin, Step{round + 1}, worker, at - begin});
  }

 private:
  std::vector<GradientArrival>* into_;
  std::vector<Time> begins_;  // by round
};

// The evaluation of methods in which each worker has its own model, and nobody that of all.
enum class IndividualModels {
  mean,  // their mean
  each,  // every one; the mean of the results is reported
};

// "These are the models of all workers now."
struct ModelsOfWorkers {
  std::vector<WeightedState> models{};  // in the order of the ranks
  IndividualModels evaluated = IndividualModels::mean;
};

// "This is my model now." A worker's, after a step.
struct WorkerModel {
  Rank worker{};
  ModelStatePtr model{};  // null in time-only runs
  double weight = 1;      // among all
  IndividualModels evaluated = IndividualModels::mean;
  Step step{};
  Time time{};
  std::int64_t samples = 0;
  Bytes bytes{};
  double learning_rate = 0;
};

// "This is the global model now."
struct Publication {
  ModelStatePtr model{};                    // null in time-only runs
  std::vector<ModelStatePtr> ensemble{};    // if not empty: evaluate the mean of their predictions instead
  ModelsOfWorkers own{};                    // if not empty: whose mean `model` is
  std::vector<MicroBatch> recalibration{};  // if not empty: estimate BatchNorm statistics on these before evaluating
  Step step{};                              // in steps of the experiment file
  double surplus_steps = 0;                 // what its steps were planned with beyond M micro-batches each, in steps
  Time time{};
  std::int64_t samples = 0;  // that went into the model
  Bytes bytes{};
  double learning_rate = 0;
};

// Listens to a run: rows of steps.csv that have ended, and models to evaluate. On the simulated cluster all calls come
// from the simulating thread; under MPI only rank 0 (rows of collectives) and the publishing rank call.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_row(const StepRow& row) = 0;
  // Costs no time on either clock.
  virtual void on_publish(const Publication& publication) = 0;
  // For the row of step 0: the learning rate of the first step, if it differs from the file's schedule.
  virtual void on_first_rate(double) {}

  // Called after a step of each worker or a server, on the simulated cluster alone.
  virtual bool wants_step_gradient(Step) const { return false; }
  virtual void on_step_gradient(Step, Time, const Gradient&) {}
  virtual bool wants_worker_models(Step) const { return false; }
  virtual void on_worker_model(WorkerModel&&) {}

  // For methods in which workers have their own models. Under MPI each observer hears of its own worker alone.
  virtual bool wants_individual_models(Step) const { return false; }  // after this step, of each worker
  virtual void on_individual_model(WorkerModel&&) {}
  virtual void on_individual_models_end(Rank) {}  // this worker has no further ones
};

// A micro-batch that has come to its end.
struct MicroBatchTime {
  Rank worker{};
  Step step{};  // and index: of the slot that decided the duration
  int index = 0;
  Duration duration{};
  Duration added{};  // the injected part: by delays, and, where a slow worker computes for real, by its factor
};

// Records that a run can keep beside its rounds and models; empty ones are off.
struct RunRecord {
  std::optional<SpanRecorder> spans{};
  std::optional<std::vector<MicroBatchTime>> durations{};
  std::optional<std::vector<GradientArrival>> arrivals{};
};

inline std::vector<GradientArrival>* arrivals_of(RunRecord* record) {
  return record && record->arrivals ? &*record->arrivals : nullptr;
}

// The totals of a run.
struct RunTotals {
  Time end{};                           // T
  std::vector<Account> accounts;        // per worker (the server is not a worker)
  std::vector<std::int64_t> kept;       // micro-batches per worker that ended up in a model
  std::vector<std::int64_t> dropped;    // micro-batches per worker, begun or finished, that did not
  std::vector<std::int64_t> staleness;  // [k]: gradients that a server kept k steps after their model
  // Bytes are counted in the same way for all networks (workers/time/network.hpp). Messages from workers to a server
  // count once they have reached it, so that those too late for the run do not; others count when sent.
  Bytes bytes{};
  std::int64_t collectives = 0;  // all-reduces, averages (of a group too), gathers, broadcasts, barriers
  std::int64_t messages = 0;
  // For pace = "emulate" under MPI, where real arithmetic is to fit into drawn durations; else empty or 0.
  std::vector<std::int64_t> emulated;  // micro-batches with a drawn duration, per worker
  std::vector<std::int64_t> overruns;  // of these, how many took longer
  Duration overrun_excess{};           // by how much, together

  void add(const Account& account, const Tally& tally, DecidedBy who) {
    accounts.push_back(account);
    kept.push_back(tally.kept());
    dropped.push_back(tally.dropped(who));
  }
};

// The rows of steps.csv of a run, in their order: every cluster closes its rows here.
class StepRows {
 public:
  // `observer` may be null. The first row begins with the run, or where another cluster has left off.
  explicit StepRows(RunObserver* observer, Time begin = start_time, Bytes sent = {})
      : observer_(observer), begin_(begin), sent_(sent) {}

  // A row lasts from the end of the row before, and has the bytes sent since then.
  void close(StepRow row, Time end, Bytes sent_so_far) {
    row.end = end;
    row.duration = end - std::exchange(begin_, end);
    row.bytes = sent_so_far - std::exchange(sent_, sent_so_far);
    if (observer_) observer_->on_row(row);
  }

  // Closes a row if the collective of all workers makes one.
  void close(Collective::Kind kind, const StepRow& row, Time end, Bytes sent_so_far) {
    if (is_row(kind, row)) close(row, end, sent_so_far);
  }
  static bool is_row(Collective::Kind kind, const StepRow& row) {
    return properties_of(kind).makes_row || row.kept + row.dropped > 0;
  }

  Time begin() const { return begin_; }
  Bytes sent() const { return sent_; }

 private:
  RunObserver* observer_;
  Time begin_;
  Bytes sent_;
};

}  // namespace syncopate
