// Asynchronous Local SGD in double precision, of the first coordinate, from the order in which workers' differences
// come.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "tests/workers/pull_objective.hpp"

namespace syncopate {

struct AsyncLocalReplay {
  // What the server does with a difference, in terms of the model: whether the version goes on.
  using Rule = std::function<bool(double& theta, double difference, int staleness)>;

  std::vector<int> arrivals;  // whose differences, in order
  int local_steps = 1;
  std::function<double(int step)> rate = [](int) { return 0.1; };  // by the step of the experiment file
  double momentum = 0;                                             // of the workers, kept
  int workers = 3;

  double theta(const Rule& rule) const {
    struct Own {
      double model = 1, velocity = 0;
      int version = 0, label = 0, taken = 0;
    };
    std::vector<Own> own(static_cast<std::size_t>(workers));
    double theta = 1;
    int version = 0, steps_of_all = 0;
    for (const int worker : arrivals) {
      Own& one = own[static_cast<std::size_t>(worker)];
      double x = one.model;
      for (int h = 0; h < local_steps; ++h) {
        const double gradient = x - PullObjective::target({Rank{worker}, one.taken++, 0}, 0);
        one.velocity = momentum * one.velocity + gradient;
        x -= rate(one.label + h) * one.velocity;
      }
      const bool goes_on = rule(theta, one.model - x, version - one.version);
      version += goes_on ? 1 : 0;
      steps_of_all += local_steps;
      one = {theta, one.velocity, version, steps_of_all / workers, one.taken};
    }
    return theta;
  }
};

}  // namespace syncopate
