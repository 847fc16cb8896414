// DropCompensation: how DropCompute compensates for the micro-batches that it drops.
// Source:  Giladi et al. 2023, "DropCompute": extra steps, a larger maximal batch, re-computation. Carry-over is ours.
// Shapes:  lists of micro-batches.   Units: redundancy R, a fraction: the paper's R is M / (mean number of a step's M
//          micro-batches that are computed) - 1.
// Cost:    larger batch: R M more micro-batches per worker and step. Extra steps: R times the planned steps in
//          addition. Re-computation: additional steps without a threshold, and an all-gather of one number per worker
//          and epoch. Carry-over: none.
// Differs: the paper does not say how a batch is enlarged. Here a step has floor(M') or ceil(M') micro-batches, with M'
//          = M (1 + R), so that the mean over steps is M'. Each step's divisor uses that step's number. Nor does the
//          paper say how extra steps change the learning rate. By default a given R stretches the schedule over the
//          longer run. With "kept", or if R follows from the run, extra steps use the schedule's last rate. A last rate
//          below a hundredth of the peak is refused, since such steps would take time and change nothing. A recomputed
//          micro-batch counts as dropped in its own step and as kept in the added one. Those dropped in the last epoch
//          are not recomputed. Carry-over does not wait for the end of an epoch; it carries a limited number.
// Checks:  if nothing is dropped, nothing changes; extra steps compute as many samples as were planned; re-computation
//          and carry-over compute each micro-batch exactly once; n steps with a larger batch offer floor(n M').
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// One worker's micro-batches for one step: first those left over from earlier steps, then fresh ones from its data.
struct StepWork {
  std::span<const MicroBatch> earlier{};  // valid until the next step
  MicroBatch fresh{};                     // the first fresh micro-batch
  std::size_t fresh_count = 0;
  int micro_batches = 1;    // M; MicroBatch::index is from 0 to M - 1
  int offered = 0;          // micro-batches that the divisor counts: all of this step, except those carried over
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
  class State {
   public:
    virtual ~State() = default;
    // Returns the work of the step that begins.
    virtual StepWork next(Worker& worker) = 0;
    // Called before the all-reduce, when the first `count` micro-batches of the step's work are computed. Returns the
    // number of micro-batches that the step was to compute; those of them that are not in its sum count as dropped.
    virtual std::int64_t computed(std::size_t count) = 0;
    // Called after the step, whose sum contained `kept` micro-batches of all workers.
    virtual void finished(Worker&, std::int64_t /*kept*/) {}
  };

  std::function<std::unique_ptr<State>(Worker& worker)> begin;
  bool is_none = false;
  bool carries_over = false;             // the next step begins with the micro-batches that a step drops
  bool computes_dropped = carries_over;  // dropped micro-batches are computed later
};

DropCompensation make_no_compensation();

// Steps have M (1 + R) micro-batches on average.
DropCompensation make_larger_batch(double redundancy);

// Dropped micro-batches come first in the next step. If there are more than `at_most`, the last of them are lost.
DropCompensation make_carry_over(int at_most);

// The run is extended by R times its planned number of steps. If R is not given, it follows from their drop rate.
enum class ExtraStepsSchedule { kept, stretched };
DropCompensation make_extra_steps(std::optional<double> redundancy, ExtraStepsSchedule schedule);

// Before every step whose number is a multiple of `every_steps`, each worker computes the micro-batches that it has
// dropped since the previous multiple, in additional steps of at most M micro-batches.
DropCompensation make_recomputation(Step every_steps);

// A row's keys are in the same table as the key `compensation`.
using DropCompensationRow = RuleRow<DropCompensation(Settings&, const AlgorithmContext&)>;
std::span<const DropCompensationRow> drop_compensations();

// Reads `compensation = "..."`, by default "none", and the keys of that row.
DropCompensation read_drop_compensation(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
