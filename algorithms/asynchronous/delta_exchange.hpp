// What a server makes of the differences (start - end) that workers send after local steps: it steps along each as it
// comes, plainly or with Nesterov's momentum, all of it at once or delayed, or along several together.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": Nesterov at each arrival, delayed
//          Nesterov. Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff).
// Shapes:  model, difference g, momentum m, sum: (P,) flat float32.
// Cost:    per difference three combinations of P floats at most; nothing is sent.
// Differs: the authors' published code (a toy) has no delayed Nesterov: its formula is that of HALoS' optimizer, which
//          other authors wrote. It divides by n; where one arrival is to move rate x g, the rate is to be n times that.
//          The paper's values of n and c are not established, nor is it whether FedBuff's paper divides by K; its code
//          (FLSim) does not by default. `reduce` has both, the mean by default, so that K does not change how far a
//          step goes. FLSim divides weights by that of an average staleness where one is given, as `average_staleness`
//          does; by default there is none, as there. BatchNorm statistics are those of the worker that delivered last.
// Checks:  iterations in double precision; n = 1 is Nesterov at each arrival, beta = 0 the plain step at rate / n;
//          K = 1 is the step at each arrival; n arrivals from one model are one Nesterov step along their mean.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/server.hpp"

namespace syncopate {

// Dynamic local updates (DyLU): a worker takes as many local steps as its speed allows while the fastest takes H.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling".
// Units:   seconds of a worker's own clock from the model to the last local step: delays, pauses and outages count,
//          messages do not.
// Cost:    8 bytes along with each model (how many steps) and each difference (how long they took).
// Differs: rounded up, and at least 1, by default, as in HALoS' code, which other authors wrote. How the paper rounds
//          is not established; the authors' published toy rounds down, with 5 steps at least, in a branch that is never
//          reached. HALoS is told the speeds. Here they are measured: steps over seconds of all that a worker has
//          delivered so far, also of one that has left. Until its first difference a worker takes H. Where times vary,
//          nobody is quite as fast as the fastest, so that rounded down nearly all take one step less than by their
//          mean times.
// Checks:  equal speeds give H to all; golden counts; by simulation the formula's pace.
struct DynamicSteps {
  enum class Rounding { up, down };
  Rounding rounding = Rounding::up;
  Step minimum{1};

  // Of H, at this share of the fastest worker's speed.
  Step at(double share_of_fastest, Step most) const;
};

class StepsBySpeed {
 public:
  StepsBySpeed(const std::optional<DynamicSteps>& rule, Step most, int workers);

  // What goes along with a worker's next model: without a rule nothing.
  std::vector<double> to_tell(Rank worker) const;
  // A difference with the seconds that came along; steps have so many micro-batches.
  void take_in(const Message& difference, int micro_batches);

  void measure(Rank worker, std::int64_t steps, double seconds);
  Step of(Rank worker) const;  // none of its own is measured: H

 private:
  struct Pace {
    std::int64_t steps = 0;
    double seconds = 0;
    double steps_per_s = 0;
  };

  std::optional<DynamicSteps> rule_;
  Step most_;  // H
  ByRank<Pace> pace_;
  Rank fastest_{};
};

// The keys `steps_by_speed` = "no" | "up" | "down" and `minimum_steps`; none: all take H.
std::optional<DynamicSteps> read_dynamic_steps(Settings& settings, Step most);

// Rounds of asynchronous local training: a worker takes its server's newest model, takes local steps, and sends the
// difference start - end, again and again, and waits for nobody. What the server makes of it is the method's.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling".
// Shapes:  model, difference: (P,) flat float32.   Units: seconds on the worker's own clock.
// Cost:    per round P floats up and P down; of DyLU 8 bytes more each way.
// Differs: what becomes of moments, schedules, lost states and used-up data: async_local_sgd.hpp.
// Checks:  those of asynchronous Local SGD.
struct DifferenceRounds {
  Step local_steps{1};                           // H
  std::optional<DynamicSteps> steps_by_speed{};  // none: all take H
  StatePolicy moments = StatePolicy::keep;       // of a worker's optimizer, at each round's start; or reset

  // That any difference is of, unless its worker's data are used up.
  Step fewest_steps() const { return steps_by_speed ? steps_by_speed->minimum : local_steps; }
};

// A worker's whole life.
void run_rounds(Worker& worker, const DifferenceRounds& rounds);

// Its pace: a cycle is H local steps, the difference and the next model. By `steps_by_speed` they are fewer, by the
// fastest worker of the server.
struct RoundCosts {
  double around_s = 0;   // of a difference and a model, to and from its server
  double on_link_s = 0;  // for which the longer of them occupies the server's link; a lower bound where this is not 0
  int regions = 1;       // of consecutive ranks, as many in each, with a server of their own
};
Forecast predict_rounds(const DifferenceRounds& rounds, const RoundCosts& costs, const PredictionInput& input);

// The keys `local_steps`, then `steps_by_speed` and `minimum_steps`; and the key `moments`.
DifferenceRounds read_difference_rounds(Settings& settings, const AlgorithmContext& context);
StatePolicy read_moments_of_rounds(Settings& settings);

// What a server keeps between two differences.
struct UpdateState {
  ModelStatePtr momentum{};  // null before the first step with one
  ModelStatePtr sum{};       // of the differences since the last update, weighted; null: there are none
  int count = 0;             // of them
  std::int64_t micro_batches = 0;
};

// What a difference is multiplied by before anything is made of it.
struct DifferenceWeight {
  bool by_workers = false;        // 1 / sqrt(N)
  double staleness_exponent = 0;  // a: (1 + staleness)^-a
  double average_staleness = 0;   // which weighs 1

  double of(Step staleness, int workers) const {
    const double relative = (1.0 + static_cast<double>(staleness.value())) / (1.0 + average_staleness);
    const double by_staleness = std::pow(relative, -staleness_exponent);
    return by_workers ? by_staleness / std::sqrt(workers) : by_staleness;
  }
};

class ServerUpdate {
 public:
  virtual ~ServerUpdate() = default;
  // How many differences make an update, after which workers find a newer model.
  virtual int differences() const { return 1; }
  // Takes in an accepted difference, times `weight`; publishes after each update.
  virtual void take(Server& server, const Message& difference, double weight, UpdateState& state) const = 0;
  // All workers have left: steps along what has been taken in and not used.
  virtual void end(Server&, UpdateState&) const {}
};

// m = beta m + g;  theta -= rate (g + beta m). A momentum of 0 is the plain step.
std::unique_ptr<const ServerUpdate> make_nesterov_update(double rate, double momentum);

// At every n-th difference m = beta m + (mean of the last n);  theta -= rate ((1 - c n + c) beta m + g / n).
// At the others theta -= rate (c beta m + g / n), m as it was.
struct DelayedNesterov {
  double rate = 1;
  double momentum = 0;  // beta
  int every = 1;        // n
  double share = 0;     // c, of the momentum at each of the others; above 1 / n the n-th would have less than these
};
std::unique_ptr<const ServerUpdate> make_delayed_nesterov_update(const DelayedNesterov& options);

// Nesterov's step (plain with a momentum of 0) along the mean, or the sum, of every K differences.
struct Buffered {
  enum class Reduce { mean, sum };
  int size = 1;  // K
  double rate = 1;
  double momentum = 0;
  Reduce reduce = Reduce::mean;
};
std::unique_ptr<const ServerUpdate> make_buffered_update(const Buffered& options);

// The registry: one row per rule.
struct ServerUpdateRow {
  std::string_view name;      // `name = ...` in TOML
  std::string_view sentence;  // what it does
  std::unique_ptr<const ServerUpdate> (*make)(Settings& settings, const WorkInBudget& differences);
};
std::span<const ServerUpdateRow> server_updates();

// Reads a table such as { name = "nesterov", rate = 0.07, momentum = 0.9 }. Never null.
std::unique_ptr<const ServerUpdate> make_server_update(Settings& settings, const WorkInBudget& differences);

}  // namespace syncopate
