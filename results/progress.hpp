// What a user sees while an experiment runs, on standard error: on a terminal one line that is rewritten, and one for
// each run that has ended; elsewhere a plain line when a run begins, ends, and every minute between.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "results/recorder.hpp"
#include "results/run.hpp"
#include "results/summary.hpp"
#include "workers/base/process.hpp"

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

  // What all that is to do is expected to take, in seconds by the hashes of runs and common phases. Without it all runs
  // are taken to cost the same, and what is left is not known before a part of the first is done.
  void expect(std::map<std::string, double> host_s);

  void begin_run(std::size_t number, const Run& run);
  // A phase that runs have in common, made before the first of them.
  void begin_common_phase(std::size_t before_run, const Run& phase);
  void end_common_phase();
  // True once in an interval, ten times a second or once a minute; cheap, so it may be asked at every event.
  bool due();
  void show(const RunPosition& position);
  void end_run(const RunSummary& summary);

  // The share of the budget that the run under way has used up, whenever its place is due, in every style. Empty: none.
  void tell(std::function<void(double)> listener) { listener_ = std::move(listener); }

  // Where other processes make runs too: one has ended there (shown, or only counted), or a common phase has, and how
  // far those are that are under way, by the shares of their budgets.
  void end_elsewhere(std::size_t number, const Run& run, const RunSummary& summary, bool is_shown);
  void end_common_phase_elsewhere(const Run& phase) { done_ += work_of_common_phase(phase); }
  struct Elsewhere {
    const Run* run = nullptr;
    double share = 0;
    bool is_common_phase = false;
  };
  void show_elsewhere(std::size_t ended, std::span<const Elsewhere> under_way);

  // A line of its own; the rewritten line makes way for it. Nothing in the silent style.
  void note(const std::string& text);

 private:
  using HostClock = std::chrono::steady_clock;

  std::string name() const;  // of the run under way
  std::string noun() const;  // run, trial, or before run
  void begin(std::size_t number, const Run& run);
  double work(const Run& run) const;  // as all_ counts
  double work() const;                // of what is under way
  double work_of_common_phase(const Run& phase) const { return expected_s_.empty() ? 0 : work(phase); }
  std::string remaining_text(double under_way) const;
  std::string ended_text(const Run& run, const RunSummary& summary) const;
  void clear_line();
  void clear_line_at_last() const;

  Style style_;
  std::size_t runs_;
  std::string clock_;
  std::chrono::milliseconds interval_ = usual_interval(style_);
  std::map<std::string, double> expected_s_{};
  double all_ = 0;   // what is to do: in expected seconds, or in runs
  double done_ = 0;  // likewise
  std::function<void(double)> listener_{};
  bool is_common_phase_ = false;
  std::size_t number_ = 0;
  const Run* run_ = nullptr;
  HostClock::time_point start_ = HostClock::now();
  HostClock::time_point run_start_ = start_;
  HostClock::time_point next_;
  HostClock::time_point next_line_;  // where the listener is told more often than lines are written
  bool line_shown_ = false;
  LastAct clears_line_{[this] { clear_line_at_last(); }};  // what else is said then has a line of its own
};

}  // namespace syncopate
