// Collectives of an MPI rank, from its arrival until it has its result.
#pragma once

#include <map>

#include "workers/mpi/mpi_collective.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

class MpiCollectives {
 public:
  MpiCollectives(MpiStage& stage, MpiWaiting& waiting)
      : stage_(stage), waiting_(waiting), all_(Members{Rank{0}, stage.options.workers}, false) {}

  // See Cluster.
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place);
  CollectiveResult finish(StartedCollective&& started, const Place& place);
  CollectiveResult perform(Collective&& what, const Contribution& contribution, const Place& place);

  bool are_under_way() const;
  bool are_moving() const;  // values of one that is under way, as fast as this rank lets MPI progress
  // What can go on without its worker does.
  void advance_all();
  // The last one of all workers, after their programs.
  void meet_at_the_end();

 private:
  StartedCollective arrive(Collective&& what, bool blocks, const Contribution& contribution, const Place& place);
  MpiAssembly& assembly_of(const Collective& what);
  Arrival arrival_at(const Collective& what, const Contribution& contribution, const Place& place);
  void stamp(Arrival& own, const Place& place);
  void advance(MpiAssembly& assembly);
  void gather_letters(MpiAssembly& assembly, MpiCollective& collective);
  void conclude_arrivals(MpiAssembly& assembly, MpiCollective& collective);
  void end_collective(const MpiAssembly& assembly, MpiCollective& collective);
  void record_arrivals(const MpiCollective& collective) const;
  void wait_for_arrivals(const MpiAssembly& assembly, MpiCollective& collective, const Place& place);
  void fail_for_lost(const MpiCollective& collective) const;

  MpiStage& stage_;
  MpiWaiting& waiting_;
  MpiAssembly all_;  // of the workers
  std::map<Members, MpiAssembly> groups_;
};

}  // namespace syncopate
