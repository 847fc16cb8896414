// Checkpoints of a run on the MPI cluster: how all ranks stop for a checkpoint, and the log by which a restarted rank
// returns to the call at which it had stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// Stops all ranks of a run and writes each rank's part of a checkpoint. Rank 0 asks its store whether a checkpoint is
// due and announces it. The other ranks notice the announcement at the start of their next call that may wait, in a
// wait or in a sleep. They stop there, even if they wait for another rank. Stopped ranks send no new messages:
// - Ranks receive until each rank has every frame that was sent to it.
// - Collectives that all members have entered are finished. For the other collectives each rank saves its contribution.
// - Each rank writes its part. The run continues once all parts are written. Clocks stand still until then.
class MpiCheckpoints {
 public:
  // Writes this rank's part of a checkpoint, for a run that has stopped at time `at`.
  using Write = std::function<void(ByteSink& out, Time at)>;
  MpiCheckpoints(MpiRunState& state, MpiCollectives& collectives, Write write)
      : state_(state), collectives_(collectives), write_(std::move(write)), store_(state.options.store) {}

  // Call it repeatedly wherever a rank may stop; it is cheap. Throws LeftAtCheckpoint if the run ends at a checkpoint.
  void stop_if_called() {
    if (!store_ || monotonic_ns() < next_look_ns_) return;
    constexpr std::int64_t look_every_ns = 1'000'000;
    next_look_ns_ = monotonic_ns() + look_every_ns;
    if (const auto number = called_for()) stop(*number);
  }

 private:
  struct CheckpointStop {
    Time at{};                         // latest time of any rank's clock
    std::vector<std::int64_t> sent{};  // frames sent to this rank, by sender
  };
  std::optional<std::int64_t> called_for();
  void stop(std::int64_t number);
  CheckpointStop stand_still();
  void drive() {
    state_.transport.progress();
    collectives_.drive();
  }
  template <typename Number>
  std::vector<Number> gather(const std::vector<Number>& own, bool drives) {
    const MpiCommunicators& communicators = state_.communicators;
    return gather_politely(own, communicators.checkpoints(), communicators.cores_suffice(), [this, drives] {
      if (drives) drive();
    });
  }

  MpiRunState& state_;
  MpiCollectives& collectives_;
  Write write_;
  CheckpointStore* store_;
  std::int64_t next_look_ns_ = 0;
};

// Log of everything the cluster returned to this rank's program, call by call, a few bytes each. Gradients and models
// appear by their numbers (CheckpointLog), not their values. A restarted process replays the log: it answers the
// program's calls from the log, without arithmetic, waiting or communication, until the call at which the ranks
// stopped. There the state of the run is read from the checkpoint, and that call continues.
class MpiReplayLog {
 public:
  // A call of Cluster, or an event between calls.
  enum class Call : std::uint8_t {
    now,
    has_left,
    workers_left,
    has_lost_state,
    bytes_sent,
    compute,
    start,  // starts a collective, even if the worker waits for its result in the same call
    finish,
    has_ended,
    receive,
    endless_micro_batch,  // ends a program (MpiMicroBatches::EndlessMicroBatch)
    row,                  // not a call: a row of steps.csv, for the observer
    end,                  // not a call: the end of the program
  };

  // The call at which a rank stopped.
  struct Position {
    Call call{};
    bool is_inside = false;    // whether the call had begun to wait when the rank stopped
    std::uint64_t values = 0;  // number of values created before the call began
  };

  // `log`: null if nothing is logged. `observer`: gets logged rows again during a replay; may be null.
  MpiReplayLog(CheckpointLog* log, RunObserver* observer) : log_(log), observer_(observer) {}
  MpiReplayLog(const MpiReplayLog&) = delete;
  MpiReplayLog& operator=(const MpiReplayLog&) = delete;

  bool is_kept() const { return log_ != nullptr; }
  bool replays() const { return replays_; }

  // Whether this call is answered from the log. At the end of the log it calls `at_end` and ends the replay.
  bool replays(Call call);
  std::function<void()> at_end;
  // Returns the logged answer to the next call.
  template <typename Answer>
  Answer next_answer(Call call) {
    Answer answer{};
    take(call);
    StateArchive(calls_.source())(answer);
    return answer;
  }
  bool next_is(Call call) const { return replays_ && !calls_.is_through() && next() == call; }

  // Logs the answer that a call gets now.
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
    if (replays(call)) return next_answer<Answer>(call);
    const Answer answer = ask();
    record(call, answer);
    return answer;
  }

  // Begins a call that may wait, at which a rank may stop. Returns false if the run has resumed inside this call.
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
  // Starts a replay of the log in `in`. Call it at the beginning of the run.
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
  StoredBytes calls_;  // each call is followed by its answer
  bool replays_ = false;
  bool has_just_resumed_ = false;
  Position position_;
};

// Logs rows and passes them to an observer. Other calls of the observer are not logged, because a replay repeats them.
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
