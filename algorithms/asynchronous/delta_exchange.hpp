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
#include <memory>
#include <span>
#include <string_view>

#include "algorithms/method/work_in_budget.hpp"
#include "workers/server.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

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
