// Outer steps that are one round late: each worker starts an average at the end of a round, takes the next round while
// it is under way, and finishes it at that round's end. algorithms/README.md has a table of the methods ("Rounds of
// local steps"): what each averages, and where its next round begins. This file holds what they share.
// Units:   a delay of one round, however long the rule makes it.
// Cost:    an all-reduce of P floats per round, as with Local SGD. A round takes max(H c, A) where workers are alike
//          and steps have no spread: H steps of c s, and A s for the all-reduce.
// First:   nothing comes back at the end of the first round; each method's header says what it does then.
// Last:    the last average is waited for, so that the last round's work is in the evaluated model. Until the first has
//          come back workers have agreed on nothing but steps: a budget of other units ends after it.
// Differs: optimizer moments stay with their workers. A worker that loses its state goes back to its copy of the last
//          round's end, which has what the method kept then.
#pragma once

#include <deque>

#include "algorithms/local_sgd/local_steps.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

// The one average that a worker has under way at a time.
class AverageUnderWay {
 public:
  AverageUnderWay(Worker& worker, const StatePolicies& policies)
      : worker_(worker), policy_(policies.average), weight_(policies.model_weight()), steps_(worker) {}

  bool is_under_way() const { return started_.has_value(); }
  // Whether another round begins, asked at a round's end: all workers say the same.
  bool rounds_left() const;
  // Takes the rule's next round on this worker alone, less of it where the budget or its own data end. The mean
  // learning rate of its steps; 0 of none.
  double take_round(const SyncPeriod& period, LocalSteps& steps);
  // `from`: a model that all share, from which a compressed average takes differences; null: `mine` is one.
  void start(const ModelStatePtr& mine, const ModelStatePtr& from,
             Participant::CalledFrom at = Participant::CalledFrom::current());
  // Waits for what was started. The mean over the workers; null in time-only runs.
  ModelStatePtr finish(Participant::CalledFrom at = Participant::CalledFrom::current());

 private:
  Worker& worker_;  // outlives it
  AveragePolicy policy_;
  double weight_;
  PlannedSteps steps_;
  std::optional<StartedCollective> started_{};
  bool has_come_ = false;  // any of them
};

// What becomes of averages that are one round late: where the next round begins, and what is averaged meanwhile.
class LateRule {
 public:
  // One worker's part in one run.
  class OfWorker {
   public:
    virtual ~OfWorker() = default;
    // A round has gone from `begin` to the worker's model, at this mean learning rate. Finishes the average that is
    // under way, if any is, sets the model at which the next round begins, starts this round's average, and publishes.
    virtual void end_round(AverageUnderWay& average, const ModelStatePtr& begin, double rate) = 0;
    // There is no further round: finishes the average, if any is under way, and publishes the last model.
    virtual void end(AverageUnderWay& average) = 0;
  };

  virtual ~LateRule() = default;
  // All arguments outlive the result. `outer`: null unless the rule takes outer steps.
  virtual std::unique_ptr<OfWorker> begin(Worker& worker, const OuterOptimizer* outer,
                                          const StatePolicies& policies) const = 0;
  virtual bool takes_outer_steps() const { return false; }
  // As long as the model, that each worker holds beside its own.
  virtual double held_vectors() const = 0;
  // Whether all models must have equal weights.
  virtual bool counts_alike() const { return false; }
};

// Reads the keys of all these methods: `buffers` of the published model, and `weights` of the averages.
StatePolicies read_overlapped_policies(Settings& settings, const AlgorithmContext& context);

// The outer model of a training by fragments, as one worker holds it, and the averages of its fragments that are under
// way. An outer step along an average changes one fragment alone. Steps are those of the workers' plan. Averages end in
// the order in which they start and are due, since all have one delay. An outage loses nothing of this: all hold the
// same.
// Cost:    of one outer step, on all d parameters, once for all workers of a process; each worker copies its model.
class OuterFragments {
 public:
  // Begins with the worker's model. All but the worker's fragments outlive it. `mixing`: the share of a worker's own
  // fragment that stays at an outer step.
  OuterFragments(Worker& worker, const Fragments& fragments, const OuterOptimizer& outer, double mixing,
                 const StatePolicies& policies)
      : worker_(worker),
        fragments_(fragments),
        outer_(outer),
        mixing_(mixing),
        policies_(policies),
        own_(static_cast<std::size_t>(fragments.count())),
        model_(worker.model()) {}

  bool are_under_way() const { return !under_way_.empty(); }
  bool are_due_before(Step step) const { return are_under_way() && next_due() < step; }
  Step next_due() const { return under_way_.front().due; }
  bool is_first() const { return are_under_way() && !has_come_; }  // nobody has agreed on anything but steps yet

  // A local step at this learning rate, which all fragments have taken.
  void add_step(double rate) {
    for (Own& fragment : own_) fragment.rate.add(rate);
  }
  // Starts the average of the worker's fragment.
  void start(int fragment, Step due);
  // Waits for the oldest average; an outer step along it; the worker takes its fragment on, and publishes the model.
  void finish_next();

 private:
  struct Own {
    MeanRate rate{};  // of the local steps since its last average was started
    bool has_momentum = false;
  };
  struct UnderWay {
    int fragment;
    Step due;
    double rate;  // of the steps that it averages
    StartedCollective average;
  };

  Worker& worker_;
  const Fragments& fragments_;
  const OuterOptimizer& outer_;
  double mixing_;
  const StatePolicies& policies_;
  std::vector<Own> own_;
  std::deque<UnderWay> under_way_{};
  bool has_come_ = false;  // any of them
  ModelStatePtr model_;
  ModelStatePtr momentum_{};  // null before any
};

}  // namespace syncopate
