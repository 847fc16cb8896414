// Processes that divide one simulation and were started by one launcher. They exchange vectors as MPI messages.
//
// While a run is under way, only one thread uses MPI. It sends vectors that are handed in, looks for incoming vectors,
// and sleeps in between, so that the cores are left to computing threads. A vector is received into memory that is
// allocated only when the vector arrives. A vector that this process has not asked for yet stays with its sender.
#pragma once

#include <memory>
#include <string>

#include "workers/mpi/mpi_session.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

// Explains why the session's processes cannot divide simulations; empty if they can.
std::string why_not_divided(const MpiSession& session);

// Collective over the session, which must outlive the group.
std::unique_ptr<ProcessGroup> make_mpi_process_group(const MpiSession& session);

}  // namespace syncopate
