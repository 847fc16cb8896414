#include <fmt/format.h>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

using Kind = Collective::Kind;

StartedCollective PendingCollectives::start(Rank rank, Collective&& what, const Contribution& part,
                                            const Place& place) {
  CollectiveGroup& group = group_of(rank, what);
  PendingCollective& collective = next_collective_of(group, rank, place);
  join(collective, group, rank, std::move(what));
  const std::int64_t number = started_by(group, rank);
  ++state_[rank].collectives_under_way;
  book_arrival(group, collective, rank, part);
  const std::optional<Members> members = &group == &all_ ? std::nullopt : std::optional(group.members);
  return {collective.what.kind, members, number, part.step};
}

AgreedProgress PendingCollectives::all_reduce_sum(Rank rank, Gradient& gradient, std::span<double> numbers,
                                                  const Contribution& part, const Place& place) {
  PendingCollective& collective = next_collective_of(all_, rank, place);
  Collective& sum = collective.what;
  if (collective.arrived == 0) {
    sum.kind = Kind::all_reduce;
    sum.numbers.resize(numbers.size());
  }
  if (sum.kind != Kind::all_reduce || sum.numbers.size() != numbers.size() || sum.slice.count > 1)
    check_sum(collective, rank, numbers);
  sum.gradient += std::move(gradient);
  for (std::size_t i = 0; i < numbers.size(); ++i) sum.numbers[i] += numbers[i];
  book_arrival(all_, collective, rank, part);
  wait_for_end(rank, collective, place);
  pauses_.end(rank);
  gradient = collective.result.gradient;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = (*collective.result.numbers)[i];
  const AgreedProgress agreed = collective.result.agreement;
  take_leave(all_, collective);
  return agreed;
}

// A separate function, so that all_reduce_sum needs no stack space for it if the check is not needed.
void PendingCollectives::check_sum(const PendingCollective& collective, Rank rank,
                                   std::span<const double> numbers) const {
  check_alike(collective, rank, Collective::all_reduce({}, numbers));
}

inline void PendingCollectives::book_arrival(CollectiveGroup& group, PendingCollective& collective, Rank rank,
                                             const Contribution& part) {
  Book& book = state_[rank].book;
  collective.last_arrival = std::max(collective.last_arrival, book.now());
  book.contribute(part, collective.row);
  if (overlaps(collective)) collective.buckets.arrive(*overlap_, book.now(), state_.last_micro_batch_of(rank));
  if (recorded_ && &group == &all_) collective.arrivals.emplace_back(rank, book.now());
  ++started_by(group, rank);
  if (++collective.arrived == group.members.count && !group.under_way) begin_next(group);
}

CollectiveGroup& PendingCollectives::group_of(Rank rank, const Collective& what) {
  if (!what.group_size) return all_;
  const Members members = members_of(what, rank, state_.options.workers);
  CollectiveGroup& group = groups_[members];
  if (group.started.empty()) {
    group.members = members;
    group.started.resize(members.size());
  }
  return group;
}

// Returns the group's first collective that this worker has not joined yet.
inline PendingCollective& PendingCollectives::next_collective_of(CollectiveGroup& group, Rank rank,
                                                                 const Place& place) {
  if (state_.is_server(rank)) throw RunFailure("a server cannot take part in a collective");
  const std::int64_t number = started_by(group, rank);
  if (state_.ended_workers > 0) fail_if_left(group, number, place);
  if (&group == &all_) pauses_.end_trailing_work(rank);
  if (number == group.newest_number) return *group.newest;
  return number > group.newest_number ? add_collective(group, place) : older_collective(group, number);
}

PendingCollective& PendingCollectives::older_collective(CollectiveGroup& group, std::int64_t number) {
  return group.open[static_cast<std::size_t>(number - group.first_open)];
}

PendingCollective& PendingCollectives::add_collective(CollectiveGroup& group, const Place& place) {
  while (!group.open.empty() && group.open.front().finished == group.members.count) {
    group.open.pop_front();
    ++group.first_open;
  }
  PendingCollective& collective = group.open.emplace_back();
  collective.place = place;
  collective.id = ++last_id_ == 0 ? ++last_id_ : last_id_;
  group.newest = &collective;
  ++group.newest_number;
  return collective;
}

void PendingCollectives::fail_if_left(CollectiveGroup& group, std::int64_t number, const Place& place) {
  for (const Rank member : group.members.ranks())
    if (state_[member].ended && started_by(group, member) <= number) fail_for_who_left(place);
}

void PendingCollectives::join(PendingCollective& collective, const CollectiveGroup& group, Rank rank,
                              Collective&& what) {
  const std::size_t members = group.members.size(), member = group.members.place_of(rank);
  const std::size_t count = what.numbers.size();
  Collective& sum = collective.what;
  if (collective.arrived == 0) {
    sum.kind = what.kind;
    sum.policy = what.policy;
    sum.root = what.root;
    sum.slice = what.slice;
    sum.known = std::move(what.known);
    sum.rest_is_needed = what.rest_is_needed;
    sum.numbers.resize(count * (what.kind == Kind::all_gather ? members : 1));
  }
  check_alike(collective, rank, what);
  if (what.kind == Kind::all_gather) {
    std::ranges::copy(what.numbers, sum.numbers.begin() + static_cast<std::ptrdiff_t>(member * count));
  } else if (what.kind == Kind::average) {
    collective.states.resize(members);
    collective.weights.resize(members);
    collective.states[member] = std::move(what.model);
    collective.weights[member] = what.weight;
  } else {
    sum.gradient += std::move(what.gradient);
    for (std::size_t i = 0; i < count; ++i) sum.numbers[i] += what.numbers[i];
  }
  if (!what.is_exchange()) return;
  collective.brought.resize(members);
  sum.packet.size = what.packet.size;
  if (sum.gathers_packets()) sum.all_packets += what.packet.size;
  collective.brought[member] = std::move(what.packet);
}

void PendingCollectives::check_alike(const PendingCollective& collective, Rank rank, const Collective& what) const {
  const Collective::Terms own = what.terms();
  Collective::Terms others = collective.what.terms();
  if (others.kind == Kind::all_gather) others.numbers /= state_.options.workers;  // these are all workers' numbers
  if (own != others)
    throw RunFailure(
        fmt::format("{} calls {}, but the others wait in {}", state_.name(rank), describe(own), describe(others)));
}

// Begins the group's next collective once all members have arrived. A group's collectives run one after another.
void PendingCollectives::begin_next(CollectiveGroup& group) {
  const auto next = std::ranges::find_if(group.open, [](const PendingCollective& g) { return !g.has_ended; });
  if (next == group.open.end() || next->arrived < group.members.count) return;
  const auto& [first, count] = group.members;
  const bool is_of_all = &group == &all_;
  const CollectiveCall call{.operation = properties_of(next->what.kind).operation,
                            .members = count,
                            .payload = payload_of(next->what, state_.options.training, count),
                            .first = first,
                            .number = is_of_all ? state_.collectives_begun++ : group.begun++};
  group.under_way = true;
  const Time at = std::max(next->last_arrival, group.free_at);
  if (is_of_all || count > 1)
    traffic_.begin_collective(at, call, &group, overlaps(*next) ? &next->buckets : nullptr, group.free_at);
  else  // a single member: no communication
    state_.schedule(at, Event::Kind::finish_collective, &group);
}

void PendingCollectives::end_collective(CollectiveGroup& group) {
  PendingCollective& collective =
      *std::ranges::find_if(group.open, [](const PendingCollective& g) { return !g.has_ended; });
  ++state_.collectives;
  collective.has_ended = true;
  collective.end = group.free_at = state_.now();
  group.under_way = false;
  Collective& what = collective.what;
  CollectiveResult& result = collective.result;
  if (what.known.micro_batches() > 0) what.gradient += what.known;
  result.gradient = state_.options.training.share(std::exchange(what.gradient, {}));
  result.gradient.mark_reduced();
  if (!what.numbers.empty()) result.numbers = std::make_shared<const std::vector<double>>(std::move(what.numbers));
  if (what.kind == Kind::average) collective.states = mean_of(collective, group.members.first);
  if (what.is_exchange()) result.packets = exchanged(collective);
  if (&group == &all_) {
    state_.kept += collective.row.kept;
    met_at_ = state_.now();
    last_arrival_ = collective.last_arrival;
    result.agreement = {.time = state_.now(), .micro_batches = state_.kept, .bytes = state_.bytes};
    const Time row_begin = state_.rows.begin();
    if (StepRows::is_row(what.kind, collective.row))  // without a record there are no arrivals
      for (const auto& [worker, at] : collective.arrivals)
        recorded_->push_back({row_begin, collective.row.step, worker, at - row_begin});
    state_.rows.close(collective.what.kind, collective.row, state_.now(), state_.bytes);
  } else {
    result.agreement = {.time = state_.now()};
  }
  begin_next(group);
  const std::uint16_t id = collective.id;  // resuming the last member may release the collective
  constexpr int ahead = 2;
  const auto& [first, count] = group.members;
  for (int i = 0; i < count; ++i) {
    if (i + ahead < count) state_[Rank{first.value + i + ahead}].fiber->prefetch();
    const Rank member{first.value + i};
    if (state_[member].awaits == id) state_.resume(member);
  }
}

// Returns the members' packets, the root's packet or the sum of the packets; null in time-only runs.
SharedPackets PendingCollectives::exchanged(PendingCollective& collective) const {
  Training& training = state_.options.training;
  std::vector<Packet> packets = std::exchange(collective.brought, {});
  if (training.time_only()) return nullptr;
  training.begin_held();
  const Kind kind = collective.what.kind;
  if (kind == Kind::broadcast_packet) packets = {packets[static_cast<std::size_t>(collective.what.root.value)]};
  if (!collective.what.sums_packets()) return std::make_shared<const std::vector<Packet>>(std::move(packets));
  Packet sum{.words = {}, .size = collective.what.packet.size};
  std::vector<CellPtr> words;
  for (Packet& packet : packets) {
    sum.carried.insert(sum.carried.end(), packet.carried.begin(), packet.carried.end());
    words.push_back(std::move(packet.words));
  }
  sum.words = training.sum_of(std::move(words));
  return std::make_shared<const std::vector<Packet>>(1, std::move(sum));
}

// Weights that are all equal, even all zero, count as no weights. `first`: the first member's rank.
std::vector<ModelStatePtr> PendingCollectives::mean_of(const PendingCollective& collective, Rank first) const {
  const auto& [policy, slice] = std::pair(collective.what.policy, collective.what.slice);
  const auto& weights = collective.weights;
  const bool equal = std::ranges::all_of(weights, [&](double w) { return w == weights.front(); });
  Training& training = state_.options.training;
  auto means = training.average(collective.states, policy, equal ? std::span<const double>() : weights, slice);
  if (slice.count == 1 || training.time_only() || !collective.what.rest_is_needed) return means;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const Training::AskedBy asked(training, Rank{first.value + static_cast<int>(i)});
    std::vector<ModelStatePtr> slices(static_cast<std::size_t>(slice.count), collective.states[i]);
    slices[static_cast<std::size_t>(slice.index)] = means[i];
    means[i] = training.assemble(collective.states[i], slices);
  }
  return means;
}

CollectiveResult PendingCollectives::finish(Rank rank, StartedCollective&& started, const Place& place) {
  CollectiveGroup& group = started.group ? groups_.at(*started.group) : all_;
  PendingCollective& collective = older_collective(group, started.number);
  wait_for_end(rank, collective, place);
  --state_[rank].collectives_under_way;
  if (!started.group) pauses_.end(rank);
  CollectiveResult result = collective.result;
  const std::size_t member = group.members.place_of(rank);
  if (started.kind == Kind::exchange_chunks) result.chunk = static_cast<int>(member);
  if (started.kind == Kind::average) result.model = std::move(collective.states[member]);
  take_leave(group, collective);
  return result;
}

// The worker's program may be ahead of the events, so it waits for them to reach its time. An end at that very time may
// come after the first wait's event, but comes before that of a second wait.
bool PendingCollectives::has_ended(Rank rank, const StartedCollective& started, const Place& place) {
  CollectiveGroup& group = started.group ? groups_.at(*started.group) : all_;
  const PendingCollective& collective = older_collective(group, started.number);
  SimulatedParticipant& participant = state_[rank];
  participant.computing = true;
  for (int waits = 0; waits < 2 && !collective.has_ended; ++waits)
    state_.suspend_until(rank, participant.book.now(), place);
  participant.computing = false;
  return collective.has_ended && collective.end <= participant.book.now();
}

// Books a worker's time before the last arrival as waiting. A worker that computed beyond the end does not wait.
inline void PendingCollectives::wait_for_end(Rank rank, const PendingCollective& collective, const Place& place) {
  SimulatedParticipant& participant = state_[rank];
  while (!collective.has_ended) {
    participant.awaits = collective.id;
    SimulationState::suspend(participant, place);
    participant.awaits = 0;
  }
  Book& book = participant.book;
  book.pass(Activity::wait, collective.last_arrival, {place.operation});
  book.pass(Activity::communicate, collective.end, {place.operation});
  book.meet();
}

// Releases the collective after its last member has left. Its values can then be updated in place if nobody holds them.
inline void PendingCollectives::take_leave(const CollectiveGroup& group, PendingCollective& collective) {
  if (++collective.finished == group.members.count) release(collective);
}

void PendingCollectives::release(PendingCollective& collective) {
  collective.what = {};
  collective.states.clear();
  collective.result = {};
}

void PendingCollectives::fail_if_awaited(CollectiveGroup& group, Rank left) {
  const int member = left.value - group.members.first.value;
  if (member < 0 || member >= group.members.count) return;
  const std::int64_t started = started_by(group, left) - group.first_open;
  if (started < std::ssize(group.open)) fail_for_who_left(group.open[static_cast<std::size_t>(started)].place);
}

void PendingCollectives::fail_for_who_left(const Place& place) const {
  constexpr int most_named = 5;
  std::string who;
  int count = 0;
  for (const Rank worker : state_.workers()) {
    const SimulatedParticipant& participant = state_[worker];
    if (!participant.ended || ++count > most_named) continue;
    who += fmt::format("{}{} left at {:.6f} s", who.empty() ? "" : ", ", state_.name(worker),
                       to_seconds(participant.book.now()));
  }
  if (count > most_named) who += fmt::format(", and {} more", count - most_named);
  throw RunFailure(fmt::format("{}, but {} ({}:{}) needs every worker", who, place.operation,
                               short_path(place.at.file_name()), place.at.line()));
}

// A worker that has not resumed since the collective has not booked it, so its copy of the book gets it here.
ProgressSoFar PendingCollectives::progress() const {
  ProgressSoFar progress{.end = met_at_,
                         .books = ByRank<Book>(state_.options.workers),
                         .kept = state_.kept,
                         .collectives = state_.collectives,
                         .bytes = state_.bytes,
                         .rows = state_.rows};
  for (const Rank worker : state_.workers()) {
    Book& book = progress.books[worker] = state_[worker].book;
    book.pass(Activity::wait, last_arrival_, {});
    book.pass(Activity::communicate, met_at_, {});
  }
  return progress;
}

StartedCollective PartialSums::start(Rank self, Collective&& what, const Contribution& part, const Place& place) {
  are_used_ = true;
  pauses_.end_trailing_work(self);
  OfWorker& own = by_worker_[self];
  if (std::exchange(own.has_one_under_way, true))
    throw RunFailure(state_.name(self) + " starts a partial all-reduce before it has finished the previous one");
  meet_the_others(self, place);
  rounds_.arrive(own.next.value(), self, state_[self].book.now());
  own.in_time = own.next == open_.number && !open_.under_way;
  ++state_[self].collectives_under_way;
  if (own.in_time) {
    open_.activation = what.activation;
    open_.arrived.push_back(self);
    if (const auto overlap = state_.options.network.overlap())
      open_.buckets.arrive(*overlap, state_[self].book.now(), state_.last_micro_batch_of(self));
    if (own.late.waits()) contribute_late(self);
    contribute(self, std::move(what.gradient), part);
    begin_if_due();
  } else if (what.late == LateGradient::drop) {
    Book& book = state_[self].book;
    book.lose(what.gradient.compute_time());
    book.contribute({.planned = part.planned}, open_.row);
  } else {
    if (!own.late.waits()) open_.accumulated.push_back(self);
    own.late.gradient += what.gradient;
    own.late.part.kept += part.kept;
    own.late.part.planned += part.planned;
  }
  return {Collective::Kind::partial_all_reduce, std::nullopt, own.next.value(), part.step};
}

CollectiveResult PartialSums::finish(Rank self, const Place& place) {
  pauses_.end_trailing_work(self);
  SimulatedParticipant& participant = state_[self];
  Book& book = participant.book;
  OfWorker& own = by_worker_[self];
  own.has_one_under_way = false;
  --state_[self].collectives_under_way;
  if (book.now() > state_.now()) meet_the_others(self, place);  // the worker has computed since the start
  if (own.next == open_.number) {
    open_.waiting.push_back(self);
    SimulationState::suspend(participant, place);
    book.pass(Activity::wait, open_.begun_at, {place.operation});
    book.pass(Activity::communicate, state_.now(), {place.operation});
    book.meet();
  }
  // A worker in time gets the result of its own sum. A late one gets those of all sums since the last that it received.
  const Step first = own.next;
  own.next = own.in_time ? first + 1 : open_.number;
  const auto end = open_.results.end();
  const auto from_end = [&](Step number) { return static_cast<std::ptrdiff_t>((open_.number - number).value()); };
  CollectiveResult result{.sums = {end - from_end(first), end - from_end(own.next)}};
  result.agreement = result.sums.back().agreement;
  return result;
}

// The worker may have run ahead in virtual time, so this waits until the event loop has reached the worker's time.
void PartialSums::meet_the_others(Rank worker, const Place& place) {
  state_.schedule(state_[worker].book.now(), Event::Kind::arrive_partial, worker);
  SimulationState::suspend(state_[worker], place);
}

void PartialSums::begin_if_due() {
  if (open_.under_way || open_.arrived.empty()) return;
  int quorum = std::min(open_.activation.quorum, state_.options.workers - state_.leaves);
  if (open_.activation.rank) {
    const Rank rank = *open_.activation.rank;
    const bool is_there = std::ranges::find(open_.arrived, rank) != open_.arrived.end();
    quorum = is_there || state_[rank].left ? 1 : state_.options.workers + 1;
  }
  if (static_cast<int>(open_.arrived.size()) < quorum) return;

  open_.under_way = true;
  open_.begun_at = state_.now();
  open_.contributors = static_cast<int>(open_.arrived.size());
  for (const Rank worker : std::exchange(open_.accumulated, {})) {
    if (!by_worker_[worker].late.waits()) continue;  // its own arrival has already contributed its late gradient
    contribute_late(worker);
    ++open_.contributors;
  }
  const CollectiveCall call{.operation = properties_of(Collective::Kind::partial_all_reduce).operation,
                            .members = state_.options.workers,
                            .payload = state_.options.training.parameter_bytes(),
                            .number = state_.collectives_begun++};
  traffic_.begin_collective(state_.now(), call, nullptr, state_.options.network.overlap() ? &open_.buckets : nullptr,
                            open_.free_from);
}

void PartialSums::end_sum() {
  ++state_.collectives;
  state_.kept += open_.row.kept;
  Gradient sum = state_.options.training.share(std::exchange(open_.sum, {}));
  sum.mark_reduced();
  open_.results.push_back({.sum = std::move(sum),
                           .contributors = open_.contributors,
                           .arrived = static_cast<int>(open_.arrived.size()),
                           .agreement = {.time = state_.now(), .micro_batches = state_.kept, .bytes = state_.bytes}});
  ++open_.number;
  open_.under_way = false;
  open_.arrived.clear();
  open_.buckets = {};
  open_.free_from = state_.now();
  StepRow row = std::exchange(open_.row, {});
  row.step = open_.number;
  row.period = 1;
  state_.rows.close(row, state_.now(), state_.bytes);
  rounds_.begin_next(state_.now());
  for (const Rank worker : std::exchange(open_.waiting, {})) state_.resume(worker);

  // Deletes results that every worker has received or will never ask for.
  Step needed = open_.number;
  for (const Rank worker : state_.workers())
    if (!state_[worker].ended && !state_[worker].lost) needed = std::min(needed, by_worker_[worker].next);
  while (open_.number - Step{static_cast<Step::Rep>(open_.results.size())} < needed) open_.results.pop_front();
}

}  // namespace syncopate
