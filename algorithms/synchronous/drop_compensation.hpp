// DropCompensation: what is done about the micro-batches that DropCompute drops.
// Source:  Giladi et al. 2023, "DropCompute": extra steps, a larger maximal batch, re-computation. Carrying
//          dropped micro-batches over to the next step is this project's own.
// Shapes:  lists of micro-batches.   Units: redundancy R = M / (mean number computed) - 1, a fraction.
// Cost:    larger batch: R more micro-batches per step; the others: see each one's header.
// Differs: the paper does not say how a batch is enlarged; here: more micro-batches, whose samples are the next of the
//          worker's data. Where M' = M (1 + R) is no whole number, steps have the one below or the one above, so that
//          M' is met on average. A step's divisor goes by its own M'.
// Checks:  nothing dropped: nothing changes; extra steps compute as many samples as were planned; after
//          re-computation and carry-over each micro-batch was computed exactly once; n steps offer floor(n M').
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// What a worker is to compute in a step: micro-batches of steps gone by, and then the next ones of its data.
struct StepWork {
  std::span<const MicroBatch> earlier{};  // valid until the next step
  MicroBatch fresh{};                     // the first of the next ones
  std::size_t fresh_count = 0;
  int micro_batches = 1;    // M, of which there are as many in each step of the data
  int offered = 0;          // micro-batches of a usual step
  int offered_at_most = 0;  // of the longest one
  bool usual = true;        // false: a step added to the run, without a threshold

  std::size_t size() const { return earlier.size() + fresh_count; }
  StepOptions step_options() const { return {.is_planned = usual, .micro_batches = offered}; }
  MicroBatch operator[](std::size_t i) const {
    if (i < earlier.size()) return earlier[i];
    const int index = fresh.index + static_cast<int>(i - earlier.size());
    if (index < micro_batches) return {fresh.worker, fresh.step, index};
    return {fresh.worker, fresh.step + index / micro_batches, index % micro_batches};
  }
};

// `count` micro-batches of the worker's data, after the `first` that the steps before have taken.
StepWork fresh_work(const Worker& worker, std::int64_t first, int count);

class DropCompensation {
 public:
  // One worker's work in the course of a run.
  class Course {
   public:
    virtual ~Course() = default;
    // Before each step.
    virtual StepWork next(Worker& worker) = 0;
    // Of the step's work the first `count` have been computed; before the all-reduce. How many the step had planned:
    // those that are not in its sum count as dropped.
    virtual std::int64_t computed(std::size_t count) = 0;
    // After the step, which all workers together have made of so many micro-batches.
    virtual void finished(Worker&, std::int64_t) {}
  };

  virtual ~DropCompensation() = default;
  virtual std::unique_ptr<Course> begin(Worker& worker) const = 0;
  virtual bool is_none() const { return false; }
  // Whether what a step drops is part of the next one.
  virtual bool carries_over() const { return false; }
  // Whether what has been dropped is computed after all.
  virtual bool computes_dropped() const { return carries_over(); }
};

// The same number of fresh micro-batches at every step.
class FreshWork : public DropCompensation::Course {
 public:
  explicit FreshWork(int offered) : offered_(offered) {}

  StepWork next(Worker& worker) override { return fresh_work(worker, worker.step().value() * offered_, offered_); }
  std::int64_t computed(std::size_t) override { return offered_; }

 private:
  int offered_;
};

std::shared_ptr<const DropCompensation> make_no_compensation();

// M (1 + R) micro-batches per step, on average.
std::shared_ptr<const DropCompensation> make_larger_batch(double redundancy);

// What a compensation's settings depend on.
struct DropCompensationContext {
  int micro_batches = 1;
  std::optional<Step> steps_per_epoch{};  // as in AlgorithmContext
  bool has_epochs = steps_per_epoch.has_value();
  bool counts_steps = false;                    // whether the budget does
  std::optional<Step> total_steps{};            // of the budget; none: it does not count them, or they are not known
  const LearningRate* learning_rate = nullptr;  // the run's, which outlives the reading; null: none is known
};
inline const Key redundancy_key{"redundancy", "How much is computed besides (R), as a share of what is planned."};
inline constexpr Range redundancies{.low = 0, .high = 1000};

// The registry: one row per compensation. Their keys stand beside `compensation`.
struct DropCompensationRow {
  std::string_view name;      // `compensation = ...` in TOML
  std::string_view sentence;  // what it does
  std::shared_ptr<const DropCompensation> (*make)(Settings& settings, const DropCompensationContext& context);
};
std::span<const DropCompensationRow> drop_compensations();

// Reads `compensation = "..."`, by default "none", and the keys that belong to it. Never null.
std::shared_ptr<const DropCompensation> read_drop_compensation(Settings& settings,
                                                               const DropCompensationContext& context);

// Carry-over: what a step drops comes first in the next one.
// Source:  none; this project's own.
// Shapes:  lists of micro-batches.
// Cost:    none.
// Differs: from re-computation: nothing waits for the end of an epoch, and a worker takes along a bounded number.
// Checks:  nothing dropped: nothing changes; each micro-batch is computed exactly once.
// Dropped micro-batches come first in the next step. What is beyond `at_most` then, the newest, is lost.
std::shared_ptr<const DropCompensation> make_carry_over(int at_most);

std::shared_ptr<const DropCompensation> read_carry_over(Settings& settings, const DropCompensationContext& context);

// Extra steps: the run goes on until it has computed as much as was planned.
// Source:  Giladi et al. 2023, "DropCompute".
// Shapes:  scalars.   Units: redundancy R = M / (mean number computed) - 1, a fraction.
// Cost:    R times the run.
// Differs: the paper does not say what extra steps do to the schedule of the learning rate. By default it is stretched
//          to the longer run where R is given (learning_rate_schedule = "stretched"). Where R follows from the run, or
//          with "kept", it stays at its end; an end below a hundredth of the peak is then refused, since such steps
//          would take time and change nothing.
// Checks:  nothing dropped: nothing changes; as many samples are computed as were planned.
// The run goes on for R times its steps. Without a given R it is what the run's own steps have turned out to drop.
enum class ExtraStepsSchedule { kept, stretched };
std::shared_ptr<const DropCompensation> make_extra_steps(std::optional<double> redundancy, ExtraStepsSchedule schedule);

std::shared_ptr<const DropCompensation> read_extra_steps(Settings& settings, const DropCompensationContext& context);

// Re-computation: what was dropped is computed before the next epoch, in additional steps.
// Source:  Giladi et al. 2023, "DropCompute".
// Shapes:  lists of micro-batches.
// Cost:    steps for what was dropped, without a threshold, and an all-gather of N numbers per epoch.
// Differs: what is computed again counts as dropped in its own step and as kept in the added one; what the last
//          epoch drops stays dropped.
// Checks:  nothing dropped: nothing changes; each micro-batch is computed exactly once.
// Before every step whose number is a multiple of `every_steps` all micro-batches dropped since are computed, by
// the worker that dropped them, in additional steps of at most M.
std::shared_ptr<const DropCompensation> make_recomputation(Step every_steps);

std::shared_ptr<const DropCompensation> read_recomputation(Settings& settings, const DropCompensationContext& context);

}  // namespace syncopate
