// Prediction: a method's time by formulas, before it runs or beside what a run took.
// Units:   seconds; times are means over the run, per step of the experiment file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workers/compression/compressor.hpp"
#include "workers/theory/sampled_times.hpp"
#include "workers/time/network.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// The data of a run that formulas use. The references outlive it.
struct PredictionInput {
  int workers = 1;
  int micro_batches = 1;
  const SampledTimes& times;
  const NetworkModel& network;
  Bytes parameter_bytes{};
  int moments = 0;  // vectors of the optimizer's state
  Budget budget{};
  std::int64_t samples_per_micro_batch = 1;
  const LearningRate& learning_rate;
  std::vector<ExchangesFrom> exchanges{};     // of compressed sums of gradients; none: they are dense
  std::vector<Exchange> average_exchanges{};  // of a compressed average of models, or of slices, each; none: dense
  std::optional<Bytes> packet{};              // of a compressed message to a server, of several to each; none: dense

  // All-reduce of a gradient, compressed or not; where compression changes, on average over the run, or as in its last
  // steps where their number is not known.
  double all_reduce_s() const;
  double dense_all_reduce_s() const;  // of a whole one
  // The wait of a step of synchronous SGD for it once all have computed: less, where it overlaps the backward pass. The
  // mean over the drawn steps; none where their micro-batches were too many to keep.
  std::optional<double> visible_all_reduce_s() const;
  // The same of a whole gradient, for synchronous SGD as the method that others are compared with.
  double sync_sgd_s() const;
  double average_s(const AveragePolicy& policy) const;  // of models, compressed or not
  double exchanges_s(const std::vector<Exchange>& of_one) const;
  Bytes averaged_bytes(const AveragePolicy& policy) const;
  // A model from a server, or to it (of several, a slice each), and a gradient or difference to it, compressed or not.
  // If workers have different links, the fastest's.
  double message_s(int servers = 1) const;
  double gradient_message_s(int servers = 1) const;
  std::optional<Step> steps() const { return budget.steps; }  // of the run; none: the budget does not count them
  // The same by another schedule, which outlives the result.
  PredictionInput at_rate(const LearningRate& rate) const {
    return {workers, micro_batches,           times, network,   parameter_bytes,   moments,
            budget,  samples_per_micro_batch, rate,  exchanges, average_exchanges, packet};
  }
};

// A law of the slowest worker's step, for comparing a method with synchronous SGD.
struct SlowestWorker {
  std::string formula;
  double step_s = 0;   // E[T]
  double error_s = 0;  // its standard error, where it is sampled
  bool by_equation_4 = false;
  bool is_sampled = false;
};
// All laws that exist. By the law of a step, if it has a variance: Eq. 4 for equal workers, independent normal workers
// else. By the mean of the drawn steps, if all workers were drawn (SampledTimes), as up to 4,096 are. So there is none
// for more workers than that whose steps have no variance.
std::vector<SlowestWorker> slowest_workers(const PredictionInput& input);

// Why there is no prediction where only a sample of all workers could tell, and where they are too many for one.
inline constexpr const char* has_no_variance =
    "its steps have no variance, and there are too many workers and micro-batches to draw them all";
inline constexpr const char* not_all_drawn = "too many workers to draw them all";

struct Prediction {
  std::string formula;     // where it comes from, such as "Eqs. 4 to 6"
  double step_time_s = 0;  // mean over the run
  // Of it, as accounts book it: in collectives, and while messages are under way. None: the formula does not say.
  std::optional<double> communication_s{};
  double kept = 1;                    // share of the N x M micro-batches of a step that end up in the model
  std::optional<double> drop_rate{};  // of what is computed; none: the formula does not say
  // Synchronous SGD by the same formula; in `predict --against` the named method, for all micro-batches of a step; NaN:
  // it has none.
  double sync_step_time_s = 0;
  double step_error_s = 0;       // standard error of step_time_s, where it is a mean over drawn steps
  double kept_error = 0;         // the same of kept
  double sync_step_error_s = 0;  // and of sync_step_time_s
  bool is_sampled = false;       // it goes by drawn steps, which are also the run's own

  // S_eff of Eq. 6: micro-batches per time, in multiples of synchronous SGD's.
  double effective_speedup() const { return kept * sync_step_time_s / step_time_s; }
  // Its standard error, as if its three parts were drawn independently. They are means over the same drawn steps and
  // mostly err the same way, so that this is rather too much; 0 where a step is that of the baseline.
  double effective_speedup_error() const;
  std::optional<double> communication_share() const {
    return communication_s ? std::optional(*communication_s / step_time_s) : std::nullopt;
  }
  bool operator==(const Prediction&) const = default;
};

// Whether a formula differs from a mean over drawn steps by more than three of its standard errors, which is too much
// for chance, so that the mean is the better guide. Differences that the tables' four digits do not show do not count.
bool misses(const Prediction& formula, const Prediction& sampled);

// The predictions of a method by its paper's formulas, or why there are none.
struct Forecast {
  std::vector<Prediction> predictions{};
  std::string why_none{};  // empty where there are some, and where no paper has a formula
  // Whether its times are those of exchanges during the backward pass where the network overlaps them.
  bool minds_overlap = false;

  static Forecast none(std::string why = "none for these settings") { return {{}, std::move(why)}; }
  // `why_none`: for an empty list.
  static Forecast of(std::vector<Prediction> predictions, std::string why_none);
};

// Steps that wait for the first `quorum` of N workers who all begin with them, and for `round_trip_s`: the order
// statistic of the sampled law, or, for workers who are unlike or late together, of sampled steps. None where workers
// were not all drawn. A lower bound where late work is not cancelled, since its worker then begins late.
Forecast predict_quorum(int quorum, bool cancels, double round_trip_s, const PredictionInput& input);

// The time of a run with this prediction, up to the first limit of its budget; none where only bytes limit it.
std::optional<double> time_of_budget(const PredictionInput& input, const Prediction& prediction);

}  // namespace syncopate
