// EDiT and A-EDiT: Local SGD with an outer optimizer that steps along pseudo-gradients (last model - worker's model).
// These are weighted by their norms, outliers are left out, and the sum is clipped. A round ends after H steps (EDiT),
// or after a time, however many steps each worker has taken (A-EDiT).
// Source:  Cheng et al. 2025, "EDiT: A Local-SGD-Based Efficient Distributed Training Method for Large Language
//          Models"; the rules follow its authors' code. The paper's own settings, equation numbers and tables are not
//          established. Defaults are the code's values, also for parts that the code switches off; the code uses
//          minimum_steps = 100 with sync_seconds = 600.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32; norms: (workers, modules) in double precision.
// Units:   sync_seconds in seconds.
// Cost:    per round an all-reduce of P floats, and before it an all-gather of 8 bytes per module and worker, plus 32
//          bytes per worker if weights or the round's end depend on steps. Each worker stores one more vector of P
//          floats, or two with an outer momentum, and W numbers per worker and module. A round of A-EDiT takes
//          sync_seconds, the longest remainder of a step in progress at that time, and the communication; with steps of
//          constant c s it has ceil(sync_seconds / c) steps.
// Differs: modules are tensors, as in the code's data-parallel path, or the whole model (`scope`); in its sharded path
//          they are layers. The code's sharded path clips per module, the other path the whole model (`clip_scope`).
//          Modules are synchronised together, not one by one during the next forward pass. The first, synchronous steps
//          are those of the post-local rule, or `warmup_steps` of A-EDiT. The code synchronises right after the last of
//          them; here that is left out. Each worker uses its own clock; the code uses the mean of all clocks, which is
//          not offered, and the paper's clock is not established. Time counts from the end of the last synchronisation.
//          In the code it counts from the worker's own arrival there (`counted_from = "arrival"`), so that fast workers
//          may end up with one step per round. In a round of A-EDiT, the steps by which a worker is behind the fastest
//          one count as dropped. All continue with the step number of the fastest, which the schedule follows; each
//          takes its data in turn.
//          Norms: if norms differ by much less than T, all weights are nearly equal; if they differ by much more, the
//          worker with the smallest norm has all the weight. More steps make larger norms, so the fast workers of
//          A-EDiT have less weight, unless `step_share` makes a part of it proportional to a worker's steps in the
//          round (in the code, since the run began). The weight that an outlier's steps would have is lost, as in the
//          code. A worker whose norms stay large remains an outlier, since an outlier's norm does not enter the
//          statistics. In the code's sharded path it does, with 1e6 added, after which no outliers are found for a
//          thousand rounds: this is a bug, and is not offered.
//          Mean and variance begin at 0, as in the code. NaN and infinity are outliers from the first round on; in the
//          code they never are, and spoil the statistics. If all workers are outliers in a module, it keeps its values
//          and its outer momentum. If outliers are switched off, or no worker has a finite norm, a norm that is not
//          finite makes weights equal and prevents clipping, so that divergence is visible.
//          BatchNorm statistics are plain means, and so are moments if they are averaged. A worker that is an outlier
//          in all modules contributes the statistics from the round's beginning, but its own moments.
// Outages: a worker that loses its state continues from the round's first model; the rest of its round has normal
//          weight. Norm statistics and outer momentum are the same on all workers, so it gets them with the model. A
//          worker that has used up its data ends the round at once, and the run fails if the others need it after that.
// Checks:  without outliers, with T = inf and with a plain outer rate of 1 it is Local SGD bit for bit, and with
//          Nesterov's outer step DiLoCo; equal step times c and sync_seconds = H c give EDiT bit for bit; the recursion
//          in double precision; mean, variance and first outlier of constant norms in closed form; weights against the
//          softmax, exactly equal for equal norms.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

// The penalty on pseudo-gradients: outliers, weights and clipping, computed from norms alone.
struct PenaltyOptions {
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  double outlier_factor = 3;        // the z-score above which a norm is an outlier; inf: no outliers
  int outlier_warmup = 120;         // W: number of first norms without outliers, and of z-scores in a deviation
  double outlier_smoothing = 0.02;  // a
  double temperature = 1;           // T, in units of a norm; inf: equal weights
  double step_share = 0;            // r: the share of a weight that is in proportion to steps
  double clip_norm = infinity;      // phi

  bool finds_outliers() const { return outlier_factor < infinity; }
};

// Statistics of the past norms of one worker's pseudo-gradients in one module. An outlier is a norm far above their
// mean.
class NormStatistics {
 public:
  // Whether the norm is an outlier: its z-score is above factor x max(1, deviation of the last W z-scores), or it is
  // NaN or infinity. The first W finite norms are no outliers.
  bool is_outlier(double norm, const PenaltyOptions& options) const {
    if (!options.finds_outliers()) return false;
    if (!std::isfinite(norm)) return true;
    if (taken_ < options.outlier_warmup) return false;
    const double factor = options.outlier_factor * std::max(1.0, recent_deviation());
    return z_score(norm, options.outlier_warmup) > factor;
  }

  // mean += a (norm - mean);  variance = (1 - a) (variance + a (norm - old mean) (norm - new mean)).
  void add(double norm, const PenaltyOptions& options) {
    const double a = options.outlier_smoothing, from_old = norm - mean_;
    mean_ += a * from_old;
    variance_ = (1 - a) * (variance_ + a * from_old * (norm - mean_));
    const auto at = static_cast<std::size_t>(taken_++ % options.outlier_warmup);
    if (at == z_scores_.size()) z_scores_.push_back(0);
    z_scores_[at] = z_score(norm, options.outlier_warmup);
  }

  double mean() const { return mean_; }
  double variance() const { return variance_; }

 private:
  double z_score(double norm, int warmup) const {
    return taken_ < warmup || variance_ == 0 ? 0 : (norm - mean_) / std::sqrt(variance_);
  }

  double recent_deviation() const {
    const auto count = static_cast<double>(z_scores_.size());
    if (count < 2) return 0;
    const double mean = std::accumulate(z_scores_.begin(), z_scores_.end(), 0.0) / count;
    double squares = 0;
    for (const double z : z_scores_) squares += (z - mean) * (z - mean);
    return std::sqrt(squares / (count - 1));
  }

  std::int64_t taken_ = 0;
  double mean_ = 0;
  double variance_ = 0;
  std::vector<double> z_scores_;  // the last W, each computed when it was added; a ring buffer once there are W
};

// The smallest W for which a constant norm is never an outlier, for any past z-scores. Since mean and variance begin at
// 0, the W-th z-score of a constant norm is sqrt(q^(W - 1) / (1 - q^W)) with q = 1 - a, and later ones are smaller.
// With a much smaller W all workers are outliers in all rounds.
int shortest_warmup(const PenaltyOptions& options);

// The penalty of one round. Except for `rolled_back`, vectors are indexed [worker x modules + module].
struct Penalty {
  int modules = 0;
  std::vector<NormStatistics> statistics{};  // after the round
  std::vector<double> factors{};             // N times the weight: 1 is the factor in a plain mean
  std::vector<bool> rolled_back{};           // by module: all workers are outliers, although some norms are finite

  std::span<const double> factors_of(Rank worker) const {
    if (factors.empty()) return {};  // no norms were evaluated
    return std::span(factors).subspan(static_cast<std::size_t>(worker.value * modules),
                                      static_cast<std::size_t>(modules));
  }
};

// `before`: the statistics after the previous round; empty in the first round. `norms`: as in Penalty. `steps`: each
// worker's steps in this round; empty unless weights depend on them.
Penalty penalise(std::span<const NormStatistics> before, std::span<const double> norms, std::span<const double> steps,
                 int modules, const PenaltyOptions& options);

// The factor that clips a sum of pseudo-gradients with this norm; 1 if the norm is not finite.
inline double clip_factor(double norm, double clip_norm) {
  return std::isfinite(norm) ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1;
}

// Rounds that end by time: a worker ends the round with its first step that ends at least `length` after the last
// synchronisation, on its own clock. No step is interrupted.
struct TimedRounds {
  enum class CountedFrom {
    end,      // from the end of the last synchronisation
    arrival,  // from this worker's arrival at it, so that the wait there is a part of the round's time
  };
  Duration length = longest_duration;  // tau_time
  CountedFrom counted_from = CountedFrom::end;
  std::int64_t minimum_steps = 1;  // all workers' steps together; after fewer the round lasts another `length`
  Step warmup_steps{};             // steps of synchronous SGD before the first round
};

struct EditOptions {
  enum class Scope { tensor, model };
  Scope scope = Scope::tensor;       // the kind of module: the unit that has norms and weights
  Scope clip_scope = Scope::tensor;  // the unit that is clipped
  PenaltyOptions penalty{};
  std::shared_ptr<const SyncPeriod> period{};  // EDiT; null: A-EDiT
  TimedRounds timed{};                         // for A-EDiT
  OuterOptimizer outer{};
  StatePolicies state{};
  std::optional<int> tensors{};  // number of the model's tensors; 1 in time-only runs; none: unknown

  bool is_timed() const { return !period; }
  bool sends_steps() const { return is_timed() || penalty.step_share > 0; }
  // The number of values that each worker gathers; none if the number of tensors is unknown.
  std::optional<std::int64_t> numbers_sent() const;
};

struct RoundWork {
  explicit RoundWork(const Worker& worker) : kept(worker) {}

  ResetOnOutage<Step> kept;  // steps that the worker's model includes
  Step passed{};             // steps taken in the round, including those lost in outages
  double rates = 0;          // sum of the learning rates of these steps
  double mean_rate() const { return passed > 0 ? rates / static_cast<double>(passed.value()) : 0; }
};

// The result that all workers agree on at the end of a round, before they average.
struct RoundMeeting {
  Penalty penalty{};
  Step longest{};           // largest number of steps that a worker has passed; 0 if not gathered
  double inner_rate = 0;    // mean learning rate of all workers' steps; 0 if not gathered
  bool is_put_off = false;  // whether the round continues, because it has fewer than `minimum_steps` steps
};

// Gathers the norms of the differences between all workers' models and `last`, and derives the penalty. `before`: the
// previous round's result; null in the first round.
std::shared_ptr<const RoundMeeting> meet(Worker& worker, const EditOptions& options, const ModelStatePtr& last,
                                         RoundWork& work, const std::shared_ptr<const RoundMeeting>& before);

// The norm of a vector whose parts have these norms.
inline double norm_of(const std::vector<double>& parts) {
  return std::sqrt(std::inner_product(parts.begin(), parts.end(), parts.begin(), 0.0));
}

class Edit : public Algorithm {
 public:
  explicit Edit(EditOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override;
  // Does not set follows_values: computed values decide weights, but neither times nor rounds.
  Traits traits() const override {
    return {.follows_clock = options_.is_timed(),
            .judges_budget_locally = true,
            .publishes_rounds = true,
            .held = {.models = 3},
            .exchanged_whole = "pseudo-gradients have unequal weights, and a compressed average has equal ones"};
  }
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  void take_steps(Worker& worker, Time counted_from, RoundWork& work) const;
  ModelStatePtr clip(const Worker& worker, const ModelStatePtr& last, const Penalty& penalty) const;
  ModelStatePtr take_outer_step(const Worker& worker, const OuterStep& at, const Penalty& penalty,
                                OuterState& outer) const;

  EditOptions options_;
};

std::unique_ptr<Algorithm> make_edit(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
