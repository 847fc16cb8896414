// Groups of S workers that change from round to round: their members are the ranks which differ in one digit of base S,
// the digits taking turns. With N and S powers of two these are the groups of a butterfly.
// Cost:    none; no list is kept.
// Checks:  where N is a power of S each round divides the workers, and all have met, directly or through others, once
//          all digits have had their turn; masks of the butterfly; for any S that divides N nobody is left apart.
#pragma once

#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

class RotatingGroups {
 public:
  // `size` divides the number of workers. Where that is no power of `size`, the last turn is that of ranks which are
  // N / S apart.
  RotatingGroups(int workers, int size);

  // After so many rounds the groups are those of the first again.
  int turns() const { return static_cast<int>(strides_.size()); }
  // The group's lowest rank, by which groups of a round are told apart; rounds are counted from 1.
  Rank group_of(Rank worker, Step round) const;
  std::vector<Rank> members(Rank group, Step round) const;

 private:
  int stride(Step round) const { return strides_[static_cast<std::size_t>((round.value() - 1) % turns())]; }

  int size_;
  std::vector<int> strides_;  // between a group's members, of each turn
};

}  // namespace syncopate
