// Asynchronous rounds of local steps: a worker receives the server's model, takes local steps, and sends the difference
// start - end. The server steps along each difference on arrival (plain, Nesterov, delayed Nesterov, look-ahead, Adam),
// or along several together (buffered).
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": Nesterov at each arrival, delayed
//          Nesterov, DyLU. Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff).
//          Ajanthan et al. 2025 (momentum look-ahead). Shah and Sun 2026, "CGAD".
// Shapes:  model, difference g, momentum m, sum: (P,) flat float32.   Units: seconds on the worker's own clock.
// Cost:    per round P floats up and P down, with DyLU 8 bytes more each way; at most three combinations of vectors
//          with P floats per difference.
// Differs: the code that Liu et al. published (a toy) has no delayed Nesterov. Its formula here is from the
//          optimizer of HALoS, which is by other authors. It divides g by n; so if each arrival is to step by r x g,
//          set the rate to n r. It is not established which n and c the paper uses. It is not established either
//          whether FedBuff's paper divides by K; its code (FLSim) does not by default. Here `reduce` selects the mean
//          or the sum, by default the mean, so that K does not change the length of a step. As in FLSim, weights are
//          divided by the weight of the staleness `average_staleness`, by default 0. BatchNorm statistics are those of
//          the newest difference. DyLU by default rounds up, to at least 1, as in HALoS' code. It is not established
//          how the paper rounds; the toy rounds down, to at least 5 steps, in a branch that is never reached. HALoS
//          gets the workers' speeds as input. Here they are measured: all steps that a worker has delivered, divided by
//          their seconds. A worker that has left still counts as the fastest if it was. Until its first difference a
//          worker takes H steps. If times vary, no other worker's measured speed quite equals the fastest worker's, so
//          with rounding down nearly all take one step less than their mean times would give.
//          CGAD is Adam with both factors by staleness, e^(-alpha s) and a gate. We have read only the abstract: it is
//          not established which gate, alpha, cutoff and rates the paper uses. The gate (1 + cos(pi s / cutoff)) / 2 is
//          this project's guess, and both factors are off by default. Adam is the adaptive outer step of
//          outer_optimizer.hpp, without bias correction. A difference of weight 0 still lets the momentum act.
// Checks:  iterations in double precision; delayed Nesterov with n = 1 is Nesterov at each arrival, and with beta = 0
//          the plain step at rate / n; n arrivals from one model are one Nesterov step along their mean; a buffer of
//          K = 1 is the step at each arrival; look-ahead and Adam follow an independent event simulation; Adam at
//          staleness 0 is FedAdam; DyLU: equal speeds give H to all, golden counts.
#pragma once

#include <cmath>
#include <functional>
#include <numbers>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Dynamic local updates (DyLU): a worker takes the number of local steps that it can do while the fastest one takes H.
struct DynamicSteps {
  enum class Rounding { up, down };
  Rounding rounding = Rounding::up;
  Step minimum{1};

  // The number of local steps of a worker with this share of the fastest worker's speed. `most`: H.
  Step at(double share_of_fastest, Step most) const;
};

// Options of a worker's rounds. async_local_sgd.hpp describes moments, schedules, lost states and used-up data.
struct DeltaExchange {
  Step local_steps{1};                      // H
  std::optional<DynamicSteps> dylu{};       // none: all workers take H steps
  StatePolicy moments = StatePolicy::keep;  // whether each round keeps or resets a worker's optimizer moments

  // The minimum number of steps in a difference. A worker whose data are used up may send fewer.
  Step fewest_steps() const { return dylu ? dylu->minimum : local_steps; }
};

// Measures workers' speeds, by the seconds on a worker's own clock from a round's model to its last local step. They
// include delays, pauses and outages, but no messages.
class Dylu {
 public:
  Dylu(const DeltaExchange& rounds, int workers) : rounds_(rounds), pace_(workers) {}

  // The number of steps to send along with the worker's next model; empty without a rule.
  std::vector<double> numbers_for(Rank worker) const {
    if (!rounds_.dylu) return {};
    return {static_cast<double>(of(worker).value())};
  }
  // Records the number of steps of this difference and the seconds that they took (its first number).
  void add(const Message& difference, int micro_batches) {
    if (rounds_.dylu)
      measure(difference.from, difference.work().micro_batches / micro_batches, difference.numbers.front());
  }

  void measure(Rank worker, std::int64_t steps, double seconds);
  // The worker's number of local steps; H if its speed has not been measured.
  Step of(Rank worker) const {
    const double own = pace_[worker].steps_per_s;
    if (!rounds_.dylu || own == 0) return rounds_.local_steps;
    return rounds_.dylu->at(own / pace_[fastest_].steps_per_s, rounds_.local_steps);
  }

 private:
  struct Pace {
    std::int64_t steps = 0;
    double seconds = 0;
    double steps_per_s = 0;
  };

  DeltaExchange rounds_;
  ByRank<Pace> pace_;
  Rank fastest_{};
};

// Runs a worker's rounds until its server sends no more models.
void run_rounds(Worker& worker, const DeltaExchange& rounds);

// Reads the keys `local_steps`, `steps_by_speed` = "no" / "up" / "down", and `minimum_steps`.
DeltaExchange read_delta_exchange(Settings& settings, const AlgorithmContext& context);
StatePolicy read_moments_of_rounds(Settings& settings, StatePolicy usual = StatePolicy::keep);  // the key `moments`

// The state that a server's rule keeps from one difference to the next.
struct UpdateState {
  OuterState moments{};  // null before the first step that has them
  ModelStatePtr sum{};   // weighted sum of the differences since the rule last used up this sum; null: none
  int count = 0;         // number of these differences
  std::int64_t micro_batches = 0;
};

// A difference's weight in an update.
struct DifferenceWeight {
  bool by_workers = false;        // whether it has the factor 1 / sqrt(N)
  double staleness_exponent = 0;  // a of the factor (1 + staleness)^-a
  double average_staleness = 0;   // the staleness for which the factor with a is 1
  double staleness_decay = 0;     // alpha of the factor e^(-alpha staleness)
  // The staleness from which on the weight is 0. Below it, the weight has a factor that falls along half a cosine.
  std::optional<double> staleness_cutoff{};

  double of(Step staleness, int workers) const {
    const auto s = static_cast<double>(staleness.value());
    double weight = std::pow((1.0 + s) / (1.0 + average_staleness), -staleness_exponent);
    if (by_workers) weight /= std::sqrt(workers);
    if (staleness_decay > 0) weight *= std::exp(-staleness_decay * s);
    if (!staleness_cutoff) return weight;
    return s < *staleness_cutoff ? weight * (1 + std::cos(std::numbers::pi * s / *staleness_cutoff)) / 2 : 0;
  }
};

// A server's rule for the differences that it accepts.
struct ServerUpdate {
  // Uses an accepted difference, times `weight`. Publishes the model after each update.
  std::function<void(Server& server, const Message& difference, double weight, UpdateState& state)> take;
  int differences = 1;  // per update of the model
  // Called when all workers have left: steps along the differences that no update has used.
  std::function<void(Server& server, UpdateState& state)> end = [](Server&, UpdateState&) {};
};

// m = beta m + g;  theta -= rate (g + beta m). A momentum of 0 is the plain step.
ServerUpdate make_nesterov_update(double rate, double momentum);

// m = beta m + (1 - beta) g; theta -= rate (beta m + g): the momentum is a mean, so that the step along equal
// differences tends to rate (1 + beta) g, where Nesterov's tends to rate g / (1 - beta).
// Source:  Ajanthan et al. 2025 (momentum look-ahead), as the code of HeLoCo's authors has it.
// Differs: it is not established whether the paper also extrapolates the model that workers receive: both are offered.
//          With `ahead` the server's own model is the extrapolated one; it publishes theta. In halos.hpp servers then
//          also merge and subtract the models that they hand out.
struct LookAhead {
  enum class HandOut {
    newest,  // workers receive theta
    ahead,   // workers receive theta - rate beta m, the model to which the momentum alone would move
  };
  // Returns the difference to step along, for a weighted difference and the momentum before it, which may be null.
  using Correction = std::function<ModelStatePtr(const Server&, const ModelStatePtr&, const ModelStatePtr&)>;

  double rate = 1;
  double momentum = 0;  // beta
  HandOut hand_out = HandOut::newest;
  Correction correction{};  // none: steps go along the difference itself
};
ServerUpdate make_look_ahead_update(const LookAhead& options);

// At every n-th difference m = beta m + (mean of the last n);  theta -= rate ((1 - c n + c) beta m + g / n).
// At all other differences: theta -= rate (c beta m + g / n), with m unchanged.
struct DelayedNesterov {
  double rate = 1;
  double momentum = 0;  // beta
  int every = 1;        // n
  double share = 0;     // c, at most 1 / n; with more, the n-th difference would have a smaller share than the others
};
ServerUpdate make_delayed_nesterov_update(const DelayedNesterov& options);

// Nesterov's step (plain with a momentum of 0) along the mean, or the sum, of every K differences.
struct Buffered {
  enum class Reduce { mean, sum };
  int size = 1;  // K
  double rate = 1;
  double momentum = 0;
  Reduce reduce = Reduce::mean;
};
ServerUpdate make_buffered_update(const Buffered& options);

// Reads a table such as { name = "nesterov", rate = 0.07, momentum = 0.9 }. After a fault it is the plain step.
ServerUpdate make_server_update(Settings settings, const BudgetCheck& differences);

}  // namespace syncopate
