#include "algorithms/asynchronous/throttle.hpp"

#include <cmath>

#include "workers/units/by_rank.hpp"

namespace syncopate {

void Throttle::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
}

void Throttle::serve(Server& server) const {
  server.set_gradients_per_step(1);
  ByRank<int> given(server.size(), 0);  // gradients in this round
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
    if (server.accept(*message, {.is_needed = share > 0})) {
      server.descend(message->gradient / server.micro_batches(), {.rate_factor = 1.0 / server.size(), .weight = share});
      server.publish();
    }
    if (!server.budget_left()) return;
    server.send_model(message->from);
  }
}

// Times 1 / N.
double Throttle::weight(int repeats, int workers) const {
  if (repeats == 0) return 1;
  const double share = std::pow(options_.divisor, -repeats);
  return options_.repeats == ThrottleOptions::Repeats::of_first ? share : workers * share;
}

bool Throttle::drops() const { return std::isinf(options_.divisor); }

Forecast Throttle::forecast(const PredictionInput& input) const {
  return drops() ? Forecast::none("which gradients are repeats depends on the pace of all")
                 : predict_own_pace(1, input);
}

std::unique_ptr<Algorithm> make_throttle(Settings& settings, const AlgorithmContext&) {
  using Repeats = ThrottleOptions::Repeats;
  ThrottleOptions options;
  options.divisor = settings.number(
      {"divisor", "What each further gradient of a worker in a round is divided by (q); inf: they are dropped."},
      Range::at_least(1));
  options.repeats =
      settings.choice({"repeats", "Whether a repeat's weight is a part of the first one's, 1/N, or stands alone."},
                      {{"of-first", Repeats::of_first}, {"alone", Repeats::alone}}, options.repeats);
  return std::make_unique<Throttle>(options);
}

}  // namespace syncopate
