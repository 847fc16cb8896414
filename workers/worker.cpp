#include "workers/worker.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace syncopate {

Participant::Participant(const RunContext& context, Rank rank)
    : context_(context), rank_(rank), size_(context.cluster.workers()), model_(context.initial_model) {}

bool Participant::budget_left() const {
  const Budget& budget = context_.budget;
  if (budget.steps && step_ >= *budget.steps) return false;
  if (!budget.seconds && !budget.samples && !budget.bytes) return true;
  const Agreement agreed =
      agreed_.value_or(Agreement{.time = now(), .micro_batches = kept_total_, .bytes = context_.cluster.bytes_sent()});
  if (budget.seconds && to_seconds(agreed.time) >= *budget.seconds) return false;
  if (budget.samples && agreed.micro_batches * context_.samples_per_micro_batch >= *budget.samples) return false;
  return !(budget.bytes && agreed.bytes >= *budget.bytes);
}

bool Worker::budget_left_alone() const {
  const Budget& budget = context_.budget;
  if (budget.steps && step_ >= *budget.steps) return false;
  if (budget.seconds && to_seconds(now()) >= *budget.seconds) return false;
  if (!budget.samples) return true;
  const std::int64_t others = agreed_ ? agreed_->micro_batches : 0;
  return (others + size_ * since_sync_.kept) * context_.samples_per_micro_batch < *budget.samples;
}

Step Participant::steps_left() const {
  if (!context_.budget.steps) return Step{std::numeric_limits<Step::Rep>::max() / 2};
  return std::max(Step{0}, *context_.budget.steps - step_);
}

void Participant::descend(const Gradient& gradient) {
  if (model_) model_ = context_.training.descend(std::move(model_), gradient, learning_rate());
  ++step_;
}

void Participant::publish() {
  if (!context_.observer) return;
  const bool is_global = rank_ == Rank{0} || rank_ == context_.cluster.server();
  if (!is_global) return;
  const std::int64_t micro_batches = agreed_ ? agreed_->micro_batches : kept_total_;
  const Bytes bytes = agreed_ ? agreed_->bytes : context_.cluster.bytes_sent();
  context_.observer->on_publish(model_, step_, now(), micro_batches * context_.samples_per_micro_batch, bytes);
}

std::optional<Gradient> Worker::compute_gradient(const Deadline& deadline) {
  const MicroBatch micro_batch{rank_, step_, next_micro_batch_++};
  return context_.cluster.compute_gradient(rank_, model_, micro_batch, deadline);
}

Gradient Worker::compute_step_gradient() {
  const MicroBatch first{rank_, step_, next_micro_batch_};
  next_micro_batch_ += micro_batches();
  return context_.cluster.compute_gradients(rank_, model_, first, micro_batches());
}

void Worker::descend(const Gradient& gradient) {
  // A gradient that has been all-reduced is counted there; this is a local one.
  if (!has_reduced_) since_sync_.kept += gradient.micro_batches();
  if (!has_reduced_) since_sync_.planned += micro_batches();
  has_reduced_ = false;
  Participant::descend(gradient);
  ++since_sync_.period;
  next_micro_batch_ = 0;
}

void Worker::all_reduce_sum(Gradient& gradient, std::source_location at) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.kept += gradient.micro_batches();
  contribution.planned += micro_batches();
  contribution.step = step_ + 1;
  ++contribution.period;
  agreed_ = context_.cluster.all_reduce_sum(rank_, gradient, contribution, {"all_reduce_sum", at});
  has_reduced_ = true;
  since_sync_.period = -1;  // the step along the reduced gradient belongs to this round
}

void Worker::average_model(const AveragePolicy& policy, std::source_location at) {
  Contribution contribution = std::exchange(since_sync_, {});
  contribution.step = step_;
  agreed_ = context_.cluster.average(rank_, model_, policy, contribution, {"average_model", at});
}

void Worker::broadcast_model(Rank root, std::source_location at) {
  agreed_ = context_.cluster.broadcast(rank_, model_, root, {"broadcast_model", at});
}

void Worker::barrier(std::source_location at) { agreed_ = context_.cluster.barrier(rank_, {"barrier", at}); }

bool Worker::receive_model(std::source_location at) {
  const auto message = context_.cluster.receive(rank_, never, {"receive_model", at});
  if (!message) return false;
  model_ = context_.training.adopt(model_, message->model);
  step_ = message->step;
  next_micro_batch_ = 0;
  return true;
}

void Worker::send_gradient(Gradient gradient, std::source_location at) {
  send(context_.cluster.server(), {.from = rank_, .step = step_, .gradient = std::move(gradient), .model = nullptr},
       at);
}

void Worker::send(Rank to, Message message, std::source_location at) {
  context_.cluster.send(rank_, to, std::move(message), {"send", at});
}

std::optional<Message> Worker::receive(std::source_location at) {
  return context_.cluster.receive(rank_, never, {"receive", at});
}

std::optional<Message> Worker::try_receive(std::source_location at) {
  return context_.cluster.receive(rank_, now(), {"try_receive", at});
}

std::optional<Message> Worker::receive_until(Time until, std::source_location at) {
  return context_.cluster.receive(rank_, until, {"receive_until", at});
}

Server::Server(const RunContext& context, Rank rank)
    : Participant(context, rank),
      version_of_(static_cast<std::size_t>(size()), Step{-1}),
      waiting_(static_cast<std::size_t>(size())) {
  std::iota(waiting_.begin(), waiting_.end(), 0);
}

std::optional<Message> Server::receive(std::source_location at) { return receive_until(never, at); }

std::optional<Message> Server::receive_until(Time until, std::source_location at) {
  auto message = context_.cluster.receive(rank_, until, {"receive", at});
  if (!message) return message;
  const int from = message->from.value;
  const bool has_current = version_of_[static_cast<std::size_t>(from)] == step_;
  (has_current ? waiting_for_next_ : waiting_).push_back(from);
  return message;
}

void Server::send_model_to_waiting(std::source_location at) {
  std::sort(waiting_.begin(), waiting_.end());
  for (const int worker : waiting_) {
    Step& version = version_of_[static_cast<std::size_t>(worker)];
    if (version == step_) continue;  // it had sent more than one gradient
    version = step_;
    context_.cluster.send(rank_, Rank{worker},
                          {.from = rank_, .step = step_, .gradient = {}, .model = model_, .carries_model = true},
                          {"send_model", at});
  }
  waiting_.clear();
}

void Server::keep(const Message& message) { context_.cluster.keep(rank_, message); }

void Server::discard(const Message& message) {
  context_.cluster.discard(rank_, message);
  dropped_since_step_ += message.gradient.micro_batches();
}

void Server::descend(const Gradient& gradient) {
  Participant::descend(gradient);
  kept_total_ += gradient.micro_batches();
  const Bytes bytes = context_.cluster.bytes_sent();
  const Time end = now();
  if (context_.observer)
    context_.observer->on_round({.step = step_,
                                 .end = end,
                                 .duration = end - last_step_end_,
                                 .kept = gradient.micro_batches(),
                                 .dropped = dropped_since_step_,
                                 .period = 1,
                                 .bytes = bytes - last_bytes_});
  waiting_.insert(waiting_.end(), waiting_for_next_.begin(), waiting_for_next_.end());
  waiting_for_next_.clear();
  dropped_since_step_ = 0;
  last_step_end_ = end;
  last_bytes_ = bytes;
}

}  // namespace syncopate
