// What the parts of an MPI rank share: who it is, its post, its clock and book, and what has been counted so far.
#pragma once

#include <cstdint>
#include <string>

#include "workers/cluster/step_rows.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_communicators.hpp"
#include "workers/mpi/mpi_post.hpp"
#include "workers/mpi/wall_account.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

class StateArchive;

class MpiStage {
 public:
  MpiStage(const MpiCluster::Options& options, MpiCommunicators& communicators);

  const MpiCluster::Options& options;
  MpiCommunicators& communicators;
  const Rank self;
  MpiPost post;
  WallAccount clock;
  StepRows rows;  // on the rank that tells the observer

  bool is_worker() const { return self.value < options.workers; }
  bool is_server() const { return !is_worker() && self.value < participants(); }
  bool is_coordinator() const { return self == Rank{0}; }  // of partial all-reduces
  int participants() const { return options.workers + options.servers; }
  Ranks workers() const { return Ranks(options.workers); }
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  // Those whose leaving a server is told of: workers, and where servers have servers all.
  Ranks told_of() const { return Ranks(options.servers.regions > 0 ? participants() : options.workers); }
  int number_told_of() const { return options.servers.regions > 0 ? participants() - 1 : options.workers; }
  std::string name_of(Rank rank) const;

  Time now() const { return clock.now(); }
  // This rank's own, with its clock, or what it knows of another worker's work; summed over the ranks at the end.
  Book& book_of(Rank worker) { return worker == self ? clock.book() : books_[worker]; }
  DecidedBy decided_by() const { return options.servers > 0 ? DecidedBy::servers : DecidedBy::workers; }

  bool has_ended(Rank worker) const;
  // Whether all servers have ended.
  bool servers_are_gone() const;
  // Whether all other workers have ended, or never will.
  bool others_are_through() const;

  // Each participant counts what it has sent, and tells so in its messages; a worker adds what it has got
  // from other servers than the receiver, so that a server knows of all.
  Bytes bytes_sent() const;
  Bytes collective_bytes{};      // of all workers, known to each
  Bytes sent_bytes{};            // of this rank, and of collectives that only it counts
  ByRank<Bytes> bytes_told;      // by rank: what the others said last
  std::int64_t collectives = 0;  // that this rank counts
  std::int64_t meetings = 0;     // collectives of all workers that it has come to
  std::int64_t kept_in_collectives = 0;
  std::int64_t kept_in_partial_sums = 0;  // worker 0
  bool has_partial_sums = false;          // as far as is known here

  // How far this rank has come after its program (MpiCluster::Process::finish).
  enum class Ending { none, announced, of_collectives, closed };
  Ending ending = Ending::none;
  Time program_end = start_time;
  bool program_has_ended = false;
  bool is_lost = false;  // in a micro-batch that never ends

  // All but the clock, and where it writes to.
  void keep(StateArchive& archive);

 private:
  ByRank<Book> books_;  // of the other workers
};

}  // namespace syncopate
