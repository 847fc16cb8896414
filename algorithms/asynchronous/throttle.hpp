// THROTTLE: asynchronous SGD in which further gradients of the same worker in a round have decreasing weights. A
// worker's first gradient in a round has the weight 1 / N, each further one 1 / q of the one before. The round ends
// once all workers have given one.
// Source:  Otsuka et al., "THROTTLE". Year, venue and availability are not established: a reader cannot check this
//          method against its source. We know only an abstract: the weights are 1 / N, then 1 / q, 1 / q^2, and the
//          next round begins when all workers have reported.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down, as for asynchronous SGD; nobody waits.
// Differs: the meaning of 1 / q is our reading. With `repeats` = "of-first" (default) it is relative to the first
//          gradient's weight, so that q = 1 is asynchronous SGD. With "alone" it is the whole weight, for any N. An
//          infinite q drops repeats. A weight multiplies the learning rate (staleness.hpp). The server takes a step
//          along each gradient, whatever model it was computed at. A new round only resets the counts; work in progress
//          continues. A round does not wait for workers that have left.
// Checks:  q = 1 is asynchronous SGD bit for bit; equal constant times leave no repeats, whatever q is; a hand-worked
//          timeline with its weights; an infinite q takes one gradient of each worker per round.
#pragma once

#include <cmath>

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

struct ThrottleOptions {
  enum class Repeats {
    of_first,  // the r-th repeat has the weight 1 / (N q^r)
    alone,     // it has the weight 1 / q^r
  };
  double divisor = 2;  // q, at least 1; infinity: repeats are dropped
  Repeats repeats = Repeats::of_first;
};

class Throttle : public GradientPerModel {
 public:
  explicit Throttle(const ThrottleOptions& options) : options_(options) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    ByRank<int> given(server.size(), 0);  // gradients by worker in this round
    int there = server.size(), awaited = there;
    const auto leave = [&](Rank worker) {
      --there;
      if (given[worker] == 0) --awaited;
    };
    server.send_model(Receivers::all);
    while (const auto message = server.receive_until_all_left(leave)) {
      if (awaited == 0) {  // the next round begins
        given.assign(server.size(), 0);
        awaited = there;
      }
      const int repeats = given[message->from]++;
      if (repeats == 0) --awaited;
      const double share = weight(repeats, server.size());
      step_along(server, *message, {.rate_factor = 1.0 / server.size(), .weight = share}, {.is_needed = share > 0});
      if (!server.budget_left()) return;
      server.send_model(message->from);
    }
  }

  Traits traits() const override {
    Traits traits = GradientPerModel::traits();
    traits.rejects_gradients = std::isinf(options_.divisor);
    return traits;
  }

 private:
  // The weight, times N, of a worker's gradient after `repeats` earlier ones in the round.
  double weight(int repeats, int workers) const {
    if (repeats == 0) return 1;
    const double share = std::pow(options_.divisor, -repeats);
    return options_.repeats == ThrottleOptions::Repeats::of_first ? share : workers * share;
  }

  ThrottleOptions options_;
};

inline std::unique_ptr<Algorithm> make_throttle(Settings& settings, const AlgorithmContext&) {
  using Repeats = ThrottleOptions::Repeats;
  ThrottleOptions options;
  options.divisor =
      settings.number({"divisor", "Divides the weight of each further gradient of a worker in a round (q); inf: drop."},
                      Range::at_least(1));
  options.repeats =
      settings.choice({"repeats", "Whether the r-th repeat of a worker in a round weighs 1/(N q^r), or 1/q^r."},
                      {{"of-first", Repeats::of_first}, {"alone", Repeats::alone}}, options.repeats);
  return std::make_unique<Throttle>(options);
}

}  // namespace syncopate
