// What an MPI rank's program has been told by the cluster, call by call: so another process can take it through the
// same course again: a few bytes each. Values (gradients, models) are not in it: their numbers are (CourseLog).
//
// A run that is taken up answers from here, without arithmetic, waiting, or communication, until the call at which the
// ranks had stopped; the state of the cluster's parts is put in place then, and that call goes on as the others do.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/cluster/accounting.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// Where all ranks of a run stand still, and each writes its part of a checkpoint.
//
// Rank 0 decides by its store that one is due, and calls for it. Each rank hears of it at its next call that may wait,
// in a wait, or in a sleep, and stops there; none waits for what another one would do. Then nothing is sent any more:
// - letters that are on their way are taken in, until each rank has all that was sent to it;
// - collectives that all of their members have come to go on to their end. Of others each rank keeps what it brings;
// - each rank writes its part, and once all have the run goes on. What that takes is in no account: clocks stand still.
class MpiCheckpoints {
 public:
  // `write`: this rank's part, of a run that stands still at that time.
  using Write = std::function<void(ByteSink& out, Time at)>;
  MpiCheckpoints(MpiStage& stage, MpiCollectives& collectives, Write write)
      : stage_(stage), collectives_(collectives), write_(std::move(write)), store_(stage.options.store) {}

  // Wherever a rank may stop, again and again: cheap. Throws LeftAtCheckpoint.
  void look();

 private:
  struct Standstill {
    Time at{};                         // by the latest clock
    std::int64_t collectives = 0;      // of all workers, that all of them have come to
    std::vector<std::int64_t> sent{};  // to this rank, by rank
  };
  std::optional<std::int64_t> called_for();
  void stop(std::int64_t number);
  Standstill stand_still();
  bool has_all(const Standstill& standstill);
  void drive();
  template <typename Number>
  std::vector<Number> gather(const std::vector<Number>& own, MPI_Datatype type, bool drives);

  MpiStage& stage_;
  MpiCollectives& collectives_;
  Write write_;
  RankStore* store_;
  std::int64_t next_look_ns_ = 0;
  std::int64_t number_ = 0;           // read by:
  std::vector<MPI_Request> calls_{};  // of rank 0
};

class MpiCourse {
 public:
  // A call of Cluster, or what it told meanwhile.
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
    never_heard_of_again,  // the end of a program (MpiMicroBatches::NeverHeardOfAgain)
    row,                   // not a call: a row of steps.csv, for the observer
    end,                   // nor that: of the program
  };

  // Where a rank stands when it stops.
  struct Position {
    Call call{};
    bool is_inside = false;    // it has begun to wait; else it has not begun
    std::uint64_t values = 0;  // that had been made when the call began
  };

  // `log` null: nothing is noted. `observer` (may be null) is told of rows again.
  MpiCourse(CourseLog* log, RunObserver* observer) : log_(log), observer_(observer) {}
  MpiCourse(const MpiCourse&) = delete;
  MpiCourse& operator=(const MpiCourse&) = delete;

  bool is_kept() const { return log_ != nullptr; }
  bool replays() const { return replays_; }

  // Whether this call is answered from the course. At its end calls `at_end`, from where on it is not.
  bool replays(Call call);
  std::function<void()> at_end;
  // Of a call whose answer is as it was.
  template <typename Answer>
  Answer told(Call call) {
    Answer answer{};
    take(call);
    StateArchive archive(static_cast<ByteSource&>(source_));
    archive(answer);
    return answer;
  }
  bool comes(Call call) const { return replays_ && !is_through() && next() == call; }

  // What is answered now.
  template <typename Answer>
  void note(Call call, const Answer& answer) {
    if (!is_kept()) return;
    calls_.push_back(static_cast<char>(call));
    StateArchive archive(static_cast<ByteSink&>(sink_));
    Answer written = answer;
    archive(written);
  }
  template <typename Answer, typename Ask>
  Answer answered(Call call, const Ask& ask) {
    if (!is_kept()) return ask();
    if (replays(call)) return told<Answer>(call);
    const Answer answer = ask();
    note(call, answer);
    return answer;
  }

  // A call begins that may wait: a place to stop. False where the run was taken up within it.
  bool enter(Call call);
  void wait() { position_.is_inside = true; }  // it has begun to
  const Position& position() const { return position_; }

  void write(ByteSink& out);
  // At the beginning: the run goes through that course.
  void follow(ByteSource& in);

 private:
  struct Sink : ByteSink {
    explicit Sink(std::string& bytes) : bytes(bytes) {}
    void write(const void* data, std::size_t size) override { bytes.append(static_cast<const char*>(data), size); }
    std::string& bytes;
  };
  struct Source : ByteSource {
    explicit Source(MpiCourse& course) : course(course) {}
    void read(void* data, std::size_t size) override;
    MpiCourse& course;
  };

  bool is_through() const { return next_ == calls_.size(); }
  Call next() const { return static_cast<Call>(calls_[next_]); }
  void tell_rows();
  void take(Call call);

  CourseLog* log_;
  RunObserver* observer_;
  std::string calls_;
  Sink sink_{calls_};
  Source source_{*this};
  std::size_t next_ = 0;  // while replaying
  bool replays_ = false;
  bool has_just_gone_on_ = false;
  Position position_;
};

// Tells an observer of rows, and notes them. All else is for the programs, which tell it again.
class NotedRows : public RunObserver {
 public:
  NotedRows(MpiCourse& course, RunObserver* observer) : course_(course), observer_(observer) {}
  void on_row(const StepRow& row) override {
    course_.note(MpiCourse::Call::row, row);
    observer_->on_row(row);
  }
  void on_publish(const Publication& publication) override { observer_->on_publish(publication); }

 private:
  MpiCourse& course_;
  RunObserver* observer_;
};

}  // namespace syncopate
