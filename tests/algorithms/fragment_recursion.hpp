// What Streaming DiLoCo computes, in double precision and apart from its program: workers that are pulled to their
// targets (PullObjective), one coordinate at a time, which belongs to one fragment.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {

// The next outer value from the last one, the mean of the workers, and the mean rate of their steps.
using OuterRule = std::function<double(double last, double mean, double rate)>;

struct FragmentRun {
  int workers = 3;
  int fragments = 2;
  int period = 4;
  int delay = 1;
  double mixing = 0;
  std::vector<double> rates{};           // of each step of the run
  std::set<std::pair<int, int>> lost{};  // worker and step that an outage takes
  OuterRule outer{};                     // has a state of its own
  std::vector<double> workers_models{};  // at the end

  // After which steps the average of a coordinate's fragment starts: (p + 1) H / P of each round, rounded up.
  std::set<int> turns(std::size_t coordinate) const {
    int fragment = 0;
    while (static_cast<int>(coordinate) >= 4 * (fragment + 1) / fragments) ++fragment;
    std::set<int> result;
    const int steps = static_cast<int>(rates.size());
    for (int begin = 0; begin < steps; begin += period) {
      const int round = std::min(period, steps - begin);
      result.insert(begin + ((fragment + 1) * round + fragments - 1) / fragments);
    }
    return result;
  }

  // The outer model's coordinate at the end.
  double model(std::size_t coordinate) {
    const std::set<int> starts = turns(coordinate);
    std::vector<double> theta(static_cast<std::size_t>(workers), 1.0);
    std::deque<std::pair<double, double>> under_way;  // mean of the models, and of the rates
    double outer_model = 1, sum_of_rates = 0;
    int steps = 0;
    const auto take_in = [&] {
      outer_model = outer(outer_model, under_way.front().first, under_way.front().second);
      under_way.pop_front();
      for (double& own : theta) own = mixing * own + (1 - mixing) * outer_model;
    };
    for (int step = 1; step <= static_cast<int>(rates.size()); ++step) {
      const double rate = rates[static_cast<std::size_t>(step - 1)];
      for (int w = 0; w < workers; ++w)
        if (!lost.contains({w, step - 1})) {
          double& own = theta[static_cast<std::size_t>(w)];
          own -= rate * (own - PullObjective::target({Rank{w}, step - 1, 0}, coordinate));
        }
      sum_of_rates += rate;
      ++steps;
      if (starts.contains(step)) {
        under_way.emplace_back(std::accumulate(theta.begin(), theta.end(), 0.0) / workers, sum_of_rates / steps);
        sum_of_rates = steps = 0;
      }
      if (starts.contains(step - delay)) take_in();
    }
    while (!under_way.empty()) take_in();
    workers_models = theta;
    return outer_model;
  }
};

}  // namespace syncopate
