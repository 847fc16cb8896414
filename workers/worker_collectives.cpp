// What a worker does together with the others, and what it brings to the rows that come of it.
#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "workers/compression/compressed_average.hpp"
#include "workers/compression/compressed_sum.hpp"
#include "workers/training/sample_weights.hpp"
#include "workers/worker.hpp"

namespace syncopate {

Contribution Worker::contribution_with(const Gradient& gradient, std::optional<std::int64_t> planned) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.kept += gradient.micro_batches();
  contribution.planned += planned.value_or(micro_batches());
  contribution.step = step_ + 1;
  ++contribution.period;
  return contribution;
}

void Worker::all_reduce_sum(Gradient& gradient, const SumOptions& options, Here at) {
  if (compressed_sum_ && !options.is_dense) return all_reduce_compressed(gradient, options, at);
  if (options.counted == Counted::by_tensor) return all_reduce_weighted(gradient, options, at);
  const Contribution contribution = contribution_with(gradient, options.planned);
  // Which the network carries; the sum knows how many it counts.
  auto count = static_cast<double>(options.with_statistics.value_or(gradient.micro_batches()));
  const bool is_counted = options.counted != Counted::none || options.with_statistics;
  const std::span<double> counts(&count, is_counted ? 1 : 0);
  agreed_ = context_.cluster.all_reduce_sum(rank_, gradient, counts, contribution, {"all_reduce_sum", at});
  if (options.with_statistics) context_.training.set_statistics(gradient, std::llround(count));
  check_progress();
  recovery_.reset();
}

// Apart, so that the usual sum has no more on the stacks of thousands of workers.
void Worker::all_reduce_weighted(Gradient& gradient, const SumOptions& options, Here at) {
  const Contribution contribution = contribution_with(gradient, options.planned);
  std::vector<double> counts = context_.training.contributions(gradient);
  agreed_ = context_.cluster.all_reduce_sum(rank_, gradient, counts, contribution, {"all_reduce_sum", at});
  context_.training.weigh_tensors(gradient, counts);
  check_progress();
  recovery_.reset();
}

// A packet of each worker instead of its gradient, or, where a second exchange follows the first, two.
void Worker::all_reduce_compressed(Gradient& gradient, const SumOptions& options, Here at) {
  if (options.counted == Counted::by_tensor) fail("a sum whose tensors count apart cannot be compressed");
  if (std::exchange(compressed_at_loss_, states_lost_) != states_lost_) compressed_sum_->forget();
  const Contribution contribution = contribution_with(gradient, options.planned);
  const Place place{"all_reduce_sum", at};
  const double count = static_cast<double>(options.with_statistics.value_or(gradient.micro_batches()));
  Collective what{.gradient = Gradient(nullptr, gradient.micro_batches(), gradient.compute_time())};
  what.packet = compressed_sum_->first_packet(gradient, step_, learning_rate(), model_);
  CompressedSum::Exchanged exchanged{.step = step_};
  const std::vector<Exchange> exchanges = compressed_sum_->exchanges(step_);
  if (exchanges.size() > 1) {
    const std::vector<MicroBatch> carried = what.packet.carried;
    const Collective::Kind kind = Collective::first_exchange(exchanges.front().operation);
    Collective first{.kind = kind, .packet = std::move(what.packet), .root = compressed_sum_->root(step_)};
    const CollectiveResult result = context_.cluster.perform(rank_, std::move(first), {}, place);
    const SharedPackets& packets = result.packets;
    if (kind == Collective::Kind::exchange_chunks) {
      what.packet = compressed_sum_->reduced_packet(carried, step_, packets, result.chunk);
    } else {
      if (packets)
        exchanged.between = *context_.derived->get<CellPtr>(packets, [&] { return compressed_sum_->between(packets); });
      what.packet = compressed_sum_->second_packet(carried, step_, exchanged.between);
    }
  }
  what.kind = Collective::last_exchange(exchanges.back().operation);
  if (options.counted != Counted::none || options.with_statistics) what.numbers = {count};
  CollectiveResult result = context_.cluster.perform(rank_, std::move(what), contribution, place);
  agreed_ = result.agreement;
  gradient = std::move(result.gradient);
  if (result.packets) {
    exchanged.packets = result.packets;
    exchanged.micro_batches = gradient.micro_batches();
    gradient = *context_.derived->get<Gradient>(result.packets, [&] { return compressed_sum_->sum(exchanged, size_); });
    compressed_sum_->end(exchanged, size_);
    if (options.dropped) compressed_sum_->fold(*options.dropped);
  }
  gradient.mark_reduced();
  if (options.with_statistics) context_.training.set_statistics(gradient, std::llround(result.numbers->front()));
  check_progress();
  recovery_.reset();
}

StartedCollective Worker::start(Collective what, Here at) {
  const bool is_sum = properties_of(what.kind).sums_gradients;
  Contribution contribution;
  if (is_sum)
    contribution = contribution_with(what.gradient);
  else if (!what.group_size)  // what a group does is no row: its steps stand in the next one of all
    contribution = std::exchange(since_sync_, {});
  if (!is_sum) contribution.step = step_;
  contribution.step += sums_under_way_;
  sums_under_way_ += is_sum ? 1 : 0;
  recovery_.reset();
  const bool is_compressed = compressed_average_ && what.kind == Collective::Kind::average;
  if (what.kind == Collective::Kind::average) what.weight = model_weight(what.weight, context_.training, rank_);
  if (is_compressed) what = compressed(std::move(what));
  if (what.is_first_exchange()) fail("a compressed average under way cannot have two phases");
  what.from = nullptr;
  StartedCollective started = context_.cluster.start(rank_, std::move(what), contribution, {"start", at});
  if (is_compressed) compressed_average_->remember(started.number);
  return started;
}

// In the place of an average.
Collective Worker::compressed(Collective&& average) {
  const bool is_cut_otherwise = average.slice.count != compressed_average_->slices();
  if (average.group_size || is_cut_otherwise || average.weight != 1 || average.policy.averaged_vectors(2) > 1)
    fail("averages of groups or moments, of other slices than the method says, or with weights, cannot be compressed");
  if (std::exchange(compressed_at_loss_, states_lost_) != states_lost_) compressed_average_->forget();
  steps_began_at_ = nullptr;
  return compressed_average_->exchange(average);
}

CollectiveResult Worker::finish(StartedCollective started, Here at) {
  if (started.number < 0) fail("finish() of a collective that is finished already");
  const bool is_of_group = started.group.has_value();
  const bool is_average =
      started.kind == Collective::Kind::sum_differences || started.kind == Collective::Kind::gather_differences;
  const std::int64_t number = started.number;
  sums_under_way_ -= properties_of(started.kind).sums_gradients ? 1 : 0;
  CollectiveResult result = context_.cluster.finish(rank_, std::move(started), {"finish", at});
  recovery_.reset();
  if (is_of_group) return result;  // no agreement of all
  agreed_ = result.agreement;
  check_progress();
  if (is_average) {
    const auto mine = compressed_average_->recall(number);
    if (result.packets) result.model = common_mean(mine, result.packets);
  }
  return result;
}

// That of a group is no agreement of all, and no row: the round ends with the average over all workers.
bool Worker::average_model(const Averaging& how, Here at) {
  if (compressed_average_) return average_compressed(how, at);
  const bool is_of_all = !how.group_size;
  Contribution contribution;
  if (is_of_all) contribution = std::exchange(since_sync_, {});
  if (is_of_all) contribution.step = step_;
  Averaging weighed = how;
  weighed.weight = model_weight(how.weight, context_.training, rank_);
  const AgreedProgress agreed = context_.cluster.average(rank_, model_, weighed, contribution, {"average_model", at});
  recovery_.reset();
  if (!is_of_all) return budget_left_at(agreed.time);
  agreed_ = agreed;
  check_progress();
  return budget_left(Judged::by_others);
}

// Where a worker has taken no steps there is no difference.
bool Worker::average_compressed(const Averaging& how, Here at) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.step = step_;
  Collective average = Collective::average(model_, how);
  if (!how.from) average.from = steps_began_at_ ? steps_began_at_ : model_;
  const Place place{"average_model", at};
  Collective exchange = compressed(std::move(average));
  const auto mine = compressed_average_->newest();
  if (exchange.is_first_exchange()) {
    const CollectiveResult first = context_.cluster.perform(rank_, std::move(exchange), {}, place);
    exchange = compressed_average_->second_exchange(mine, first.packets, first.chunk);
  }
  const CollectiveResult result = context_.cluster.perform(rank_, std::move(exchange), contribution, place);
  recovery_.reset();
  agreed_ = result.agreement;
  check_progress();
  if (result.packets) model_ = common_mean(mine, result.packets);
  return budget_left(Judged::by_others);
}

// The same model for all who share a process, but for what is a worker's own.
ModelStatePtr Worker::common_mean(const SentDifference& mine, const SharedPackets& packets) {
  const auto derive = [&] { return compressed_average_->mean(mine, packets, size_); };
  return compressed_average_->taken_up(mine, *context_.derived->get<ModelStatePtr>(packets, derive));
}

// A threshold below the time of every micro-batch would let a budget of samples go on for ever.
void Worker::check_progress() {
  constexpr int most_idle_rounds = 1000;
  const Budget& budget = context_.budget;
  if (budget.steps || budget.seconds || budget.bytes) return;
  idle_rounds_ = std::exchange(kept_before_, agreed_->micro_batches) == kept_before_ ? idle_rounds_ + 1 : 0;
  if (idle_rounds_ > most_idle_rounds)
    fail(
        fmt::format("nobody has finished a micro-batch in the last {} rounds, so a budget of samples is never used up; "
                    "is a threshold below the time of one?",
                    most_idle_rounds));
}

void Worker::barrier(Here at) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.step = step_;
  agreed_ = context_.cluster.barrier(rank_, {"barrier", at}, contribution);
  recovery_.reset();  // its steps are booked
}

std::vector<PartialSum> Worker::partial_all_reduce_sum(Gradient gradient, const Activation& activation,
                                                       LateGradient late, MissedSums missed, Here at) {
  const Contribution contribution = contribution_with(gradient);
  auto sums = context_.cluster.partial_all_reduce(rank_, std::move(gradient), activation, late, contribution,
                                                  {"partial_all_reduce_sum", at});
  if (!sums.empty()) agreed_ = sums.back().agreement;
  recovery_.reset();
  if (missed == MissedSums::newest && sums.size() > 1) {
    step_ += std::ssize(sums) - 1;
    sums.erase(sums.begin(), sums.end() - 1);
  }
  return sums;
}

void Worker::report_steps() {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.step = step_;
  context_.cluster.report_steps(rank_, contribution);
  recovery_.reset();
}

}  // namespace syncopate
