// The training engine: turns promises into arithmetic. It owns no worker and no clock; a cluster's
// workers call it to step and average their states, and it hands the work to the executor.
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

#include "workers/training/evaluation.hpp"
#include "workers/training/executor.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {

// Sharpness of a loss: the largest eigenvalue of its Hessian by power iteration, its trace by Hutchinson's estimator.
// Source:  the stopping rules and random vectors of PyHessian (Yao et al. 2020); Hutchinson 1990.
// Shapes:  vectors (P,) in double precision.
// Cost:    a product of the Hessian and a vector per iteration or draw, at most `most_products` each; twice as many
//          where the eigenvalue of the largest magnitude is negative.
// Differs: power iteration finds the largest magnitude. Where that is a negative eigenvalue, the Hessian is shifted by
//          it and the iteration repeated, so that what is returned is the largest one.
// Checks:  diagonal matrices; a linear softmax regression's Hessian, put together in double precision; gradient descent
//          is stable exactly below 2 / the largest eigenvalue.
using HessianProduct = std::function<std::vector<double>(std::span<const double> vector)>;

struct CurvatureOptions {
  int most_products = 100;
  double tolerance = 1e-3;  // it stops once the estimate changes by less than this part
  std::uint64_t seed = 0;   // of the vectors, which are the same at every call
};

double largest_eigenvalue(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);
// The mean of v^T H v over random vectors of signs: exact in one draw where H is diagonal.
double hessian_trace(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);

// What happens at a synchronisation to a part of the state.
enum class StatePolicy { keep, average, reset };
struct AveragePolicy {
  // SGD's momentum is the first; Adam has two. Each has an age of its own, by which its bias is corrected: that of a mean
  // follows from all workers' (age_of_mean).
  std::array<StatePolicy, 2> moments = {StatePolicy::keep, StatePolicy::keep};
  StatePolicy buffers = StatePolicy::average;     // BatchNorm statistics; reset: to their initial values
  StatePolicy parameters = StatePolicy::average;  // or kept, where moments are averaged alone

  // How many vectors as long as the parameters it averages: these, and of so many moments those that are averaged.
  int averaged_vectors(int optimizer_moments) const {
    return (parameters == StatePolicy::average ? 1 : 0) +
           static_cast<int>(std::count(moments.begin(), moments.begin() + optimizer_moments, StatePolicy::average));
  }
  bool operator==(const AveragePolicy&) const = default;
};

// Whether a step clips the gradient that it is given, where gradients are clipped.
enum class Clipping {
  of_step,  // its global norm is Training::Options::clip_norm at most
  none,     // its parts have been clipped, each by itself
};

struct Evaluation {
  double test_loss = 0;
  double test_accuracy = 0;  // fraction; NaN where the objective has none
  double train_loss = 0;     // on the first `train_samples` of the training set
  bool finite = true;        // false: the model diverged
  // Of what was held out; NaN where nothing was, the accuracy also where the objective has none.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double validation_accuracy = std::numeric_limits<double>::quiet_NaN();
};

// What a model is measured by beside its losses, each where it is asked for.
struct ModelMeasures {
  std::optional<double> gradient_norm{};
  std::optional<double> gradient_variance{};  // these two: evaluation.hpp
  std::optional<double> noise_scale{};        // in samples
  std::optional<double> largest_eigenvalue{};
  std::optional<double> hessian_trace{};
  std::optional<double> parameter_norm{};  // with one of the two before: normalised layers scale them by its square
};
struct MeasureOptions {
  bool gradient_norm = false;
  bool noise_scale = false;  // and gradient_variance
  bool largest_eigenvalue = false;
  bool hessian_trace = false;
  std::int64_t samples = 1000;  // the first of the training set
  int most_products = 100;      // of the Hessian, for each of the two
  double tolerance = 1e-3;      // of both, relative to what they are
  std::uint64_t seed = 0;

  bool any() const { return gradient_norm || noise_scale || largest_eigenvalue || hessian_trace; }
};

// Of several models' evaluations; finite if all are.
Evaluation mean_of(std::span<const Evaluation> evaluations);

class Training {
 public:
  struct Options {
    double clip_norm = 0;                          // global L2 norm of a gradient; 0: off
    std::int64_t train_samples = 10000;            // for train_loss
    std::uint64_t seed = 0;                        // of the initial parameters
    std::shared_ptr<const StartingPoint> start{};  // instead of those; null: none
    // Called with each micro-batch whose gradient a model descends along, once, by the thread that says so.
    std::function<void(const MicroBatch&)> on_kept{};
    // Where several processes divide the work (gradient_sum.hpp): these, and of how many workers. Null: one does all.
    ProcessGroup* processes = nullptr;
    int workers = 1;
  };

  // objective = null: time-only; states are null and nothing is computed.
  Training(std::shared_ptr<const Objective> objective, std::shared_ptr<const Optimizer> optimizer, Options options,
           Executor& executor);

  bool time_only() const { return !objective_; }
  const Objective& objective() const { return *objective_; }
  Executor& executor() { return executor_; }
  Bytes parameter_bytes() const;  // 4 P, or what time-only declares through set_parameter_bytes
  void set_parameter_bytes(Bytes bytes) { declared_bytes_ = bytes; }
  // The objective's, or what time-only declares, where it knows any.
  std::vector<ParameterTensor> tensors() const { return time_only() ? declared_tensors_ : objective_->tensors(); }
  void set_tensors(std::vector<ParameterTensor> tensors) { declared_tensors_ = std::move(tensors); }

  ModelStatePtr initial_state();

  // For whom, from here on to the end of its life, what is asked for is computed, where work is divided: a worker, a
  // server, or all.
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
  // Nothing that other processes send reaches the executor any more: before either ends.
  void leave_processes();
  bool is_divided() const { return divided_ != nullptr; }
  DividedWork* divided() const { return divided_.get(); }  // null: it is not
  // Where it belongs what they ask for now; and whether that is here.
  ProcessSet place() const { return divided_ ? divided_->asker() : ProcessSet::everywhere(); }
  bool is_here(ProcessSet places) const { return !divided_ || divided_->is_here(places); }

  // Submits work that reads some cells (null ones are none) and fills, or changes, others, at `places`: where these are
  // the former are brought there, and the latter are from then on. The task that is returned is null where it is not
  // here.
  struct CellWork {
    std::vector<CellPtr> reads{};
    std::vector<CellPtr> writes{};  // may be among those that it reads
    std::function<void()> work{};
  };
  std::shared_ptr<Task> compute(CellWork&& what, ProcessSet places);
  std::shared_ptr<Task> compute(CellWork&& what) { return compute(std::move(what), place()); }
  // What makes the cells at `places`, to which they are brought.
  std::vector<std::shared_ptr<Task>> brought(std::span<const CellPtr> cells, ProcessSet places);
  // `count` numbers for a program, the same on all processes: `numbers` is called where `places` are, and may wait.
  std::vector<double> told(std::size_t count, ProcessSet places, const std::function<std::vector<double>()>& numbers);

  // The state after one optimizer step from `state` along `gradient`. The same state, gradient sum,
  // weight and rate give the same object. An empty gradient is a zero gradient: moments and weight
  // decay still act, as they would after an all-reduce of zeros. Pass the state with std::move where
  // it is no longer needed: what nobody else holds is updated in place.
  struct StepRules {
    // Only that part of the parameters and moments moves on; the rest is undefined from then on. A layer-wise optimizer
    // takes no slices: nobody would have the norm of a whole tensor.
    Slice slice{};
    bool keeps_second = false;  // the second moment stays as it is, where the optimizer can do that
    Clipping clipping = Clipping::of_step;
  };
  ModelStatePtr descend(ModelStatePtr state, const Gradient& gradient, double learning_rate, const StepRules& rules);
  ModelStatePtr descend(ModelStatePtr state, const Gradient& gradient, double learning_rate) {
    return descend(std::move(state), gradient, learning_rate, StepRules());
  }
  // The sum over so many micro-batches of one worker, as it is where their mean has a global norm of clip_norm at most,
  // else scaled so that it has. A promise; with clipping it is computed, whatever becomes of it. Statistics stay.
  Gradient clipped(Gradient gradient, std::int64_t micro_batches);

  // A sum whose evaluation all holders share. Order of summation: by model, then (worker, step, micro-batch).
  Gradient share(const Gradient& gradient);

  // What a deadline leaves of a micro-batch when so much of its backward pass is done: the promise of it, or of a sum
  // that has been evaluated and is not shared. Nothing: no tensor's gradient exists, or nothing is computed.
  std::optional<Gradient> cut_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                       double backward_share) const;
  std::optional<Gradient> cut_gradient(std::shared_ptr<GradientSum> evaluated, double backward_share) const;
  // How many micro-batches the gradient of each tensor has come from, tensors in the order of the flat vector; without
  // an objective one number, how many there are. And what they make of a shared sum: see Counted::by_tensor. The first
  // who says it does it for all who share the sum.
  std::vector<double> contributions(const Gradient& gradient) const;
  void weigh_tensors(const Gradient& shared, std::span<const double> contributions) const;

  // The mean of what the policy averages; one new state per old one, the same object where all is equal.
  // weights: one per state, divided by their sum here; empty, or all the same: equal.
  // Of a slice of the parameters: the rest of them are those of one of the states.
  std::vector<ModelStatePtr> average(std::span<const ModelStatePtr> states, const AveragePolicy& policy,
                                     std::span<const double> weights = {}, Slice slice = {});

  // Sum of weight x parameters, and likewise of the buffers, or, if it is given, the buffers of another
  // state (weights below 0 or above 1 can make a variance negative). Moments are those of the first term.
  ModelStatePtr combine(std::span<const WeightedState> terms, const ModelStatePtr& buffers_of = nullptr);

  // (1 - share) x `from` + share x `to`, with a share for each tensor in the order of the flat vector, or one for all:
  // exactly the one at 0 and the other at 1. What is no parameter is that of `to`, or, where all shares are 0, of
  // `from`.
  ModelStatePtr combine_tensors(const ModelStatePtr& from, const ModelStatePtr& to, std::span<const double> shares);

  // The whole model out of its slices: slice i of slices.size() from state i; buffers of state 0; moments
  // of `self`. Equal inputs give the same parameters.
  ModelStatePtr assemble(const ModelStatePtr& self, std::span<const ModelStatePtr> slices);

  // `whole` with a slice of its parameters from `part`, and the buffers too if it is the first one; moments of `whole`.
  // Equal inputs give the same object.
  ModelStatePtr with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice);

  // The state with its BatchNorm statistics estimated anew: the mean over the micro-batches of each one's.
  ModelStatePtr recalibrated(const ModelStatePtr& state, std::span<const MicroBatch> micro_batches);

  // L2 distance of the parameters; waits for the arithmetic. NaN in time-only runs.
  double distance(const ModelStatePtr& a, const ModelStatePtr& b);
  // The same of each tensor, in the order of the flat vector; in time-only runs there are none.
  std::vector<double> distances(const ModelStatePtr& a, const ModelStatePtr& b);

  // Calls `done` from an executor thread with the root of the mean squared L2 distance of the models' parameters from
  // their weighted mean.
  void measure_spread(std::vector<WeightedState> states, std::function<void(double)> done);

  // Calls `done` from an executor thread: of the mean loss over the first training samples.
  void measure(const ModelStatePtr& state, const MeasureOptions& options,
               std::function<void(const ModelMeasures&)> done);
  // The same with the L2 norm of a gradient.
  void measure_norm(const Gradient& gradient, std::function<void(double)> done);

  // State of `self` with the parameters (and buffers) of `other`: what a worker does that adopts a model.
  ModelStatePtr adopt(const ModelStatePtr& self, const ModelStatePtr& other);

  // Calls `done` from an executor thread when the evaluation exists. Evaluations end in any order.
  // Several states: an ensemble, whose prediction is the mean of its members' probabilities. The task that is returned
  // ends after `done`.
  std::shared_ptr<Task> evaluate(std::vector<ModelStatePtr> states, std::function<void(const Evaluation&)> done);

  // Says of how many micro-batches a shared sum has normalisation statistics, where these are not those that it counts.
  void set_statistics(const Gradient& shared, std::int64_t micro_batches);

  // Waits for the arithmetic. Values (P,).
  std::vector<float> values(const ModelStatePtr& state);
  std::vector<float> buffer_values(const ModelStatePtr& state);  // empty where the model has none
  std::vector<float> values(const Gradient& gradient);           // without buffers: (P,)
  double norm(const Gradient& gradient);                         // L2; NaN in time-only runs
  // Mean over its micro-batches of each one's mean loss; NaN where nothing was evaluated here (an empty
  // gradient, time-only runs, a sum that other processes computed).
  double loss(const Gradient& gradient);

  // For clusters that move bytes. A gradient's value is (P + buffers,): the sum of gradients, then
  // the sum of the normalisation buffers after each micro-batch. write_values waits for it; an empty
  // gradient writes zeros. A wide gradient's value has P floats more, between the two: what the first P
  // lack of the double-precision sum.
  std::size_t gradient_size(bool wide = false) const;
  void write_values(const Gradient& gradient, float* out);
  // `carried`: which micro-batches the values are known to hold, if anybody wants to know.
  Gradient gradient_from(FlatVector values, std::int64_t micro_batches, Duration compute_time = {}, bool wide = false,
                         std::vector<MicroBatch> carried = {});
  // What is to travel beside a gradient's values; empty where nobody wants to know what is kept.
  std::vector<MicroBatch> travelling(const Gradient& gradient) const;
  // Of a sum that this process passes on without a descent of its own.
  void tell_kept(std::span<const MicroBatch> micro_batches) const;

  // For who goes on computing with gradients and gives back others, all as promises. `work` gets the evaluated sum and
  // its factor, once the prerequisites are done too, where it is asked for (place()). Not in time-only runs.
  std::shared_ptr<Task> submit_on(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                                  std::function<void(const GradientSum& sum, double scale)> work);
  // The same for one of several gradients that are needed apart, each by work of its own: `submitted` gets the task,
  // which may be as late as in begin_held(). What is held until then is evaluated together where that is faster.
  void hold(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
            std::function<void(const GradientSum& sum, double scale)> work,
            std::function<void(const std::shared_ptr<Task>&)> submitted);
  // Before anybody asks for what those tasks make.
  void begin_held();
  // A shared sum whose gradient_size() values `fill` writes, from some cells (null ones are none). Its loss is not
  // known.
  Gradient promised(std::int64_t micro_batches, std::vector<MicroBatch> carried, std::span<const CellPtr> reads,
                    std::function<void(float* out)> fill);
  // The sum of cells of equal size, in double precision, for all.
  CellPtr sum_of(std::vector<CellPtr> cells);

  // The part of a state that `policy` averages: parameters, averaged moments, averaged buffers, in
  // this order; and the state that has their mean, everything else by the policy.
  std::size_t averaged_size(const AveragePolicy& policy) const;
  void write_averaged(const ModelStatePtr& state, const AveragePolicy& policy, float* out);
  // `ages`: of the averaged moments (age_of_mean), where the policy has any.
  ModelStatePtr from_averaged(const ModelStatePtr& state, const AveragePolicy& policy, const float* mean,
                              const MomentAges& ages = {});
  MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights) const;

 private:
  std::vector<float> new_parameters() const;
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

  void tell_kept(GradientSum& sum) const;
  std::shared_ptr<GradientSum> fixed(const Gradient& gradient, double& scale) const;
  std::shared_ptr<GradientSum> readable(const std::shared_ptr<GradientSum>& sum, ProcessSet places);
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
  // Inputs of `size` floats; a null cell stands for zeros. Where any of them is.
  CellPtr submit_mean(std::vector<CellPtr> inputs, std::size_t size, Slice slice = {});
  CellPtr submit_combination(std::span<const WeightedCell> terms, std::size_t size, ProcessSet places);
  CellPtr submit_mean_of_processes(std::vector<CellPtr> inputs, std::size_t size, Slice slice, ProcessSet places);
  CellPtr submit_combination_of_processes(std::vector<WeightedCell> terms, std::size_t size, ProcessSet places);
  CellPtr submit_assembly(std::span<const ModelStatePtr> slices);
  // A cell of `size` floats at `places`; `work` writes its elements [from, to) to out + from, range by range.
  CellPtr submit_cell(std::size_t size, std::span<const CellPtr> reads, ProcessSet places,
                      std::function<void(float* out, std::size_t from, std::size_t to)> work);
  // Where what reads these belongs: everywhere where all of them are, else where it is asked for.
  ProcessSet place_of_reader(std::span<const CellPtr> reads) const;
  // Splits [begin, end) into ranges by a fixed rule and runs `work` on each after `first`; the task that
  // is returned ends after all of them.
  std::shared_ptr<Task> submit_ranges(const std::shared_ptr<Task>& first, std::size_t begin, std::size_t end,
                                      std::function<void(std::size_t, std::size_t)> work);

  std::shared_ptr<const Objective> objective_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::shared_ptr<const std::vector<Stretch>> stretches_;  // null in time-only runs
  std::optional<BackwardOrder> backward_order_;            // likewise none
  Options options_;
  Executor& executor_;
  std::unique_ptr<DividedWork> divided_;  // null: nothing is
  Bytes declared_bytes_{};
  std::vector<ParameterTensor> declared_tensors_;
  std::vector<Held> held_;
  Memo<const ModelState> combined_;  // by terms
  Memo<Cell> assembled_;             // by slices
  CellPtr last_assembled_;           // held where work is divided: what tasks alone hold is not the same for all
  Memo<const ModelState> mixed_;     // of two models: by these and the slice
};

}  // namespace syncopate
