#include "workers/worker.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace syncopate {
namespace {

// Where outages take the state so often that the same micro-batch, or a server's step, is begun anew again and again,
// the run fails at this number. The mean time between outages must be at least 1/8 of the micro-batch (or step). At
// that bound it is begun e^8 = 2,981 times on average, and more often than this number with a probability of e^-33.
constexpr std::int64_t most_restarts = 100'000;

// Micro-batches that a worker can take before its own data are used up.
std::int64_t data_of(const RunContext& context, Rank rank) {
  const auto index = static_cast<std::size_t>(rank.value);
  if (index >= context.data_of.size() || !context.data_of[index]) return std::numeric_limits<std::int64_t>::max();
  return context.data_of[index]->value() * context.micro_batches;
}

}  // namespace

Worker::Worker(const RunContext& context, Rank rank)
    : Participant(context, rank), may_lose_state_(context.cluster.may_lose_state(rank)) {
  data_ = data_of(context, rank);
}

void Worker::extend_budget(Step extra, bool stretch) {
  if (!context_.budget.steps) return;
  extra_steps_ += extra;
  const auto planned = static_cast<double>(context_.budget.steps->value());
  if (stretch && planned > 0) schedule_stretch_ = (planned + static_cast<double>(extra_steps_.value())) / planned;
}

std::optional<Gradient> Worker::compute_gradient(const Deadline& deadline) {
  return compute_gradient({rank_, step_, next_micro_batch_}, deadline);
}

std::optional<Gradient> Worker::compute_gradient(const MicroBatch& samples, const Deadline& deadline) {
  ++taken_;
  return compute_slot({rank_, step_, next_micro_batch_++}, samples, deadline);
}

std::optional<Gradient> Worker::compute_slot(const MicroBatch& slot, const MicroBatch& samples,
                                             const Deadline& deadline) {
  Attempts attempts{.of = slot};
  while (true) {
    auto gradient = context_.cluster.compute_gradient(rank_, model_, slot, samples, deadline);
    if (gradient || !loses_state(attempts)) return gradient;
    go_back_to_agreed();
  }
}

// A step's gradient belongs to one version of a server's model, so that it begins anew at a newer one.
template <typename Slot>
Gradient Worker::compute_step_with_outages(const Slot& slot_of) {
  Gradient sum;
  const bool restarts_step = context_.cluster.servers() == 1;
  Attempts attempts{.of = slot_of(0), .is_step = restarts_step};
  for (int m = 0; m < micro_batches();) {
    const MicroBatch slot = slot_of(m);
    const auto gradient = context_.cluster.compute_gradient(rank_, model_, slot, slot, {});
    if (gradient) {
      sum += *gradient;
      ++m;
      if (!restarts_step) attempts = {.of = slot_of(m)};
    } else if (loses_state(attempts) && !restarts_step) {
      go_back_to_agreed();
    } else {
      discard(std::exchange(sum, {}));
      m = 0;
      ask_server_for_model(Here::current());
    }
  }
  return sum;
}

bool Worker::loses_state(Attempts& attempts) {
  if (!may_lose_state_ || !context_.cluster.has_lost_state(rank_)) return false;
  ++states_lost_;
  if (++attempts.restarts >= most_restarts) give_up(attempts);
  return true;
}

void Worker::give_up(const Attempts& attempts) const {
  const auto& [micro_batch, is_step, restarts] = attempts;
  const std::string what = is_step
                               ? fmt::format("step {}, of {} micro-batches,", micro_batch.step.value(), micro_batches())
                               : fmt::format("micro-batch {} of step {}", micro_batch.index, micro_batch.step.value());
  throw RunFailure(fmt::format(
      "worker {} at {:.6f} s: {} has been begun anew {} times: each time an outage took the worker's state before the "
      "end; mean_time_between_s in [[outages]] must not be much shorter than what a worker computes without a break, "
      "or "
      "the outages' state must be \"kept\"",
      rank_.value, to_seconds(now()), what, restarts));
}

void Worker::declare_newest(const ModelStatePtr& model) {
  if (!may_lose_state_) return;
  if (!agreed_model_) agreed_model_ = {model, since_sync_.kept, kept_total_, since_sync_.compute_time};
  agreed_model_->model = model;
}

// Local steps since the last agreement are gone: their time was for nothing, and they count as planned alone.
void Worker::go_back_to_agreed() {
  if (!agreed_model_) return;
  const std::int64_t lost = since_sync_.kept - agreed_model_->kept;
  const Duration lost_time = since_sync_.compute_time - agreed_model_->compute_time;
  if (lost > 0) context_.cluster.discard(rank_, {rank_, lost, lost_time});
  since_sync_.kept = agreed_model_->kept;
  since_sync_.compute_time = agreed_model_->compute_time;
  kept_total_ = agreed_model_->kept_total;
  model_ = agreed_model_->model;
  agreed_model_.reset();
}

// The server answers with its model as it is then (Server::receive). Where steps are versions of the model,
// the worker's is that one's; the micro-batches of the step keep their numbers.
void Worker::ask_server_for_model(Here at) {
  send(context_.cluster.server(), Message::request(), at);
  const auto message = context_.cluster.receive(rank_, context_.cluster.server(), never, {"ask_server_for_model", at});
  if (!message) return;  // it has ended, and takes no gradient any more
  has_last_model_ |= message->kind == Message::Kind::last_model;
  kept_total_ = message->kept;
  if (model_) model_ = context_.training.adopt(model_, message->model);
  if (steps_are_versions_) step_ = message->step;
}

// The next step of the data.
Step Worker::take_turn() {
  const Step turn = taken_ / micro_batches();
  taken_ += micro_batches();
  return turn;
}

Gradient Worker::compute_step() {
  const MicroBatch first{rank_, step_, next_micro_batch_};
  next_micro_batch_ += micro_batches();
  taken_ += micro_batches();
  if (may_lose_state_)
    return compute_step_with_outages([&](int m) { return MicroBatch{rank_, step_, first.index + m}; });
  return context_.cluster.compute_gradients(rank_, model_, first, micro_batches());
}

Gradient Worker::compute_turn() {
  if (cancelled_turns_ > Step{0}) return *compute_turn(Deadline());
  const Step step = take_turn();
  if (may_lose_state_) return compute_step_with_outages([&](int m) { return MicroBatch{rank_, step, m}; });
  return context_.cluster.compute_gradients(rank_, model_, {rank_, step, 0}, micro_batches());
}

std::optional<Gradient> Worker::compute_step_gradient(const Deadline& deadline, Samples samples) {
  if (deadline.at == never && !deadline.at_message) return compute_step_gradient(samples);
  if (taken_ >= data_ || (deadline.at_message && nobody_can_send())) return std::nullopt;
  if (samples == Samples::in_turn) return compute_turn(deadline);
  Gradient sum;
  for (int m = 0; m < micro_batches(); ++m) {
    const auto gradient = compute_gradient(deadline);
    if (!gradient) return std::nullopt;
    sum += *gradient;
  }
  return sum;
}

// The durations are those of a step that is further on by as many as have been cancelled.
std::optional<Gradient> Worker::compute_turn(const Deadline& deadline) {
  const Step step = take_turn();
  Gradient sum;
  for (int m = 0; m < micro_batches(); ++m) {
    const auto gradient = compute_slot({rank_, step + cancelled_turns_, m}, {rank_, step, m}, deadline);
    if (!gradient) {
      taken_ -= micro_batches();
      ++cancelled_turns_;
      return std::nullopt;
    }
    sum += *gradient;
  }
  return sum;
}

// Servers that have ended send nothing any more, and workers only where there is none.
bool Worker::nobody_can_send() const {
  const int first = context_.cluster.servers() > 0 ? size_ : 0;
  for (int other = first; other < size_ + context_.cluster.servers(); ++other)
    if (Rank{other} != rank_ && !has_left(Rank{other})) return false;
  return true;
}

void Worker::descend(const Gradient& gradient, const StepOptions& options) {
  // What has been summed over the workers is counted there, with the step that follows.
  if (!gradient.reduced()) {
    if (may_lose_state_ && !agreed_model_)
      agreed_model_ = {model_, since_sync_.kept, kept_total_, since_sync_.compute_time};
    since_sync_.kept += gradient.micro_batches();
    since_sync_.planned += micro_batches();
    since_sync_.compute_time += gradient.compute_time();
    kept_total_ += size_ * gradient.micro_batches();  // as if all took as many
    ++since_sync_.period;
  }
  take_step(gradient, options);
  next_micro_batch_ = 0;
}

void Worker::discard(const Gradient& gradient) {
  context_.cluster.discard(rank_, {rank_, gradient.micro_batches(), gradient.compute_time()});
}

void Worker::skip_steps(Step steps) {
  since_sync_.planned += steps.value() * micro_batches();
  since_sync_.period += steps;
  step_ += steps;
  next_micro_batch_ = 0;
}

Contribution Worker::contribution_with(const Gradient& gradient, std::optional<std::int64_t> planned) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.kept += gradient.micro_batches();
  contribution.planned += planned.value_or(micro_batches());
  contribution.step = step_ + 1;
  ++contribution.period;
  return contribution;
}

void Worker::all_reduce_sum(Gradient& gradient, const SumOptions& options, Here at) {
  const Contribution contribution = contribution_with(gradient, options.planned);
  agreed_ = context_.cluster.all_reduce_sum(rank_, gradient, options.numbers, contribution, {"all_reduce_sum", at});
  check_progress();
  agreed_model_.reset();
}

StartedCollective Worker::start(Collective what, Here at) {
  const bool is_sum = properties_of(what.kind).sums_gradients;
  Contribution contribution = is_sum ? contribution_with(what.gradient) : std::exchange(since_sync_, {});
  if (!is_sum) contribution.step = step_;
  contribution.step += sums_under_way_;
  sums_under_way_ += is_sum ? 1 : 0;
  agreed_model_.reset();
  return context_.cluster.start(rank_, std::move(what), contribution, {"start", at});
}

CollectiveResult Worker::finish(StartedCollective started, Here at) {
  const bool is_of_group = started.group.has_value();
  sums_under_way_ -= properties_of(started.kind).sums_gradients ? 1 : 0;
  CollectiveResult result = context_.cluster.finish(rank_, std::move(started), {"finish", at});
  agreed_model_.reset();
  if (is_of_group) return result;  // no agreement of all
  agreed_ = result.agreement;
  check_progress();
  return result;
}

// That of a group is no agreement of all, and no row: the round ends with the average over all workers.
bool Worker::average_model(const Averaging& how, Here at) {
  const bool is_of_all = !how.group_size;
  Contribution contribution;
  if (is_of_all) contribution = std::exchange(since_sync_, {});
  if (is_of_all) contribution.step = step_;
  const AgreedProgress agreed = context_.cluster.average(rank_, model_, how, contribution, {"average_model", at});
  agreed_model_.reset();
  if (!is_of_all) return budget_left_at(agreed.time);
  agreed_ = agreed;
  check_progress();
  return budget_left(Judged::by_others);
}

// A threshold below the time of every micro-batch would let a budget of samples go on for ever.
void Worker::check_progress() {
  constexpr int most_idle_rounds = 1000;
  const Budget& budget = context_.budget;
  if (budget.steps || budget.seconds || budget.bytes) return;
  idle_rounds_ = std::exchange(kept_before_, agreed_->micro_batches) == kept_before_ ? idle_rounds_ + 1 : 0;
  if (idle_rounds_ > most_idle_rounds)
    throw RunFailure(
        fmt::format("at {:.6f} s: nobody has finished a micro-batch in the last {} rounds, so a budget of "
                    "samples is never used up; is a threshold below the time of one?",
                    to_seconds(now()), most_idle_rounds));
}

void Worker::barrier(Here at) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.step = step_;
  agreed_ = context_.cluster.barrier(rank_, {"barrier", at}, contribution);
  agreed_model_.reset();  // its steps are booked
}

std::vector<PartialSum> Worker::partial_all_reduce_sum(Gradient gradient, const Activation& activation,
                                                       LateGradient late, Here at) {
  const Contribution contribution = contribution_with(gradient);
  auto sums = context_.cluster.partial_all_reduce(rank_, std::move(gradient), activation, late, contribution,
                                                  {"partial_all_reduce_sum", at});
  if (!sums.empty()) agreed_ = sums.back().agreement;
  agreed_model_.reset();
  return sums;
}

void Worker::finish_round() {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.step = step_;
  context_.cluster.finish_round(rank_, contribution);
  agreed_model_.reset();
}

bool Worker::receive_model(Here at) {
  if (!data_left() || has_last_model_) return false;
  steps_are_versions_ = true;
  return context_.cluster.servers() == 1 ? receive_whole_model(at) : receive_slices(at);
}

bool Worker::receive_whole_model(Here at) {
  auto message = context_.cluster.receive(rank_, context_.cluster.server(), never, {"receive_model", at});
  if (!message) return false;
  kept_total_ = message->kept;
  if (model_) model_ = context_.training.adopt(model_, message->model);
  start_from(message->step);
  return message->kind != Message::Kind::last_model;
}

// The same version twice: the next micro-batches of the step.
void Worker::start_from(Step version) {
  if (version != step_) next_micro_batch_ = 0;
  step_ = version;
}

bool Worker::receive_slices(Here at) {
  const auto servers = static_cast<std::size_t>(context_.cluster.servers());
  std::vector<ModelStatePtr> slices(servers);
  slice_steps_.assign(servers, Step{});
  Step newest{};
  bool is_last = false;
  const auto receive_slice = [&](std::size_t shard) {
    auto message =
        context_.cluster.receive(rank_, context_.cluster.server(static_cast<int>(shard)), never, {"receive_model", at});
    if (!message) return false;
    slice_steps_[shard] = message->step;
    newest = std::max(newest, message->step);
    kept_total_ = message->kept;
    is_last |= message->kind == Message::Kind::last_model;
    slices[shard] = std::move(message->model);
    return true;
  };
  for (std::size_t shard = 0; shard < servers; ++shard)
    if (!receive_slice(shard)) return false;
  while (true) {
    const auto behind = std::find_if(slice_steps_.begin(), slice_steps_.end(), [&](Step s) { return s < newest; });
    if (behind == slice_steps_.end()) break;
    const auto shard = static_cast<std::size_t>(behind - slice_steps_.begin());
    send(context_.cluster.server(static_cast<int>(shard)), Message::request_after(*behind), at);
    if (receive_slice(shard)) continue;
    if (!is_last) return false;
    break;  // servers that end by the clock may end at different versions
  }
  model_ = context_.training.assemble(model_, slices);
  const Step before = step_;
  start_from(newest);
  if (newest > before) publish();
  return !is_last;
}

void Worker::send_gradient(Gradient gradient, Here at) {
  if (context_.cluster.servers() > 1) return send_slices(gradient, at);
  send(context_.cluster.server(), Message::of_gradient(step_, std::move(gradient)), at);
}

void Worker::send_slices(const Gradient& gradient, Here at) {
  const int servers = context_.cluster.servers();
  for (int shard = 0; shard < servers; ++shard) {
    const Step version = slice_steps_.empty() ? step_ : slice_steps_[static_cast<std::size_t>(shard)];
    Message message = Message::of_gradient(version, gradient);
    message.slice = {shard, servers};
    send(context_.cluster.server(shard), std::move(message), at);
  }
}

void Worker::send(Rank to, Message&& message, Here at) {
  context_.cluster.send(rank_, to, std::move(message), {"send", at});
}

ReceivedMessage Worker::receive(const ReceiveOptions& which, Here at) {
  return context_.cluster.receive(rank_, which.from, which.until, {"receive", at});
}

}  // namespace syncopate
