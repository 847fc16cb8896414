// A collective that a rank has come to, until the rank has its result: first everybody arrives, then values are
// reduced. Both go on without the rank, wherever it lets MPI progress.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "workers/cluster/collective.hpp"
#include "workers/cluster/place.hpp"
#include "workers/cluster/step_row.hpp"
#include "workers/mpi/mpi_arrival.hpp"
#include "workers/mpi/mpi_reduction.hpp"

namespace syncopate {

struct MpiCollective {
  std::int64_t number = 0;  // among those of its members
  Collective what{};
  Place place{};
  Arrival own{};
  std::vector<Arrival> arrivals{};  // by member; read once all are there
  MPI_Request gathering = MPI_REQUEST_NULL;
  std::vector<Rank> awaited{};  // of a group: members whose letters have not come
  bool is_complete = false;     // all have arrived
  bool blocks = false;          // all of them do nothing else until it has ended
  std::optional<MpiReduction> reduction{};
  bool has_ended = false;
  AgreedProgress agreement{};
  StepRow row{};

  // Values are on their way, whatever their ranks do meanwhile.
  bool is_moving() const { return is_complete && !blocks && reduction && !has_ended; }
};

// Those who have collectives among themselves: all workers, or a group.
struct MpiAssembly {
  MpiAssembly(Members members, bool is_group) : members(members), is_group(is_group) {}

  Members members;
  bool is_group;
  std::int64_t started = 0;
  // In the order in which they were started, which is the same on all members. MPI writes to them: they do not move.
  std::list<MpiCollective> open{};

  bool has_one_under_way() const;
  bool has_one_moving() const {
    return std::ranges::any_of(open, [](const MpiCollective& collective) { return collective.is_moving(); });
  }
};

inline bool MpiAssembly::has_one_under_way() const {
  for (const MpiCollective& collective : open)
    if (!collective.has_ended) return true;
  return false;
}

}  // namespace syncopate
