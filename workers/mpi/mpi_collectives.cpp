// Collectives of an MPI rank. First every member says that it has arrived, when, and with what; then values are
// reduced. Both are non-blocking and go on wherever this rank lets MPI progress: in every wait, in the sleep of a
// delay and before each micro-batch, not within one. Only where all members do nothing else until the end, which their
// arrivals say, the reduction is MPI's blocking one. Arrivals and reductions have communicators of
// their own: on each, all ranks come to the same operations in the same order, that in which collectives are started.
#include "workers/mpi/mpi_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/network/network.hpp"
#include "workers/training/state_archive.hpp"

namespace syncopate {

using Kind = Collective::Kind;
using News = MpiPost::News;

StartedCollective MpiCollectives::start(Collective&& what, const Contribution& contribution, const Place& place) {
  StartedCollective started = arrive(std::move(what), false, contribution, place);
  advance_all();
  stage_.clock.book(Activity::communicate, {place.operation});
  return started;
}

StartedCollective MpiCollectives::arrive(Collective&& what, bool blocks, const Contribution& contribution,
                                         const Place& place) {
  if (!stage_.is_worker()) throw RunFailure("a server cannot take part in a collective");
  const auto is_a_worker = [this](Rank root) { return root.value >= 0 && root.value < stage_.options.workers; };
  if (!is_a_worker(what.root))
    throw RunFailure(fmt::format("a broadcast from rank {}, but the workers are 0 to {}", what.root.value,
                                 stage_.options.workers - 1));
  if (what.is_exchange() && !stage_.options.training.time_only()) stage_.options.training.begin_held();
  MpiAssembly& assembly = assembly_of(what);
  MpiCollective& collective = assembly.open.emplace_back();
  collective.number = assembly.started++;
  if (!assembly.is_group) stage_.meetings = assembly.started;
  collective.place = place;
  collective.own = arrival_at(what, contribution, place);
  collective.own.blocks = blocks;
  collective.what = std::move(what);
  collective.arrivals.assign(assembly.members.size(), collective.own);
  if (assembly.is_group) {
    for (const Rank member : assembly.members.ranks()) {
      if (member == stage_.self) continue;
      stage_.post.send(MpiPost::Kind::arrival, member, bytes_of(collective.own));
      collective.awaited.push_back(member);
    }
  } else {
    gather(collective);
  }
  const std::optional<Members> group = assembly.is_group ? std::optional(assembly.members) : std::nullopt;
  return {collective.what.kind, group, collective.number, contribution.step};
}

void MpiCollectives::gather(MpiCollective& collective) {
  MPI_Iallgather(&collective.own, sizeof(Arrival), MPI_BYTE, collective.arrivals.data(), sizeof(Arrival), MPI_BYTE,
                 stage_.communicators.workers(), &collective.gathering);
}

MpiAssembly& MpiCollectives::assembly_of(const Collective& what) {
  if (!what.group_size) return all_;
  const Members members = members_of(what, stage_.self, stage_.options.workers);
  return groups_.try_emplace(members, members, true).first->second;
}

Arrival MpiCollectives::arrival_at(const Collective& what, const Contribution& contribution, const Place& place) {
  Arrival own{.terms = what.terms(),
              .wide = what.gradient.wide(),
              .weight = what.weight,
              .ages = what.model ? ages_of(*what.model) : MomentAges(),
              .micro_batches = what.gradient.micro_batches(),
              .kept = contribution.kept,
              .planned = contribution.planned,
              .step = contribution.step.value(),
              .period = contribution.period.value(),
              .packet_bytes = what.packet.size.value()};
  stamp(own, place);
  return own;
}

void MpiCollectives::stamp(Arrival& own, const Place& place) {
  // After its program a worker waits for the others: what of it lies beyond the run's end is taken back as waiting.
  if (own.terms)
    stage_.clock.book(Activity::compute);
  else if (!stage_.is_lost)
    stage_.clock.book(Activity::wait, {"end of the run"});
  own.time_ns = stage_.clock.booked().time_since_epoch().count();
  own.message_bytes = stage_.sent_bytes.value();
  own.partial_kept = stage_.kept_in_partial_sums;
  set_place(own, place);
}

bool MpiCollectives::are_under_way() const {
  if (!stage_.is_worker()) return false;
  return all_.has_one_under_way() ||
         std::ranges::any_of(groups_, [](const auto& entry) { return entry.second.has_one_under_way(); });
}

bool MpiCollectives::are_moving() const {
  return all_.has_one_moving() ||
         std::ranges::any_of(groups_, [](const auto& entry) { return entry.second.has_one_moving(); });
}

void MpiCollectives::advance_all() {
  advance(all_);
  for (auto& [members, assembly] : groups_) advance(assembly);
}

// In the order in which they were started: the reduction of none begins before that of the one before.
void MpiCollectives::advance(MpiAssembly& assembly) {
  for (MpiCollective& collective : assembly.open) {
    if (collective.has_ended) continue;
    if (!collective.is_complete) {
      if (assembly.is_group) {
        gather_letters(assembly, collective);
        collective.is_complete = collective.awaited.empty();
      } else {
        int done = 0;
        MPI_Test(&collective.gathering, &done, MPI_STATUS_IGNORE);
        collective.is_complete = done != 0;
      }
      if (!collective.is_complete) return;
      conclude_arrivals(assembly, collective);
      if (!collective.blocks && collective.reduction) collective.reduction->begin();
    }
    if (collective.blocks) return;  // its ranks stand in finish
    if (!collective.reduction || collective.reduction->test()) end_collective(assembly, collective);
  }
}

// The members alone take part, and who has left is known from the same sender's news.
void MpiCollectives::gather_letters(MpiAssembly& assembly, MpiCollective& collective) {
  std::erase_if(collective.awaited, [&](Rank member) {
    if (const auto letter = stage_.post.take(MpiPost::Kind::arrival, member)) {
      collective.arrivals[assembly.members.place_of(member)] = read_bytes<Arrival>(letter->contents);
      return true;
    }
    if (stage_.post.is_arriving(MpiPost::Kind::arrival, member)) return false;
    if (stage_.post.has_announced(News::ended, member))
      throw RunFailure(explain_absence(collective.own, member, "has left"));
    if (stage_.post.has_announced(News::lost, member))
      throw RunFailure(explain_absence(collective.own, member, "is in a micro-batch that never ends"));
    return false;
  });
}

// What all arrivals say together. In the order in which collectives are started, and so the same on all members.
void MpiCollectives::conclude_arrivals(MpiAssembly& assembly, MpiCollective& collective) {
  const auto& arrivals = collective.arrivals;
  const auto& [first, count] = assembly.members;
  if (const std::string mismatch = explain_mismatch(arrivals, first.value); !mismatch.empty())
    throw RunFailure(mismatch);
  MpiReduction::Agreed agreed{.share = share_of(collective.own, arrivals)};
  if (collective.what.kind == Kind::average) agreed.ages = age_of_mean(stage_.options.training, arrivals);
  collective.blocks = true;
  StepRow& row = collective.row;
  Bytes message_bytes{};
  stage_.clock.book().contribute(contribution_of(collective.own), row);
  for (const Rank member : assembly.members.ranks()) {
    const Arrival& arrival = arrivals[assembly.members.place_of(member)];
    agreed.micro_batches += arrival.micro_batches;
    agreed.wide |= arrival.wide != 0;
    collective.blocks = collective.blocks && arrival.blocks != 0;
    message_bytes += Bytes{arrival.message_bytes};
    if (collective.what.gathers_packets()) agreed.packets.emplace_back(arrival.packet_bytes);
    if (member != stage_.self) row.add(contribution_of(arrival));
  }

  Collective& what = collective.what;
  Collective all{.kind = what.kind, .packet = what.packet, .policy = what.policy, .slice = what.slice};
  for (const Bytes& packet : agreed.packets) all.all_packets += packet;
  all.numbers.resize(what.numbers.size() * (what.kind == Kind::all_gather ? arrivals.size() : 1));
  const Bytes moved = collective_bytes({.operation = properties_of(what.kind).operation,
                                        .members = count,
                                        .payload = payload_of(all, stage_.options.training, count)});
  if (assembly.is_group) {
    // The first member counts it for the group, as its own bytes: the other workers do not know of it.
    collective.agreement = {.time = last_arrival(arrivals)};
    if (stage_.self == first) ++stage_.collectives, stage_.sent_bytes += moved;
  } else if (collective.own.terms) {
    if (stage_.self == Rank{0}) ++stage_.collectives;
    stage_.collective_bytes += moved;
    stage_.kept_in_collectives += row.kept;
    collective.agreement = {.time = last_arrival(arrivals),
                            .micro_batches = stage_.kept_in_collectives + arrivals.front().partial_kept,
                            .bytes = stage_.collective_bytes + message_bytes};
  }
  if (what.kind == Kind::barrier) return;
  const MPI_Comm ranks =
      assembly.is_group ? stage_.communicators.group(first.value, count) : stage_.communicators.reductions();
  collective.reduction.emplace(stage_.options.training, std::move(what), agreed, ranks, collective.number);
}

void MpiCollectives::end_collective(const MpiAssembly& assembly, MpiCollective& collective) {
  collective.has_ended = true;
  if (!collective.own.terms || assembly.is_group || stage_.self != Rank{0}) return;
  record_arrivals(collective);
  stage_.rows.close(collective.own.terms->kind, collective.row, stage_.now(), collective.agreement.bytes);
}

// Of a round that becomes a row, which begins where the row before has ended.
void MpiCollectives::record_arrivals(const MpiCollective& collective) const {
  std::vector<GradientArrival>* const recorded = arrivals_of(stage_.options.record);
  if (!recorded || !StepRows::is_row(collective.own.terms->kind, collective.row)) return;
  const Time begin = stage_.rows.begin();
  for (const Rank worker : stage_.workers()) {
    const Duration at{collective.arrivals[static_cast<std::size_t>(worker.value)].time_ns};
    recorded->push_back({begin, collective.row.step, worker, Time{at} - begin});
  }
}

CollectiveResult MpiCollectives::finish(StartedCollective&& started, const Place& place) {
  MpiAssembly& assembly = started.group ? groups_.at(*started.group) : all_;
  const auto found = std::ranges::find(assembly.open, started.number, &MpiCollective::number);
  MpiCollective& collective = *found;
  stage_.clock.enter();
  wait_for_arrivals(assembly, collective, place);
  stage_.clock.book_until(Activity::wait, std::min(last_arrival(collective.arrivals), stage_.now()), {place.operation});
  if (collective.blocks && !collective.has_ended) {
    if (collective.reduction) collective.reduction->run();
    stage_.clock.book(Activity::communicate, {place.operation});
    end_collective(assembly, collective);
  }
  if (collective.is_moving()) collective.reduction->begin_rest();
  waiting_.wait_for_values([&] { return collective.has_ended; });
  stage_.clock.book(Activity::communicate, {place.operation});
  stage_.clock.meet();
  last_finished_ = {.agreed = {}, .numbers = {}, .agreement = collective.agreement};
  CollectiveResult result;
  if (collective.reduction) {
    last_finished_.agreed = collective.reduction->agreed();
    last_finished_.numbers = collective.reduction->numbers();
    result = collective.reduction->result();
  }
  result.agreement = collective.agreement;
  assembly.open.erase(found);
  return result;
}

void MpiCollectives::wait_for_arrivals(const MpiAssembly& assembly, MpiCollective& collective, const Place& place) {
  const Awaited awaited{.place = &place,
                        .meeting = collective.number + 1,
                        .what = assembly.is_group ? WaitReport::For::letters : WaitReport::For::meeting};
  waiting_.wait(awaited, [&] {
    if (!collective.is_complete && !assembly.is_group) fail_for_lost(collective);
    return collective.is_complete;
  });
}

// Not if it was here and has gone on since.
void MpiCollectives::fail_for_lost(const MpiCollective& collective) const {
  const std::int64_t needed = collective.number + 1;
  for (const Rank worker : stage_.workers())
    if (stage_.post.announced(News::lost, worker).value_or(needed) < needed)
      throw RunFailure(explain_absence(collective.own, worker, "is in a micro-batch that never ends"));
}

// After what this worker has started and not finished: the others may need it. Who is lost in a micro-batch that never
// ends comes too.
void MpiCollectives::meet_at_the_end() {
  if (stage_.ending < MpiStage::Ending::of_collectives) {
    waiting_.begin();
    waiting_.wait_for_others([&] { return !are_under_way(); });
    all_.open.clear();
    groups_.clear();
    MpiCollective& own_end = all_.open.emplace_back();
    own_end.number = all_.started++;
    stage_.meetings = all_.started;
    stamp(own_end.own, {});
    own_end.arrivals.assign(all_.members.size(), own_end.own);
    gather(own_end);
    stage_.ending = MpiStage::Ending::of_collectives;
  }
  MpiCollective& end = all_.open.front();
  waiting_.wait({.meeting = end.number + 1, .what = WaitReport::For::meeting}, [&] { return end.is_complete; });
  stage_.clock.book_until(Activity::wait, std::min(last_arrival(end.arrivals), stage_.now()), {"end of the run"});
}

}  // namespace syncopate
