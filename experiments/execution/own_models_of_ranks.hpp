// Where each worker has a model of its own (gossip) and is a process of its own, what they were after the steps, or
// at the times, that are evaluated is put together once the run is over: no clock runs then.
#pragma once

#include "results/rows/recorder.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

// Collective, before the recorders finish: the one of rank `root` gets the rows. Where the mean is evaluated, that rank
// does so, else each rank evaluates its own. Nothing where no worker said of a model that it is its own. Throws
// Interrupted.
void put_own_models_together(const MpiSession& session, int root, const EvaluationPlan& plan, Training& training,
                             Recorder& recorder);

}  // namespace syncopate
