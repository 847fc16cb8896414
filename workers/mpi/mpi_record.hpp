// The records of all ranks come together on rank 0: each has the spans and micro-batches of its own participant,
// and what it knows of the fate of gradients. Everything travels as 64-bit integers.
#pragma once

#include "workers/mpi/mpi_partial_sums.hpp"

namespace syncopate {

class StateArchive;

// Collective over all ranks, where a record is asked for. `cut_time`: see MpiTotals.
void gather_record(const MpiStage& stage, Duration cut_time, const MpiPartialSums& partial_sums);

// What this rank has recorded so far, where a record is asked for. Of a trace that has come to its limit, what was
// computed since then is not in it.
void keep_record(StateArchive& archive, const MpiStage& stage);

}  // namespace syncopate
