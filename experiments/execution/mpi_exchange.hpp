// What ranks tell each other before and between runs. Waiting here leaves the cores to rank 0 and the server,
// which evaluate meanwhile. All functions are collective and throw Interrupted.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "results/rows/recording.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

inline constexpr const char* what_stays =
    "finished runs stay, and the same command continues with the others, from their newest checkpoints if they have "
    "any";

// Rank 0's numbers, on every rank.
std::vector<int> from_rank_0(const MpiSession& session, std::vector<int> numbers);
double from_rank_0(const MpiSession& session, double number);
// The same, `meanwhile` being called again and again until it is there.
double from_rank_0(const MpiSession& session, double number, const std::function<void()>& meanwhile);
// As many as rank 0 has; what others give is not looked at.
std::vector<float> from_rank_0(const MpiSession& session, std::vector<float> numbers);

// What comes of every rank's number (MPI_SUM, MPI_MAX, ...), on every rank; of as many numbers in their place.
double reduced(const MpiSession& session, double number, MPI_Op operation);
void reduced(const MpiSession& session, std::vector<double>& numbers, MPI_Op operation);

// What every rank gives, by rank, on every rank.
std::vector<std::array<std::uint64_t, 2>> gather_everywhere(const MpiSession& session,
                                                            const std::array<std::uint64_t, 2>& own);

// What every rank gives, by rank, on rank 0; elsewhere empty.
std::vector<std::string> texts_on_rank_0(const MpiSession& session, const std::string& own);

// The recording of rank `from`, on rank 0; elsewhere an empty one. Only `from` and rank 0 wait.
Recording move_to_rank_0(const MpiSession& session, int from, const Recording& recording);

}  // namespace syncopate
