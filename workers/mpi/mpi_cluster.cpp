#include "workers/mpi/mpi_cluster.hpp"

#include <utility>

#include "workers/mpi/mpi_process.hpp"

namespace syncopate {

MpiCluster::MpiCluster(const Options& options) : process_(std::make_unique<Process>(options)) {}
MpiCluster::~MpiCluster() = default;

int MpiCluster::workers() const { return process_->workers(); }
RunTotals MpiCluster::run(const Program& work, const Program& serve) { return process_->run(work, serve); }
Time MpiCluster::now(Rank) const { return process_->now(); }
Bytes MpiCluster::bytes_sent() const { return process_->bytes_sent(); }

std::optional<Gradient> MpiCluster::compute_gradient(Rank, const ModelStatePtr& at, const MicroBatch& micro_batch,
                                                     const Deadline& deadline) {
  return process_->compute_gradient(at, micro_batch, deadline);
}

Agreement MpiCluster::all_reduce_sum(Rank, Gradient& gradient, const Contribution& contribution, Place place) {
  return process_->all_reduce_sum(gradient, contribution, place);
}

Agreement MpiCluster::average(Rank, ModelStatePtr& state, const AveragePolicy& policy, const Contribution& contribution,
                              Place place) {
  return process_->average(state, policy, contribution, place);
}

Agreement MpiCluster::broadcast(Rank, ModelStatePtr& state, Rank root, Place place) {
  return process_->broadcast(state, root, place);
}

Agreement MpiCluster::barrier(Rank, Place place) { return process_->barrier(place); }
void MpiCluster::send(Rank, Rank to, Message message, Place) { process_->send(to, std::move(message)); }
std::optional<Message> MpiCluster::receive(Rank, Time until, Place) { return process_->receive(until); }
// What a server does not keep counts as discarded in the totals.
void MpiCluster::discard(Rank, const Message&) {}
void MpiCluster::keep(Rank, const Message& message) { process_->keep(message); }

}  // namespace syncopate
