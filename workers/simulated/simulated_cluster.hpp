// All workers in one process on a virtual clock. Each participant is a fiber that runs ahead in its
// own virtual time and meets the others only in collectives and messages; events are ordered by
// time, then by number. Tensor arithmetic is only promised here, so virtual time never depends on
// this machine's speed.
//
// stage.hpp has what the parts share: participants, events and counts. Micro-batches, collectives, messages, partial
// sums and the network are a part each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/simulated/durations_ahead.hpp"
#include "workers/simulated/gatherings.hpp"
#include "workers/simulated/mail.hpp"
#include "workers/simulated/micro_batches.hpp"
#include "workers/simulated/open_rows.hpp"
#include "workers/simulated/partial_sums.hpp"
#include "workers/simulated/pauses_under_way.hpp"
#include "workers/simulated/stage.hpp"
#include "workers/simulated/traffic.hpp"

namespace syncopate {

class SimulatedCluster : public Cluster {
 public:
  explicit SimulatedCluster(const SimulatedOptions& options);
  ~SimulatedCluster() override;

  int workers() const override { return stage_.options.workers; }
  Servers servers() const override { return stage_.options.servers; }
  RunTotals run(const Program& work, const Program& serve) override;
  Time now(Rank self) const override { return stage_[self].book.now(); }
  int workers_left(Rank self) override;
  bool has_left(Rank, Rank other) const override { return stage_[other].left; }
  // What the run has come to: arrivals, ends of waits and of collectives. Not times that a wait has not lasted to.
  std::int64_t events() const { return events_; }
  // Asked by a worker that has just come out of a collective of all.
  ProgressSoFar progress() const { return gatherings_.progress(); }

  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    return micro_batches_.compute(self, at, slot, samples, deadline);
  }
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override {
    return micro_batches_.compute_all(self, at, first, count);
  }
  bool may_lose_state(Rank self) const override { return micro_batches_.may_lose_state(self); }
  bool has_lost_state(Rank self) override { return micro_batches_.has_lost_state(self); }
  Duration sleep_after(Rank, const MicroBatch& slot) const override { return pauses_.sleep_after(slot); }

  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override {
    if (what.kind == Collective::Kind::partial_all_reduce)
      return partial_sums_.start(self, std::move(what), contribution, place);
    return gatherings_.start(self, std::move(what), contribution, place);
  }
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override {
    if (started.kind == Collective::Kind::partial_all_reduce) return partial_sums_.finish(self, place);
    return gatherings_.finish(self, std::move(started), place);
  }
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override {
    return gatherings_.all_reduce_sum(self, gradient, numbers, contribution, place);
  }
  void report_steps(Rank self, const Contribution& contribution) override;

  void send(Rank self, Rank to, Message&& message, Place place) override {
    mail_.send(self, to, std::move(message), place);
  }
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override {
    return mail_.receive(self, from, until, place);
  }
  void discard(Rank self, const Work& work) override;
  void keep(Rank self, const Work& work, Step staleness) override;
  Bytes bytes_sent() const override { return stage_.bytes; }

 private:
  void begin(Rank rank, const Program& program);
  void end_run_with_servers();
  void event_loop();
  void handle(const Event& event);
  void fetch_what_comes_next() const;
  void leave(Rank rank);
  std::string explain_deadlock() const;
  RunTotals totals();

  Stage stage_;
  DurationsAhead durations_;
  PausesUnderWay pauses_;
  Traffic traffic_;
  MicroBatches micro_batches_;
  Gatherings gatherings_;
  PartialSums partial_sums_;
  Mail mail_;
  OpenRows open_rows_;
  std::vector<std::int64_t> staleness_;
  ByRank<int> served_left_;  // where servers have servers: by server, of those whose server it is; else empty
  std::int64_t events_ = 0;
};

}  // namespace syncopate
