// Asynchronous rounds: workers send differences (start - end) after local steps, and a server steps along each as it
// comes, plainly or with Nesterov's momentum, at once or delayed, or along several together.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": Nesterov at each arrival, delayed
//          Nesterov, DyLU. Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff).
// Shapes:  model, difference g, momentum m, sum: (P,) flat float32.   Units: seconds on the worker's own clock.
// Cost:    per round P floats up and P down, with DyLU 8 bytes more each way; per difference at most three combinations
//          of P floats.
// Differs: the authors' published code (a toy) has no delayed Nesterov: its formula is that of HALoS' optimizer, which
//          other authors wrote. It divides by n; where one arrival is to move rate x g, the rate is to be n times that.
//          The paper's n and c are not established, nor whether FedBuff's paper divides by K; its code (FLSim) does not
//          by default. `reduce` has both, the mean by default, so that K does not change how far a step goes. As in
//          FLSim, `average_staleness` divides weights by that of an average staleness; by default there is none.
//          BatchNorm statistics are those of the worker that delivered last. DyLU rounds up, to at least 1, by default,
//          as in HALoS' code. How the paper rounds is not established; the toy rounds down, with 5 steps at least, in a
//          branch that is never reached. HALoS is told the speeds; here they are measured: steps over seconds of all
//          that a worker has delivered, also of one that has left. Until its first difference a worker takes H. Where
//          times vary nobody is quite as fast as the fastest, so that rounded down nearly all take one step less than
//          by their mean times.
// Checks:  iterations in double precision; n = 1 is Nesterov at each arrival, beta = 0 the plain step at rate / n; K =
//          1 is the step at each arrival; n arrivals from one model are one Nesterov step along their mean; DyLU: equal
//          speeds give H to all, golden counts.
#pragma once

#include <cmath>
#include <span>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Dynamic local updates (DyLU): a worker takes as many local steps as its speed allows while the fastest takes H.
struct DynamicSteps {
  enum class Rounding { up, down };
  Rounding rounding = Rounding::up;
  Step minimum{1};

  // Steps at this share of the fastest worker's speed, out of H.
  Step at(double share_of_fastest, Step most) const;
};

// Measured speeds: seconds of a worker's own clock from the model to the last local step. Delays, pauses and outages
// count; messages do not.
class Dylu {
 public:
  Dylu(const std::optional<DynamicSteps>& rule, Step most, int workers) : rule_(rule), most_(most), pace_(workers) {}

  // The number of steps that goes along with a worker's next model; nothing without a rule.
  std::vector<double> numbers_for(Rank worker) const {
    if (!rule_) return {};
    return {static_cast<double>(of(worker).value())};
  }
  // Measures a difference by the seconds that came along; steps have so many micro-batches.
  void add(const Message& difference, int micro_batches) {
    if (rule_) measure(difference.from, difference.work().micro_batches / micro_batches, difference.numbers.front());
  }

  void measure(Rank worker, std::int64_t steps, double seconds);
  // H for a worker that is not measured yet.
  Step of(Rank worker) const {
    const double own = pace_[worker].steps_per_s;
    return rule_ && own > 0 ? rule_->at(own / pace_[fastest_].steps_per_s, most_) : most_;
  }

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

// Rounds of asynchronous local training: a worker takes its server's newest model, takes local steps, and sends the
// difference start - end, again and again. Moments, schedules, lost states, used-up data: async_local_sgd.hpp.
struct DeltaExchange {
  Step local_steps{1};                      // H
  std::optional<DynamicSteps> dylu{};       // none: all take H
  StatePolicy moments = StatePolicy::keep;  // of a worker's optimizer, at each round's start; or reset

  // The fewest steps of a difference, unless its worker's data are used up.
  Step fewest_steps() const { return dylu ? dylu->minimum : local_steps; }
};

// A worker's whole life.
void run_rounds(Worker& worker, const DeltaExchange& rounds);

// The keys `local_steps`, `steps_by_speed` = "no" | "up" | "down" and `minimum_steps`; and the key `moments`.
DeltaExchange read_delta_exchange(Settings& settings, const AlgorithmContext& context);
StatePolicy read_moments_of_rounds(Settings& settings);

// The state that a server keeps between two differences.
struct UpdateState {
  ModelStatePtr momentum{};  // null before the first step with one
  ModelStatePtr sum{};       // of the differences since the last update, weighted; null: there are none
  int count = 0;             // of them
  std::int64_t micro_batches = 0;
};

// The factor of a difference before an update uses it.
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
  // All workers have left: steps along the differences not used yet.
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
  std::unique_ptr<const ServerUpdate> (*make)(Settings& settings, const BudgetCheck& differences);
};
std::span<const ServerUpdateRow> server_updates();

// Reads a table such as { name = "nesterov", rate = 0.07, momentum = 0.9 }. Never null.
std::unique_ptr<const ServerUpdate> make_server_update(Settings settings, const BudgetCheck& differences);

}  // namespace syncopate
