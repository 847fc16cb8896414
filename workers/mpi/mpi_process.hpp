// One rank's part in a run on the MPI cluster.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/mpi/mpi_arrival.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_communicators.hpp"
#include "workers/mpi/mpi_mailbox.hpp"
#include "workers/mpi/wall_account.hpp"

namespace syncopate {

class MpiCluster::Process {
 public:
  explicit Process(const Options& options);

  int workers() const { return options_.workers; }
  Time now() const { return clock_.now(); }
  Bytes bytes_sent() const { return collective_bytes_ + sent_bytes_ + received_bytes_; }

  RunTotals run(const Program& work, const Program& serve);

  std::optional<Gradient> compute_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                           const Deadline& deadline);
  Agreement all_reduce_sum(Gradient& gradient, const Contribution& contribution, const Place& place);
  Agreement average(ModelStatePtr& state, const AveragePolicy& policy, const Contribution& contribution,
                    const Place& place);
  Agreement broadcast(ModelStatePtr& state, Rank root, const Place& place);
  Agreement barrier(const Place& place);
  void send(Rank to, Message message);
  std::optional<Message> receive(Time until);
  void keep(const Message& message);

 private:
  // What this rank knows about one worker; summed over the ranks at the end.
  struct Tally {
    std::int64_t kept = 0;         // micro-batches that ended up in a model
    std::int64_t dropped = 0;      // in collectives: planned and not kept
    std::int64_t computed = 0;     // micro-batches whose gradient exists
    std::int64_t computed_ns = 0;  // time spent on those
    std::int64_t kept_ns = 0;      // with a server: time spent on what it kept
  };

  bool is_worker() const { return self_.value < options_.workers; }
  bool is_server() const { return options_.has_server && self_.value == options_.workers; }
  bool server_is_gone() const;
  bool nobody_can_send() const;
  Tally& tally(Rank worker) { return tallies_.at(static_cast<std::size_t>(worker.value)); }

  void start();
  void finish();
  Time agree_on_end();
  RunTotals totals();
  RunTotals read_totals(std::span<const std::int64_t> sums) const;
  [[noreturn]] void fail(const std::string& what);

  std::shared_ptr<GradientSum> evaluate(const ModelStatePtr& at, const MicroBatch& micro_batch);
  void sleep_until(Time end);

  // The wait for all workers; all know all arrivals after it.
  std::vector<Arrival> meet(Arrival own, const Contribution& contribution, const Place& place);
  // Books the reduction itself, counts it and reports the round.
  Agreement conclude(const std::vector<Arrival>& arrivals, Bytes moved, bool is_round);

  Options options_;
  MpiCommunicators communicators_;
  Rank self_;
  std::optional<MpiMailbox> mailbox_;
  WallAccount clock_;
  Time end_{};  // of this rank's program
  std::vector<Tally> tallies_;
  std::int64_t kept_in_collectives_ = 0;
  Bytes collective_bytes_{};
  Bytes sent_bytes_{};
  Bytes received_bytes_{};
  Bytes bytes_at_last_round_{};
  Time last_round_end_{};
  std::int64_t collectives_ = 0;
  std::int64_t messages_ = 0;
};

}  // namespace syncopate
