// Averages that are one round late: each worker starts an average at the end of a round, trains in the next round while
// this average is under way, and finishes it at the end of that round. These are the common parts of such methods; the
// table "Rounds of local steps" in algorithms/README.md says for each of them what it averages, and where its next
// round begins.
// Units:   the delay is one round, which has as many steps as the period's rule says.
// Cost:    an all-reduce of P floats per round, as with Local SGD. If workers are alike and steps have no spread, a
//          round takes max(H c, A) s, with H steps of c s each and an all-reduce of A s.
// First:   no average is finished at the end of the first round; each method's header says what it does then.
// Last:    workers wait for the last average, so that the last round's work is in the evaluated model. Before the first
//          average is finished, workers agree only on numbers of steps, so only a budget in steps can end before that.
// Differs: optimizer moments stay with their workers. A worker that loses its state goes back to its copy from the last
//          round's end, which includes the method's own variables.
#pragma once

#include <deque>

#include "algorithms/local_sgd/local_steps.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

// A worker's average that is under way, at most one at a time, and its rounds.
class AverageUnderWay {
 public:
  AverageUnderWay(Worker& worker, const StatePolicies& policies)
      : worker_(worker), policy_(policies.average), weight_(policies.model_weight()), steps_(worker) {}

  bool is_under_way() const { return started_.has_value(); }
  // Whether another round begins. Call this at a round's end; all workers then get the same result.
  bool rounds_left() const;
  // Takes the steps of the next round, by the period's rule, on this worker alone; takes fewer if the budget or the
  // worker's data end. Returns the steps' mean learning rate; 0 without steps.
  double take_round(const SyncPeriod& period, LocalSteps& steps);
  // Starts an average of `mine`. A compressed average sends differences to `from`, a model that all workers share;
  // null: `mine` is already a difference.
  void start(const ModelStatePtr& mine, const ModelStatePtr& from,
             Participant::CalledFrom at = Participant::CalledFrom::current());
  // Waits for the started average. Returns the mean over the workers; null in time-only runs.
  ModelStatePtr finish(Participant::CalledFrom at = Participant::CalledFrom::current());

 private:
  Worker& worker_;  // must outlive this object
  AveragePolicy policy_;
  double weight_;
  PlannedSteps steps_;
  std::optional<StartedCollective> started_{};
  bool has_come_ = false;  // whether an average has been finished
};

// A rule for averages that are one round late: what is averaged, and at which model the next round begins.
class LateRule {
 public:
  class OfWorker {
   public:
    virtual ~OfWorker() = default;
    // Ends a round that led from the model `begin` to the worker's current model, with the mean learning rate `rate`.
    // Finishes the pending average, if any, sets the model at which the next round begins, starts this round's average,
    // and publishes.
    virtual void end_round(AverageUnderWay& average, const ModelStatePtr& begin, double rate) = 0;
    // Called if there is no further round: finishes the pending average, if any, and publishes the last model.
    virtual void end(AverageUnderWay& average) = 0;
  };

  virtual ~LateRule() = default;
  // All arguments must outlive the result. `outer`: null unless the rule takes outer steps.
  virtual std::unique_ptr<OfWorker> begin(Worker& worker, const OuterOptimizer* outer,
                                          const StatePolicies& policies) const = 0;
  virtual bool takes_outer_steps() const { return false; }
  // The number of vectors of the model's length that each worker holds in addition to its own model.
  virtual double held_vectors() const = 0;
  // Whether all models must have equal weights.
  virtual bool counts_alike() const { return false; }
};

// Reads two keys that all methods with late averages have: `buffers`, for the published model, and `weights`.
StatePolicies read_overlapped_policies(Settings& settings, const AlgorithmContext& context);

// The outer model of a training by fragments, as one worker holds it, and the pending averages of its fragments. An
// outer step along an average changes only one fragment. Steps are those of the workers' plan (PlannedSteps). Averages
// end in the order in which they start, since all have the same delay. An outage does not erase this state, since all
// workers hold the same.
// Cost:    an outer step computes all parameters, once for all workers of a process; each worker copies its model.
class OuterFragments {
 public:
  // Begins with the worker's model. The arguments must outlive this object. `mixing`: the share of its own fragment
  // that a worker keeps at an outer step.
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
  // Whether the first average is under way. Until it is finished, workers agree only on numbers of steps.
  bool is_first() const { return are_under_way() && !has_come_; }

  // Records the learning rate of a local step for all fragments.
  void add_step(double rate) {
    for (Own& fragment : own_) fragment.rate.add(rate);
  }
  // Starts the average of this fragment of the worker's model, to be finished at the planned step `due`.
  void start(int fragment, Step due);
  // Waits for the oldest average and takes an outer step along it. The worker then adopts the new fragment, mixed with
  // its own, and publishes the outer model.
  void finish_next();

 private:
  struct Own {
    MeanRate rate{};  // mean learning rate since the fragment's last average started
    bool has_state = false;
  };
  struct UnderWay {
    int fragment;
    Step due;
    double rate;  // mean learning rate of the averaged steps
    StartedCollective average;
  };

  Worker& worker_;
  const Fragments& fragments_;
  const OuterOptimizer& outer_;
  double mixing_;
  const StatePolicies& policies_;
  std::vector<Own> own_;
  std::deque<UnderWay> under_way_{};
  bool has_come_ = false;  // whether an average has been finished
  ModelStatePtr model_;
  OuterState state_{};
};

}  // namespace syncopate
