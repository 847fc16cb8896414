// Messages of a worker: with servers, models in and gradients out.
#include <algorithm>
#include <utility>
#include <vector>

#include "workers/worker.hpp"

namespace syncopate {

bool Worker::receive_model(Here at) {
  if (!data_left() || has_last_model_) return false;
  steps_are_versions_ = true;
  return context_.cluster.servers().hold_slices() ? receive_slices(at) : receive_whole_model(nullptr, at);
}

bool Worker::receive_model(std::vector<double>& numbers, Here at) {
  if (!data_left() || has_last_model_) return false;
  steps_are_versions_ = true;
  return receive_whole_model(&numbers, at);
}

bool Worker::receive_whole_model(std::vector<double>* numbers, Here at) {
  auto message = context_.cluster.receive(rank_, server(), never, {"receive_model", at});
  if (!message) return false;
  if (message->answers > 0) hear(*message);
  kept_total_ = message->kept;
  if (model_) model_ = context_.training.adopt(model_, message->model);
  start_from(message->step);
  if (numbers) *numbers = std::move(message->numbers);
  return message->kind != Message::Kind::last_model;
}

void Worker::take_up(const Message& from_server) {
  steps_are_versions_ = true;
  kept_total_ = from_server.kept;
  if (model_) {
    const bool is_whole = from_server.slice.count == 1;
    model_ = is_whole ? context_.training.adopt(model_, from_server.model)
                      : with_slice(model_, from_server.model, from_server.slice);
  }
  start_from(from_server.step);
}

// The same version twice: the next micro-batches of the step. Local steps from here on begin at this model.
void Worker::start_from(Step version) {
  recovery_.reset();
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
    if (message->answers > 0) hear(*message);
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

void Worker::send_gradient(Gradient gradient, ClippedBy clipped_by, Here at) {
  // On time alone nothing is clipped, and to hand the promise on would be a part of what a message costs.
  if (clipped_by == ClippedBy::worker && !context_.training.time_only())
    gradient = context_.training.clipped(std::move(gradient), micro_batches());
  if (context_.cluster.servers().hold_slices()) return send_slices(gradient, at);
  send(server(), Message::of_gradient(step_, std::move(gradient)), at);
}

// Each worker begins with another server, or all would come to the first one's link at a time.
void Worker::send_slices(const Gradient& gradient, Here at) {
  const int servers = context_.cluster.servers();
  for (int i = 0; i < servers; ++i) {
    const int shard = (rank_.value + i) % servers;
    const Step version = slice_steps_.empty() ? step_ : slice_steps_[static_cast<std::size_t>(shard)];
    Message message = Message::of_gradient(version, gradient);
    message.slice = {shard, servers};
    send(context_.cluster.server(shard), std::move(message), at);
  }
}

ReceivedMessage Worker::receive(const ReceiveOptions& which, Here at) {
  auto message = context_.cluster.receive(rank_, which.from, which.until, {"receive", at});
  if (message && message->answers > 0) hear(*message);
  return message;
}

// The server answers with its model as it is then (Server::receive). Where steps are versions of the model,
// the worker's is that one's; the micro-batches of the step keep their numbers. Slices of it that were sent before the
// answer are in the answer too.
void Worker::ask_server_for_model(Here at) {
  send(server(), Message::request(), at);
  ReceivedMessage message;
  do {
    message = context_.cluster.receive(rank_, server(), never, {"ask_server_for_model", at});
  } while (message && (!message->has_model() || message->slice.count > 1));
  if (!message) return;  // it has ended, and takes no gradient any more
  if (message->answers > 0) hear(*message);
  has_last_model_ |= message->kind == Message::Kind::last_model;
  kept_total_ = message->kept;
  if (model_) model_ = context_.training.adopt(model_, message->model);
  if (steps_are_versions_) step_ = message->step;
}

}  // namespace syncopate
