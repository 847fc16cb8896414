// Extra steps: the run goes on until it has computed as much as was planned.
// Source:  Giladi et al. 2023, "DropCompute".
// Shapes:  scalars.   Units: redundancy R = M / (mean number computed) - 1, a fraction.
// Cost:    R times the run.
// Differs: the paper does not say what extra steps do to the schedule of the learning rate. By default it is stretched
//          to the longer run where R is given (learning_rate_schedule = "stretched"). Where R follows from the run, or
//          with "kept", it stays at its end; an end below a hundredth of the peak is then refused, since such steps
//          would take time and change nothing.
// Checks:  nothing dropped: nothing changes; as many samples are computed as were planned.
#pragma once

#include "algorithms/synchronous/drop_compensation.hpp"

namespace syncopate {

// The run goes on for R times its steps. Without a given R it is what the run's own steps have turned out to drop.
enum class ExtraStepsSchedule { kept, stretched };
std::shared_ptr<const DropCompensation> make_extra_steps(std::optional<double> redundancy, ExtraStepsSchedule schedule);

std::shared_ptr<const DropCompensation> read_extra_steps(Settings& settings, const DropCompensationContext& context);

}  // namespace syncopate
