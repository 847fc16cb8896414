// The training engine: turns promises into arithmetic for the executor. It owns no worker and no clock.
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

// Sharpness of a loss: the largest eigenvalue of its Hessian by power iteration, its trace by Hutchinson's estimator.
// Source:  the stopping rules and random vectors of PyHessian (Yao et al. 2020); Hutchinson 1990.
// Shapes:  vectors (P,) in double precision.
// Cost:    a product of the Hessian and a vector per iteration or draw, at most `most_products` each; twice as many if
//          the eigenvalue of largest magnitude is negative.
// Differs: power iteration finds the largest magnitude. If that eigenvalue is negative, the Hessian is shifted by it
//          and the iteration repeated, to return the largest eigenvalue.
// Checks:  diagonal matrices; a linear softmax regression's Hessian, assembled in double precision; gradient descent is
//          stable exactly below 2 / the largest eigenvalue.
using HessianProduct = std::function<std::vector<double>(std::span<const double> vector)>;

struct CurvatureOptions {
  int most_products = 100;
  double tolerance = 1e-3;  // stops once the estimate changes by less than this share
  std::uint64_t seed = 0;   // for the vectors, which are the same at every call
};

double largest_eigenvalue(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);
// The mean of v^T H v over random vectors of signs: exact after one draw if H is diagonal.
double hessian_trace(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);

// How much the gradients of single samples differ from their mean: indicates how useful a larger batch is.
// Source:  the simple noise scale of McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", B = tr(S) /
//          |G|^2: a step with a batch of B samples makes half the progress of the best step along the full gradient.
// Method:  with n samples' gradients g_i and their mean g: tr(S) = (mean |g_i|^2 - |g|^2) n / (n - 1), and |G|^2 =
//          |g|^2 - tr(S) / n, since the mean of n is noisy itself. Both are unbiased. Single samples are used, since
//          neighbours in a data set may be alike.
// Shapes:  gradients (P,) in double precision.
// Checks:  gradients with a known covariance; the fall of |mean of B|^2 with B.
struct GradientNoise {
  double variance = 0;            // tr(S): variance of a sample's gradient
  std::optional<double> scale{};  // B, in samples; none if |G|^2 is not above 0: too few samples
};

// Needs at least two samples.
GradientNoise gradient_noise(std::size_t size, std::int64_t samples,
                             const std::function<std::vector<double>(std::int64_t sample)>& gradient_of);

// Elements [from, from + size) of another model's parameters, copied to [to, to + size) of this one's.
struct TakenElements {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t size = 0;
};

// Where a training starts, if not at the model's own initial values.
struct StartingPoint {
  std::vector<float> parameters;       // (P,)
  std::vector<float> buffers{};        // normalisation statistics; empty: the model's initial ones
  std::vector<TakenElements> taken{};  // copy only these and initialise the rest; empty: copy all
};

// How a synchronisation changes each part of the state.
enum class StatePolicy { keep, average, reset };
struct AveragePolicy {
  // SGD's momentum is the first; Adam has two. Each has an age, for its bias correction; age_of_mean gives a mean's.
  std::array<StatePolicy, 2> moments = {StatePolicy::keep, StatePolicy::keep};
  StatePolicy buffers = StatePolicy::average;     // BatchNorm statistics; reset restores their initial values
  StatePolicy parameters = StatePolicy::average;  // or kept, if only moments are averaged

  // The number of averaged vectors as long as the parameters: the parameters and the averaged ones of these moments.
  int averaged_vectors(int optimizer_moments) const {
    return (parameters == StatePolicy::average ? 1 : 0) +
           static_cast<int>(std::count(moments.begin(), moments.begin() + optimizer_moments, StatePolicy::average));
  }
  bool operator==(const AveragePolicy&) const = default;
};

// How a step clips its gradient, in runs that clip gradients.
enum class Clipping {
  of_step,  // to a global norm of at most Training::Options::clip_norm
  none,     // not clipped: its parts have already been clipped separately
};

struct Evaluation {
  double test_loss = 0;
  double test_accuracy = 0;  // fraction; NaN if the objective has none
  double train_loss = 0;     // on the first `train_samples` of the training set
  bool finite = true;        // false: the model diverged
  // On the validation samples; NaN without any. The accuracy is also NaN if the objective has none.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double validation_accuracy = std::numeric_limits<double>::quiet_NaN();
};

// Measures of a model beside its losses; each is present if requested.
struct ModelMeasures {
  std::optional<double> gradient_norm{};
  std::optional<double> gradient_variance{};  // this one and the next: GradientNoise
  std::optional<double> noise_scale{};        // in samples
  std::optional<double> largest_eigenvalue{};
  std::optional<double> hessian_trace{};
  // Present with one of the previous two, which normalised layers scale by its square.
  std::optional<double> parameter_norm{};
};
struct MeasureOptions {
  bool gradient_norm = false;
  bool noise_scale = false;  // also gradient_variance
  bool largest_eigenvalue = false;
  bool hessian_trace = false;
  std::int64_t samples = 1000;  // from the start of the training set
  int most_products = 100;      // products with the Hessian, for each of the last two
  double tolerance = 1e-3;      // relative tolerance of the last two
  std::uint64_t seed = 0;

  bool any() const { return gradient_norm || noise_scale || largest_eigenvalue || hessian_trace; }
};

// The mean of several models' evaluations; finite if all are.
Evaluation mean_of(std::span<const Evaluation> evaluations);

class Training {
 public:
  struct Options {
    double clip_norm = 0;                          // global L2 norm of a gradient; 0: off
    std::int64_t train_samples = 10000;            // for train_loss
    std::uint64_t seed = 0;                        // draws the initial parameters
    std::shared_ptr<const StartingPoint> start{};  // replaces the initial parameters; null: none
    // Called once with each micro-batch whose gradient a model descends along, by the submitting thread.
    std::function<void(const MicroBatch&)> on_kept{};
    // For several processes that divide the work of `workers` workers (gradient_sum.hpp). Null: one process does all.
    ProcessGroup* processes = nullptr;
    int workers = 1;
  };

  // objective = null: a time-only run; states are null and nothing is computed.
  Training(std::shared_ptr<const Objective> objective, std::shared_ptr<const Optimizer> optimizer, Options options,
           Executor& executor);

  bool time_only() const { return !objective_; }
  const Objective& objective() const { return *objective_; }
  Executor& executor() { return executor_; }
  // 4 P, or, in time-only runs, the value given to set_parameter_bytes.
  Bytes parameter_bytes() const {
    return objective_ ? Bytes{static_cast<Bytes::Rep>(4 * objective_->parameters())} : declared_bytes_;
  }
  void set_parameter_bytes(Bytes bytes) { declared_bytes_ = bytes; }
  // The objective's tensors, or those that a time-only run declares, if it knows any.
  std::vector<ParameterTensor> tensors() const { return time_only() ? declared_tensors_ : objective_->tensors(); }
  void set_tensors(std::vector<ParameterTensor> tensors) { declared_tensors_ = std::move(tensors); }

  ModelStatePtr initial_state();

  // While it lives, values are computed for this worker or server, or for all, in runs with divided work.
  class AskedBy {
   public:
    AskedBy(Training& training, Rank rank) : divided_(training.divided_.get()) {
      if (divided_) before_ = divided_->exchange_asker(divided_->place_of(rank));
    }
    AskedBy(Training& training, ProcessSet places) : divided_(training.divided_.get()) {
      if (divided_) before_ = divided_->exchange_asker(places);
    }
    ~AskedBy() {
      if (divided_) divided_->exchange_asker(before_);
    }
    AskedBy(const AskedBy&) = delete;
    AskedBy& operator=(const AskedBy&) = delete;

   private:
    DividedWork* divided_;
    ProcessSet before_;
  };
  // Disconnects from the other processes: nothing they send reaches the executor any more. Call before either ends.
  void leave_processes() {
    if (divided_) divided_->leave();
  }
  bool is_divided() const { return divided_ != nullptr; }
  DividedWork* divided() const { return divided_.get(); }  // null: work is not divided
  // Where values that are requested now are computed; whether this process is one of these.
  ProcessSet place() const { return divided_ ? divided_->asker() : ProcessSet::everywhere(); }
  bool is_here(ProcessSet places) const { return !divided_ || divided_->is_here(places); }

  // Submits work that reads some cells (null ones are skipped) and fills or changes others, at `places`. Cells to read
  // are brought there first; cells to write exist only there afterwards. Returns null on other processes.
  struct CellWork {
    std::vector<CellPtr> reads{};
    std::vector<CellPtr> writes{};  // may be among `reads`
    std::function<void()> work{};
  };
  std::shared_ptr<Task> compute(CellWork&& what, ProcessSet places);
  std::shared_ptr<Task> compute(CellWork&& what) { return compute(std::move(what), place()); }
  // Brings the cells to `places`. Returns the tasks that produce them there.
  std::vector<std::shared_ptr<Task>> brought(std::span<const CellPtr> cells, ProcessSet places);
  // `count` numbers for a program, the same on all processes. `numbers` is called at `places` and may wait.
  std::vector<double> agreed_numbers(std::size_t count, ProcessSet places,
                                     const std::function<std::vector<double>()>& numbers);

  // The state after one optimizer step from `state` along `gradient`. The same state, gradient sum, weight and rate
  // give the same object. An empty gradient counts as zeros: moments and weight decay still act, as after an all-reduce
  // of zeros. Move a state that is no longer needed: cells that nothing else holds are updated in place.
  struct StepRules {
    // Updates only this part of the parameters and moments; the rest becomes undefined. Not for layer-wise optimizers.
    Slice slice{};
    bool keeps_second = false;  // the second moment is not updated (Optimizer::beta1_of_frozen)
    Clipping clipping = Clipping::of_step;
  };
  ModelStatePtr descend(ModelStatePtr state, const Gradient& gradient, double learning_rate, const StepRules& rules);
  ModelStatePtr descend(ModelStatePtr state, const Gradient& gradient, double learning_rate) {
    return descend(std::move(state), gradient, learning_rate, StepRules());
  }
  // Clips a sum over `micro_batches` of one worker: scales it so that their mean has a global norm of at most
  // clip_norm. Returns a promise; with clipping it is computed even if nobody uses it. Statistics are not scaled.
  Gradient clipped(Gradient gradient, std::int64_t micro_batches);

  // A sum that all holders evaluate only once. Order of summation: by model, then (worker, step, micro-batch).
  Gradient share(const Gradient& gradient);

  // The layers of a micro-batch that remain if a deadline stops it with this share of its backward pass done. They are
  // a promise, or come from a sum that has been evaluated and is not shared. Returns nothing if no tensor's gradient is
  // complete, or if the run computes nothing.
  std::optional<Gradient> partial_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                           double backward_share) const;
  std::optional<Gradient> partial_gradient(std::shared_ptr<GradientSum> evaluated, double backward_share) const;
  // The number of micro-batches that contribute to each tensor's gradient, in the order of the flat vector; without an
  // objective one number for all. weigh_tensors applies such numbers to a shared sum (Counted::by_tensor); only the
  // first call has an effect.
  std::vector<double> contributions(const Gradient& gradient) const;
  void weigh_tensors(const Gradient& shared, std::span<const double> contributions) const;

  // The mean of those parts that the policy averages. Returns one new state per old one, and the same object if all are
  // equal. weights: one per state, divided by their sum here; empty, or all the same: equal weights. With a slice: the
  // other parameters are those of one of the states.
  std::vector<ModelStatePtr> average(std::span<const ModelStatePtr> states, const AveragePolicy& policy,
                                     std::span<const double> weights = {}, Slice slice = {});

  // Sum of weight x parameters, and of weight x buffers unless another state's buffers are given. (Weights below 0 or
  // above 1 can make a variance negative.) Moments are those of the first term.
  ModelStatePtr combine(std::span<const WeightedState> terms, const ModelStatePtr& buffers_of = nullptr);

  // (1 - share) x `from` + share x `to`, with one share per tensor in the order of the flat vector, or one for all.
  // Exactly `from` at 0 and `to` at 1. Moments and buffers are those of `to`, or of `from` if all shares are 0.
  ModelStatePtr combine_tensors(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares);

  // The model with slice i from state i, buffers of state 0, moments of `self`. Equal inputs give the same parameters.
  ModelStatePtr assemble(const ModelStatePtr& self, std::span<const ModelStatePtr> slices);

  // `whole` with one slice from `part`; slice 0 also brings the buffers. Equal inputs give the same object.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice);

  // The state with new BatchNorm statistics: the mean of those of the given micro-batches.
  ModelStatePtr recalibrated(const ModelStatePtr& state, std::span<const MicroBatch> micro_batches);

  // L2 distance of the parameters; waits for the arithmetic. NaN in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b);
  // The same for each tensor, in the order of the flat vector; empty in time-only runs.
  std::vector<double> distances(const ModelStatePtr& a, const ModelStatePtr& b) {
    return objective_ ? distances(a, b, objective_->tensors()) : std::vector<double>();
  }

  // Calls `done` from an executor thread with the models' root mean square L2 distance from their weighted mean.
  void measure_spread(std::vector<WeightedState> states, std::function<void(double)> done);

  // Calls `done` from an executor thread with measures of the mean loss over the first training samples.
  void measure(const ModelStatePtr& state, const MeasureOptions& options,
               std::function<void(const ModelMeasures&)> done);
  // The same with the L2 norm of a gradient.
  void measure_norm(const Gradient& gradient, std::function<void(double)> done);

  // State of `self` with the parameters and buffers of `other`, for a worker that adopts a model.
  ModelStatePtr adopt(const ModelStatePtr& self, const ModelStatePtr& other);

  // Calls `done` from an executor thread once the evaluation exists; evaluations end in any order. Several states form
  // an ensemble, which predicts the mean of its members' probabilities. The returned task ends after `done`.
  std::shared_ptr<Task> evaluate(std::vector<ModelStatePtr> states, std::function<void(const Evaluation&)> done);

  // For a shared sum whose normalisation statistics are of a different number of micro-batches than it counts.
  void set_statistics(const Gradient& shared, std::int64_t micro_batches);

  // Waits for the arithmetic. Values (P,).
  std::vector<float> values(const ModelStatePtr& state) { return values(state->parameters); }
  // Empty if the model has none.
  std::vector<float> buffer_values(const ModelStatePtr& state) { return values(state->buffers); }
  std::vector<float> values(const Gradient& gradient);  // without buffers: (P,)
  double norm(const Gradient& gradient);                // L2; NaN in time-only runs
  // Mean over the gradient's micro-batches of each one's mean loss; NaN if this process evaluated none, as in time-only
  // runs.
  double loss(const Gradient& gradient);

  // For clusters that move bytes. A gradient's value is (P + buffers,): the sum of gradients, then the sum of the
  // normalisation buffers after each micro-batch. write_values waits for it; an empty gradient writes zeros. A wide
  // gradient has P more floats between the two: the double-precision sum less its first P floats.
  std::size_t gradient_size(bool wide = false) const {
    return objective_ ? (wide ? 2 : 1) * objective_->parameters() + objective_->buffers() : 0;
  }
  void write_values(const Gradient& gradient, float* out);
  // `carried`: the micro-batches known to be in the values, for Options::on_kept.
  Gradient gradient_from(FlatVector values, std::int64_t micro_batches, Duration compute_time = {}, bool wide = false,
                         std::vector<MicroBatch> carried = {});
  // The micro-batches to send along with a gradient's values; empty without Options::on_kept.
  std::vector<MicroBatch> travelling(const Gradient& gradient) const;
  // For a sum that this process only passes on, without an optimizer step along it.
  void report_kept(std::span<const MicroBatch> micro_batches) const {
    for (const MicroBatch& micro_batch : micro_batches) options_.on_kept(micro_batch);
  }

  // Submits `work` that computes new gradients from a gradient, all as promises. `work` runs after the prerequisites,
  // at place(), and gets the evaluated sum and its factor. Not in time-only runs.
  std::shared_ptr<Task> submit_on(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                                  std::function<void(const GradientSum& sum, double scale)> work);
  // The same for one of several gradients that are needed separately, each with its own work. `submitted` gets the
  // task, by begin_held() at the latest. Gradients held until then are evaluated together if that is faster.
  void hold(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
            std::function<void(const GradientSum& sum, double scale)> work,
            std::function<void(const std::shared_ptr<Task>&)> submitted);
  // Call it before any result of those tasks is requested.
  void begin_held();
  // A shared sum whose gradient_size() values `fill` writes, from some cells (null ones are skipped). Its loss is
  // unknown.
  Gradient promised(std::int64_t micro_batches, std::vector<MicroBatch> carried, std::span<const CellPtr> reads,
                    std::function<void(float* out)> fill);
  // The sum of cells of equal size, in double precision, at all processes.
  CellPtr sum_of(std::vector<CellPtr> cells);

  // The part of a state that `policy` averages: parameters, averaged moments, averaged buffers, in this order.
  // from_averaged returns the state with their mean, and with everything else as the policy says.
  std::size_t averaged_size(const AveragePolicy& policy) const;
  void write_averaged(const ModelStatePtr& state, const AveragePolicy& policy, float* out);
  // `ages`: of the averaged moments (age_of_mean), if any.
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

  std::vector<float> new_parameters() const;
  std::vector<float> values(const CellPtr& cell);
  std::vector<double> distances(const ModelStatePtr& a, const ModelStatePtr& b,
                                const std::vector<ParameterTensor>& tensors);
  void report_kept(GradientSum& sum) const;
  std::shared_ptr<GradientSum> fixed(const Gradient& gradient, double& scale) const {
    return fix_sum(gradient, *objective_, scale, divided_.get());
  }
  std::shared_ptr<GradientSum> readable(const std::shared_ptr<GradientSum>& sum, ProcessSet places) {
    return sum_at(sum, places, objective_, executor_, divided_.get());
  }
  std::shared_ptr<Task> submit_reading(const std::shared_ptr<GradientSum>& sum, double scale, ProcessSet places,
                                       std::vector<std::shared_ptr<Task>> prerequisites,
                                       std::function<void(const GradientSum&, double)> work);
  bool is_elsewhere(const Held& held);
  bool is_evaluated_at(const GradientSum& sum, ProcessSet places) const;
  double loss_of_processes(const GradientSum& sum);
  void measure_spread_of_processes(std::vector<WeightedState> states, std::function<void(double)> done);
  ProcessSet place_of_step(const ModelState& state, const Gradient& gradient) const;
  ModelStatePtr submit_step(ModelStatePtr state, std::shared_ptr<GradientSum> sum, double scale, double learning_rate,
                            bool exclusive, const StepRules& rules, ProcessSet places);
  // The mean of inputs of `size` floats, at all places of any of them. A null cell counts as zeros.
  CellPtr submit_mean(std::vector<CellPtr> inputs, std::size_t size, Slice slice = {});
  CellPtr submit_combination(std::span<const WeightedCell> terms, std::size_t size, ProcessSet places);
  CellPtr submit_mean_of_processes(std::vector<CellPtr> inputs, std::size_t size, Slice slice, ProcessSet places);
  CellPtr submit_combination_of_processes(std::vector<WeightedCell> terms, std::size_t size, ProcessSet places);
  CellPtr submit_assembly(std::span<const ModelStatePtr> slices);
  // A cell of `size` floats at `places`; `work` writes its elements [from, to) to out + from, range by range.
  CellPtr submit_cell(std::size_t size, std::span<const CellPtr> reads, ProcessSet places,
                      std::function<void(float* out, std::size_t from, std::size_t to)> work);
  // Where work that reads these is computed: everywhere if all of them are everywhere, else at place().
  ProcessSet place_of_reader(std::span<const CellPtr> reads) const;
  // Runs `work` on fixed ranges of [begin, end), after `first`. Returns a task that ends after all of them.
  std::shared_ptr<Task> submit_ranges(const std::shared_ptr<Task>& first, std::size_t begin, std::size_t end,
                                      std::function<void(std::size_t, std::size_t)> work);

  std::shared_ptr<const Objective> objective_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::shared_ptr<const std::vector<ParameterRange>> ranges_;  // null in time-only runs
  std::optional<BackwardOrder> backward_order_;                // none in time-only runs
  Options options_;
  Executor& executor_;
  std::unique_ptr<DividedWork> divided_;  // null: work is not divided
  Bytes declared_bytes_{};
  std::vector<ParameterTensor> declared_tensors_;
  std::vector<Held> held_;
  Memo<const ModelState> combined_;  // by terms
  Memo<Cell> assembled_;             // by slices
  CellPtr last_assembled_;           // with divided work: processes differ in the cells that only tasks hold
  Memo<const ModelState> mixed_;     // by the two models and the slice
};

}  // namespace syncopate
