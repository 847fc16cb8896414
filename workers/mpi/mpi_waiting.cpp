#include "workers/mpi/mpi_waiting.hpp"

#include "workers/cluster/deadlock.hpp"

namespace syncopate {

void MpiWaiting::begin() {
  ++waits_;
  waiting_since_ns_ = monotonic_ns();
}

// Rank 0 knows what each of them waits for, and fails. The others wait on until it ends them: its last chance to save
// what there is must not be cut short.
void MpiWaiting::look_for_standstill(const Awaited& awaited) {
  MpiPost& post = stage_.post;
  if (!rounds_.is_due(waiting_since_ns_) || !post.has_nothing_half_way()) return;
  const bool is_over =
      rounds_.join({.wait = waits_,
                    .letters_sent = post.letters_sent(),
                    .letters_received = post.letters_received(),
                    .meetings = stage_.is_worker() ? stage_.meetings : WaitReport::needed_at_no_meeting,
                    .meeting = awaited.meeting,
                    .what = awaited.what});
  if (!is_over) return;
  const auto states = rounds_.gather(state_of(awaited));
  if (stage_.self == Rank{0}) throw RunFailure(explain_standstill(states));
}

std::string MpiWaiting::explain_standstill(const std::vector<std::string>& states) const {
  Deadlock deadlock{.at = stage_.now()};
  auto state = states.begin();
  for (const Rank worker : stage_.workers()) deadlock.workers_by_state[*state++].push_back(worker.value);
  for (const Rank server : stage_.servers())
    deadlock.servers.emplace_back(stage_.options.servers == 1 ? "server" : stage_.name_of(server), *state++);
  return explain(deadlock);
}

std::string MpiWaiting::state_of(const Awaited& awaited) const {
  if (awaited.state) return awaited.state;
  return what_it_waits_for(awaited.place, awaited.from ? stage_.name_of(*awaited.from) : "");
}

}  // namespace syncopate
