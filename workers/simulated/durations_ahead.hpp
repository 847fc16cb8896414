// Durations of micro-batches on the simulated cluster. Each is a pure function of its place, so that those that are
// going to be asked for may be drawn together, which is several times cheaper. Three habits of asking are known:
// workers that ask one after another for the same whole step, a worker that asks for one whole step after another, and
// one that asks for the micro-batches of a step one by one.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "workers/delays/compute_time.hpp"
#include "workers/training/objective.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

class DurationsAhead {
 public:
  // micro_batches: usual number per step.
  DurationsAhead(const ComputeTime& compute_time, int workers, int micro_batches)
      : compute_time_(compute_time), workers_(workers), micro_batches_(micro_batches) {}

  Duration of(const MicroBatch& micro_batch);
  // Of micro-batches first.index .. first.index + count - 1 of a step; longest_duration if one of them never ends.
  Duration of_step(const MicroBatch& first, int count);

  // To be called where a worker is likely to ask for its next step soon.
  void draw_before_asked(Rank worker) {
    if (!own_.empty()) draw_next_steps(worker);
  }
  void prefetch(Rank worker) const {
    if (!own_.empty()) __builtin_prefetch(&own_[worker], 1);
  }

 private:
  // A whole step of some workers in a row.
  struct SameStep {
    static constexpr int most_workers = 32;
    MicroBatch asked;  // last
    int count = 0;
    int first_worker = 0;
    int workers = 0;
    std::array<Duration, most_workers> times;
  };
  // The next whole steps of one worker. One cache line.
  struct alignas(64) OwnSteps {
    static constexpr int most_steps = 6;
    Step end{-1};                              // of those that are drawn
    Step asked{-1};                            // for last
    std::array<Duration, most_steps> times{};  // of steps end - 6 .. end - 1; 0: not drawn
  };
  // Micro-batches of one step of one worker.
  struct OneByOne {
    Step step{-1};
    int first = 0;
    std::vector<Duration> times;
  };

  [[gnu::noinline]] Duration of_own_step(const MicroBatch& first, int count);
  [[gnu::noinline]] void draw_same_step(const MicroBatch& first, int count);
  void draw_next_steps(Rank worker);
  void draw_own_steps(Rank worker, Step first, int steps);
  void draw_one_by_one(OneByOne& ahead, const MicroBatch& first, int count);
  void draw_sums(const ComputeTime::Steps& steps, int first, int count, std::span<Duration> times);

  const ComputeTime& compute_time_;
  int workers_;
  int micro_batches_;
  SameStep same_;
  ByRank<OwnSteps> own_;         // empty until somebody asks
  ByRank<OneByOne> one_by_one_;  // likewise
  std::vector<Duration> drawn_;  // scratch
};

}  // namespace syncopate
