// What an MPI rank's program has been told by the cluster, call by call: so another process can take it through the
// same course again: a few bytes each. Values (gradients, models) are not in it: their numbers are (CourseLog).
//
// A run that is taken up answers from here, without arithmetic, waiting, or communication, until the call at which the
// ranks had stopped; the state of the cluster's parts is put in place then, and that call goes on as the others do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "workers/cluster/run_observer.hpp"
#include "workers/training/course_log.hpp"
#include "workers/training/state_archive.hpp"

namespace syncopate {

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
