#include "workers/mpi/mpi_waiting.hpp"

#include <array>
#include <numeric>

namespace syncopate {

namespace {

// These limits decide how soon a deadlock is found and how much time the search takes, not whether it is found.
constexpr std::int64_t patience_ns = 500'000'000;
constexpr std::int64_t look_every_ns = 50'000'000;

static_assert(std::is_trivially_copyable_v<WaitReport>, "it travels as bytes");

}  // namespace

std::vector<std::string> gather_texts(const std::string& own, MPI_Comm ranks, bool cores_suffice) {
  using Text = std::array<char, 256>;
  std::vector<Text> text(1);
  own.copy(text.front().data(), sizeof(Text) - 1);
  std::vector<std::string> texts;
  for (const Text& all : gather_politely(text, ranks, cores_suffice)) texts.emplace_back(all.data());
  return texts;
}

MpiWaitRounds::MpiWaitRounds(MPI_Comm communicator)
    : communicator_(communicator), reports_(static_cast<std::size_t>(ranks_of(communicator))) {}

bool MpiWaitRounds::is_due(std::int64_t since_ns) const {
  return !is_over_ && monotonic_ns() >= std::max(next_look_ns_, since_ns + patience_ns);
}

bool MpiWaitRounds::join(const WaitReport& own) {
  next_look_ns_ = monotonic_ns() + look_every_ns;
  if (round_ == MPI_REQUEST_NULL) {
    join_next(own);
    return false;
  }
  if (!is_done(round_)) return false;
  // The rank joins the next round at its next call, before which it looks for frames again.
  is_over_ = nobody_can_continue(last_reports_, reports_);
  last_reports_ = reports_;
  return is_over_;
}

void MpiWaitRounds::finish(MPI_Comm everyone, bool cores_suffice) {
  std::int64_t most = joined_;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, everyone, &request);
  wait_politely_for(request, cores_suffice);
  wait_politely_for(round_, cores_suffice);
  while (joined_ < most) {
    join_next({});
    wait_politely_for(round_, cores_suffice);
  }
}

// In a deadlock rank 0 gathers what all ranks wait for, and fails. The others wait until it ends them: it may save
// data.
void MpiWaiting::look_for_deadlock(const Awaited& awaited) {
  MpiTransport& transport = state_.transport;
  if (!rounds_.is_due(waiting_since_ns_) || !transport.has_nothing_half_way()) return;
  const auto total = [](const auto& frames) { return std::accumulate(frames.begin(), frames.end(), std::int64_t{0}); };
  const bool is_over = rounds_.join({.wait = waits_,
                                     .frames_sent = total(transport.sent_to()),
                                     .frames_received = total(transport.received_from()),
                                     .at_the_end = awaited.at_the_end});
  if (!is_over) return;
  const std::string from = awaited.from ? state_.name_of(*awaited.from) : "";
  const auto states = gather_texts(awaited.state ? awaited.state : what_it_waits_for(awaited.place, from),
                                   state_.communicators.waits(), cores_suffice());
  if (state_.self != Rank{0}) return;
  Deadlock deadlock{.at = state_.now()};
  auto state = states.begin();
  for (const Rank worker : state_.workers()) deadlock.workers_by_state[*state++].push_back(worker.value);
  for (const Rank server : state_.servers())
    deadlock.servers.emplace_back(state_.options.servers == 1 ? "server" : state_.name_of(server), *state++);
  throw RunFailure(explain(deadlock));
}

// The end of the run is a collective, not a frame. If all ranks wait for it, it comes, even if no rank has noticed yet.
bool nobody_can_continue(const std::vector<WaitReport>& before, const std::vector<WaitReport>& after) {
  std::int64_t under_way = 0;
  for (const WaitReport& report : after) under_way += report.frames_sent - report.frames_received;
  return before == after && under_way == 0 && !std::ranges::all_of(after, &WaitReport::at_the_end);
}

}  // namespace syncopate
