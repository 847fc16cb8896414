// Shows the progress of an experiment on standard error. A terminal gets one line that is rewritten, and a line for
// each finished run. Other outputs get a line when a run begins, when it ends, and every minute.
#pragma once

#include <chrono>

#include "results/summary.hpp"
#include "workers/base/process.hpp"

namespace syncopate {

// The used share of the budget, in [0, 1]. If the budget has several limits, it is the largest of their used shares.
double share_done(const Budget& budget, const RunPosition& position);

// The number of columns of a terminal; 0 if the descriptor is of none.
std::size_t terminal_columns(int descriptor);

// Formats seconds: 75 as "1:15", 3700 as "1:01:40".
std::string clock_text(double seconds);

class Progress {
 public:
  enum class Style { silent, lines, terminal };

  // The style for standard error: `terminal` if it is a terminal, otherwise `lines`; but `silent` if `quiet`.
  static Style style_of_stderr(bool quiet);

  // `runs`: number n in "run k of n". `to_do`: number of runs still to be made. `clock`: name of the cluster's clock.
  Progress(Style style, std::size_t runs, std::size_t to_do, std::string clock = "virtual");

  // Time between updates.
  static std::chrono::milliseconds usual_interval(Style style);
  void show_every(std::chrono::milliseconds interval) { interval_ = interval; }

  ~Progress();  // clears the rewritten line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Sets the expected host seconds of runs and common phases, by hash. Without this call all runs count equally, and
  // the remaining time is unknown at first.
  void expect(std::map<std::string, double> host_s);

  void begin_run(std::size_t number, const Run& run) { begin(number, run, false); }
  // A common phase is made before the first run that starts from it, which is number `before_run`.
  void begin_common_phase(std::size_t before_run, const Run& phase) { begin(before_run, phase, true); }
  void end_common_phase() { done_ += work(); }
  // Whether the next update is due; true once per interval. Cheap enough to be called at every event.
  bool due();
  void show(const RunPosition& position);
  void end_run(const RunSummary& summary) { end_elsewhere(number_, *run_, summary, true); }

  // `listener` is called in every style, whenever an update is due, with the current run's used share of the budget.
  // May be empty.
  void set_listener(std::function<void(double)> listener) { listener_ = std::move(listener); }

  // For runs and common phases that other processes have finished. `is_shown`: whether to write a line for the run.
  void end_elsewhere(std::size_t number, const Run& run, const RunSummary& summary, bool is_shown);
  void end_common_phase_elsewhere(const Run& phase) { done_ += work_of_common_phase(phase); }
  struct Elsewhere {
    const Run* run = nullptr;
    double share = 0;
    bool is_common_phase = false;
  };
  void show_elsewhere(std::size_t ended, std::span<const Elsewhere> under_way);

  // Writes the text on its own line, and clears the rewritten line. Does nothing in the silent style.
  void note(const std::string& text);

 private:
  using HostClock = std::chrono::steady_clock;

  std::string noun() const;  // "run", "trial" or "before run"
  void begin(std::size_t number, const Run& run, bool is_common_phase);
  double work(const Run& run) const;  // in the unit of all_
  double work() const;                // for the current run or phase
  double work_of_common_phase(const Run& phase) const { return expected_s_.empty() ? 0 : work(phase); }
  std::string remaining_text(double under_way) const;
  std::string ended_text(const Run& run, const RunSummary& summary) const;
  void rewrite_line(const std::string& text);
  void clear_line();

  Style style_;
  std::size_t runs_;
  std::string clock_;
  std::chrono::milliseconds interval_ = usual_interval(style_);
  std::map<std::string, double> expected_s_{};
  double all_ = 0;  // all work to do, in expected seconds if they are known, otherwise in runs
  double done_ = 0;
  std::function<void(double)> listener_{};
  bool is_common_phase_ = false;
  std::size_t number_ = 0;
  const Run* run_ = nullptr;
  HostClock::time_point start_ = HostClock::now();
  HostClock::time_point run_start_ = start_;
  HostClock::time_point next_;
  HostClock::time_point next_line_;  // time at which a line is due; the listener may be called more often
  bool line_shown_ = false;
  LastAct clears_line_;
};

}  // namespace syncopate
