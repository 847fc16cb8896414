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
  // Both halves of Cluster::perform: it arrives, and `finish` waits.
  StartedCollective arrive(Collective&& what, bool blocks, const Contribution& contribution, const Place& place);

  // What of a collective an earlier process was told when it finished it, and the same from that.
  struct Finished {
    MpiReduction::Agreed agreed;
    std::vector<double> numbers;
    AgreedProgress agreement;

    template <typename Archive>
    void keep(Archive& archive) {
      archive(agreed, numbers, agreement);
    }
  };
  const Finished& last_finished() const { return last_finished_; }
  StartedCollective started_before(Collective&& what, Step step);
  CollectiveResult finished_before(StartedCollective&& started, Finished told);

  bool are_under_way() const;
  bool are_moving() const;  // values of one that is under way, as fast as this rank lets MPI progress
  // What can go on without its worker does.
  void advance_all();
  // Where this rank stands still: what all members have come to goes on to its end, also where one waits for it in MPI's
  // own call.
  void drive();
  // Of all workers, so many have been started here; and whether the first `number` of them have ended, and all of
  // groups that can.
  std::int64_t started() const { return all_.started; }
  bool have_ended(std::int64_t number) const;
  // The last one of all workers, after their programs.
  void meet_at_the_end();

  // What is open, while the ranks stand still; read, it completes what `started_before` has put there.
  void keep(StateArchive& archive);
  // Of what has been read, what not all have come to begins again.
  void go_on();

 private:
  MpiAssembly& assembly_of(const Collective& what);
  Arrival arrival_at(const Collective& what, const Contribution& contribution, const Place& place);
  void stamp(Arrival& own, const Place& place);
  void advance(MpiAssembly& assembly);
  void drive(MpiAssembly& assembly);
  void keep(MpiAssembly& assembly, StateArchive& archive);
  void keep(const MpiAssembly& assembly, MpiCollective& collective, StateArchive& archive);
  void gather(MpiCollective& collective);
  MpiReduction::Ended ended_members(const MpiAssembly& assembly, const Collective& what) const;
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
  Finished last_finished_;
};

}  // namespace syncopate
