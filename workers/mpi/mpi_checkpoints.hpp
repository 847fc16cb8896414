// Checkpoints of a run on the MPI cluster: how all ranks stop for one, and the log by which a restarted rank comes back
// to the call at which it had stopped.
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
  void stop_if_called() {
    if (!store_ || monotonic_ns() < next_look_ns_) return;
    constexpr std::int64_t look_every_ns = 1'000'000;
    next_look_ns_ = monotonic_ns() + look_every_ns;
    if (const auto number = called_for()) stop(*number);
  }

 private:
  struct CheckpointStop {
    Time at{};                         // by the latest clock
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
  Answer next_answer(Call call) {
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
    if (replays(call)) return next_answer<Answer>(call);
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
