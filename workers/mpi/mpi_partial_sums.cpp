#include "workers/mpi/mpi_partial_sums.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "workers/time/network.hpp"

namespace syncopate {

namespace {

using FrameKind = MpiTransport::Kind;
using Announcement = MpiTransport::Announcement;

int count(const ByRank<char>& flags) { return static_cast<int>(std::ranges::count(flags, 1)); }

}  // namespace

MpiPartialSums::MpiPartialSums(MpiRunState& state, MpiWaiting& waiting)
    : state_(state),
      waiting_(waiting),
      arrived_(state.is_coordinator() ? arrivals_of(state.options.record) : nullptr, start_time) {
  if (state.is_coordinator()) rounds_.emplace(state.options.workers, layout_of(state.options.training));
}

StartedCollective MpiPartialSums::start(Collective&& what, const Contribution& contribution, const Place& place,
                                        bool blocks) {
  if (!state_.is_worker()) throw RunFailure("a server cannot take part in a partial all-reduce");
  if (own_)
    throw RunFailure(fmt::format("worker {} starts a partial all-reduce before it has finished the previous one",
                                 state_.self.value));
  state_.clock.book(Activity::compute);
  state_.has_partial_sums = true;
  waiting_.progress();
  const Gradient& gradient = what.gradient;
  own_ = {.knows_it_is_late = !results_.empty(), .late = what.late, .compute_time = gradient.compute_time()};
  Training& training = state_.options.training;
  FlatVector values;
  if (gradient.micro_batches() > 0 && !(own_->knows_it_is_late && what.late == LateGradient::drop)) {
    values = training.time_only() ? zeros_of(training.parameter_bytes())
                                  : FlatVector(training.gradient_size(gradient.wide()));
    const CheckpointLog::Scope unnoted(nullptr);  // the log needs nothing of this
    training.write_values(gradient, values.data());
  }
  arrive({.worker = state_.self,
          .round = next_round_,
          .activation = what.activation,
          .late = what.late,
          .kept = contribution.kept,
          .planned = contribution.planned,
          .micro_batches = gradient.micro_batches(),
          .compute_time = gradient.compute_time(),
          .wide = gradient.wide()},
         std::move(values), training.travelling(gradient));
  if (!blocks) state_.clock.book(Activity::communicate, {place.operation});
  return {what.kind, std::nullopt, next_round_, contribution.step};
}

// The result says whether this worker was in time. If it was not, results of later rounds may have arrived, too.
CollectiveResult MpiPartialSums::finish(const Place& place, bool blocks) {
  if (blocks)
    state_.clock.enter_unbooked();
  else
    state_.clock.enter();
  waiting_.wait({.place = &place}, [&] { return !results_.empty(); });
  const Started own = *std::exchange(own_, std::nullopt);
  if (!own.knows_it_is_late)
    state_.clock.book_until(Activity::wait, std::min(results_.front().of.outcome.agreement.time, state_.now()),
                            {place.operation});
  state_.clock.book(Activity::communicate, {place.operation});
  const bool in_time = results_.front().of.in_time;
  if (own.late == LateGradient::drop && !in_time) state_.clock.book().lose(own.compute_time);
  if (!own.knows_it_is_late) state_.clock.book().meet();
  CollectiveResult result;
  last_outcome_.clear();
  for (std::size_t count = in_time ? 1 : results_.size(); count > 0; --count) {
    last_outcome_.push_back(results_.front().of.outcome);
    result.sums.push_back(sum_of(last_outcome_.back(), std::move(results_.front().sum)));
    results_.pop_front();
  }
  next_round_ += std::ssize(result.sums);
  result.agreement = result.sums.back().agreement;
  return result;
}

CollectiveResult MpiPartialSums::finished_before(const std::vector<PartialOutcome>& outcome) const {
  CollectiveResult result;
  for (const PartialOutcome& one : outcome) result.sums.push_back(sum_of(one, {}));
  result.agreement = result.sums.back().agreement;
  return result;
}

PartialSum MpiPartialSums::sum_of(const PartialOutcome& outcome, FlatVector values) const {
  Gradient gradient;
  if (outcome.micro_batches > 0)
    gradient = state_.options.training.gradient_from(std::move(values), outcome.micro_batches, {}, outcome.wide);
  if (outcome.wide) gradient.use_double_precision();
  gradient.mark_reduced();
  return {.sum = std::move(gradient),
          .contributors = outcome.contributors,
          .arrived = outcome.arrived,
          .agreement = outcome.agreement};
}

void MpiPartialSums::serialise(StateArchive& archive) {
  if (rounds_) archive(*rounds_);
  archive(arrived_, own_, next_round_, results_);
}

void MpiPartialSums::arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried) {
  if (state_.is_coordinator()) {
    if (state_.options.training.time_only()) values = {};
    arrived_.arrive(arrival.round, arrival.worker, state_.now());
    rounds_->arrive(arrival, std::move(values), carried);
    conclude_rounds();
    return;
  }
  auto body = values.empty() ? nullptr : std::make_shared<const FlatVector>(std::move(values));
  auto contents = bytes_of(arrival);
  append_bytes<Bytes>(contents, {&state_.sent_bytes, 1});
  append_bytes<MicroBatch>(contents, carried);
  state_.transport.send(FrameKind::partial_arrival, Rank{0}, std::move(contents), std::move(body));
}

void MpiPartialSums::progress() {
  if (state_.is_coordinator()) coordinate();
  if (!state_.is_worker()) return;
  while (auto frame = state_.transport.take(FrameKind::partial_result)) {
    state_.has_partial_sums = true;
    add_result(read_bytes<RoundResult>(frame->contents), std::move(frame->body));
  }
}

void MpiPartialSums::coordinate() {
  while (auto frame = state_.transport.take(FrameKind::partial_arrival)) {
    state_.has_partial_sums = true;
    const std::span<const std::byte> contents = frame->contents;
    state_.bytes_reported[frame->from] = read_bytes<Bytes>(contents.subspan(sizeof(PartialArrival)));
    arrive(read_bytes<PartialArrival>(contents), std::move(frame->body),
           read_all<MicroBatch>(contents.subspan(sizeof(PartialArrival) + sizeof(Bytes))));
  }
  if (!state_.has_partial_sums) return;
  ByRank<char> lost(state_.options.workers, 0);
  for (const Rank worker : state_.workers()) {
    if (state_.has_ended(worker) && !state_.transport.is_arriving(FrameKind::partial_arrival, worker))
      rounds_->leave(worker);
    lost[worker] = worker == state_.self ? state_.is_lost : state_.transport.has_announced(Announcement::lost, worker);
  }
  conclude_rounds();
  if (const std::string reason = rounds_->explain_deadlock(lost); !reason.empty()) throw RunFailure(reason);
}

void MpiPartialSums::conclude(PartialRound round) {
  ++state_.collectives;
  state_.options.training.report_kept(round.carried);  // workers in time descend along the sum
  state_.sent_bytes += all_reduce_bytes(state_.options.workers, state_.options.training.parameter_bytes());
  state_.kept_in_partial_sums += round.row.kept;
  AgreedProgress& agreement = round.outcome.agreement;
  agreement = {.time = state_.now(),
               .micro_batches = state_.kept_in_collectives + state_.kept_in_partial_sums,
               .bytes = state_.bytes_sent()};
  state_.rows.close(round.row, state_.now(), agreement.bytes);
  arrived_.begin_next(agreement.time);
  RoundResult result{.outcome = round.outcome};
  std::shared_ptr<const FlatVector> body;
  if (round.outcome.micro_batches > 0)
    body = std::make_shared<const FlatVector>(
        state_.options.training.time_only() ? zeros_of(state_.options.training.parameter_bytes()) : copy_of(round.sum));
  for (const Rank worker : state_.workers()) {
    if (worker == state_.self || state_.has_ended(worker) || state_.transport.has_announced(Announcement::lost, worker))
      continue;
    result.in_time = round.arrived[worker];
    state_.transport.send(FrameKind::partial_result, worker, bytes_of(result), body);
  }
  result.in_time = round.arrived[state_.self];
  add_result(result, std::move(round.sum));
}

void MpiPartialSums::add_result(const RoundResult& result, FlatVector sum) {
  if (state_.program_has_ended || state_.is_lost) return;  // the program will not ask for this result
  results_.push_back({.of = result, .sum = std::move(sum)});
}

PartialRounds::PartialRounds(int workers, ValueLayout layout)
    : workers_(workers), layout_(layout), arrived_(workers, 0), left_(workers, 0), tallies_(workers) {}

void PartialRounds::arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried) {
  const bool in_time = arrival.round == open_;
  if (!in_time && arrival.late == LateGradient::drop) {
    book(arrival.worker, {.planned = arrival.planned});
    return;
  }
  Part& part = parts_[arrival.worker];
  add_values_to(part.values, part.wide, std::move(values), arrival.wide);
  part.micro_batches += arrival.micro_batches;
  part.kept += arrival.kept;
  part.planned += arrival.planned;
  part.compute_time += arrival.compute_time;
  part.carried.insert(part.carried.end(), carried.begin(), carried.end());
  if (!in_time) return;
  if (!activation_) activation_ = arrival.activation;
  if (activation_ != arrival.activation)
    throw RunFailure(fmt::format("worker {} enters partial all-reduce {} with a different activation than the others",
                                 arrival.worker.value, arrival.round + 1));
  if (activation_->rank && (activation_->rank->value < 0 || activation_->rank->value >= workers_))
    throw RunFailure(
        fmt::format("a partial all-reduce waits for worker {}, which does not exist: the workers are 0 to {}",
                    activation_->rank->value, workers_ - 1));
  arrived_[arrival.worker] = 1;
}

// The sum is wide if any summand is.
void PartialRounds::add_values_to(FlatVector& total, bool& total_is_wide, FlatVector values, bool wide) const {
  if (values.empty()) return;
  if (total.empty()) {
    total = std::move(values);
    total_is_wide = wide;
    return;
  }
  if (wide && !total_is_wide) total = widened(total, layout_);
  if (total_is_wide && !wide) values = widened(values, layout_);
  total_is_wide |= wide;
  ValueLayout layout = layout_;
  layout.wide = total_is_wide;
  add_values(total, values, layout);
}

bool PartialRounds::takes_place() const {
  if (!activation_) return false;  // no worker has arrived
  if (activation_->rank) return arrived_[*activation_->rank] || left_[*activation_->rank];
  return count(arrived_) >= std::min(activation_->quorum, workers_ - count(left_));
}

PartialRound PartialRounds::take() {
  PartialRound round;
  ++open_;
  round.arrived = arrived_;
  round.outcome.arrived = count(arrived_);
  for (auto& [rank, part] : std::exchange(parts_, {})) {
    add_values_to(round.sum, round.outcome.wide, std::move(part.values), part.wide);
    round.outcome.micro_batches += part.micro_batches;
    round.carried.insert(round.carried.end(), part.carried.begin(), part.carried.end());
    ++round.outcome.contributors;
    book(rank, {.kept = part.kept, .planned = part.planned});
  }
  row_.add({.step = Step{open_}, .period = 1});
  round.row = std::exchange(row_, {});
  activation_.reset();
  std::fill(arrived_.begin(), arrived_.end(), 0);
  return round;
}

std::string PartialRounds::explain_deadlock(const ByRank<char>& lost) const {
  if (!activation_ || takes_place()) return {};
  std::string who;
  for (const Rank worker : Ranks(workers_)) {
    if (arrived_[worker] || left_[worker]) continue;
    if (!lost[worker]) return {};  // the worker may still arrive
    who += fmt::format("{}{}", who.empty() ? "" : ", ", worker.value);
  }
  return fmt::format("partial all-reduce {} waits for workers in a micro-batch that never ends: {}", open_ + 1, who);
}

Tally PartialRounds::tally_of(Rank worker) const {
  Tally tally = tallies_[worker];
  const auto waiting = parts_.find(worker);
  if (waiting == parts_.end()) return tally;
  tally.missing += waiting->second.planned;
  tally.discarded_time += waiting->second.compute_time;
  return tally;
}

}  // namespace syncopate
