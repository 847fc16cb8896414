#include "workers/mpi/mpi_cluster.hpp"

#include <utility>

#include "workers/mpi/mpi_process.hpp"

namespace syncopate {

MpiCluster::MpiCluster(const Options& options) : process_(std::make_unique<Process>(options)) {}
MpiCluster::~MpiCluster() = default;

int MpiCluster::workers() const { return process_->options().workers; }
Servers MpiCluster::servers() const { return process_->options().servers; }
RunTotals MpiCluster::run(const Program& work, const Program& serve) { return process_->run(work, serve); }
Time MpiCluster::now(Rank) const { return process_->parts().stage.now(); }
Bytes MpiCluster::bytes_sent() const { return process_->parts().stage.bytes_sent(); }
int MpiCluster::workers_left(Rank) { return process_->parts().mail.workers_left(); }
bool MpiCluster::has_left(Rank, Rank other) const { return process_->parts().mail.has_left(other); }

std::optional<Gradient> MpiCluster::compute_gradient(Rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                     const MicroBatch& samples, const Deadline& deadline) {
  return process_->parts().micro_batches.compute(at, slot, samples, deadline);
}

bool MpiCluster::may_lose_state(Rank) const { return process_->parts().micro_batches.may_lose_state(); }
bool MpiCluster::has_lost_state(Rank) { return process_->parts().micro_batches.has_lost_state(); }

StartedCollective MpiCluster::start(Rank, Collective&& what, const Contribution& contribution, Place place) {
  if (what.kind == Collective::Kind::partial_all_reduce)
    return process_->parts().partial_sums.start(std::move(what), contribution, place);
  return process_->parts().collectives.start(std::move(what), contribution, place);
}

CollectiveResult MpiCluster::finish(Rank, StartedCollective&& started, Place place) {
  if (started.kind == Collective::Kind::partial_all_reduce) return process_->parts().partial_sums.finish(place);
  return process_->parts().collectives.finish(std::move(started), place);
}

CollectiveResult MpiCluster::perform(Rank, Collective&& what, const Contribution& contribution, Place place) {
  if (what.kind == Collective::Kind::partial_all_reduce)
    return process_->parts().partial_sums.perform(std::move(what), contribution, place);
  return process_->parts().collectives.perform(std::move(what), contribution, place);
}

void MpiCluster::report_steps(Rank, const Contribution& contribution) {
  process_->parts().totals.report_steps(contribution);
}
void MpiCluster::send(Rank, Rank to, Message&& message, Place) { process_->parts().mail.send(to, std::move(message)); }
ReceivedMessage MpiCluster::receive(Rank, std::optional<Rank> from, Time until, Place place) {
  return process_->parts().mail.receive(from, until, place);
}
void MpiCluster::discard(Rank, const Work& work) { process_->parts().stage.book_of(work.worker).lose(work.time); }
void MpiCluster::keep(Rank, const Work& work, Step staleness) { process_->parts().totals.keep(work, staleness); }

}  // namespace syncopate
