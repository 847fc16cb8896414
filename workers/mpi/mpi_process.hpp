// One rank's part in a run on the MPI cluster: its micro-batches, the totals and records of all ranks, and checkpoints.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

// The time and the arithmetic of micro-batches on an MPI rank.
class MpiMicroBatches {
 public:
  MpiMicroBatches(MpiRunState& state, MpiWaiting& waiting, const MpiCollectives& collectives,
                  MpiPartialSums& partial_sums, const MpiMessages& messages)
      : state_(state), waiting_(waiting), collectives_(collectives), partial_sums_(partial_sums), messages_(messages) {
    if (state.options.outages && state.is_worker()) outages_ = state.options.outages->of(state.self);
  }

  // Thrown through the program of a worker in a micro-batch without an end, once all others have ended.
  struct EndlessMicroBatch {};

  // See Cluster.
  std::optional<Gradient> compute(const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                  const Deadline& deadline);
  // The outcome of the last one; a replay makes the same of it.
  struct Outcome {
    bool is_evaluated = false;  // its gradient exists, kept or not
    bool is_kept = false;
    bool is_cut = false;  // by a deadline,
    double backward = 0;  // with this share of its backward pass done
    Duration spent{};
  };
  const Outcome& outcome() const { return outcome_; }
  std::optional<Gradient> computed_before(const ModelStatePtr& at, const MicroBatch& samples, const Outcome& outcome);
  bool may_lose_state() const { return outages_ && state_.options.outages->loses_state(state_.self); }
  bool has_lost_state() { return std::exchange(has_lost_state_, false); }

  // How well real arithmetic fits into drawn durations.
  struct Emulation {
    std::int64_t emulated = 0;  // micro-batches with a drawn duration
    std::int64_t overruns = 0;  // of these, how many took longer
    Duration overrun_excess{};  // by how much, together
  };
  const Emulation& emulation() const { return emulation_; }

  void serialise(StateArchive& archive) { archive(has_lost_state_, emulation_); }

 private:
  std::shared_ptr<GradientSum> promise(const ModelStatePtr& at, const MicroBatch& samples) const;
  std::shared_ptr<GradientSum> evaluate(const ModelStatePtr& at, const MicroBatch& samples);
  Duration book_passage(const MicroBatch& slot, const Passage& passage, bool kept);
  void count_overrun(Duration drawn, Duration measured);
  bool is_cancelled(const Deadline& deadline) {
    return deadline.at_message && state_.transport.has_first(MpiTransport::Kind::message);
  }
  void sleep_until(Time end, const Deadline& deadline, bool is_endless);
  [[noreturn]] void sleep_for_ever();

  MpiRunState& state_;
  MpiWaiting& waiting_;
  const MpiCollectives& collectives_;
  MpiPartialSums& partial_sums_;
  const MpiMessages& messages_;
  std::optional<WorkerOutages> outages_;
  bool has_lost_state_ = false;
  Emulation emulation_;
  Outcome outcome_;
};

// Totals of a run on the MPI cluster: every rank's part, summed over all.
class MpiTotals {
 public:
  MpiTotals(MpiRunState& state, MpiWaiting& waiting, MpiWaitRounds& rounds, const MpiMessages& messages,
            const MpiPartialSums& partial_sums, const MpiMicroBatches& micro_batches)
      : state_(state),
        waiting_(waiting),
        rounds_(rounds),
        messages_(messages),
        partial_sums_(partial_sums),
        micro_batches_(micro_batches) {}

  // See Cluster.
  void keep(const BookedTime& work, Step staleness);
  void report_steps(const Contribution& contribution);

  // Collective over all ranks, idle ones too, after their programs. `own_end`: of this one's.
  RunTotals add_up(Time own_end);
  // After that: the time computed beyond the end of the run, which is in no account.
  Duration cut_time() const { return cut_time_; }

  void serialise(StateArchive& archive) { archive(own_steps_, staleness_); }

 private:
  Time agree_on_end(Time own_end, std::size_t& staleness_size);
  std::vector<std::int64_t> own_sums(std::size_t staleness_size);
  RunTotals read_totals(std::span<const std::int64_t> sums, std::size_t staleness_size) const;
  void report_rows();

  MpiRunState& state_;
  MpiWaiting& waiting_;
  MpiWaitRounds& rounds_;
  const MpiMessages& messages_;
  const MpiPartialSums& partial_sums_;
  const MpiMicroBatches& micro_batches_;
  std::vector<StepRow> own_steps_;  // of a method without collectives
  std::vector<std::int64_t> staleness_;
  Duration cut_time_{};
};

// Archives this rank's record so far. A trace that has come to its limit lacks what was computed since then.
void serialise_record(StateArchive& archive, const MpiRunState& state);
// Collective over all ranks: the records of all ranks come together on rank 0. `cut_time`: see MpiTotals.
void gather_record(const MpiRunState& state, Duration cut_time, const MpiPartialSums& partial_sums);

// Rows of steps.csv of methods without collectives: every worker books its own steps, and after the run those of equal
// number become one row. Closes rows in ascending order of steps. Each worker's rows are in that order, each step once,
// with the bytes until then: its own, and servers' to it. A row ends with its last worker, and not before the row
// above.
void close_rows(const std::vector<std::vector<StepRow>>& by_worker, StepRows& rows);

// Stops all ranks of a run, and writes each one's part of a checkpoint.
//
// Rank 0 decides by its store that one is due, and calls for it. Each rank learns of it at its next call that may wait,
// in a wait, or in a sleep, and stops there; none waits for what another one would do. Then nothing is sent any more:
// - ranks receive the frames that are on their way, until each has all that was sent to it;
// - collectives that all of their members have come to go on to their end. For the others each rank keeps its part;
// - each rank writes its part, and once all have the run goes on. Clocks stand still meanwhile.
class MpiCheckpoints {
 public:
  // `write`: this rank's part, of a run that stands still at that time.
  using Write = std::function<void(ByteSink& out, Time at)>;
  MpiCheckpoints(MpiRunState& state, MpiCollectives& collectives, Write write)
      : state_(state), collectives_(collectives), write_(std::move(write)), store_(state.options.store) {}

  // Wherever a rank may stop, again and again: cheap. Throws LeftAtCheckpoint.
  void look() {
    if (!store_ || monotonic_ns() < next_look_ns_) return;
    constexpr std::int64_t look_every_ns = 1'000'000;
    next_look_ns_ = monotonic_ns() + look_every_ns;
    if (const auto number = called_for()) stop(*number);
  }

 private:
  struct CheckpointStop {
    Time at{};                         // by the latest clock
    std::int64_t collectives = 0;      // of all workers, that all of them have come to
    std::vector<std::int64_t> sent{};  // to this rank, by rank
  };
  std::optional<std::int64_t> called_for();
  void stop(std::int64_t number);
  CheckpointStop stand_still();
  void drive() {
    state_.transport.progress();
    collectives_.drive();
  }
  template <typename Number>
  std::vector<Number> gather(const std::vector<Number>& own, MPI_Datatype type, bool drives);

  MpiRunState& state_;
  MpiCollectives& collectives_;
  Write write_;
  RankStore* store_;
  std::int64_t next_look_ns_ = 0;
  std::int64_t number_ = 0;           // read by:
  std::vector<MPI_Request> calls_{};  // of rank 0
};

// Bytes in memory: written at the end, read from `next` on.
class StoredBytes : public ByteSink, public ByteSource {
 public:
  StoredBytes() = default;
  explicit StoredBytes(const std::vector<std::int64_t>& words)
      : bytes(reinterpret_cast<const char*>(words.data()), sizeof(std::int64_t) * words.size()) {}

  void write(const void* data, std::size_t size) override { bytes.append(static_cast<const char*>(data), size); }
  void read(void* data, std::size_t size) override;
  ByteSink& sink() { return *this; }
  ByteSource& source() { return *this; }
  std::vector<std::int64_t> words() const;  // with zeros at the end
  bool is_through() const { return next == bytes.size(); }

  std::string bytes;
  std::size_t next = 0;
};

// Log of everything the cluster returned to this rank's program, call by call, a few bytes each. Gradients and models
// stand in it by their numbers (CheckpointLog), not their values.
//
// A restarted process replays it: it answers the program's calls from here, without arithmetic, waiting or
// communication, until the call at which the ranks had stopped. Then the parts get their state, and that call goes on.
class MpiReplayLog {
 public:
  // A call of Cluster, or what happened meanwhile.
  enum class Call : std::uint8_t {
    now,
    has_left,
    workers_left,
    has_lost_state,
    bytes_sent,
    compute,
    start,  // of a collective, whether or not its worker waits then
    finish,
    receive,
    endless_micro_batch,  // the end of a program (MpiMicroBatches::EndlessMicroBatch)
    row,                  // no call: a row of steps.csv, for the observer
    end,                  // no call: the end of the program
  };

  // Where a rank stands when it stops.
  struct Position {
    Call call{};
    bool is_inside = false;    // it has begun to wait; else it has not begun
    std::uint64_t values = 0;  // made by the time that the call began
  };

  // `log` null: nothing is noted. A replay tells `observer` (may be null) of rows again.
  MpiReplayLog(CheckpointLog* log, RunObserver* observer) : log_(log), observer_(observer) {}
  MpiReplayLog(const MpiReplayLog&) = delete;
  MpiReplayLog& operator=(const MpiReplayLog&) = delete;

  bool is_kept() const { return log_ != nullptr; }
  bool replays() const { return replays_; }

  // Whether this call is answered from the log. Calls `at_end` at the end of the log; later calls are not.
  bool replays(Call call);
  std::function<void()> at_end;
  // The answer that this call had.
  template <typename Answer>
  Answer outcome(Call call) {
    Answer answer{};
    take(call);
    StateArchive(calls_.source())(answer);
    return answer;
  }
  bool next_is(Call call) const { return replays_ && !calls_.is_through() && next() == call; }

  // Notes what is answered now.
  template <typename Answer>
  void record(Call call, const Answer& answer) {
    if (!is_kept()) return;
    calls_.bytes.push_back(static_cast<char>(call));
    Answer written = answer;
    StateArchive(calls_.sink())(written);
  }
  template <typename Answer, typename Ask>
  Answer answered(Call call, const Ask& ask) {
    if (!is_kept()) return ask();
    if (replays(call)) return outcome<Answer>(call);
    const Answer answer = ask();
    record(call, answer);
    return answer;
  }

  // Begins a call that may wait: a place to stop. False where the run goes on from within it.
  bool enter(Call call) {
    if (!is_kept()) return true;
    if (std::exchange(has_just_resumed_, false)) return !position_.is_inside;
    position_ = {.call = call, .is_inside = false, .values = log_->last_number()};
    return true;
  }
  void wait() { position_.is_inside = true; }
  const Position& position() const { return position_; }

  void write(ByteSink& out) {
    log_->write_log(out, position_.values);
    StateArchive archive(out);
    archive(position_, calls_.bytes);
  }
  // At the beginning: the run replays that log.
  void follow(ByteSource& in) {
    log_->follow(in);
    StateArchive archive(in);
    archive(position_, calls_.bytes);
    calls_.next = 0;
    replays_ = true;
  }

 private:
  Call next() const { return static_cast<Call>(calls_.bytes[calls_.next]); }
  void replay_rows();
  void take(Call call) {
    if (next() != call) throw ReplayMismatch("it makes another call than it had made");
    ++calls_.next;
  }

  CheckpointLog* log_;
  RunObserver* observer_;
  StoredBytes calls_;  // each with its answer
  bool replays_ = false;
  bool has_just_resumed_ = false;
  Position position_;
};

// Tells an observer of rows, and notes them. Programs repeat all other calls of the observer.
class LoggedRows : public RunObserver {
 public:
  LoggedRows(MpiReplayLog& replay_log, RunObserver* observer) : replay_log_(replay_log), observer_(observer) {}
  void on_row(const StepRow& row) override {
    replay_log_.record(MpiReplayLog::Call::row, row);
    observer_->on_row(row);
  }
  void on_publish(const Publication& publication) override { observer_->on_publish(publication); }

 private:
  MpiReplayLog& replay_log_;
  RunObserver* observer_;
};

}  // namespace syncopate
