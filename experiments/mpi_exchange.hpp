// What ranks tell each other between runs. Waiting here leaves the cores to rank 0 and the server,
// which evaluate meanwhile. All functions are collective and throw Interrupted.
#pragma once

#include <cstdint>
#include <vector>

#include "results/recording.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

inline constexpr const char* how_to_continue =
    "interrupted; finished runs stay, and the same command continues with the others";

// Rank 0's numbers, on every rank.
std::vector<int> from_rank_0(const MpiSession& session, std::vector<int> numbers);

// The recording of rank `from`, on rank 0; elsewhere an empty one. Only `from` and rank 0 wait.
Recording move_to_rank_0(const MpiSession& session, int from, const Recording& recording);

}  // namespace syncopate
