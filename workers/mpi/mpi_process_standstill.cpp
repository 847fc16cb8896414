// What becomes of a run in which all ranks wait for each other: rank 0 knows what each of them waits for, and fails.
#include <fmt/format.h>

#include "workers/cluster/deadlock.hpp"
#include "workers/mpi/mpi_process.hpp"

namespace syncopate {

void MpiCluster::Process::begin_wait() {
  ++waits_;
  waiting_since_ns_ = monotonic_ns();
}

// The others wait on until rank 0 ends them: its last chance to save what there is must not be cut short.
void MpiCluster::Process::look_for_standstill(const Awaited& awaited) {
  if (!wait_rounds_.is_due(waiting_since_ns_) || !post_->has_nothing_half_way()) return;
  const bool is_over = wait_rounds_.join({.wait = waits_,
                                          .letters_sent = post_->letters_sent(),
                                          .letters_received = post_->letters_received(),
                                          .meetings = is_worker() ? all_->started : WaitReport::needed_at_no_meeting,
                                          .meeting = awaited.meeting,
                                          .what = awaited.what});
  if (!is_over) return;
  const auto states = wait_rounds_.gather(state_of(awaited));
  if (self_.value == 0) throw RunFailure(explain_standstill(states));
}

std::string MpiCluster::Process::explain_standstill(const std::vector<std::string>& states) const {
  Deadlock deadlock{.at = now()};
  for (int rank = 0; rank < post_->participants(); ++rank) {
    const std::string& state = states.at(static_cast<std::size_t>(rank));
    if (rank < options_.workers)
      deadlock.workers_by_state[state].push_back(rank);
    else
      deadlock.servers.emplace_back(options_.servers == 1 ? "server" : name_of(Rank{rank}), state);
  }
  return explain(deadlock);
}

std::string MpiCluster::Process::state_of(const Awaited& awaited) const {
  if (awaited.state) return awaited.state;
  return what_it_waits_for(awaited.place, awaited.from ? name_of(*awaited.from) : "");
}

std::string MpiCluster::Process::name_of(Rank rank) const {
  if (rank.value < options_.workers) return fmt::format("worker {}", rank.value);
  return options_.servers == 1 ? "the server" : fmt::format("server {}", rank.value - options_.workers);
}

}  // namespace syncopate
