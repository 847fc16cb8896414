// HALoS in double precision, of the first coordinate: a calendar of events of its own, for workers of constant speed,
// whose arrivals never coincide.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/workers/pull_objective.hpp"

namespace syncopate {

// A server's delayed Nesterov; n = 1 is Nesterov's step, beta = 0 the plain one at rate / n.
struct ReplayedUpdate {
  double rate = 1, beta = 0;
  int n = 1;
  double c = 0;
  double momentum = 0, sum = 0;
  int arrivals = 0;

  void step(double& theta, double g) {
    sum += g;
    const bool is_nth = ++arrivals % n == 0;
    if (is_nth) momentum = beta * momentum + std::exchange(sum, 0) / n;
    theta -= rate * ((is_nth ? 1 - c * n + c : c) * beta * momentum + g / n);
  }
};

struct HalosReplay {
  std::vector<double> step_s;  // of each worker
  int regions = 1;
  int local_steps = 1;
  ReplayedUpdate local{}, global{};
  int merge_every = 1;
  double mixing = 1;
  double inside_s = 0, between_s = 0;
  double rate = 0.1, momentum = 0;  // of the workers
  int steps = 1;                    // of the budget

  struct Update {
    double time_s;
    double theta;
  };
  // What the global server has published.
  std::vector<Update> updates() const {
    const int workers = static_cast<int>(step_s.size());
    struct Worker {
      double velocity = 0;
      int taken = 0;
    };
    struct Region {
      double theta = 1, reference = 1;
      ReplayedUpdate update;
      int arrivals = 0, untold = 0;
    };
    struct Event {
      enum class Is { difference, update, answer } is;
      int from;      // a worker, or a region
      double value;  // difference, U, or Theta
      int steps;
    };
    std::vector<Worker> worker(step_s.size());
    std::vector<Region> region(static_cast<std::size_t>(regions));
    for (Region& one : region) one.update = local;
    ReplayedUpdate global_update = global;
    std::multimap<double, Event> calendar;
    const auto start_round = [&](int w, double theta, double sent_s) {
      Worker& one = worker[static_cast<std::size_t>(w)];
      double x = theta;
      for (int h = 0; h < local_steps; ++h) {
        one.velocity = momentum * one.velocity + x - PullObjective::target({Rank{w}, one.taken++, 0}, 0);
        x -= rate * one.velocity;
      }
      const double round_s = local_steps * step_s[static_cast<std::size_t>(w)] + 2 * inside_s;
      calendar.emplace(sent_s + round_s, Event{Event::Is::difference, w, theta - x, local_steps});
    };
    for (int w = 0; w < workers; ++w) start_round(w, 1, 0);
    std::vector<Update> result;
    double theta = 1;
    int told = 0;
    while (true) {
      const auto [time_s, event] = *calendar.begin();
      calendar.erase(calendar.begin());
      const int r = event.is == Event::Is::difference ? event.from / (workers / regions) : event.from;
      Region& own = region[static_cast<std::size_t>(r)];
      if (event.is == Event::Is::difference) {
        own.update.step(own.theta, event.value);
        own.untold += event.steps;
        if (++own.arrivals == merge_every)
          calendar.emplace(time_s + between_s,
                           Event{Event::Is::update, r, own.reference - own.theta, std::exchange(own.untold, 0)});
        start_round(event.from, own.theta, time_s);
      } else if (event.is == Event::Is::update) {
        global_update.step(theta, event.value);
        told += event.steps;
        result.push_back({time_s, theta});
        if (told >= steps * workers) return result;
        calendar.emplace(time_s + between_s, Event{Event::Is::answer, r, theta, 0});
      } else {
        own.theta = own.reference = (1 - mixing) * own.theta + mixing * event.value;
        own.arrivals = 0;
      }
    }
  }
};

}  // namespace syncopate
