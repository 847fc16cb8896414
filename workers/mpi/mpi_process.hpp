// One rank's part in a run on the MPI cluster.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/cluster/step_rows.hpp"
#include "workers/mpi/mpi_arrival.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collective.hpp"
#include "workers/mpi/mpi_communicators.hpp"
#include "workers/mpi/mpi_mailbox.hpp"
#include "workers/mpi/mpi_post.hpp"
#include "workers/mpi/mpi_wait_rounds.hpp"
#include "workers/mpi/partial_rounds.hpp"
#include "workers/mpi/wall_account.hpp"
#include "workers/mpi/worker_steps.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

class MpiCluster::Process {
 public:
  explicit Process(const Options& options);

  int workers() const { return options_.workers; }
  int servers() const { return options_.servers; }
  Time now() const { return clock_.now(); }
  Bytes bytes_sent() const;

  RunTotals run(const Program& work, const Program& serve);

  int workers_left();
  bool has_left(Rank worker) const;
  std::optional<Gradient> compute_gradient(const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                           const Deadline& deadline);
  bool may_lose_state() const { return outages_ && options_.outages->loses_state(self_); }
  bool has_lost_state() { return std::exchange(has_lost_state_, false); }
  StartedCollective start(Collective&& what, const Contribution& contribution, const Place& place);
  CollectiveResult finish(StartedCollective&& started, const Place& place);
  CollectiveResult perform(Collective&& what, const Contribution& contribution, const Place& place);
  void finish_round(const Contribution& contribution);
  void send(Rank to, Message&& message);
  ReceivedMessage receive(std::optional<Rank> from, Time until, const Place& place);
  void keep(const Work& work, Step staleness);
  void discard(const Work& work);

 private:
  // Thrown through the program of a worker that is in a micro-batch without an end when all others have
  // ended: the run is over.
  struct NeverHeardOfAgain {};

  // Where arithmetic is to fit into drawn durations: of this worker.
  struct Emulation {
    std::int64_t emulated = 0;  // micro-batches that have one
    std::int64_t overruns = 0;  // those of them that did not fit
    Duration overrun_excess{};  // by so much, together
  };

  // What the coordinator says of a partial all-reduce; the sum is the letter's body.
  struct PartialResult {
    std::int64_t micro_batches = 0;
    std::int32_t contributors = 0;
    bool in_time = false;  // whether this worker was
    bool wide = false;
    AgreedProgress agreement;
  };

  bool is_worker() const { return self_.value < options_.workers; }
  bool is_server() const { return !is_worker() && self_.value < options_.workers + options_.servers; }
  bool is_coordinator() const { return self_.value == 0; }  // of partial all-reduces
  bool has_ended(Rank worker) const;
  bool servers_are_gone() const;
  bool others_are_through() const;
  bool nobody_can_send(std::optional<Rank> from) const;
  int workers_gone() const;
  // This rank's own, with its clock, or what it knows of another worker's work.
  Book& book_of(Rank worker) { return worker == self_ ? clock_.book() : books_[worker]; }
  DecidedBy decided_by() const { return options_.servers > 0 ? DecidedBy::servers : DecidedBy::workers; }

  // What this rank waits for that only others can bring.
  struct Awaited {
    const Place* place = nullptr;  // in the algorithm; null where its program has ended
    std::optional<Rank> from{};    // a message of this rank alone
    const char* state = nullptr;   // to say instead
    std::int64_t meeting = 0;      // of all workers, counted from 1
    WaitReport::For what = WaitReport::For::letters;
  };

  void start();
  void finish();
  // Waits politely, with progress, until `done`. If all wait so and nobody can go on, the run has failed.
  template <typename Done>
  void wait(const Awaited& awaited, Done done, Time until = never);
  void begin_wait();
  // To be called again and again in a wait, after this rank has found that it cannot go on.
  void look_for_standstill(const Awaited& awaited);
  std::string explain_standstill(const std::vector<std::string>& states) const;
  std::string state_of(const Awaited& awaited) const;
  std::string name_of(Rank rank) const;
  // Lets messages and partial all-reduces go on; called wherever this rank waits or sleeps.
  void progress();

  RunTotals totals();
  Time agree_on_end(std::size_t& staleness_size);
  std::vector<std::int64_t> own_sums(std::size_t staleness_size);
  RunTotals read_totals(std::span<const std::int64_t> sums, std::size_t staleness_size) const;
  void report_rows();
  void gather_record();
  std::vector<std::int64_t> own_record();
  [[noreturn]] void fail(const std::string& what);

  std::shared_ptr<GradientSum> evaluate(const ModelStatePtr& at, const MicroBatch& samples);
  std::optional<Gradient> cancel(const MicroBatch& slot);
  Duration book_passage(const MicroBatch& slot, const Passage& passage, bool kept);
  Passage pass(Time start, Duration duration, const Deadline& deadline);
  void count_overrun(Duration drawn, Duration measured);
  void record_duration(const MicroBatch& slot, Duration spent, Duration injected);
  SpanRecorder* spans() const { return options_.record && options_.record->spans ? &*options_.record->spans : nullptr; }
  bool is_cancelled(const Deadline& deadline);
  void sleep_until(Time end, const Deadline& deadline, bool is_endless);
  [[noreturn]] void sleep_for_ever();

  StartedCollective arrive(Collective&& what, bool blocks, const Contribution& contribution, const Place& place);
  MpiAssembly& assembly_of(const Collective& what);
  Arrival arrival_at(const Collective& what, const Contribution& contribution, const Place& place);
  void stamp(Arrival& own, const Place& place);
  bool has_collectives_under_way() const;
  void advance_collectives();
  void advance(MpiAssembly& assembly);
  void gather_letters(MpiAssembly& assembly, MpiCollective& collective);
  void conclude_arrivals(MpiAssembly& assembly, MpiCollective& collective);
  void end_collective(const MpiAssembly& assembly, MpiCollective& collective);
  void wait_for_arrivals(const MpiAssembly& assembly, MpiCollective& collective, const Place& place);
  void fail_for_lost(const MpiCollective& collective) const;
  void meet_at_the_end();

  StartedCollective start_partial(Collective&& what, const Contribution& contribution, const Place& place);
  CollectiveResult finish_partial(const Place& place);
  void arrive_at_partial(const PartialArrival& arrival, FlatVector values);
  void coordinate();
  void conclude_partial_rounds();
  void conclude_partial(PartialRound round);
  void take_partial_results();
  void add_partial_result(const PartialResult& result, FlatVector sum);

  Options options_;
  MpiCommunicators communicators_;
  Rank self_;
  std::optional<MpiPost> post_;
  std::optional<MpiMailbox> mailbox_;
  MpiWaitRounds wait_rounds_;
  std::int64_t waits_ = 0;  // begun so far
  std::int64_t waiting_since_ns_ = 0;
  WallAccount clock_;
  Time end_{};  // of this rank's program
  bool has_ended_ = false;
  bool is_lost_ = false;
  std::optional<WorkerOutages> outages_;
  bool has_lost_state_ = false;
  std::optional<MpiAssembly> all_;  // of the workers; its last collective is the end of the run
  std::map<Members, MpiAssembly> groups_;
  int workers_gone_told_ = 0;  // a server: of workers that have ended
  ByRank<Book> books_;         // of the other workers; summed over the ranks at the end
  Emulation emulation_;
  Duration cut_time_{};             // computed beyond the end of the run, and so in none of the accounts
  std::vector<StepRow> own_steps_;  // of a method without collectives
  std::vector<std::int64_t> staleness_;
  std::int64_t kept_in_collectives_ = 0;
  Bytes collective_bytes_{};             // of all workers, known to each
  Bytes sent_bytes_{};                   // of this rank, and of collectives that only it counts
  ByRank<Bytes> bytes_told_;             // by rank: what the others said last
  ByRank<Bytes> bytes_received_;         // from each server
  std::optional<StepRows> closed_rows_;  // on the rank that tells the observer
  std::int64_t collectives_ = 0;         // that this rank counts
  // Messages count where the simulated cluster counts them: those to a server once it has taken them, others when sent.
  std::int64_t messages_ = 0;
  Bytes bytes_to_servers_{};    // of sent_bytes_: as a worker
  Bytes bytes_from_workers_{};  // taken as a server

  bool partial_used_ = false;
  std::optional<PartialRounds> rounds_;  // worker 0
  std::int64_t partial_kept_ = 0;        // worker 0: micro-batches in all rounds
  std::int64_t next_round_ = 0;          // the first whose result this worker has not got
  // Of the one that this worker has under way.
  struct StartedPartial {
    bool knows_it_is_late;
    LateGradient late;
    Duration compute_time;
  };
  std::optional<StartedPartial> partial_;
  struct Result {
    PartialSum sum;
    bool in_time;
  };
  std::deque<Result> results_;  // from next_round_ on
};

template <typename Done>
void MpiCluster::Process::wait(const Awaited& awaited, Done done, Time until) {
  begin_wait();
  const auto progress_and_ask = [&] {
    progress();
    if (done()) return true;
    if (until == never) look_for_standstill(awaited);  // else it ends by itself
    return false;
  };
  wait_politely(communicators_.cores_suffice(), progress_and_ask, clock_.to_monotonic_ns(until));
}

}  // namespace syncopate
