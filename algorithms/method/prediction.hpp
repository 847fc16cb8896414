// Prediction: a method's time by formulas, before it runs or for comparison with the time that a run took.
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

// The quantities of a run that formulas use. The referenced objects must outlive this struct.
struct PredictionInput {
  int workers = 1;
  int micro_batches = 1;
  const SampledTimes& times;
  const NetworkModel& network;
  Bytes parameter_bytes{};
  int moments = 0;  // number of the optimizer's moments
  Budget budget{};
  std::int64_t samples_per_micro_batch = 1;
  const LearningRate& learning_rate;
  std::vector<ExchangesFrom> exchanges{};     // collectives of a compressed sum of gradients; empty: not compressed
  std::vector<Exchange> average_exchanges{};  // collectives of a compressed average, or of each slice; empty: dense
  std::optional<Bytes> packet{};              // size of a compressed message to each server; none: not compressed

  // The time of an all-reduce of a gradient, compressed or not. If compression changes during the run, this is the mean
  // over the run's steps, or the time in its last steps if their number is unknown.
  double all_reduce_s() const;
  double dense_all_reduce_s() const;  // without compression
  // How long a step of synchronous SGD waits for the all-reduce once all workers have computed, which is less than the
  // all-reduce's time if it overlaps the backward pass. Then it is a mean over the drawn steps; none if these have too
  // many micro-batches to store.
  std::optional<double> visible_all_reduce_s() const;
  // How long a step of synchronous SGD, as the baseline of comparisons, waits for its uncompressed all-reduce.
  double sync_sgd_s() const;
  double average_s(const AveragePolicy& policy) const;  // time of an average of models, compressed or not
  double exchanges_s(const std::vector<Exchange>& of_one) const;
  // message_s: the time of a message with a model between a worker and a server. gradient_message_s: the time of a
  // message with a gradient or difference to the server, compressed or not. With several servers a message has one
  // slice. If workers have different links, both functions return the time of the fastest link.
  double message_s(int servers = 1) const;
  double gradient_message_s(int servers = 1) const;
};

// The slowest worker's expected time for a step by one formula, for comparing a method with synchronous SGD.
struct SlowestWorker {
  std::string formula;
  double step_s = 0;   // E[T]
  double error_s = 0;  // standard error of step_s if it is a mean over drawn steps
  bool by_equation_4 = false;
  bool is_sampled = false;
};
// Returns the results of all formulas that apply:
// - from the distribution of a step's time, if it has a variance: Eq. 4 for equal workers, or the expected maximum of
//   independent normal variables for unlike workers;
// - the mean over the drawn steps, if all workers were drawn (SampledTimes), as for up to 4,096 workers.
// The result is empty if neither applies.
std::vector<SlowestWorker> slowest_workers(const PredictionInput& input);

// Reasons for having no prediction: only drawn steps of all workers could give one, and there are too many workers.
inline constexpr const char* has_no_variance =
    "its steps have no finite variance, and there are too many workers and micro-batches to draw them all";
inline constexpr const char* not_all_drawn = "too many workers to draw them all";

struct Prediction {
  std::string formula;     // where the prediction comes from, such as "Eqs. 4 to 6"
  double step_time_s = 0;  // mean over the run
  // The part of step_time_s spent in collectives and while messages are in flight. None: the formula does not give it.
  std::optional<double> communication_s{};
  double kept = 1;                    // share of a step's N x M micro-batches that are used in the model
  std::optional<double> drop_rate{};  // share of micro-batches that are dropped; none: the formula does not give it
  // Step time of synchronous SGD by the same formula. With `predict --against`: the step time of the named method,
  // divided by the share of micro-batches that it keeps. NaN: not available.
  double sync_step_time_s = 0;
  double step_error_s = 0;       // standard error of step_time_s if it is a mean over drawn steps
  double kept_error = 0;         // standard error of kept
  double sync_step_error_s = 0;  // standard error of sync_step_time_s
  bool is_sampled = false;       // based on drawn steps, which are steps of the run itself

  // S_eff of Eq. 6: micro-batches per time, relative to synchronous SGD.
  double effective_speedup() const { return kept * sync_step_time_s / step_time_s; }
  // The standard error of effective_speedup(), as if its three factors were drawn independently. They are means over
  // the same drawn steps, whose errors mostly have the same sign, so the result is rather too large. It is 0 if the
  // speed-up is 1, as for the baseline.
  double effective_speedup_error() const;
  std::optional<double> communication_share() const {
    return communication_s ? std::optional(*communication_s / step_time_s) : std::nullopt;
  }
  bool operator==(const Prediction&) const = default;
};

// Whether a formula differs from a mean over drawn steps by more than three standard errors of that mean. Chance does
// not explain such a difference, so the mean is the better prediction. A difference that the four digits of the tables
// do not show does not count.
bool misses(const Prediction& formula, const Prediction& sampled);

// The predictions of a method by its paper's formulas, or why there are none.
struct Forecast {
  std::vector<Prediction> predictions{};
  std::string why_none{};  // empty if there are predictions, or if no paper has a formula for the method
  // Whether the times take into account that exchanges may overlap the backward pass (network.overlap).
  bool minds_overlap = false;

  static Forecast none(std::string why = "none for these settings") { return {{}, std::move(why)}; }
  // `why_none` is ignored unless the list is empty.
  static Forecast of(std::vector<Prediction> predictions, std::string why_none);
};

// Predicts steps that wait for the first `quorum` of N workers, which all begin together, and for messages that take
// `round_trip_s`. The wait for workers is an order statistic of the sampled distribution; for workers that differ, or
// are late together, it is an order statistic of the sampled steps. There is no prediction unless all workers were
// drawn. If late work is not cancelled (`cancels`), the result is a lower bound, since late workers begin the next step
// late.
Forecast predict_quorum(int quorum, bool cancels, double round_trip_s, const PredictionInput& input);

// The predicted time until the run reaches the first limit of its budget; none if the budget limits only bytes.
std::optional<double> time_of_budget(const PredictionInput& input, const Prediction& prediction);

}  // namespace syncopate
