// Gradient codes: how the parts of a step's gradient are spread over workers with redundancy, and how their
// sum is formed from the messages of some.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding".
// Symbols: N workers and as many parts, s stragglers, B[i][p] weight of part p in the message of worker i, a[i]
//          weight of that message in the sum: exact where sum_i a[i] B[i][p] = 1 for every p.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "workers/server.hpp"
#include "workers/units/by_rank.hpp"

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

}  // namespace syncopate
