// Partial all-reduces of an MPI rank. Every worker sends what it brings to worker 0, whose background
// progress coordinates the rounds: it adds in order of arrival, and sends each round's result to all.
// While worker 0 is in real arithmetic, the others wait for its next progress.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_process.hpp"
#include "workers/mpi/mpi_reduction.hpp"
#include "workers/network/network.hpp"

namespace syncopate {

using Kind = MpiPost::Kind;
using News = MpiPost::News;

StartedCollective MpiCluster::Process::start_partial(Collective&& what, const Contribution& contribution,
                                                     const Place& place) {
  if (!is_worker()) throw RunFailure("a server cannot take part in a partial all-reduce");
  if (partial_)
    throw RunFailure(
        fmt::format("worker {} starts a partial all-reduce before it has finished the one before", self_.value));
  clock_.book(Activity::compute);
  partial_used_ = true;
  progress();
  const Gradient& gradient = what.gradient;
  partial_ = {.knows_it_is_late = !results_.empty(), .late = what.late, .compute_time = gradient.compute_time()};
  Training& training = options_.training;
  FlatVector values;
  if (gradient.micro_batches() > 0 && !(partial_->knows_it_is_late && what.late == LateGradient::drop)) {
    values = training.time_only() ? zeros_of(training.parameter_bytes())
                                  : FlatVector(training.gradient_size(gradient.wide()));
    training.write_values(gradient, values.data());
  }
  arrive_at_partial({.worker = self_,
                     .round = next_round_,
                     .activation = what.activation,
                     .late = what.late,
                     .kept = contribution.kept,
                     .planned = contribution.planned,
                     .micro_batches = gradient.micro_batches(),
                     .compute_time = gradient.compute_time(),
                     .wide = gradient.wide()},
                    std::move(values));
  clock_.book(Activity::communicate, {place.operation});
  return {what.kind, std::nullopt, next_round_, contribution.step};
}

// The result of the round says whether this worker came to it in time; if not, later ones may be there.
CollectiveResult MpiCluster::Process::finish_partial(const Place& place) {
  clock_.book(Activity::compute);
  const StartedPartial own = *std::exchange(partial_, std::nullopt);
  wait({.place = &place}, [&] { return !results_.empty(); });
  if (!own.knows_it_is_late)
    clock_.book_until(Activity::wait, std::min(results_.front().sum.agreement.time, now()), {place.operation});
  clock_.book(Activity::communicate, {place.operation});
  const bool in_time = results_.front().in_time;
  if (own.late == LateGradient::drop && !in_time) clock_.book().lose(own.compute_time);
  if (!own.knows_it_is_late) clock_.meet();
  CollectiveResult result;
  for (std::size_t count = in_time ? 1 : results_.size(); count > 0; --count) {
    result.sums.push_back(std::move(results_.front().sum));
    results_.pop_front();
  }
  next_round_ += std::ssize(result.sums);
  result.agreement = result.sums.back().agreement;
  return result;
}

void MpiCluster::Process::arrive_at_partial(const PartialArrival& arrival, FlatVector values) {
  if (is_coordinator()) {
    if (options_.training.time_only()) values = {};
    rounds_->arrive(arrival, std::move(values));
    conclude_partial_rounds();
    return;
  }
  auto body = values.empty() ? nullptr : std::make_shared<const FlatVector>(std::move(values));
  auto contents = bytes_of(arrival);
  append_bytes<Bytes>(contents, {&sent_bytes_, 1});
  post_->send(Kind::partial_arrival, Rank{0}, std::move(contents), std::move(body));
}

void MpiCluster::Process::coordinate() {
  while (auto letter = post_->take(Kind::partial_arrival)) {
    partial_used_ = true;
    const std::span<const std::byte> contents = letter->contents;
    bytes_told_[letter->from] = read_bytes<Bytes>(contents.subspan(sizeof(PartialArrival)));
    arrive_at_partial(read_bytes<PartialArrival>(contents), std::move(letter->body));
  }
  if (!partial_used_) return;
  ByRank<char> lost(options_.workers, 0);
  for (const Rank worker : Ranks(options_.workers)) {
    if (has_ended(worker) && !post_->is_arriving(Kind::partial_arrival, worker)) rounds_->leave(worker);
    lost[worker] = worker == self_ ? is_lost_ : post_->has_announced(News::lost, worker);
  }
  conclude_partial_rounds();
  if (const std::string reason = rounds_->explain_standstill(lost.values()); !reason.empty()) throw RunFailure(reason);
}

void MpiCluster::Process::conclude_partial_rounds() {
  while (rounds_->takes_place()) conclude_partial(rounds_->take());
}

void MpiCluster::Process::conclude_partial(PartialRound round) {
  ++collectives_;
  sent_bytes_ += all_reduce_bytes(workers(), options_.training.parameter_bytes());
  partial_kept_ += round.row.kept;
  const AgreedProgress agreement{
      .time = now(), .micro_batches = kept_in_collectives_ + partial_kept_, .bytes = bytes_sent()};
  closed_rows_->close(round.row, now(), agreement.bytes);
  PartialResult result{.micro_batches = round.micro_batches,
                       .contributors = round.contributors,
                       .in_time = false,
                       .wide = round.wide,
                       .agreement = agreement};
  std::shared_ptr<const FlatVector> body;
  if (round.micro_batches > 0)
    body = std::make_shared<const FlatVector>(
        options_.training.time_only() ? zeros_of(options_.training.parameter_bytes()) : copy_of(round.sum));
  for (int worker = 1; worker < options_.workers; ++worker) {
    const Rank rank{worker};
    if (has_ended(rank) || post_->has_announced(News::lost, rank)) continue;
    result.in_time = round.arrived[static_cast<std::size_t>(worker)];
    post_->send(Kind::partial_result, rank, bytes_of(result), body);
  }
  result.in_time = round.arrived.front();
  add_partial_result(result, std::move(round.sum));
}

void MpiCluster::Process::take_partial_results() {
  while (auto letter = post_->take(Kind::partial_result)) {
    partial_used_ = true;
    add_partial_result(read_bytes<PartialResult>(letter->contents), std::move(letter->body));
  }
}

void MpiCluster::Process::add_partial_result(const PartialResult& result, FlatVector sum) {
  if (has_ended_ || is_lost_) return;  // nobody will ask for it
  Gradient gradient;
  if (result.micro_batches > 0)
    gradient = options_.training.gradient_from(std::move(sum), result.micro_batches, {}, result.wide);
  if (result.wide) gradient.widen();
  gradient.mark_reduced();
  results_.push_back(
      {.sum = {.sum = std::move(gradient), .contributors = result.contributors, .agreement = result.agreement},
       .in_time = result.in_time});
}

}  // namespace syncopate
