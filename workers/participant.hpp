// What workers and servers have in common: a clock, a model, and a place in the training.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/random/random.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// When a run ends: the first limit that is reached. At least one is set.
struct Budget {
  std::optional<Step> steps{};
  std::optional<double> seconds{};
  std::optional<std::int64_t> samples{};
  std::optional<Bytes> bytes{};
};

// What all participants of a run share. The references outlive the run.
struct RunContext {
  Cluster& cluster;
  Training& training;
  const LearningRate& learning_rate;
  Budget budget{};
  int micro_batches = 1;                       // M: micro-batches per optimizer step and worker
  std::int64_t samples_per_micro_batch = 1;    // for the samples budget and the reports
  RunObserver* observer = nullptr;             // may be null
  ModelStatePtr initial_model{};               // where all start; null in time-only runs
  std::uint64_t seed = 0;                      // of methods' own random choices
  std::vector<std::optional<Step>> data_of{};  // steps after which a worker has used up its data; empty: never
};

class Participant {
 public:
  Participant(const RunContext& context, Rank rank);  // the context outlives the participant
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }                            // N, the number of workers
  int micro_batches() const { return context_.micro_batches; }  // M

  Time now() const { return context_.cluster.now(rank_); }
  Step step() const { return step_; }  // optimizer steps done, which is also the version of the model

  // Learning rate of the next step: the schedule's, times what scale_learning_rate was given.
  double learning_rate() const;
  void scale_learning_rate(double factor) { rate_factor_ = factor; }

  // Declares that a step of this method uses as many gradients as `per_file_step` of its steps make one of
  // the experiment file's (N / c for a server that steps along c workers' gradients). Budget, schedule and
  // reports then go by the file's steps, so that equal budgets mean equal samples. Called before the first step.
  void count_steps_per_file_step(double per_file_step) { steps_per_file_step_ = per_file_step; }
  Step file_step() const;  // steps done, in steps of the experiment file, rounded down
  // Declares the next step to be one more than the file plans: neither the budget's steps nor the schedule of
  // the learning rate, nor the reports, count it.
  void add_step() { ++added_steps_; }

  // Lets the run go on for `extra` steps more than the budget says; nothing if it is not counted in steps.
  // With `stretch` the schedule of the learning rate is stretched to the new length, else it stays at its end.
  void extend_budget(Step extra, bool stretch);

  // False once the budget is used up. Methods that synchronise may rely on all workers getting the
  // same answer after the same collective: time, samples and bytes are those of the last agreement.
  bool budget_left() const;
  // Optimizer steps that the budget still allows; very large when it is not counted in steps.
  Step steps_left() const;

  const ModelStatePtr& model() const { return model_; }
  // Takes on another model's parameters and BatchNorm statistics; the own moments stay.
  void set_model(const ModelStatePtr& model) { model_ = context_.training.adopt(model_, model); }

  // Sum of weight x model, for example combine({{0.5, a}, {0.5, b}}); null in time-only runs. A promise:
  // it is computed beside the run, once its terms are. BatchNorm statistics are combined likewise, or
  // taken from `buffers_of`.
  ModelStatePtr combine(std::initializer_list<WeightedState> terms, const ModelStatePtr& buffers_of = nullptr) const {
    return combine(std::span(terms.begin(), terms.size()), buffers_of);
  }
  ModelStatePtr combine(std::span<const WeightedState> terms, const ModelStatePtr& buffers_of = nullptr) const {
    return context_.training.combine(terms, buffers_of);
  }

  // Values for rules that look at what was computed; they wait for the arithmetic, and are NaN in time-only
  // runs. loss: the mean over the gradient's micro-batches; NaN after an all-reduce under MPI.
  double loss(const Gradient& gradient) const { return context_.training.loss(gradient); }
  double norm(const Gradient& gradient) const { return context_.training.norm(gradient); }
  double distance(const ModelStatePtr& a, const ModelStatePtr& b) const { return context_.training.distance(a, b); }

  // A uniform number in (0, 1), the same on both clusters: number `index` of this participant's own at `step`.
  double uniform(Step step, std::uint32_t index = 0) const;
  // The same for all participants, for choices that are agreed beforehand.
  double shared_uniform(Step step, std::uint32_t index = 0) const;

  // One optimizer step on the own model along `gradient`, at the current learning rate.
  void descend(const Gradient& gradient);

  // "This is the global model now": the observer decides whether to evaluate. Only the publication
  // of worker 0, or of the server, counts, so that every worker may run the same line.
  void publish() { publish(model_); }
  void publish(const ModelStatePtr& model) { publish(Publication{.model = model}); }
  void publish(Publication publication);  // fills in where and when

 protected:
  double steps_per_file_step_ = 1;
  double schedule_stretch_ = 1;
  Step extra_steps_{};
  Step added_steps_{};
  double rate_factor_ = 1;
  std::optional<AgreedProgress> agreed_;
  // What every step touches, together.
  const RunContext& context_;  // one for all workers, so that it stays in the cache
  Rank rank_;
  int size_;
  Step step_{};
  ModelStatePtr model_;
  std::int64_t kept_total_ = 0;  // without collectives: micro-batches descended along
};

}  // namespace syncopate
