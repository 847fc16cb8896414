// All workers in one process on a virtual clock. Each participant is a fiber that runs ahead in its
// own virtual time and meets the others only in collectives and messages; events are ordered by
// time, then by number. Tensor arithmetic is only promised here, so virtual time never depends on
// this machine's speed.
//
// simulation_state.hpp has what the parts share: participants, events and counts. Micro-batches, collectives, messages,
// partial sums and the network are a part each.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/simulated/collectives.hpp"
#include "workers/simulated/messages.hpp"
#include "workers/simulated/simulation_state.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {

// Micro-batches of the simulated cluster: what a worker's own time is spent on, until a deadline, a message or an
// outage ends it. Nothing is computed here; a gradient is a promise.
class MicroBatches {
 public:
  MicroBatches(Stage& stage, DurationsAhead& durations, PausesUnderWay& pauses);

  // See Cluster.
  std::optional<Gradient> compute(Rank self, const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                  const Deadline& deadline);
  Gradient compute_all(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);
  bool may_lose_state(Rank worker) const;
  bool has_lost_state(Rank worker);

  // How long outages hold the worker down beyond this time, of what is in its account.
  Duration down_beyond(Rank worker, Time time) const;

 private:
  [[gnu::noinline]] Gradient compute_each(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count);
  std::optional<Gradient> compute_until_message(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                const MicroBatch& samples, const Deadline& deadline);
  std::optional<Passage> meet_outages(Rank rank, const MicroBatch& slot, const MicroBatch& samples,
                                      const Deadline& deadline);
  std::optional<Gradient> pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                       const MicroBatch& samples, const Passage& passage);
  // How long the slot takes with these samples.
  Duration duration_of(const MicroBatch& slot, const MicroBatch& samples) {
    if (!follows_samples_ || slot == samples) return durations_.of(slot);
    return stage_.options.compute_time.duration(slot, samples);
  }
  // What is left of a micro-batch that is not kept, with this share of its backward pass done.
  std::optional<Gradient> cut(const ModelStatePtr& at, const MicroBatch& samples, double backward_share) const {
    if (backward_share <= 0) return std::nullopt;
    return stage_.options.training.cut_gradient(at, samples, backward_share);
  }
  Passage wait_for_message(Rank rank, const Passage& planned);
  void wait_until(Rank rank, Time until, bool interruptible);

  Stage& stage_;
  DurationsAhead& durations_;
  PausesUnderWay& pauses_;
  ByRank<OutageProgress> outages_;  // by worker; empty: there are none
  bool each_is_seen_;               // by the record, an outage or a pause
  bool follows_samples_;            // durations do
};

// Rows of steps.csv of methods without collectives on the simulated cluster: each is open until all workers have done
// its step, or have ended.
class OpenRows {
 public:
  explicit OpenRows(Stage& stage) : stage_(stage), last_(stage.options.workers) {}

  void contribute(Rank worker, const Contribution& part);
  void leave(Rank worker);  // its program has ended

 private:
  struct OpenRow {
    StepRow row;
    int workers = 0;
  };
  void close_complete();

  Stage& stage_;
  std::map<Step, OpenRow> open_;
  ByRank<Step> last_;                // of each worker
  std::map<Step, int> ended_after_;  // how many workers have ended, by their last row
};

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
