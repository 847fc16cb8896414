// Asynchronous rounds of local steps: a worker takes the server's model, takes local steps, and sends the difference
// (start - end). The server steps along each difference on arrival (plain, Nesterov, delayed Nesterov), or along
// several together (buffered).
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": Nesterov at each arrival, delayed
//          Nesterov, DyLU. Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff).
// Shapes:  model, difference g, momentum m, sum: (P,) flat float32.   Units: seconds on the worker's own clock.
// Cost:    per round P floats up and P down, with DyLU 8 bytes more each way; per difference at most three combinations
//          of P floats.
// Differs: the authors' published code (a toy) has no delayed Nesterov: the formula here is that of HALoS' optimizer,
//          by other authors. It divides by n; for a step of rate x g per arrival, set the rate to n times that. The
//          paper's n and c are not established, nor whether FedBuff's paper divides by K; its code (FLSim) does not by
//          default. `reduce` offers both, the mean by default, so that K does not change the length of a step. As in
//          FLSim, `average_staleness` divides weights by that of an average staleness; by default there is none.
//          BatchNorm statistics are those of the worker that delivered last.
//          DyLU rounds up, to at least 1, by default, as in HALoS' code. How the paper rounds is not established; the
//          toy rounds down, to at least 5 steps, in a branch that is never reached. HALoS gets the speeds as input;
//          here they are measured: steps over seconds of everything that a worker has delivered, also if it has left
//          since. Until its first difference a worker takes H steps. If times vary, no measured speed quite equals that
//          of the fastest worker, so with rounding down nearly all take one step less than their mean times would give.
// Checks:  iterations in double precision; n = 1 is Nesterov at each arrival, beta = 0 the plain step at rate / n; K =
//          1 is the step at each arrival; n arrivals from one model are one Nesterov step along their mean; DyLU: equal
//          speeds give H to all, golden counts.
#pragma once

#include <cmath>
#include <span>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Dynamic local updates (DyLU): a worker takes the number of local steps that it can do while the fastest one takes H.
struct DynamicSteps {
  enum class Rounding { up, down };
  Rounding rounding = Rounding::up;
  Step minimum{1};

  // The number of steps of a worker with this share of the fastest worker's speed. `most`: H.
  Step at(double share_of_fastest, Step most) const;
};

// Measures speeds: seconds on a worker's own clock from receiving the model to the last local step. Delays, pauses and
// outages count; messages do not.
class Dylu {
 public:
  Dylu(const std::optional<DynamicSteps>& rule, Step most, int workers) : rule_(rule), most_(most), pace_(workers) {}

  // The number of steps to send along with the worker's next model; empty without a rule.
  std::vector<double> numbers_for(Rank worker) const {
    if (!rule_) return {};
    return {static_cast<double>(of(worker).value())};
  }
  // Records the speed at which this difference was made. Its first number is the seconds that its steps took.
  void add(const Message& difference, int micro_batches) {
    if (rule_) measure(difference.from, difference.work().micro_batches / micro_batches, difference.numbers.front());
  }

  void measure(Rank worker, std::int64_t steps, double seconds);
  // The worker's number of steps; H if it has not been measured.
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

// Options of a worker's rounds. async_local_sgd.hpp describes moments, schedules, lost states and used-up data.
struct DeltaExchange {
  Step local_steps{1};                      // H
  std::optional<DynamicSteps> dylu{};       // none: all workers take H
  StatePolicy moments = StatePolicy::keep;  // moments of a worker's optimizer at each round's start; or reset

  // The minimum number of steps in a difference. A worker whose data are used up may send fewer.
  Step fewest_steps() const { return dylu ? dylu->minimum : local_steps; }
};

// Runs a worker's rounds until its server sends no more models.
void run_rounds(Worker& worker, const DeltaExchange& rounds);

// Reads the keys `local_steps`, `steps_by_speed` = "no" / "up" / "down" and `minimum_steps`; and the key `moments`.
DeltaExchange read_delta_exchange(Settings& settings, const AlgorithmContext& context);
StatePolicy read_moments_of_rounds(Settings& settings);

// The state that a rule of the server keeps from one difference to the next.
struct UpdateState {
  ModelStatePtr momentum{};  // null before the first step that has momentum
  ModelStatePtr sum{};       // weighted sum of the differences since the last update; null: none
  int count = 0;             // number of these differences
  std::int64_t micro_batches = 0;
};

// The rule for the weight of a difference in an update.
struct DifferenceWeight {
  bool by_workers = false;        // 1 / sqrt(N)
  double staleness_exponent = 0;  // a: (1 + staleness)^-a
  double average_staleness = 0;   // the staleness whose weight is 1

  double of(Step staleness, int workers) const {
    const double relative = (1.0 + static_cast<double>(staleness.value())) / (1.0 + average_staleness);
    const double by_staleness = std::pow(relative, -staleness_exponent);
    return by_workers ? by_staleness / std::sqrt(workers) : by_staleness;
  }
};

class ServerUpdate {
 public:
  virtual ~ServerUpdate() = default;
  // The number of differences per update; after it workers get a newer model.
  virtual int differences() const { return 1; }
  // Adds an accepted difference, times `weight`; publishes after each update.
  virtual void take(Server& server, const Message& difference, double weight, UpdateState& state) const = 0;
  // Called when all workers have left: steps along the differences not used yet.
  virtual void end(Server&, UpdateState&) const {}
};

// m = beta m + g;  theta -= rate (g + beta m). A momentum of 0 is the plain step.
std::unique_ptr<const ServerUpdate> make_nesterov_update(double rate, double momentum);

// At every n-th difference m = beta m + (mean of the last n);  theta -= rate ((1 - c n + c) beta m + g / n).
// At all other differences: theta -= rate (c beta m + g / n), with m unchanged.
struct DelayedNesterov {
  double rate = 1;
  double momentum = 0;  // beta
  int every = 1;        // n
  // c, the momentum's share at each difference that is not an n-th one. Above 1 / n the n-th would get less than c.
  double share = 0;
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
  std::string_view name;      // TOML name
  std::string_view sentence;  // one-sentence description
  std::unique_ptr<const ServerUpdate> (*make)(Settings& settings, const BudgetCheck& differences);
};
std::span<const ServerUpdateRow> server_updates();

// Reads a table such as { name = "nesterov", rate = 0.07, momentum = 0.9 }. Never returns null.
std::unique_ptr<const ServerUpdate> make_server_update(Settings settings, const BudgetCheck& differences);

}  // namespace syncopate
