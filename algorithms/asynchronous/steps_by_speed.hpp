// Dynamic local updates (DyLU): a worker takes as many local steps as its speed allows while the fastest takes H.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling".
// Units:   seconds of a worker's own clock from the model to the last local step: delays, pauses and outages count,
//          messages do not.
// Cost:    8 bytes along with each model (how many steps) and each difference (how long they took).
// Differs: rounded up, and at least 1, by default, as in HALoS' code, which other authors wrote. How the paper rounds
//          is not established; the authors' published toy rounds down, with 5 steps at least, in a branch that is never
//          reached. HALoS is told the speeds. Here they are measured: steps over seconds of all that a worker has
//          delivered so far, also of one that has left. Until its first difference a worker takes H. Where times vary,
//          nobody is quite as fast as the fastest, so that rounded down nearly all take one step less than by their
//          mean times.
// Checks:  equal speeds give H to all; golden counts; by simulation the formula's pace.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "workers/server.hpp"
#include "workers/settings/settings.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

struct DynamicSteps {
  enum class Rounding { up, down };
  Rounding rounding = Rounding::up;
  Step minimum{1};

  // Of H, at this share of the fastest worker's speed.
  Step at(double share_of_fastest, Step most) const;
};

class StepsBySpeed {
 public:
  StepsBySpeed(const std::optional<DynamicSteps>& rule, Step most, int workers);

  // What goes along with a worker's next model: without a rule nothing.
  std::vector<double> to_tell(Rank worker) const;
  // A difference with the seconds that came along; steps have so many micro-batches.
  void take_in(const Message& difference, int micro_batches);

  void measure(Rank worker, std::int64_t steps, double seconds);
  Step of(Rank worker) const;  // none of its own is measured: H

 private:
  struct Pace {
    std::int64_t steps = 0;
    double seconds = 0;
    double steps_per_s = 0;
  };

  std::optional<DynamicSteps> rule_;
  Step most_;  // H
  ByRank<Pace> pace_;
  Rank fastest_{};
};

// The keys `steps_by_speed` = "no" | "up" | "down" and `minimum_steps`; none: all take H.
std::optional<DynamicSteps> read_dynamic_steps(Settings& settings, Step most);

}  // namespace syncopate
