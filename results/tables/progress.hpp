// What a user sees while an experiment runs, on standard error: on a terminal one line that is rewritten, and one for
// each run that has ended; elsewhere a plain line when a run begins, ends, and every minute between.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "results/rows/recorder.hpp"
#include "results/rows/summary.hpp"
#include "results/run/run.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {

// The share of the budget that is used up, by the limit that is nearest; within [0, 1].
double share_done(const Budget& budget, const RunPosition& position);

// 75 -> "1:15", 3700 -> "1:01:40".
std::string clock_text(double seconds);

class Progress {
 public:
  enum class Style { silent, lines, terminal };

  // The style for standard error as it is.
  static Style style_of_stderr(bool quiet);

  // `runs`: of the experiment, for "run k of n". `to_do`: how many of them will really run.
  // `clock`: the name of the cluster's.
  Progress(Style style, std::size_t runs, std::size_t to_do, std::string clock = "virtual");

  // How often a run's place is shown.
  static std::chrono::milliseconds usual_interval(Style style);
  void show_every(std::chrono::milliseconds interval) { interval_ = interval; }

  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void begin_run(std::size_t number, const Run& run);
  // True once in an interval, ten times a second or once a minute; cheap, so it may be asked at every event.
  bool due();
  void show(const RunPosition& position);
  void end_run(const RunSummary& summary);

  // A line of its own; the rewritten line makes way for it. Nothing in the silent style.
  void note(const std::string& text);

 private:
  using HostClock = std::chrono::steady_clock;

  std::string name() const;  // of the run under way
  const char* noun() const;  // run, or trial
  std::string remaining_text(double share) const;
  void clear_line();
  void clear_line_at_last() const;

  Style style_;
  std::size_t runs_;
  std::size_t to_do_;
  std::string clock_;
  std::chrono::milliseconds interval_ = usual_interval(style_);
  std::size_t done_ = 0;
  std::size_t number_ = 0;
  const Run* run_ = nullptr;
  HostClock::time_point start_ = HostClock::now();
  HostClock::time_point run_start_ = start_;
  HostClock::time_point next_;
  bool line_shown_ = false;
  LastAct clears_line_{[this] { clear_line_at_last(); }};  // what else is said then has a line of its own
};

}  // namespace syncopate
