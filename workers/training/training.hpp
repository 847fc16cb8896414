// The training engine: turns promises (gradients and models that are not computed yet) into arithmetic tasks for the
// executor. It knows neither workers nor clocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/training/executor.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {

// Sharpness of a loss: the largest eigenvalue of its Hessian, by power iteration, and the Hessian's trace, by
// Hutchinson's estimator.
// Source:  the stopping rules and random vectors of PyHessian (Yao et al. 2020); Hutchinson 1990.
// Shapes:  vectors (P,) in double precision.
// Cost:    one product of the Hessian and a vector per iteration or draw, at most `most_products` for each measure; up
//          to twice that number if the eigenvalue of largest magnitude is negative.
// Differs: power iteration finds the eigenvalue of largest magnitude. If it is negative, the iteration is repeated with
//          the Hessian shifted by it, which gives the largest eigenvalue.
// Checks:  diagonal matrices; a linear softmax regression's Hessian, assembled in double precision; gradient descent is
//          stable exactly at learning rates below 2 / the largest eigenvalue.
using HessianProduct = std::function<std::vector<double>(std::span<const double> vector)>;

struct CurvatureOptions {
  int most_products = 100;
  double tolerance = 1e-3;  // stops once the estimate changes by less than this share
  std::uint64_t seed = 0;   // seed of the random vectors, which are the same at every call
};

double largest_eigenvalue(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);
// The mean of v^T H v over random vectors v of +1 and -1. Exact after one draw if H is diagonal.
double hessian_trace(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);

// How much the gradients of single samples differ from their mean. This indicates how useful a larger batch is.
// Source:  the simple noise scale of McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", B = tr(S) /
//          |G|^2: a step with a batch of B samples makes half the progress of the best step along the full gradient.
// Method:  with n samples' gradients g_i and their mean g: tr(S) = (mean |g_i|^2 - |g|^2) n / (n - 1), and |G|^2 =
//          |g|^2 - tr(S) / n, because the mean over n samples is itself noisy. Both are unbiased. Uses single samples
//          instead of batches, because neighbours in a data set may be similar.
// Shapes:  gradients (P,) in double precision.
// Checks:  gradients with a known covariance; how the squared norm of a mean of B gradients falls as B grows.
struct GradientNoise {
  double variance = 0;            // tr(S): variance of a sample's gradient
  std::optional<double> scale{};  // B, in samples; nullopt if the estimate of |G|^2 is not above 0 (too few samples)
};

// Needs at least two samples.
GradientNoise gradient_noise(std::size_t size, std::int64_t samples,
                             const std::function<std::vector<double>(std::int64_t sample)>& gradient_of);

// The bias of the gradients that a method keeps when it drops others. Proofs for methods that drop assume that it is 0.
// Source:  the assumption is that of Giladi et al. 2023, Theorem 4.1, where times do not depend on the data; the
//          estimate is ours.
// Method:  all gradients are those of one model. Even steps have h = 0, odd steps h = 1. m_h is the mean gradient of
//          all micro-batches, k_h that of the kept ones, and S_h the number of steps. Gradients of different steps have
//          independent noise. So the expected value of (k_0 - m_0) . (k_1 - m_1) is the squared bias, and that of
//          m_0 . m_1 is the squared gradient. |k_0 - k_1|^2 / (1 / S_0 + 1 / S_1) estimates a step's noise.
// Shapes:  gradients (P,) in double precision.
// Checks:  gradients with a known bias and noise; random drops have no bias.
struct GradientBias {
  double squared_bias = 0;      // negative if noise outweighs a small bias
  double squared_gradient = 0;  // negative if noise outweighs a small gradient
  double squared_noise = 0;     // of the mean gradient of the micro-batches that one step keeps

  bool operator==(const GradientBias&) const = default;
};

// nullopt if the even or the odd steps keep nothing.
std::optional<GradientBias> gradient_bias(const Objective& objective, const float* parameters,
                                          std::span<const MicroBatch> kept, std::span<const MicroBatch> dropped);

// Elements [from, from + size) of another model's parameters are copied to [to, to + size) of this model's.
struct TakenElements {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t size = 0;
};

// The values with which a training starts, if they are not the model's own initial values.
struct StartingPoint {
  std::vector<float> parameters;       // (P,)
  std::vector<float> buffers{};        // normalisation statistics; empty: the model's initial ones
  std::vector<TakenElements> taken{};  // copy only these elements and initialise the others; empty: copy all
};

// How a synchronisation changes each part of the state.
enum class StatePolicy { keep, average, reset };
struct AveragePolicy {
  // SGD's momentum is the first moment; Adam has two, GPA three. Each moment has an age for its bias correction;
  // age_of_mean returns the age of an average.
  std::array<StatePolicy, most_moments> moments{};  // keep
  StatePolicy buffers = StatePolicy::average;       // BatchNorm statistics; reset restores their initial values
  StatePolicy parameters = StatePolicy::average;    // `keep` if only moments are averaged

  // The number of averaged vectors of the parameters' length, for an optimizer with this many moments.
  int averaged_vectors(int optimizer_moments) const {
    return (parameters == StatePolicy::average ? 1 : 0) +
           static_cast<int>(std::count(moments.begin(), moments.begin() + optimizer_moments, StatePolicy::average));
  }
  bool operator==(const AveragePolicy&) const = default;
};

// How a step clips its gradient, in runs that clip gradients.
enum class Clipping {
  of_step,  // scales it to a global norm of at most Training::Options::clip_norm
  none,     // no clipping, because the gradient's parts have already been clipped separately
};

struct Evaluation {
  double test_loss = 0;
  double test_accuracy = 0;  // fraction; NaN if the objective has no accuracy
  double train_loss = 0;     // on the first `train_samples` of the training set
  bool finite = true;        // false: the model has diverged (a loss is infinite or NaN)
  // On the validation samples; NaN if there are none. The accuracy is also NaN if the objective has no accuracy.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double validation_accuracy = std::numeric_limits<double>::quiet_NaN();
};

// Measures of a model in addition to its losses. Each is set if it was requested.
struct ModelMeasures {
  std::optional<double> gradient_norm{};
  std::optional<double> gradient_variance{};  // GradientNoise::variance
  std::optional<double> noise_scale{};        // GradientNoise::scale, in samples
  std::optional<double> largest_eigenvalue{};
  std::optional<double> hessian_trace{};
  // Set with largest_eigenvalue or hessian_trace, which scale with the inverse square of this norm if the network
  // normalises.
  std::optional<double> parameter_norm{};
};
struct MeasureOptions {
  bool gradient_norm = false;
  bool noise_scale = false;  // also gradient_variance
  bool largest_eigenvalue = false;
  bool hessian_trace = false;
  std::int64_t samples = 1000;   // from the start of the training set
  CurvatureOptions curvature{};  // for each of the eigenvalue and the trace

  bool any() const { return gradient_norm || noise_scale || largest_eigenvalue || hessian_trace; }
};

// The mean of several models' evaluations. It is finite if all of them are.
Evaluation mean_of(std::span<const Evaluation> evaluations);

class Training {
 public:
  struct Options {
    double clip_norm = 0;                          // maximum global L2 norm of a gradient; 0: no clipping
    std::int64_t train_samples = 10000;            // samples for train_loss
    std::uint64_t seed = 0;                        // draws the initial parameters
    std::shared_ptr<const StartingPoint> start{};  // replaces the initial values; null: keeps them
    // Called by the submitting thread, once for each micro-batch whose gradient is used in an optimizer step.
    std::function<void(const MicroBatch&)> on_kept{};
    // The processes that divide the work of `workers` workers (gradient_sum.hpp). Null: this process does all work.
    ProcessGroup* processes = nullptr;
    int workers = 1;
  };

  // objective = null makes a time-only run: states are null and nothing is computed.
  Training(std::shared_ptr<const Objective> objective, std::shared_ptr<const Optimizer> optimizer, Options options,
           Executor& executor);

  bool time_only() const { return !objective_; }
  const Objective& objective() const { return *objective_; }
  // Returns `weight`, or the worker's number of samples if it is by_samples.
  double model_weight(double weight, Rank worker) const {
    if (weight != by_samples) return weight;
    return objective_ ? std::max(1.0, static_cast<double>(objective_->samples_of(worker))) : 1;
  }
  Executor& executor() { return executor_; }
  // 4 P; in time-only runs the value passed to set_parameter_bytes.
  Bytes parameter_bytes() const {
    return objective_ ? Bytes{static_cast<Bytes::Rep>(4 * objective_->parameters())} : declared_bytes_;
  }
  void set_parameter_bytes(Bytes bytes) { declared_bytes_ = bytes; }
  // The objective's tensors; in time-only runs those passed to set_tensors, if any.
  std::vector<ParameterTensor> tensors() const { return time_only() ? declared_tensors_ : objective_->tensors(); }
  void set_tensors(std::vector<ParameterTensor> tensors) { declared_tensors_ = std::move(tensors); }

  ModelStatePtr initial_state();

  // While it exists, submitted work is computed for the participant `rank`, or at `places`, if work is divided.
  class AskedBy {
   public:
    AskedBy(Training& training, Rank rank)
        : AskedBy(training, training.divided_ ? training.divided_->place_of(rank) : ProcessSet::everywhere()) {}
    AskedBy(Training& training, ProcessSet places)
        : training_(training), before_(std::exchange(training.asker_, places)) {}
    ~AskedBy() { training_.asker_ = before_; }
    AskedBy(const AskedBy&) = delete;
    AskedBy& operator=(const AskedBy&) = delete;

   private:
    Training& training_;
    ProcessSet before_;
  };
  // Disconnects from the other processes. Call it before the executor or this object is destroyed.
  void leave_processes() {
    if (divided_) divided_->leave();
  }
  bool is_divided() const { return divided_ != nullptr; }
  DividedWork* divided() const { return divided_.get(); }  // null: work is not divided
  // The processes that compute the values requested now.
  ProcessSet place() const { return divided_ ? asker_ : ProcessSet::everywhere(); }
  bool is_here(ProcessSet places) const { return !divided_ || divided_->is_here(places); }

  // Submits work at `places` that reads some cells (null cells are skipped) and fills or changes others. The cells to
  // read are sent to `places` first; the cells to write exist only there afterwards. Returns null on other processes.
  struct CellWork {
    std::vector<CellPtr> reads{};
    std::vector<CellPtr> writes{};  // may be among `reads`
    std::function<void()> work{};
  };
  std::shared_ptr<Task> compute(CellWork&& what, ProcessSet places);
  std::shared_ptr<Task> compute(CellWork&& what) { return compute(std::move(what), place()); }
  // Sends the cells to those of `places` that lack them. Returns the tasks that produce them there.
  std::vector<std::shared_ptr<Task>> brought(std::span<const CellPtr> cells, ProcessSet places);
  // Returns `count` numbers, the same on all processes. `numbers` is called at `places` and may wait for tasks.
  std::vector<double> agreed_numbers(std::size_t count, ProcessSet places,
                                     const std::function<std::vector<double>()>& numbers);

  // Returns the state after one optimizer step from `state` along `gradient`. Calls with the same state, gradient sum,
  // weight and rate return the same object. An empty gradient counts as zeros: moments and weight decay still act, as
  // after an all-reduce of zeros. Move `state` into the call if you no longer need it, because cells that nothing else
  // holds are updated in place.
  struct StepRules {
    // Updates only this slice of parameters and moments; the rest becomes undefined. Not for layer-wise optimizers.
    Slice slice{};
    bool keeps_second = false;  // the second moment is not updated (Optimizer::beta1_of_frozen)
    Clipping clipping = Clipping::of_step;
  };
  ModelStatePtr descend(ModelStatePtr state, const Gradient& gradient, double learning_rate, const StepRules& rules);
  ModelStatePtr descend(ModelStatePtr state, const Gradient& gradient, double learning_rate) {
    return descend(std::move(state), gradient, learning_rate, StepRules());
  }
  // Returns the model to evaluate for `state`, the model that the optimizer steps. Most optimizers evaluate `state`
  // itself; others evaluate x (Optimizer::evaluated_factor), with the normalisation statistics of `state`. The moments
  // must belong to `state`.
  ModelStatePtr evaluated(const ModelStatePtr& state);
  // Clips a worker's sum over `micro_batches` micro-batches: scales it so that their mean has a global norm of at most
  // clip_norm. Returns a promise. If the run clips gradients, the clipped sum is computed even if it is never used.
  // Normalisation statistics are not scaled.
  Gradient clipped(Gradient gradient, std::int64_t micro_batches);

  // Returns a shared sum, which is evaluated once for all its holders. Its micro-batches are grouped by model and added
  // in the order of (worker, step, micro-batch).
  Gradient share(const Gradient& gradient);

  // Returns the gradients of those layers of a micro-batch that are complete when a deadline stops its backward pass
  // after this share of it. The first overload returns a promise; the second cuts a sum that has been evaluated and is
  // not shared. Returns nullopt if no tensor's gradient is complete, or in time-only runs.
  std::optional<Gradient> partial_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                           double backward_share) const;
  std::optional<Gradient> partial_gradient(std::shared_ptr<GradientSum> evaluated, double backward_share) const;
  // contributions() returns the number of micro-batches that contribute to each tensor's gradient, in the order of the
  // flat vector; in time-only runs one number for all tensors. weigh_tensors() rescales a shared sum by these numbers
  // (Counted::by_tensor); only the first call for a sum has an effect.
  std::vector<double> contributions(const Gradient& gradient) const;
  void weigh_tensors(const Gradient& shared, std::span<const double> contributions) const;

  // Averages the parts of the states that the policy averages. Returns one new state per old state; equal new states
  // are one object. `weights`: one per state, divided by their sum; empty: equal weights. With a slice, the parameters
  // outside it are those of one of the states.
  std::vector<ModelStatePtr> average(std::span<const ModelStatePtr> states, const AveragePolicy& policy,
                                     std::span<const double> weights = {}, Slice slice = {});

  // Returns the sum of weight x parameters, with buffers from `buffers_of` or, if that is null, the sum of weight x
  // buffers. (Weights below 0 or above 1 can make a variance negative.) Moments are those of the first term.
  ModelStatePtr combine(std::span<const WeightedState> terms, const ModelStatePtr& buffers_of = nullptr);

  // Returns (1 - share) x `from` + share x `to`, with one share per tensor in the order of the flat vector, or one
  // share for all. Gives exactly `from` for a share of 0 and `to` for 1. Moments and buffers are those of `to`, or
  // those of `from` if all shares are 0.
  ModelStatePtr combine_tensors(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares);

  // Returns a model whose parameters `work` computes from those of the inputs, element by element: out[i] from element
  // i of each input. Buffers and moments are those of the first input. Calls with equal inputs and the same `rule`,
  // which a number from new_state_id() identifies, return the same object.
  using ElementRule = std::function<void(std::span<const float* const> inputs, float* out, std::size_t size)>;
  ModelStatePtr elementwise(std::span<const ModelStatePtr> inputs, std::uint64_t rule, const ElementRule& work);

  // Returns the model with slice i from state i, the buffers of state 0, and the moments of `self`. Calls with equal
  // inputs share the parameters.
  ModelStatePtr assemble(const ModelStatePtr& self, std::span<const ModelStatePtr> slices);

  // Returns `whole` with one slice replaced by that of `part`; slice 0 also replaces the buffers. Calls with equal
  // inputs return the same object.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice);

  // Returns the state with new BatchNorm statistics, which are the mean of those of the given micro-batches.
  ModelStatePtr recalibrated(const ModelStatePtr& state, std::span<const MicroBatch> micro_batches);

  // The L2 distance of the parameters. Waits until they are computed. NaN in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b);
  // Like distance(), for each tensor, in the order of the flat vector; empty in time-only runs.
  std::vector<double> distances(const ModelStatePtr& a, const ModelStatePtr& b) {
    return objective_ ? distances(a, b, objective_->tensors()) : std::vector<double>();
  }

  // Calls `done` from an executor thread with the RMS of the models' L2 distances from their weighted mean.
  void measure_spread(std::vector<WeightedState> states, std::function<void(double)> done);

  // Calls `done` from an executor thread with measures of the mean loss over the first training samples.
  void measure(const ModelStatePtr& state, const MeasureOptions& options,
               std::function<void(const ModelMeasures&)> done);
  // Calls `done` from an executor thread with the L2 norm of a gradient.
  void measure_norm(const Gradient& gradient, std::function<void(double)> done);

  // Returns the state of `self` with the parameters and buffers of `other`, for a worker that adopts a model.
  ModelStatePtr adopt(const ModelStatePtr& self, const ModelStatePtr& other);

  // Evaluates a model and calls `done` from an executor thread; evaluations may end in any order. Several states are an
  // ensemble, which predicts the mean of its members' probabilities. The returned task ends after `done`.
  std::shared_ptr<Task> evaluate(std::vector<ModelStatePtr> states, std::function<void(const Evaluation&)> done);

  // Sets the number of micro-batches whose normalisation statistics a shared sum contains, if it is not the number of
  // micro-batches in the sum.
  void set_statistics(const Gradient& shared, std::int64_t micro_batches);

  // Returns the parameters, (P,). Waits until they are computed.
  std::vector<float> values(const ModelStatePtr& state) { return values(state->parameters); }
  // Returns the normalisation statistics; empty if the model has none.
  std::vector<float> buffer_values(const ModelStatePtr& state) { return values(state->buffers); }
  std::vector<float> values(const Gradient& gradient);  // (P,); without buffers
  double norm(const Gradient& gradient);                // L2; NaN in time-only runs
  // The mean of the micro-batches' mean losses. NaN if this process evaluated none of them, as in time-only runs.
  double loss(const Gradient& gradient);

  // The functions below are for clusters that send bytes (MPI). A gradient's values are those of its sum
  // (values_size). write_values() waits until the gradient is computed; an empty gradient writes zeros.
  std::size_t gradient_size(bool wide = false) const { return objective_ ? values_size(*objective_, wide) : 0; }
  void write_values(const Gradient& gradient, float* out);
  // Makes a gradient from received values. `carried` are the micro-batches known to be in them, for Options::on_kept.
  Gradient gradient_from(FlatVector values, std::int64_t micro_batches, Duration compute_time = {}, bool wide = false,
                         std::vector<MicroBatch> carried = {});
  // Returns the micro-batches to send together with a gradient's values; empty if Options::on_kept is not set.
  std::vector<MicroBatch> travelling(const Gradient& gradient) const;
  // Calls Options::on_kept for a sum that this process only forwards, without taking an optimizer step along it.
  void report_kept(std::span<const MicroBatch> micro_batches) const {
    for (const MicroBatch& micro_batch : micro_batches) options_.on_kept(micro_batch);
  }

  // Submits `work` that computes new values from a gradient. `work` runs at place(), after the prerequisites, and gets
  // the evaluated sum and its factor. Do not call it in time-only runs.
  std::shared_ptr<Task> submit_on(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                                  std::function<void(const GradientSum& sum, double scale)> work);
  // Like submit_on(), for one of several gradients that are needed separately, each with its own work. Gradients that
  // are held until begin_held() are evaluated together if that is faster. `submitted` is called with the task, at the
  // latest by begin_held().
  void hold(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
            std::function<void(const GradientSum& sum, double scale)> work,
            std::function<void(const std::shared_ptr<Task>&)> submitted);
  // Submits the held work. Call it before you request any result of the held work.
  void begin_held();
  // Returns a shared sum whose gradient_size() values are written by `fill`, which reads some cells (null cells are
  // skipped). Its loss is unknown.
  Gradient promised(std::int64_t micro_batches, std::vector<MicroBatch> carried, std::span<const CellPtr> reads,
                    std::function<void(float* out)> fill, Duration compute_time = {});
  // Returns the sum of cells of equal size, added in double precision, at all processes.
  CellPtr sum_of(std::vector<CellPtr> cells);

  // The part of a state that `policy` averages consists of parameters, averaged moments and averaged buffers, in this
  // order. averaged_size() returns the number of its floats; write_averaged() writes them. from_averaged() returns the
  // state with `mean` in place of this part, and applies the policy to all other parts.
  std::size_t averaged_size(const AveragePolicy& policy) const;
  void write_averaged(const ModelStatePtr& state, const AveragePolicy& policy, float* out);
  // `ages` are those of the averaged moments (age_of_mean), if there are any.
  ModelStatePtr from_averaged(const ModelStatePtr& state, const AveragePolicy& policy, const float* mean,
                              const MomentAges& ages = {});
  MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights) const {
    return objective_ ? syncopate::age_of_mean(ages, weights, optimizer_->decays()) : MomentAges();
  }

 private:
  struct WeightedCell {
    double weight = 1;
    CellPtr cell{};
  };

  struct Held {
    std::shared_ptr<GradientSum> sum;
    double scale = 1;
    ProcessSet places;
    std::vector<std::shared_ptr<Task>> prerequisites;
    std::function<void(const GradientSum&, double)> work;
    std::function<void(const std::shared_ptr<Task>&)> submitted;
  };

  std::vector<float> values(const CellPtr& cell);
  std::vector<double> distances(const ModelStatePtr& a, const ModelStatePtr& b,
                                const std::vector<ParameterTensor>& tensors);
  void report_kept(GradientSum& sum) const;
  ScaledSum fixed(const Gradient& gradient) const { return fix_sum(gradient, *objective_, divided_.get()); }
  std::shared_ptr<GradientSum> readable(const std::shared_ptr<GradientSum>& sum, ProcessSet places) {
    return sum_at(sum, places, objective_, executor_, divided_.get());
  }
  std::shared_ptr<Task> submit_reading(const std::shared_ptr<GradientSum>& sum, double scale, ProcessSet places,
                                       std::vector<std::shared_ptr<Task>> prerequisites,
                                       std::function<void(const GradientSum&, double)> work);
  bool is_elsewhere(const Held& held);
  bool is_evaluated_at(const GradientSum& sum, ProcessSet places) const;
  void measure_spread_of_processes(std::vector<WeightedState> states, std::function<void(double)> done);
  ProcessSet place_of_step(const ModelState& state, const Gradient& gradient) const;
  ModelStatePtr submit_step(ModelStatePtr state, std::shared_ptr<GradientSum> sum, double scale, double learning_rate,
                            bool exclusive, const StepRules& rules, ProcessSet places);
  // Returns the mean of inputs of `size` floats, at all processes that have one of them. A null cell counts as zeros.
  CellPtr submit_mean(std::vector<CellPtr> inputs, std::size_t size, Slice slice = {});
  CellPtr submit_combination(std::span<const WeightedCell> terms, std::size_t size, ProcessSet places);
  CellPtr submit_mean_of_processes(std::vector<CellPtr> inputs, std::size_t size, Slice slice, ProcessSet places);
  CellPtr submit_combination_of_processes(std::vector<WeightedCell> terms, std::size_t size, ProcessSet places);
  CellPtr submit_assembly(std::span<const ModelStatePtr> slices);
  // Returns a cell of `size` floats at `places`. `work` is called range by range and writes out[from] to out[to - 1].
  CellPtr submit_cell(std::size_t size, std::span<const CellPtr> reads, ProcessSet places,
                      std::function<void(float* out, std::size_t from, std::size_t to)> work);
  // Where work that reads these cells is computed: everywhere if all of them are everywhere, otherwise at place().
  ProcessSet place_of_reader(std::span<const CellPtr> reads) const;
  // Runs `work` on fixed subranges of [begin, end), after `first`. Returns a task that ends after all of them.
  std::shared_ptr<Task> submit_ranges(const std::shared_ptr<Task>& first, std::size_t begin, std::size_t end,
                                      std::function<void(std::size_t, std::size_t)> work);

  std::shared_ptr<const Objective> objective_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::shared_ptr<const std::vector<ParameterRange>> ranges_;  // null in time-only runs
  std::optional<BackwardOrder> backward_order_;                // nullopt in time-only runs
  Options options_;
  Executor& executor_;
  std::unique_ptr<DividedWork> divided_;  // null: work is not divided
  ProcessSet asker_;                      // the places of the participant for which work is being submitted
  Bytes declared_bytes_{};
  std::vector<ParameterTensor> declared_tensors_;
  std::vector<Held> held_;
  Memo<const ModelState> combined_;  // results of combinations, by their terms
  Memo<Cell> assembled_;             // results of assemble(), by slices
  // The only cell of assembled_ that is reused if work is divided: whether others still exist differs by process.
  CellPtr last_assembled_;
  Memo<const ModelState> mixed_;  // results of with_slice(), by the two models and the slice
};

}  // namespace syncopate
