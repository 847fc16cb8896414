// DropCompensation: how DropCompute compensates for the micro-batches that it drops.
// Source:  Giladi et al. 2023, "DropCompute": extra steps, a larger maximal batch, re-computation. Carry-over is ours.
// Shapes:  lists of micro-batches.   Units: redundancy R = M / (mean number computed) - 1, a fraction.
// Cost:    larger batch: R more micro-batches per step; extra steps: R times the run; re-computation: steps without a
//          threshold for dropped micro-batches, and an all-gather of N numbers per epoch; carry-over: none.
// Differs: the paper does not say how a batch is enlarged. Here a step has the floor or ceil of M' = M (1 + R)
//          micro-batches, so that the mean is M'; the divisor uses the step's own number. Nor does the paper say
//          how extra steps change the learning rate. By default a given R stretches the schedule to the longer run.
//          With "kept", or if R follows from the run, extra steps use the schedule's last rate; a last rate below a
//          hundredth of the peak is refused, since such steps would take time and change nothing. Recomputed
//          micro-batches count as dropped in their own step and as kept in the added one; those dropped in the last
//          epoch stay dropped. Carry-over does not wait for the end of an epoch, and carries a bounded number.
// Checks:  if nothing is dropped, nothing changes; extra steps compute as many samples as were planned; re-computation
//          and carry-over compute each micro-batch exactly once; n steps offer floor(n M').
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// The micro-batches of one step: some from earlier steps, then fresh ones, which follow in the worker's data.
struct StepWork {
  std::span<const MicroBatch> earlier{};  // valid until the next step
  MicroBatch fresh{};                     // the first fresh micro-batch
  std::size_t fresh_count = 0;
  int micro_batches = 1;    // M; the data number their micro-batches from 0 to M - 1 in each step
  int offered = 0;          // micro-batches of this step without those carried over; what the divisor counts
  int offered_at_most = 0;  // the maximum of `offered` over all steps
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

struct DropCompensation {
  // One worker's state of the compensation during a run.
  class State {
   public:
    virtual ~State() = default;
    // Returns the work of the step that begins.
    virtual StepWork next(Worker& worker) = 0;
    // Called before the all-reduce, when the first `count` micro-batches of the step's work are computed. Returns how
    // many the step had planned; those that are not in its sum count as dropped.
    virtual std::int64_t computed(std::size_t count) = 0;
    // Called after the step, whose sum contained `kept` micro-batches of all workers.
    virtual void finished(Worker&, std::int64_t /*kept*/) {}
  };

  std::function<std::unique_ptr<State>(Worker& worker)> begin;
  bool is_none = false;
  bool carries_over = false;             // the next step begins with the micro-batches that a step drops
  bool computes_dropped = carries_over;  // dropped micro-batches are computed later
};

std::shared_ptr<const DropCompensation> make_no_compensation();

// Steps have M (1 + R) micro-batches on average.
std::shared_ptr<const DropCompensation> make_larger_batch(double redundancy);

// Dropped micro-batches come first in the next step. If they exceed `at_most`, the newest are lost.
std::shared_ptr<const DropCompensation> make_carry_over(int at_most);

// The run is extended by R times its number of steps. If R is not given, it follows from the drops in these steps.
enum class ExtraStepsSchedule { kept, stretched };
std::shared_ptr<const DropCompensation> make_extra_steps(std::optional<double> redundancy, ExtraStepsSchedule schedule);

// Before every step whose number is a multiple of `every_steps`, each worker computes the micro-batches that it has
// dropped since the previous multiple, in additional steps of at most M micro-batches.
std::shared_ptr<const DropCompensation> make_recomputation(Step every_steps);

// The facts that a compensation's settings depend on.
struct DropCompensationContext {
  int micro_batches = 1;
  std::optional<Step> steps_per_epoch{};  // as in AlgorithmContext
  bool has_epochs = steps_per_epoch.has_value();
  bool counts_steps = false;                    // whether the budget counts steps or epochs
  std::optional<Step> total_steps{};            // in the budget; none: not counted, or unknown
  const LearningRate* learning_rate = nullptr;  // the run's; must outlive the reading of the settings; null: unknown
};

// The registry: one row per compensation. A row's keys are in the same table as the key `compensation`.
struct DropCompensationRow {
  std::string_view name;      // `compensation = ...` in TOML
  std::string_view sentence;  // one-sentence description
  std::shared_ptr<const DropCompensation> (*make)(Settings& settings, const DropCompensationContext& context);
};
std::span<const DropCompensationRow> drop_compensations();

// Reads `compensation = "..."`, by default "none", and the keys of that row. Never returns null.
std::shared_ptr<const DropCompensation> read_drop_compensation(Settings& settings,
                                                               const DropCompensationContext& context);

}  // namespace syncopate
