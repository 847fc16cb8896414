#include "workers/mpi/mpi_waiting.hpp"

#include <array>

namespace syncopate {

namespace {

// These decide how soon a deadlock is found and what looking costs, not whether it is one.
constexpr std::int64_t patience_ns = 500'000'000;
constexpr std::int64_t look_every_ns = 50'000'000;

static_assert(std::is_trivially_copyable_v<WaitReport>, "it travels as bytes");

bool no_frame_is_under_way(const std::vector<WaitReport>& reports) {
  std::int64_t under_way = 0;
  for (const WaitReport& report : reports) under_way += report.frames_sent - report.frames_received;
  return under_way == 0;
}

// Messages of MPI's own collectives are no frames: a collective that all have come to ends, noticed or not.
bool will_take_place(const WaitReport& wait, const std::vector<WaitReport>& reports) {
  switch (wait.what) {
    case WaitReport::For::frames:
      return false;
    case WaitReport::For::collective_of_all:
      return std::ranges::all_of(reports, [&](const WaitReport& other) {
        return other.collectives_of_all == WaitReport::needed_at_no_collective ||
               other.collectives_of_all >= wait.collective_of_all;
      });
    case WaitReport::For::the_end:
      return std::ranges::all_of(reports,
                                 [](const WaitReport& other) { return other.what == WaitReport::For::the_end; });
  }
  return false;
}

}  // namespace

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
  // The next one is joined at the next call, when the rank has looked for frames again.
  is_over_ = nobody_can_continue(last_reports_, reports_);
  last_reports_ = reports_;
  return is_over_;
}

std::vector<std::string> MpiWaitRounds::gather(const std::string& own) const {
  using Text = std::array<char, 256>;
  Text text{};
  own.copy(text.data(), text.size() - 1);
  std::vector<Text> all(rank_in(communicator_) == 0 ? reports_.size() : 0);
  MPI_Gather(text.data(), sizeof(Text), MPI_BYTE, all.data(), sizeof(Text), MPI_BYTE, 0, communicator_);
  std::vector<std::string> texts;
  for (const Text& value : all) texts.emplace_back(value.data());
  return texts;
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
  last_reports_.clear();
}

// Rank 0 learns what all wait for, and fails. The others wait until it ends them: it may still save data.
void MpiWaiting::look_for_deadlock(const Awaited& awaited) {
  MpiTransport& transport = state_.transport;
  if (!rounds_.is_due(waiting_since_ns_) || !transport.has_nothing_half_way()) return;
  const bool is_over = rounds_.join(
      {.wait = waits_,
       .frames_sent = transport.frames_sent(),
       .frames_received = transport.frames_received(),
       .collectives_of_all = state_.is_worker() ? state_.collectives_of_all : WaitReport::needed_at_no_collective,
       .collective_of_all = awaited.collective_of_all,
       .what = awaited.what});
  if (!is_over) return;
  const std::string from = awaited.from ? state_.name_of(*awaited.from) : "";
  const auto states = rounds_.gather(awaited.state ? awaited.state : what_it_waits_for(awaited.place, from));
  if (state_.self == Rank{0}) throw RunFailure(explain_deadlock(states));
}

std::string MpiWaiting::explain_deadlock(const std::vector<std::string>& states) const {
  Deadlock deadlock{.at = state_.now()};
  auto state = states.begin();
  for (const Rank worker : state_.workers()) deadlock.workers_by_state[*state++].push_back(worker.value);
  for (const Rank server : state_.servers())
    deadlock.servers.emplace_back(state_.options.servers == 1 ? "server" : state_.name_of(server), *state++);
  return explain(deadlock);
}

bool nobody_can_continue(const std::vector<WaitReport>& before, const std::vector<WaitReport>& after) {
  return before == after && no_frame_is_under_way(after) &&
         std::ranges::none_of(after, [&](const WaitReport& wait) { return will_take_place(wait, after); });
}

}  // namespace syncopate
