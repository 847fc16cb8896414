// Collectives of the simulated cluster: workers gather; at the last arrival plus the network's cost the result is
// formed, and who waits for it goes on. A worker's part is done while it runs, never in a loop over all workers: with
// thousands of them, fetching each one's memory once per step is the cost of a step.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/simulated/messages.hpp"
#include "workers/simulated/simulation_state.hpp"

namespace syncopate {

// A collective, from its first arrival until its members have its result. Sums are formed as they arrive.
struct Gathering {
  std::uint16_t id = 0;  // not 0; those who wait look whether it is theirs that has ended
  Collective what;       // the first one's, then what comes of it
  Place place;
  int arrived = 0;
  int finished = 0;
  bool has_ended = false;
  Time last_arrival{};
  Time end{};
  StepRow row;
  std::vector<std::pair<Rank, Time>> arrivals;  // where they are recorded
  std::vector<ModelStatePtr> states;            // by place among the members: brought, then what comes back
  std::vector<double> weights;                  // likewise
  SharedNumbers numbers;
  std::vector<Packet> brought;  // to an exchange, by place among the members
  SharedPackets packets;
  BucketArrivals buckets;  // where the exchange overlaps the backward pass
  AgreedProgress agreed;
};

// Workers of consecutive ranks that have collectives among themselves: all, or a group.
struct Assembly {
  Members members;
  std::deque<Gathering> open;   // in the order in which they were started
  std::int64_t first_open = 0;  // number of the first of them
  Gathering* newest = nullptr;  // the last of them, also when it is through
  std::int64_t newest_number = -1;
  std::int64_t begun = 0;    // collectives, whose costs may vary by number
  bool under_way = false;    // one is on the network
  Time free_at{};            // end of the last one
  std::vector<int> started;  // of a group, by member: collectives
};

// A run of collectives alone where all stand at the end of the last one.
struct ProgressSoFar {
  Time end = start_time;  // of that one
  ByRank<Book> books{};   // by worker, until then; empty: all are
  std::int64_t kept = 0;  // over all workers
  std::int64_t collectives = 0;
  Bytes bytes{};
  Time row_begin = start_time;  // of the row that comes next, and what had been sent by then
  Bytes sent_before_row{};
};

class Gatherings {
 public:
  Gatherings(Stage& stage, Traffic& traffic, PausesUnderWay& pauses)
      : stage_(stage),
        traffic_(traffic),
        pauses_(pauses),
        overlap_(stage.options.network.overlap()),
        recorded_(arrivals_of(stage.options.record)) {
    all_.members = {Rank{0}, stage.options.workers};
  }

  // See Cluster.
  StartedCollective start(Rank self, Collective&& what, const Contribution& part, const Place& place);
  CollectiveResult finish(Rank self, StartedCollective&& started, const Place& place);
  // Start and finish without anything that the worker would keep between them: with thousands of workers its stack is
  // neither in L1 nor in L2, and each line of it counts. By start and finish, synchronous SGD takes 24 % longer with
  // 16,384 workers on fibers, and 37 % with 2,048.
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers, const Contribution& part,
                                const Place& place);

  // An event: the collective of these members that is on the network is over.
  void end_collective(Assembly& assembly);
  // Fails where somebody waits for a worker that has left.
  void tell_of_leave(Rank left);
  // Asked by a worker that has just come out of a collective of all.
  ProgressSoFar progress() const;

 private:
  Assembly& assembly_of(Rank rank, const Collective& what);
  Gathering& next_gathering(Assembly& assembly, Rank rank, const Place& place);
  // How many collectives of these members the worker has started.
  int& started_by(Assembly& assembly, Rank rank) {
    if (&assembly == &all_) return stage_[rank].started;
    return assembly.started[assembly.members.place_of(rank)];
  }
  [[gnu::noinline]] static Gathering& older_gathering(Assembly& assembly, std::int64_t number);
  [[gnu::noinline]] Gathering& add_gathering(Assembly& assembly, const Place& place);
  [[gnu::noinline]] void check_sum(const Gathering& gathering, Rank rank, std::span<const double> numbers,
                                   const Place& place) const;
  [[gnu::noinline]] void fail_if_left(Assembly& assembly, std::int64_t number, const Place& place);
  void book_arrival(Assembly& assembly, Gathering& gathering, Rank rank, const Contribution& part);
  void wait_for_end(Rank rank, const Gathering& gathering, const Place& place);
  [[gnu::noinline]] static void release(Gathering& gathering);
  static void take_leave(const Assembly& assembly, Gathering& gathering);
  void join(Gathering& gathering, const Assembly& assembly, Rank rank, Collective&& what, const Place& place);
  void check_alike(const Gathering& gathering, Rank rank, const Collective& what, std::size_t count,
                   const Place& place) const;
  bool overlaps(const Gathering& gathering) const {
    return overlap_ && gathering.what.kind == Collective::Kind::all_reduce;
  }
  void begin_next(Assembly& assembly);
  void form_result(Gathering& gathering, Rank first);
  [[gnu::noinline]] void record_arrivals(const Gathering& gathering);
  CollectiveResult take_result(Assembly& assembly, Gathering& gathering, Rank rank);
  std::vector<ModelStatePtr> mean_of(const Gathering& gathering, Rank first) const;
  SharedPackets exchanged(Gathering& gathering) const;
  void fail_if_awaited(Assembly& assembly, Rank left);
  [[noreturn]] void fail_for_who_left(const Place& place) const;

  Stage& stage_;
  Traffic& traffic_;
  PausesUnderWay& pauses_;
  Assembly all_;
  std::map<Members, Assembly> groups_;
  const std::optional<Overlap> overlap_;
  std::uint16_t last_id_ = 0;
  std::vector<GradientArrival>* recorded_;  // null: arrivals are not
  Time met_at_{};                           // end of the last collective of all workers,
  Time last_arrival_{};                     // and the last arrival at it
};

// Partial all-reduces of the simulated cluster. Workers arrive in the order of virtual time; once the activation is
// fulfilled the sum is formed of what is there, and those who come later, or are still computing, only get its result.
class PartialSums {
 public:
  PartialSums(Stage& stage, Traffic& traffic, PausesUnderWay& pauses)
      : stage_(stage),
        traffic_(traffic),
        pauses_(pauses),
        by_worker_(stage.options.workers),
        rounds_(arrivals_of(stage.options.record), start_time) {}

  // See Cluster.
  StartedCollective start(Rank self, Collective&& what, const Contribution& part, const Place& place);
  CollectiveResult finish(Rank self, const Place& place);
  bool are_used() const { return are_used_; }

  // Events: the sum that is on the network is there; a worker has left.
  void end_sum();
  void tell_of_leave() {
    if (are_used_) begin_if_due();
  }

  // What a worker has left over at the end of the run: a gradient that nobody took, and what was planned for it.
  struct Late {
    Gradient gradient;  // to be added to the next sum
    Contribution part;
    // Nothing that was computed, perhaps, of what was planned.
    bool waits() const { return gradient.micro_batches() > 0 || part.planned > 0; }
  };
  const Late& left_over(Rank worker) const { return by_worker_[worker].late; }

 private:
  struct OfWorker {
    Step next{};  // the first sum whose result it has not got
    Late late;
    bool has_one_under_way = false;
    bool in_time = false;  // whether it has come to that one before it took place
  };
  // The sum that is open or under way, and the results that somebody has still to get.
  struct Open {
    Step number{};
    bool under_way = false;
    Time begun_at{};
    Time free_from{};  // the end of the one before
    Activation activation;
    std::vector<Rank> arrived;
    BucketArrivals buckets;         // of these, where the exchange overlaps the backward pass
    std::vector<Rank> waiting;      // arrived, or too late and waiting for its result
    std::vector<Rank> accumulated;  // have a late gradient to contribute
    int contributors = 0;
    Gradient sum;
    StepRow row;
    std::deque<PartialSum> results;  // of the sums before `number`
  };

  void meet_the_others(Rank worker, const Place& place);
  void contribute(Rank worker, Gradient gradient, const Contribution& part);
  void contribute_late(Rank worker);
  void begin_if_due();
  std::vector<PartialSum> results_for(OfWorker& worker);

  Stage& stage_;
  Traffic& traffic_;
  PausesUnderWay& pauses_;
  ByRank<OfWorker> by_worker_;
  Open open_;
  NumberedRounds rounds_;  // for the record of arrivals
  bool are_used_ = false;
};

}  // namespace syncopate
