// The time of runs in which workers wait for an average only some steps after it began, by a recursion over step times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

struct LateAverage {
  std::size_t begin;  // number of steps before the average begins
  std::size_t due;    // number of steps before workers wait for it; if beyond the last step, they wait at the end
  double average_s;
};

// The end of a run with these step times. Averages begin in the given order, each once all workers have arrived. The
// network makes one average at a time.
inline double end_with_late_averages(const SampledTimes& times, std::span<const LateAverage> averages) {
  std::vector<double> at(static_cast<std::size_t>(times.workers)), ends;
  std::size_t waited_for = 0;
  const auto wait = [&] {
    for (double& worker : at) worker = std::max(worker, ends[waited_for]);
    ++waited_for;
  };
  for (std::size_t step = 1; step <= times.drawn_steps(); ++step) {
    for (std::size_t w = 0; w < at.size(); ++w) at[w] += times.step_times[w * times.drawn_steps() + step - 1];
    while (ends.size() < averages.size() && averages[ends.size()].begin == step) {
      const double free_s = ends.empty() ? 0 : ends.back();
      ends.push_back(std::max(free_s, std::ranges::max(at)) + averages[ends.size()].average_s);
    }
    while (waited_for < ends.size() && averages[waited_for].due == step) wait();
  }
  while (waited_for < ends.size()) wait();
  return std::ranges::max(at);
}

}  // namespace syncopate
