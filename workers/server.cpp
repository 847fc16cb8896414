#include "workers/server.hpp"

#include <fmt/format.h>

#include "workers/compression/compressed_exchanges.hpp"

namespace syncopate {

namespace {

// A run fails after this many consecutive rejections per worker. Without the limit, a run whose stale messages queue up
// at a shared link would never end.
constexpr std::int64_t most_stale_in_a_row_per_worker = 1'000;

Slice slice_of(const Cluster& cluster, Rank rank) {
  const Servers servers = cluster.servers();
  return servers.hold_slices() ? Slice{.index = rank.value - cluster.workers(), .count = servers} : Slice();
}

// One past the last rank that a server may serve.
int end_of_served(const Cluster& cluster) {
  const Servers servers = cluster.servers();
  return cluster.workers() + (servers.regions > 0 ? servers.count : 0);
}

}  // namespace

Server::Server(const RunContext& context, Rank rank)
    : Participant(context, rank),
      slice_(slice_of(context.cluster, rank)),
      reported_left_(context.cluster.servers().number_served_by(rank, size())),
      is_reported_(end_of_served(context.cluster), 0),
      version_of_(end_of_served(context.cluster)),
      sent_at_(end_of_served(context.cluster), start_time),
      is_listed_(end_of_served(context.cluster), 1),
      steps_of_(size()),
      rows_(rank == context.cluster.server() ? context.observer : nullptr),
      versions_(rank == context.cluster.server() ? arrivals_of(context.record) : nullptr, start_time) {
  for (const Rank worker : served()) waiting_.push_back(worker);
  const Compressors& compressors = context.message_compressors;
  if (!compressors.empty() && compressors.front()->options().returns_rejected)
    packets_of_.assign(end_of_served(context.cluster), {});
}

void run_server(const RunContext& context, Rank rank, const std::function<void(Server&)>& program) {
  Server server(context, rank);
  program(server);
  if (context.cluster.servers().hold_slices())
    server.send_counted(Rank{0}, Message::of_last_model(server.step_, server.model_), server.slice_,
                        Server::CalledFrom::current());
}

int Server::workers_left(std::span<const Rank> also) const {
  const auto have_ended = std::ranges::count_if(also, [&](Rank worker) { return has_left(worker); });
  return context_.cluster.workers_left(rank_) + static_cast<int>(have_ended);
}

ReceivedMessage Server::receive(Time until, CalledFrom at) {
  while (true) {
    auto message = context_.cluster.receive(rank_, {}, until, {"receive", at});
    if (!message) return message;
    const Rank from = message->from;
    using Kind = Message::Kind;
    const bool is_request = message->kind == Kind::request || message->kind == Kind::request_after;
    if (message->kind == Kind::request || (is_request && version_of_[from] < version_)) {
      send_model(message->from, std::vector<double>(), at);
      continue;
    }
    if (!is_listed_[from]) (version_of_[from] == version_ ? waiting_for_next_ : waiting_).push_back(from);
    is_listed_[from] = 1;
    if (is_request) continue;
    if (message->is_packed) open(*message);
    if (message->kind == Kind::gradient) versions_.arrive(message->step.value(), from, now());
    return message;
  }
}

ReceivedMessage Server::receive_until_all_left(const std::function<void(Rank)>& on_leave, CalledFrom at) {
  while (true) {
    const int left = workers_left();
    if (on_leave && left < reported_left_) {
      for (const Rank worker : served()) {
        if (is_reported_[worker] || !has_left(worker)) continue;
        is_reported_[worker] = 1;
        --reported_left_;
        on_leave(worker);
      }
    }
    const bool has_regions = context_.cluster.servers().regions > 0;
    // Inside workers_left() this server may have learned that its own (global) server has ended. Waiting for a message
    // would then never end, and its workers would continue.
    if (has_regions && has_left(server())) return nullptr;
    // If no served participant is left, do not wait: other regions may continue for long.
    const bool are_alone = has_regions && left == 0;
    if (auto message = receive(are_alone ? now() : never, at)) return message;
    if (left == 0 || has_left(server())) return nullptr;
  }
}

// Replaces the packet by a promise of its values, which are computed at first use.
void Server::open(Message& compressed) {
  if (!packets_of_.empty()) packets_of_[compressed.from].heard = compressed.kept + 1;
  const auto slice = static_cast<std::size_t>(compressed.slice.index);
  open_packet(compressed, context_.message_compressors[slice], context_.training);
}

// Adds acknowledgements to a message for the worker: the last packet that has arrived, and the rejected packets.
void Server::answer(Rank worker, Message& with_model) {
  constexpr std::ptrdiff_t most = std::numeric_limits<std::uint16_t>::max() - 1;
  OfPackets& packets = packets_of_[worker];
  const auto sent_end = packets.rejected.begin() + std::min(most, std::ssize(packets.rejected));
  with_model.numbers.insert(with_model.numbers.end(), packets.rejected.begin(), sent_end);
  with_model.numbers.push_back(static_cast<double>(packets.heard));
  with_model.answers = static_cast<std::uint16_t>(1 + (sent_end - packets.rejected.begin()));
  packets.rejected.erase(packets.rejected.begin(), sent_end);
}

void Server::send_counted(Rank to, Message&& message, Slice part, CalledFrom at) {
  if (!packets_of_.empty()) answer(to, message);
  message.kept = kept_total_;
  message.slice = part;
  context_.cluster.send(rank_, to, std::move(message), {"send", at});
}

void Server::send_version(Rank to, Message&& message, Slice part, CalledFrom at) {
  version_of_[to] = version_;
  sent_at_[to] = now();
  send_counted(to, std::move(message), part, at);
}

// Each server begins with a different worker, so that slices do not all use one worker's link at the same time.
void Server::send_model(Receivers to, const std::vector<double>& numbers, CalledFrom at) {
  const Rank first{static_cast<int>(std::int64_t{size_} * slice_.index / slice_.count)};
  const auto is_before = [first](Rank a, Rank b) { return std::pair(a < first, a) < std::pair(b < first, b); };
  if (to == Receivers::all) {
    for (const bool wrapped : {false, true})
      for (const Rank worker : served())
        if ((worker < first) == wrapped && !has_left(worker)) send_model(worker, numbers, at);
    return;
  }
  std::sort(waiting_.begin(), waiting_.end(), is_before);
  for (const Rank worker : waiting_) {
    is_listed_[worker] = 0;
    if (version_of_[worker] == version_) continue;  // the worker had sent more than one gradient
    if (has_left(worker)) continue;
    send_model(worker, numbers, at);
  }
  waiting_.clear();
}

// With several servers, the first one books a gradient on behalf of all.
std::optional<Step> Server::accept(const Message& message, const AcceptOptions& options) {
  if (message.kind == Message::Kind::model) {  // from the global server
    count_work(std::max(kept_total_, message.kept));
    return Step{0};
  }
  const bool is_difference = message.kind == Message::Kind::difference;
  const Step since_sent = is_difference ? version_ - version_of_[message.from].value_or(Step{}) : step_ - message.step;
  const Step staleness = options.staleness.value_or(since_sent);
  const bool is_stale = options.maximum_staleness && staleness > *options.maximum_staleness;
  const bool is_old = options.maximum_age < longest_duration && now() - sent_at_[message.from] > options.maximum_age;
  if (is_stale || is_old || !options.is_needed) {
    if (is_stale && ++stale_in_a_row_ > most_stale_in_a_row_per_worker * size())
      fail(
          fmt::format("the last {} gradients were rejected as stale: the workers do not wait and send gradients faster "
                      "than the network carries them, so stale gradients queue up ever longer before each step",
                      stale_in_a_row_ - 1));
    if (message.is_packed && !packets_of_.empty()) packets_of_[message.from].rejected.push_back(message.kept);
    discard(message.work());
    return std::nullopt;
  }
  stale_in_a_row_ = 0;
  BookedTime kept = message.work();
  kept.micro_batches -= options.copies;
  if (slice_.index == 0) context_.cluster.keep(rank_, kept, staleness);
  if (options.copies > 0) discard({.worker = message.from, .micro_batches = options.copies});
  return staleness;
}

void Server::record_steps(Rank worker, Step steps) {
  steps_of_all_ += steps - std::exchange(steps_of_[worker], steps);
  version_ = step_ = Step{steps_of_all_.value() / size()};
  kept_total_ = steps_of_all_.value() * micro_batches();
  begin_versions();
}

void Server::descend(const Gradient& gradient, const StepOptions& options) {
  const Step row_before = file_step();
  const std::int64_t micro_batches = options.micro_batches.value_or(gradient.micro_batches());
  scale_rate(options.rate_factor);
  take_step(gradient, options, options.clipped_by == ClippedBy::server ? Clipping::of_step : Clipping::none, slice_);
  ++version_;
  kept_total_ += micro_batches;
  row_.add({.kept = micro_batches, .planned = micro_batches});
  waiting_.insert(waiting_.end(), waiting_for_next_.begin(), waiting_for_next_.end());
  waiting_for_next_.clear();
  begin_versions();
  close_row(row_before);
}

// The workers' last rounds may together exceed the budget of steps. The number of samples shows by how much.
void Server::descend(const ModelStatePtr& to, std::int64_t micro_batches) {
  const Step row_before = file_step();
  set_model(to);
  ++version_;
  count_work(kept_total_ + micro_batches);
  row_.add({.kept = micro_batches, .planned = micro_batches});
  close_row(row_before);
}

void Server::count_work(std::int64_t micro_batches) {
  kept_total_ = micro_batches;
  step_ = Step{kept_total_ / (size() * this->micro_batches())};
  if (context_.budget.steps) step_ = std::min(step_, *context_.budget.steps);
}

}  // namespace syncopate
