// Gradient codes: how the parts of a step's gradient are spread over workers with redundancy, and how their
// sum is formed from the messages of some.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding" (fractional repetition; the baseline that
//          ignores stragglers).
// Symbols: N workers and as many parts, s stragglers, B[i][p] weight of part p in the message of worker i, a[i]
//          weight of that message in the sum: exact where sum_i a[i] B[i][p] = 1 for every p.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "workers/random/random.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct GradientCode {
  struct Part {
    int number;
    double weight = 1;
  };

  std::vector<std::vector<Part>> parts;  // [worker]: what it computes, with its weight in the message
  std::vector<int> group;                // [worker]: within a group all messages are equal, so one suffices
  int groups = 0;
  int needed = 0;      // messages of different groups that make a step
  bool exact = true;   // with fewer there is no sum; otherwise a step can do with what there is
  bool wide = false;   // messages and sum in double precision, because large weights cancel
  bool merges = true;  // whether several messages that make a step may hold the same part
  // [message]: its weight in the sum, for messages of different groups in order of arrival.
  std::function<std::vector<double>(std::span<const Rank> arrived)> decode;

  // How many groups have answered, or have a worker with parts that has not left.
  int groups_that_answer(std::vector<char> answered, const std::function<bool(Rank)>& has_left) const;
};

// N / (s + 1) groups of s + 1 workers; all of a group send the plain sum of the same s + 1 parts. s + 1 must
// divide N.
GradientCode fractional_repetition(int workers, int stragglers);

// No code: each worker computes its own part, and the sum of the first N - s is scaled by N / (N - s).
GradientCode ignore_stragglers(int workers, int stragglers);

// `chosen` different numbers below `count`, each set as likely as any other, from as many numbers of the stream.
std::vector<int> draw_set(int count, int chosen, const RandomStream& stream, std::uint32_t first = 0);

}  // namespace syncopate
