// When gradients, or models to be averaged, arrive where all of a round come together: at a collective of all workers,
// or at a server.
// Source:  Chen et al. 2016, Figures 3 and 4: the time of the k-th gradient since its iteration began.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

struct GradientArrival {
  Time round_begin{};  // and the step: which round
  Step step{};         // at the round's end: that of the row of steps.csv, or the server's own
  Rank worker{};
  Duration since{};  // the round began; negative where its part was started before the round before had ended
};

// Rounds with numbers, where what arrives may belong to an earlier one.
class NumberedRounds {
 public:
  // `into`: null where arrivals are not recorded; then nothing is kept. The first round begins here.
  NumberedRounds(std::vector<GradientArrival>* into, Time begin) : into_(into) { begin_next(begin); }

  void begin_next(Time at) {
    if (into_) begins_.push_back(at);
  }
  std::int64_t begun() const { return static_cast<std::int64_t>(begins_.size()); }
  // Round 0 leads to step 1.
  void arrive(std::int64_t round, Rank worker, Time at) {
    if (into_ && round < begun()) add(begins_[static_cast<std::size_t>(round)], round, worker, at);
  }

 private:
  void add(Time begin, std::int64_t round, Rank worker, Time at) {
    into_->push_back({begin, Step{round + 1}, worker, at - begin});
  }

  std::vector<GradientArrival>* into_;
  std::vector<Time> begins_;  // by round
};

}  // namespace syncopate
