#include <fmt/format.h>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

using Kind = Collective::Kind;

StartedCollective Gatherings::start(Rank rank, Collective&& what, const Contribution& part, const Place& place) {
  Assembly& assembly = assembly_of(rank, what);
  Gathering& gathering = next_gathering(assembly, rank, place);
  join(gathering, assembly, rank, std::move(what), place);
  const std::int64_t number = started_by(assembly, rank);
  ++stage_[rank].collectives_under_way;
  book_arrival(assembly, gathering, rank, part);
  const std::optional<Members> group = &assembly == &all_ ? std::nullopt : std::optional(assembly.members);
  return {gathering.what.kind, group, number, part.step};
}

AgreedProgress Gatherings::all_reduce_sum(Rank rank, Gradient& gradient, std::span<double> numbers,
                                          const Contribution& part, const Place& place) {
  Gathering& gathering = next_gathering(all_, rank, place);
  Collective& sum = gathering.what;
  if (gathering.arrived == 0) {
    sum.kind = Kind::all_reduce;
    sum.numbers.resize(numbers.size());
  }
  if (sum.kind != Kind::all_reduce || sum.numbers.size() != numbers.size() || sum.slice.count > 1)
    check_sum(gathering, rank, numbers, place);
  sum.gradient += std::move(gradient);
  for (std::size_t i = 0; i < numbers.size(); ++i) sum.numbers[i] += numbers[i];
  book_arrival(all_, gathering, rank, part);
  wait_for_end(rank, gathering, place);
  pauses_.end(rank);
  gradient = sum.gradient;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = (*gathering.numbers)[i];
  const AgreedProgress agreed = gathering.agreed;
  take_leave(all_, gathering);
  return agreed;
}

// A function of its own, so that the usual case needs no stack for it.
void Gatherings::check_sum(const Gathering& gathering, Rank rank, std::span<const double> numbers,
                           const Place& place) const {
  check_alike(gathering, rank, Collective::all_reduce({}, numbers), gathering.what.numbers.size(), place);
}

inline void Gatherings::book_arrival(Assembly& assembly, Gathering& gathering, Rank rank, const Contribution& part) {
  Book& book = stage_[rank].book;
  gathering.last_arrival = std::max(gathering.last_arrival, book.now());
  book.contribute(part, gathering.row);
  if (overlaps(gathering)) gathering.buckets.arrive(*overlap_, book.now(), stage_.last_micro_batch_of(rank));
  if (recorded_ && &assembly == &all_) gathering.arrivals.emplace_back(rank, book.now());
  ++started_by(assembly, rank);
  if (++gathering.arrived == assembly.members.count && !assembly.under_way) begin_next(assembly);
}

Assembly& Gatherings::assembly_of(Rank rank, const Collective& what) {
  if (!what.group_size) return all_;
  const Members members = members_of(what, rank, stage_.options.workers);
  Assembly& assembly = groups_[members];
  if (assembly.started.empty()) {
    assembly.members = members;
    assembly.started.resize(members.size());
  }
  return assembly;
}

// The first that this worker has not come to yet.
inline Gathering& Gatherings::next_gathering(Assembly& assembly, Rank rank, const Place& place) {
  if (stage_.is_server(rank)) throw RunFailure("a server cannot take part in a collective");
  const std::int64_t number = started_by(assembly, rank);
  if (stage_.ended_workers > 0) fail_if_left(assembly, number, place);
  if (&assembly == &all_) pauses_.end_trailing_work(rank);
  if (number == assembly.newest_number) return *assembly.newest;
  return number > assembly.newest_number ? add_gathering(assembly, place) : older_gathering(assembly, number);
}

Gathering& Gatherings::older_gathering(Assembly& assembly, std::int64_t number) {
  return assembly.open[static_cast<std::size_t>(number - assembly.first_open)];
}

Gathering& Gatherings::add_gathering(Assembly& assembly, const Place& place) {
  while (!assembly.open.empty() && assembly.open.front().finished == assembly.members.count) {
    assembly.open.pop_front();
    ++assembly.first_open;
  }
  Gathering& gathering = assembly.open.emplace_back();
  gathering.place = place;
  gathering.id = ++last_id_ == 0 ? ++last_id_ : last_id_;
  assembly.newest = &gathering;
  ++assembly.newest_number;
  return gathering;
}

// Fails if a worker has left without coming to this one.
void Gatherings::fail_if_left(Assembly& assembly, std::int64_t number, const Place& place) {
  for (const Rank member : assembly.members.ranks())
    if (stage_[member].ended && started_by(assembly, member) <= number) fail_for_who_left(place);
}

// Adds the worker's part.
void Gatherings::join(Gathering& gathering, const Assembly& assembly, Rank rank, Collective&& what,
                      const Place& place) {
  const std::size_t members = assembly.members.size(), member = assembly.members.place_of(rank);
  Collective& sum = gathering.what;
  const bool is_first = gathering.arrived == 0;
  if (is_first) {
    sum.kind = what.kind;
    sum.policy = what.policy;
    sum.group_size = what.group_size;
    sum.root = what.root;
    sum.slice = what.slice;
    sum.rest_is_needed = what.rest_is_needed;
    sum.numbers.resize(what.numbers.size() * (what.kind == Kind::all_gather ? members : 1));
  }
  const std::size_t count = sum.numbers.size() / (what.kind == Kind::all_gather ? members : 1);
  check_alike(gathering, rank, what, count, place);
  switch (what.kind) {
    case Kind::all_reduce:
      sum.gradient += std::move(what.gradient);
      for (std::size_t i = 0; i < count; ++i) sum.numbers[i] += what.numbers[i];
      break;
    case Kind::all_gather:
      std::ranges::copy(what.numbers, sum.numbers.begin() + static_cast<std::ptrdiff_t>(member * count));
      break;
    case Kind::average:
    case Kind::broadcast:
      gathering.states.resize(members);
      gathering.weights.resize(members);
      gathering.states[member] = std::move(what.model);
      gathering.weights[member] = what.weight;
      break;
    case Kind::sum_packets:
    case Kind::gather_packets:
    case Kind::sum_first_packets:
    case Kind::broadcast_packet:
    case Kind::exchange_chunks:
    case Kind::sum_differences:
    case Kind::gather_differences:
      gathering.brought.resize(members);
      sum.gradient += std::move(what.gradient);
      for (std::size_t i = 0; i < count; ++i) sum.numbers[i] += what.numbers[i];
      sum.packet.size = what.packet.size;
      if (sum.gathers_packets()) sum.all_packets += what.packet.size;
      gathering.brought[member] = std::move(what.packet);
      break;
    case Kind::partial_all_reduce:  // PartialSums'
    case Kind::barrier:
      break;
  }
}

void Gatherings::check_alike(const Gathering& gathering, Rank rank, const Collective& what, std::size_t count,
                             const Place& place) const {
  const Collective& others = gathering.what;
  const auto fail = [&](const std::string& how) { throw RunFailure(stage_.name(rank) + how); };
  const auto is_a_worker = [&](Rank root) { return root.value >= 0 && root.value < stage_.options.workers; };
  if (what.kind != others.kind)
    fail(fmt::format(" calls {} while others gather for {}", place.operation, gathering.place.operation));
  if (what.numbers.size() != count) fail(fmt::format(" brings {} numbers, others {}", what.numbers.size(), count));
  if (what.policy != others.policy) fail(" averages by another policy than the others");
  if (what.slice != others.slice) fail(" brings another slice than the others");
  if (!is_a_worker(what.root))
    fail(fmt::format(" broadcasts from rank {}, but the workers are 0 to {}", what.root.value,
                     stage_.options.workers - 1));
  if (what.root != others.root)
    fail(fmt::format(" broadcasts from rank {} while others broadcast from rank {}", what.root.value,
                     others.root.value));
}

// Collectives of the same members go one after another.
void Gatherings::begin_next(Assembly& assembly) {
  const auto next = std::ranges::find_if(assembly.open, [](const Gathering& g) { return !g.has_ended; });
  if (next == assembly.open.end() || next->arrived < assembly.members.count) return;
  const auto& [first, count] = assembly.members;
  const bool is_of_all = &assembly == &all_;
  const CollectiveCall call{.operation = properties_of(next->what.kind).operation,
                            .members = count,
                            .payload = payload_of(next->what, stage_.options.training, count),
                            .first = first,
                            .number = is_of_all ? traffic_.next_collective() : assembly.begun++};
  assembly.under_way = true;
  const Time at = std::max(next->last_arrival, assembly.free_at);
  if (overlaps(*next) && count > 1)
    traffic_.begin_collective(at, call, Event::Kind::finish_collective, &assembly,
                              next->buckets.end(stage_.options.network, call, assembly.free_at) - at);
  else if (is_of_all || count > 1)
    traffic_.begin_collective(at, call, Event::Kind::finish_collective, &assembly);
  else  // alone: nothing
    stage_.schedule_end(at, Event::Kind::finish_collective, &assembly);
}

void Gatherings::end_collective(Assembly& assembly) {
  Gathering& gathering = *std::ranges::find_if(assembly.open, [](const Gathering& g) { return !g.has_ended; });
  ++stage_.collectives;
  gathering.has_ended = true;
  gathering.end = assembly.free_at = stage_.now();
  assembly.under_way = false;
  Collective& what = gathering.what;
  what.gradient = stage_.options.training.share(what.gradient);
  what.gradient.mark_reduced();
  if (!what.numbers.empty()) gathering.numbers = std::make_shared<const std::vector<double>>(std::move(what.numbers));
  if (what.kind == Kind::average) gathering.states = mean_of(gathering, assembly.members.first);
  if (what.is_exchange()) gathering.packets = exchanged(gathering);
  if (&assembly == &all_) {
    stage_.kept += gathering.row.kept;
    met_at_ = stage_.now();
    last_arrival_ = gathering.last_arrival;
    gathering.agreed = {.time = stage_.now(), .micro_batches = stage_.kept, .bytes = stage_.bytes};
    if (recorded_) record_arrivals(gathering);
    stage_.rows.close(gathering.what.kind, gathering.row, stage_.now(), stage_.bytes);
  } else {
    gathering.agreed = {.time = stage_.now()};
  }
  begin_next(assembly);
  const std::uint16_t id = gathering.id;  // it may be gone when the last one has been resumed
  constexpr int ahead = 2;
  const auto& [first, count] = assembly.members;
  for (int i = 0; i < count; ++i) {
    if (i + ahead < count) stage_[Rank{first.value + i + ahead}].fiber->prefetch();
    const Rank member{first.value + i};
    if (stage_[member].awaits == id) stage_.resume(member);
  }
}

// Records the arrivals of a round that becomes a row; it begins where the row before has ended.
void Gatherings::record_arrivals(const Gathering& gathering) {
  if (!StepRows::is_row(gathering.what.kind, gathering.row)) return;
  for (const auto& [worker, at] : gathering.arrivals)
    recorded_->push_back({stage_.rows.begin(), gathering.row.step, worker, at - stage_.rows.begin()});
}

// All packets, the root's, or their sum; none in time-only runs.
SharedPackets Gatherings::exchanged(Gathering& gathering) const {
  Training& training = stage_.options.training;
  std::vector<Packet> packets = std::exchange(gathering.brought, {});
  if (training.time_only()) return nullptr;
  training.begin_held();
  const Kind kind = gathering.what.kind;
  if (kind == Kind::broadcast_packet) packets = {packets[static_cast<std::size_t>(gathering.what.root.value)]};
  if (!gathering.what.sums_packets()) return std::make_shared<const std::vector<Packet>>(std::move(packets));
  Packet sum{.words = {}, .size = gathering.what.packet.size};
  std::vector<CellPtr> words;
  for (Packet& packet : packets) {
    sum.carried.insert(sum.carried.end(), packet.carried.begin(), packet.carried.end());
    words.push_back(std::move(packet.words));
  }
  sum.words = training.sum_of(std::move(words));
  return std::make_shared<const std::vector<Packet>>(1, std::move(sum));
}

// Equal weights, zeros too, count as none. `first`: of the members.
std::vector<ModelStatePtr> Gatherings::mean_of(const Gathering& gathering, Rank first) const {
  const auto& [policy, slice] = std::pair(gathering.what.policy, gathering.what.slice);
  const auto& weights = gathering.weights;
  const bool equal = std::ranges::all_of(weights, [&](double w) { return w == weights.front(); });
  Training& training = stage_.options.training;
  auto means = training.average(gathering.states, policy, equal ? std::span<const double>() : weights, slice);
  if (slice.count == 1 || training.time_only() || !gathering.what.rest_is_needed) return means;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const Training::AskedBy asked(training, Rank{first.value + static_cast<int>(i)});
    std::vector<ModelStatePtr> slices(static_cast<std::size_t>(slice.count), gathering.states[i]);
    slices[static_cast<std::size_t>(slice.index)] = means[i];
    means[i] = training.assemble(gathering.states[i], slices);
  }
  return means;
}

CollectiveResult Gatherings::finish(Rank rank, StartedCollective&& started, const Place& place) {
  Assembly& assembly = started.group ? groups_.at(*started.group) : all_;
  Gathering& gathering = older_gathering(assembly, started.number);
  wait_for_end(rank, gathering, place);
  --stage_[rank].collectives_under_way;
  if (!started.group) pauses_.end(rank);
  const Collective& what = gathering.what;
  CollectiveResult result{.gradient = what.gradient,
                          .numbers = gathering.numbers,
                          .packets = gathering.packets,
                          .agreement = gathering.agreed};
  const std::size_t member = assembly.members.place_of(rank);
  if (what.kind == Kind::exchange_chunks) result.chunk = static_cast<int>(member);
  if (what.kind == Kind::average) result.model = std::move(gathering.states[member]);
  if (what.kind == Kind::broadcast)
    result.model =
        stage_.options.training.adopt(gathering.states[member], gathering.states[assembly.members.place_of(what.root)]);
  take_leave(assembly, gathering);
  return result;
}

// Time before the last arrival is waiting. Time that has passed while the worker computed costs it nothing.
inline void Gatherings::wait_for_end(Rank rank, const Gathering& gathering, const Place& place) {
  SimulatedParticipant& participant = stage_[rank];
  while (!gathering.has_ended) {
    participant.awaits = gathering.id;
    Stage::suspend(participant, place);
    participant.awaits = 0;
  }
  Book& book = participant.book;
  book.pass(Activity::wait, gathering.last_arrival, {place.operation});
  book.pass(Activity::communicate, gathering.end, {place.operation});
  book.meet();
}

// After the last one nobody asks any more. Values that nobody else holds may then be updated in place.
inline void Gatherings::take_leave(const Assembly& assembly, Gathering& gathering) {
  if (++gathering.finished == assembly.members.count) release(gathering);
}

void Gatherings::release(Gathering& gathering) {
  gathering.what = {};
  gathering.states.clear();
  gathering.numbers = nullptr;
  gathering.packets = nullptr;
}

void Gatherings::fail_if_awaited(Assembly& assembly, Rank left) {
  const int member = left.value - assembly.members.first.value;
  if (member < 0 || member >= assembly.members.count) return;
  const std::int64_t started = started_by(assembly, left) - assembly.first_open;
  if (started < std::ssize(assembly.open)) fail_for_who_left(assembly.open[static_cast<std::size_t>(started)].place);
}

void Gatherings::fail_for_who_left(const Place& place) const {
  constexpr int most_named = 5;
  std::string who;
  int count = 0;
  for (const Rank worker : stage_.workers()) {
    const SimulatedParticipant& participant = stage_[worker];
    if (!participant.ended || ++count > most_named) continue;
    who += fmt::format("{}{} left at {:.6f} s", who.empty() ? "" : ", ", stage_.name(worker),
                       to_seconds(participant.book.now()));
  }
  if (count > most_named) who += fmt::format(", and {} more", count - most_named);
  throw RunFailure(fmt::format("{}, but {} ({}:{}) needs every worker", who, place.operation,
                               short_path(place.at.file_name()), place.at.line()));
}

// Workers that have not gone on yet have not booked the collective.
ProgressSoFar Gatherings::progress() const {
  ProgressSoFar progress{.end = met_at_,
                         .books = ByRank<Book>(stage_.options.workers),
                         .kept = stage_.kept,
                         .collectives = stage_.collectives,
                         .bytes = stage_.bytes,
                         .row_begin = stage_.rows.begin(),
                         .sent_before_row = stage_.rows.sent()};
  for (const Rank worker : stage_.workers()) {
    Book& book = progress.books[worker] = stage_[worker].book;
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
    throw RunFailure(stage_.name(self) + " starts a partial all-reduce before it has finished the one before");
  meet_the_others(self, place);
  rounds_.arrive(own.next.value(), self, stage_[self].book.now());
  own.in_time = own.next == open_.number && !open_.under_way;
  ++stage_[self].collectives_under_way;
  if (own.in_time) {
    open_.activation = what.activation;
    open_.arrived.push_back(self);
    if (const auto overlap = stage_.options.network.overlap())
      open_.buckets.arrive(*overlap, stage_[self].book.now(), stage_.last_micro_batch_of(self));
    if (own.late.waits()) contribute_late(self);
    contribute(self, std::move(what.gradient), part);
    begin_if_due();
  } else if (what.late == LateGradient::drop) {
    Book& book = stage_[self].book;
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
  SimulatedParticipant& participant = stage_[self];
  Book& book = participant.book;
  OfWorker& own = by_worker_[self];
  own.has_one_under_way = false;
  --stage_[self].collectives_under_way;
  if (book.now() > stage_.now()) meet_the_others(self, place);  // it has computed since the start
  if (own.next == open_.number) {
    open_.waiting.push_back(self);
    Stage::suspend(participant, place);
    book.pass(Activity::wait, open_.begun_at, {place.operation});
    book.pass(Activity::communicate, stage_.now(), {place.operation});
    book.meet();
  }
  // The result of its own sum, or of all since the last that this worker has got.
  const Step first = own.next;
  own.next = own.in_time ? first + 1 : open_.number;
  const auto end = open_.results.end();
  const auto from_end = [&](Step number) { return static_cast<std::ptrdiff_t>((open_.number - number).value()); };
  CollectiveResult result{.sums = {end - from_end(first), end - from_end(own.next)}};
  result.agreement = result.sums.back().agreement;
  return result;
}

// A worker may have run ahead of everybody's time.
void PartialSums::meet_the_others(Rank worker, const Place& place) {
  stage_.schedule(stage_[worker].book.now(), Event::Kind::arrive_partial, worker);
  Stage::suspend(stage_[worker], place);
}

void PartialSums::begin_if_due() {
  if (open_.under_way || open_.arrived.empty()) return;
  int quorum = std::min(open_.activation.quorum, stage_.options.workers - stage_.leaves);
  if (open_.activation.rank) {
    const Rank rank = *open_.activation.rank;
    const bool is_there = std::ranges::find(open_.arrived, rank) != open_.arrived.end();
    quorum = is_there || stage_[rank].left ? 1 : stage_.options.workers + 1;
  }
  if (static_cast<int>(open_.arrived.size()) < quorum) return;

  open_.under_way = true;
  open_.begun_at = stage_.now();
  open_.contributors = static_cast<int>(open_.arrived.size());
  for (const Rank worker : std::exchange(open_.accumulated, {})) {
    if (!by_worker_[worker].late.waits()) continue;  // brought in by its own arrival
    contribute_late(worker);
    ++open_.contributors;
  }
  const CollectiveCall call{.operation = properties_of(Collective::Kind::partial_all_reduce).operation,
                            .members = stage_.options.workers,
                            .payload = stage_.options.training.parameter_bytes(),
                            .number = traffic_.next_collective()};
  if (stage_.options.network.overlap() && call.members > 1)
    traffic_.begin_collective(stage_.now(), call, Event::Kind::finish_partial, nullptr,
                              open_.buckets.end(stage_.options.network, call, open_.free_from) - stage_.now());
  else
    traffic_.begin_collective(stage_.now(), call, Event::Kind::finish_partial, nullptr);
}

void PartialSums::end_sum() {
  ++stage_.collectives;
  stage_.kept += open_.row.kept;
  Gradient sum = stage_.options.training.share(std::exchange(open_.sum, {}));
  sum.mark_reduced();
  open_.results.push_back({.sum = std::move(sum),
                           .contributors = open_.contributors,
                           .arrived = static_cast<int>(open_.arrived.size()),
                           .agreement = {.time = stage_.now(), .micro_batches = stage_.kept, .bytes = stage_.bytes}});
  ++open_.number;
  open_.under_way = false;
  open_.arrived.clear();
  open_.buckets = {};
  open_.free_from = stage_.now();
  StepRow row = std::exchange(open_.row, {});
  row.step = open_.number;
  row.period = 1;
  stage_.rows.close(row, stage_.now(), stage_.bytes);
  rounds_.begin_next(stage_.now());
  for (const Rank worker : std::exchange(open_.waiting, {})) stage_.resume(worker);

  // Results that everybody has got, or will never ask for.
  Step needed = open_.number;
  for (const Rank worker : stage_.workers())
    if (!stage_[worker].ended && !stage_[worker].lost) needed = std::min(needed, by_worker_[worker].next);
  while (open_.number - Step{static_cast<Step::Rep>(open_.results.size())} < needed) open_.results.pop_front();
}

}  // namespace syncopate
