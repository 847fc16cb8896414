// What a worker knows of its own steps when parts of its model are replaced by themselves: how many it has taken since
// it received each, and which of them nobody has been told of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "workers/participant.hpp"

namespace syncopate {

class FragmentProgress {
 public:
  explicit FragmentProgress(int fragments) : since_(static_cast<std::size_t>(fragments)) {}

  int fragments() const { return static_cast<int>(since_.size()); }

  void add_step(const Work& step) {
    for (Since& fragment : since_) {
      ++fragment.steps;
      fragment.micro_batches += step.micro_batches;
    }
    untold_.push_back(step);
  }

  Step steps(int fragment) const { return of(fragment).steps; }                          // s, since it was received
  std::int64_t micro_batches(int fragment) const { return of(fragment).micro_batches; }  // k

  // The steps that nobody has been told of: from here on somebody has.
  Work tell() { return take_oldest(untold_.size()); }
  // The fragment is replaced. What is lost: steps that nobody has been told of and that are in no fragment any more.
  Work receive(int fragment) {
    since_[static_cast<std::size_t>(fragment)] = {};
    const auto in_oldest = std::ranges::max(since_, {}, &Since::steps).steps.value();
    return take_oldest(untold_.size() - std::min(untold_.size(), static_cast<std::size_t>(in_oldest)));
  }
  // All are replaced.
  Work receive_all() {
    std::ranges::fill(since_, Since{});
    return tell();
  }

 private:
  struct Since {
    Step steps{};
    std::int64_t micro_batches = 0;
  };

  const Since& of(int fragment) const { return since_[static_cast<std::size_t>(fragment)]; }
  Work take_oldest(std::size_t steps) {
    Work sum;
    for (; steps > 0; --steps) {
      sum.micro_batches += untold_.front().micro_batches;
      sum.time += untold_.front().time;
      untold_.pop_front();
    }
    return sum;
  }

  std::vector<Since> since_;
  std::deque<Work> untold_;
};

}  // namespace syncopate
