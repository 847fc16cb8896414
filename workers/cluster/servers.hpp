// The servers of a method: how many, and who has to do with whom. Their ranks come after the workers'.
#pragma once

#include <string>

#include "workers/units/by_rank.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Servers {
  // So many; of several each holds a slice of the model, and all workers have to do with all of them.
  constexpr Servers(int count = 0) : count(count) {}  // NOLINT: numbers read naturally, as in `.servers = 1`

  // Servers of servers: the first one is the global server, and each region has one of its own. All hold whole models.
  // A region is workers of consecutive ranks, in each as many; so many regions must divide the number of workers.
  static constexpr Servers of_regions(int regions) {
    Servers servers(regions + 1);
    servers.regions = regions;
    return servers;
  }

  int count = 0;
  int regions = 0;  // 0: there are none

  constexpr operator int() const { return count; }  // NOLINT: as above
  constexpr bool hold_slices() const { return count > 1 && regions == 0; }

  // The server that a worker has (of those that hold slices the first), and that a region's server has. Others have
  // none but themselves.
  constexpr Rank server_of(Rank rank, int workers) const {
    const bool is_worker = rank.value < workers;
    if (regions == 0) return is_worker ? Rank{workers} : rank;
    return Rank{workers + (is_worker ? 1 + rank.value / (workers / regions) : 0)};
  }
  // Whose server this one is.
  constexpr Ranks served_by(Rank server, int workers) const {
    return Ranks(first_served_by(server, workers), number_served_by(server, workers));
  }
  constexpr int number_served_by(Rank server, int workers) const {
    if (regions == 0) return workers;
    return server.value == workers ? regions : workers / regions;
  }
  constexpr Rank first_served_by(Rank server, int workers) const {
    if (regions == 0) return Rank{0};
    return Rank{server.value == workers ? workers + 1 : (server.value - workers - 1) * (workers / regions)};
  }

  // For explanations.
  std::string name_of(Rank server, int workers) const;
};

}  // namespace syncopate
