// Gradient codes: how the parts of a step's gradient are spread over workers with redundancy, and how their
// sum is formed from the messages of some.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding".
// Symbols: N workers and as many parts, s stragglers, B[i][p] weight of part p in the message of worker i, a[i]
//          weight of that message in the sum: exact where sum_i a[i] B[i][p] = 1 for every p.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/server.hpp"

namespace syncopate {

struct GradientCode {
  struct Part {
    int number;
    double weight = 1;
  };

  ByRank<std::vector<Part>> parts;  // of each worker: what it computes, with its weight in the message
  ByRank<int> group;                // of each worker: within a group all messages are equal, so one suffices
  int groups = 0;
  int needed = 0;                    // messages of different groups that make a step
  bool exact = true;                 // with fewer there is no sum; otherwise a step can do with what there is
  bool in_double_precision = false;  // messages and their sum, because large weights cancel
  bool merges = true;                // whether several messages that make a step may hold the same part
  // [message]: its weight in the sum, for messages of different groups in order of arrival.
  std::function<std::vector<double>(std::span<const Rank> arrived)> decode{};
};

// What has come of a step's messages, at most one of each group. The code outlives it.
class Answers {
 public:
  explicit Answers(const GradientCode& code);

  int count() const { return static_cast<int>(from_.size()); }
  int parts() const { return parts_; }  // that are in one of them at least
  // How many there can be, as far as workers with parts have not left.
  int possible(const Server& server) const;

  bool has_group_of(Rank worker) const { return has_group_[static_cast<std::size_t>(code_.group[worker])] != 0; }
  // Of a worker's parts, how many are in one of them already.
  int copies_from(Rank worker) const;
  void take(Rank worker, Gradient message);
  // The sum, or an estimate of it.
  Gradient decode() const;

 private:
  const GradientCode& code_;
  std::vector<char> has_group_, has_part_;
  int parts_ = 0;
  std::vector<Rank> from_;
  std::vector<Gradient> messages_;
};

// A code in which each worker is a group of its own: no parts yet.
GradientCode code_of_single_workers(int workers, int needed);

// Cyclic repetition: a gradient code for any number of workers, in which worker i holds the parts i .. i + s
// (mod N) and any N - s messages give the sum.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding".
// Differs: the weights of a set of stragglers are found from one decomposition of the code, by a system of s
//          equations, and not by least squares over N - s messages. Codes are drawn until one is well enough
//          conditioned.
// Checks:  the decoded sum is the full sum for every set of s stragglers.
// The largest weight of a message times the largest of a part: how much larger than the sum the terms may be
// whose difference it is. Rounding in double precision times this stays two digits below a float's.
inline constexpr double largest_cyclic_weight = 1e7;

// Beyond this a decomposition takes more than a second.
inline constexpr int most_cyclic_workers = 512;

// None if no code of 50 has a weight below the bound, over all sets of stragglers or, if these are very many,
// 1000 at random. `decode` throws RunFailure for a set that was not among these and is far beyond the bound.
std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed);

// Codes with plain sums: fractional repetition, and no code at all.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding" (fractional repetition; the baseline that
//          ignores stragglers).
// Checks:  the sum is the full one, bit for bit, for every set of s stragglers; without a code the mean is that of
//          whoever has come.
// N / (s + 1) groups of s + 1 workers; all of a group send the plain sum of the same s + 1 parts. s + 1 must
// divide N.
GradientCode fractional_repetition(int workers, int stragglers);

// No code: each worker computes its own part, and the sum of the first N - s is scaled by N / (N - s).
GradientCode ignore_stragglers(int workers, int stragglers);

// Stochastic gradient coding: each part is held by d workers, weighted by 1 / (d (1 - p)), so that the sum of
// whatever arrives is the full sum on average where a message is missing with probability p.
// Source:  Bitar, Wootters, El Rouayheb 2020, "Stochastic Gradient Coding for Straggler Mitigation in Distributed
//          Learning"; the scheme as we understand it, not confirmed in its text.
// Differs: how the parts are drawn: see Placement.
// Checks:  unbiased; the variance with independent placement is
//          p / (1 - p) [(1/d - 1/N) sum |g_i|^2 + |G|^2 / N], over placements and stragglers.
enum class Placement {
  independent,  // each part's d workers are drawn on their own: two parts share d^2 / N workers on average
  balanced,     // every worker holds d parts, and pairs of parts share as evenly many workers as 100 draws give
};

// A step is made of `needed` messages, or of fewer where fewer can come.
struct StochasticCodeOptions {
  int copies = 2;              // d
  double straggler_share = 0;  // p, below 1
  int needed = 1;
  Placement placement = Placement::independent;
  std::uint64_t seed = 1;
};

GradientCode stochastic_code(int workers, const StochasticCodeOptions& options);

}  // namespace syncopate
