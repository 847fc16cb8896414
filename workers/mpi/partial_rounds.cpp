#include "workers/mpi/partial_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/training/state_archive.hpp"

namespace syncopate {
namespace {

int count(const ByRank<char>& flags) { return static_cast<int>(std::count(flags.begin(), flags.end(), 1)); }

}  // namespace

PartialRounds::PartialRounds(int workers, ValueLayout layout)
    : workers_(workers), layout_(layout), arrived_(workers, 0), left_(workers, 0), tallies_(workers) {}

void PartialRounds::arrive(const PartialArrival& arrival, FlatVector values, std::span<const MicroBatch> carried) {
  const bool in_time = arrival.round == open_;
  if (!in_time && arrival.late == LateGradient::drop) {
    book(arrival.worker, {.planned = arrival.planned});
    return;
  }
  Part& part = parts_[arrival.worker];
  add(part, arrival, std::move(values));
  part.carried.insert(part.carried.end(), carried.begin(), carried.end());
  if (!in_time) return;
  if (!activation_) activation_ = arrival.activation;
  if (activation_->quorum != arrival.activation.quorum || activation_->rank != arrival.activation.rank)
    throw RunFailure(fmt::format("worker {} gives partial all-reduce {} another activation than the others",
                                 arrival.worker.value, arrival.round + 1));
  if (activation_->rank && (activation_->rank->value < 0 || activation_->rank->value >= workers_))
    throw RunFailure(fmt::format("a partial all-reduce waits for worker {}, but the workers are 0 to {}",
                                 activation_->rank->value, workers_ - 1));
  arrived_[arrival.worker] = 1;
}

void PartialRounds::add(Part& part, const PartialArrival& arrival, FlatVector values) const {
  add_values_to(part.values, part.wide, std::move(values), arrival.wide);
  part.micro_batches += arrival.micro_batches;
  part.kept += arrival.kept;
  part.planned += arrival.planned;
  part.compute_time += arrival.compute_time;
}

void PartialRounds::book(Rank worker, const Contribution& part) {
  tallies_[worker].contribute(part);
  row_.add(part);
}

// Where one of the two is wide the sum is.
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

void PartialRounds::leave(Rank worker) { left_[worker] = 1; }

bool PartialRounds::takes_place() const {
  if (!activation_) return false;  // nobody has arrived
  if (activation_->rank) return arrived_[*activation_->rank] || left_[*activation_->rank];
  return count(arrived_) >= std::min(activation_->quorum, workers_ - count(left_));
}

PartialRound PartialRounds::take() {
  PartialRound round;
  round.number = open_++;
  round.arrived = arrived_;
  for (auto& [rank, part] : std::exchange(parts_, {})) {
    add_values_to(round.sum, round.wide, std::move(part.values), part.wide);
    round.micro_batches += part.micro_batches;
    round.carried.insert(round.carried.end(), part.carried.begin(), part.carried.end());
    ++round.contributors;
    book(rank, {.kept = part.kept, .planned = part.planned});
  }
  row_.add({.step = Step{open_}, .period = 1});
  round.row = std::exchange(row_, {});
  activation_.reset();
  std::fill(arrived_.begin(), arrived_.end(), 0);
  return round;
}

void PartialRounds::keep(StateArchive& archive) {
  archive(open_, activation_, arrived_, parts_, row_, left_, tallies_);
}

std::string PartialRounds::explain_standstill(const ByRank<char>& lost) const {
  if (!activation_ || takes_place()) return {};
  std::string who;
  for (const Rank worker : Ranks(workers_)) {
    if (arrived_[worker] || left_[worker]) continue;
    if (!lost[worker]) return {};  // it may still come
    who += fmt::format("{}{}", who.empty() ? "" : ", ", worker.value);
  }
  return fmt::format("partial all-reduce {} waits for workers in a micro-batch that never ends: {}", open_ + 1, who);
}

Duration PartialRounds::pending_of(Rank worker) const {
  const auto waiting = parts_.find(worker);
  return waiting == parts_.end() ? Duration{} : waiting->second.compute_time;
}

Tally PartialRounds::tally_of(Rank worker) const {
  Tally tally = tallies_[worker];
  const auto waiting = parts_.find(worker);
  if (waiting == parts_.end()) return tally;
  tally.drop(waiting->second.planned);
  tally.lose(waiting->second.compute_time);
  return tally;
}

}  // namespace syncopate
