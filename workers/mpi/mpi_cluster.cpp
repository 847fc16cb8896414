#include "workers/mpi/mpi_cluster.hpp"

#include <utility>

#include "workers/mpi/mpi_process.hpp"

namespace syncopate {

MpiCluster::MpiCluster(const Options& options) : process_(std::make_unique<Process>(options)) {}
MpiCluster::~MpiCluster() = default;

int MpiCluster::workers() const { return process_->workers(); }
int MpiCluster::servers() const { return process_->servers(); }
RunTotals MpiCluster::run(const Program& work, const Program& serve) { return process_->run(work, serve); }
Time MpiCluster::now(Rank) const { return process_->now(); }
Bytes MpiCluster::bytes_sent() const { return process_->bytes_sent(); }
int MpiCluster::workers_left(Rank) { return process_->workers_left(); }
bool MpiCluster::has_left(Rank, Rank worker) const { return process_->has_left(worker); }

std::optional<Gradient> MpiCluster::compute_gradient(Rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                     const MicroBatch& samples, const Deadline& deadline) {
  return process_->compute_gradient(at, slot, samples, deadline);
}

bool MpiCluster::may_lose_state(Rank) const { return process_->may_lose_state(); }
bool MpiCluster::has_lost_state(Rank) { return process_->has_lost_state(); }

StartedCollective MpiCluster::start(Rank, Collective&& what, const Contribution& contribution, Place place) {
  return process_->start(std::move(what), contribution, place);
}

CollectiveResult MpiCluster::finish(Rank, StartedCollective&& started, Place place) {
  return process_->finish(std::move(started), place);
}

CollectiveResult MpiCluster::perform(Rank, Collective&& what, const Contribution& contribution, Place place) {
  return process_->perform(std::move(what), contribution, place);
}

void MpiCluster::finish_round(Rank, const Contribution& contribution) { process_->finish_round(contribution); }
void MpiCluster::send(Rank, Rank to, Message&& message, Place) { process_->send(to, std::move(message)); }
ReceivedMessage MpiCluster::receive(Rank, std::optional<Rank> from, Time until, Place place) {
  return process_->receive(from, until, place);
}
void MpiCluster::discard(Rank, const Work& work) { process_->discard(work); }
void MpiCluster::keep(Rank, const Work& work, Step staleness) { process_->keep(work, staleness); }

}  // namespace syncopate
