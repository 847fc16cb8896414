#include "workers/mpi/mpi_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

using News = MpiPost::News;

// To the program somebody has left once there is nothing more to receive from there.
bool MpiMail::has_left(Rank other) const {
  return stage_.has_ended(other) && !stage_.post.is_arriving(MpiPost::Kind::message, other);
}

int MpiMail::gone(Ranks ranks) const {
  int gone = 0;
  for (const Rank rank : ranks) gone += has_left(rank) ? 1 : 0;
  return gone;
}

int MpiMail::workers_left() {
  waiting_.progress();
  gone_told_ = gone(stage_.told_of());
  const Servers servers = stage_.options.servers;
  const int workers = stage_.options.workers;
  return servers.number_served_by(stage_.self, workers) - gone(servers.served_by(stage_.self, workers));
}

// What this rank knows to have been sent, except what the receiver itself tells or has sent. A worker adds what it has
// got from other servers; a region's server tells the global one of its workers.
Bytes MpiMail::known_bytes(Rank receiver) const {
  Bytes known = stage_.sent_bytes;
  for (const Rank server : stage_.servers())
    if (stage_.is_worker() && server != receiver) known += bytes_received_[server];
  const int workers = stage_.options.workers;
  const Servers servers = stage_.options.servers;
  if (stage_.is_server() && receiver != stage_.self && receiver == servers.server_of(stage_.self, workers))
    for (const Rank worker : servers.served_by(stage_.self, workers)) known += stage_.bytes_told[worker];
  return known;
}

void MpiMail::send(Rank to, Message&& message) {
  if (to.value < 0 || to.value >= stage_.participants())
    throw RunFailure(
        fmt::format("a message to rank {}, but there are ranks 0 to {}", to.value, stage_.participants() - 1));
  stage_.clock.book(Activity::compute);
  waiting_.progress();
  message.from = stage_.self;
  const Bytes bytes = message_bytes(message, stage_.options.training.parameter_bytes());
  stage_.sent_bytes += bytes;
  if (stage_.is_worker() && to.value >= stage_.options.workers)
    bytes_to_servers_ += bytes;
  else
    ++messages_;
  // What is sent to somebody who has ended is sent all the same, as far as the counts are concerned.
  if (to == stage_.self || !stage_.post.has_announced(News::ended, to))
    mailbox_.send(to, message, {stage_.clock.booked(), heard_[to], known_bytes(to)});
  stage_.clock.book(Activity::communicate, {"send"});
}

// Workers of a method with servers hear from nobody else once these have ended; servers only answer, but to each other.
bool MpiMail::nobody_can_send(std::optional<Rank> from) const {
  if (stage_.post.is_arriving(MpiPost::Kind::message, from)) return false;
  if (stage_.servers_are_gone()) return true;
  if (from) return *from != stage_.self && stage_.post.has_announced(News::ended, *from);
  const int participants = stage_.participants();
  if (stage_.is_server()) return gone(stage_.told_of()) == stage_.number_told_of();
  return stage_.post.count_announced(News::ended, 0, participants) == participants - 1;
}

// Communication until the sender has taken what it was sent from here, then waiting until it has sent the message, and
// from then on communication.
ReceivedMessage MpiMail::receive(std::optional<Rank> from, Time until, const Place& place) {
  stage_.clock.enter();
  std::optional<MpiMailbox::Delivery> delivery;
  waiting_.wait(
      {.place = &place, .from = from},
      [&] {
        delivery = mailbox_.take(from);
        if (delivery || stage_.now() >= until) return true;
        const bool has_news = stage_.is_server() && gone(stage_.told_of()) > gone_told_;
        return nobody_can_send(from) || (has_news && !stage_.post.is_arriving(MpiPost::Kind::message, from));
      },
      until);
  if (!delivery) {
    gone_told_ = gone(stage_.told_of());
    stage_.clock.book(Activity::wait, {"receive"});
    return nullptr;
  }
  const Time sent = std::min(delivery->sent, stage_.now());
  stage_.clock.book_until(Activity::communicate, std::min(delivery->heard, sent), {"receive"});
  stage_.clock.book_until(Activity::wait, sent, {"receive"});
  stage_.clock.book(Activity::communicate, {"receive"});
  stage_.clock.meet();
  const Message& message = delivery->message;
  const Rank sender = message.from;
  heard_[sender] = stage_.now();
  stage_.bytes_told[sender] = delivery->bytes;
  const Bytes bytes = message_bytes(message, stage_.options.training.parameter_bytes());
  if (message.from.value >= stage_.options.workers) {
    bytes_received_[sender] += bytes;
  } else if (stage_.is_server()) {
    bytes_from_workers_ += bytes;
    ++messages_;
  }
  last_slip_ = std::move(delivery->slip);
  return ReceivedMessage(new Message(std::move(delivery->message)));
}

ReceivedMessage MpiMail::received_before(MpiMailbox::Slip&& slip) {
  return ReceivedMessage(new Message(mailbox_.open(std::move(slip), {}).message));
}

namespace {

// A model travels as parameters and normalisation buffers; the receiver keeps its own moments.
constexpr AveragePolicy travels{.buffers = StatePolicy::average};

// What the gradient is known to be of follows it, and then the numbers.
struct Head {
  std::int64_t step = 0;
  std::int64_t micro_batches = 0;
  std::int64_t compute_ns = 0;
  std::int64_t kept = 0;
  std::int64_t sent_ns = 0;   // since the common start
  std::int64_t heard_ns = 0;  // likewise
  std::int64_t bytes = 0;
  std::int64_t carried = 0;
  std::int64_t packet_bytes = 0;
  Slice slice;
  Message::Kind kind{};
  bool wide = false;
  bool is_packed = false;
  std::uint16_t answers = 0;
};

template <typename T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
  return values;
}

}  // namespace

ValueLayout MpiMailbox::layout_of(bool wide) const {
  return {.parameters = training_.objective().parameters(), .buffers = training_.objective().buffers(), .wide = wide};
}

std::shared_ptr<const FlatVector> MpiMailbox::body_of(const Message& message) {
  if (!message.has_values()) return nullptr;
  if (training_.time_only()) {
    const Bytes bytes = message_bytes(message, training_.parameter_bytes());
    const auto of_numbers = static_cast<Bytes::Rep>(sizeof(double) * message.numbers.size());
    return std::make_shared<FlatVector>(zeros_of(bytes - of_numbers));
  }
  if (message.is_packed) {
    training_.executor().wait(message.model->parameters->producer);
    const auto words = std::as_const(message.model->parameters->value).span();
    auto body = std::make_shared<FlatVector>(words.size());
    std::ranges::copy(words, body->data());
    return body;
  }
  if (message.has_model() && message.model->id == last_model_id_ && message.slice == last_slice_) return last_body_;
  const bool wide = !message.has_model() && message.gradient.wide();
  const ValueLayout layout = layout_of(wide);
  const CourseLog::Away unnoted;  // nothing of it is kept
  FlatVector whole(layout.size());
  if (message.has_model())
    training_.write_averaged(message.model, travels, whole.data());
  else
    training_.write_values(message.gradient, whole.data());
  const bool is_whole = message.slice.count == 1;
  auto body = std::make_shared<FlatVector>(is_whole ? std::move(whole) : cut(whole, layout, message.slice));
  if (!message.has_model()) return body;
  last_model_id_ = message.model->id;
  last_slice_ = message.slice;
  return last_body_ = std::move(body);
}

void MpiMailbox::send(Rank to, const Message& message, const Stamps& stamps) {
  if (message.has_model() && !message.gradient.terms().empty())
    throw RunFailure("a message carries a gradient or a model, not both");
  const std::vector<MicroBatch> carried =
      message.is_packed ? message.packet().carried : training_.travelling(message.gradient);
  std::vector<std::byte> contents = bytes_of(Head{.step = message.step.value(),
                                                  .micro_batches = message.gradient.micro_batches(),
                                                  .compute_ns = message.gradient.compute_time().count(),
                                                  .kept = message.kept,
                                                  .sent_ns = stamps.sent.time_since_epoch().count(),
                                                  .heard_ns = stamps.heard.time_since_epoch().count(),
                                                  .bytes = stamps.bytes.value(),
                                                  .carried = std::ssize(carried),
                                                  .packet_bytes = message.is_packed ? message.packet().size.value() : 0,
                                                  .slice = message.slice,
                                                  .kind = message.kind,
                                                  .wide = message.gradient.wide(),
                                                  .is_packed = message.is_packed,
                                                  .answers = message.answers});
  append_bytes<MicroBatch>(contents, carried);
  append_bytes<double>(contents, message.numbers);
  post_.send(MpiPost::Kind::message, to, std::move(contents), body_of(message));
}

std::optional<MpiMailbox::Delivery> MpiMailbox::take(std::optional<Rank> from) {
  auto letter = post_.take(MpiPost::Kind::message, from);
  if (!letter) return std::nullopt;
  const bool has_values = !letter->body.empty();
  return open({letter->from, std::move(letter->contents), has_values}, std::move(letter->body));
}

MpiMailbox::Delivery MpiMailbox::open(Slip&& slip, FlatVector&& values) {
  const auto head = read_bytes<Head>(slip.contents);
  const auto after_head = std::span<const std::byte>(slip.contents).subspan(sizeof(Head));
  const auto carried_bytes = static_cast<std::size_t>(head.carried) * sizeof(MicroBatch);
  Message message{.step = Step{head.step},
                  .kind = head.kind,
                  .is_packed = head.is_packed,
                  .answers = head.answers,
                  .from = slip.from,
                  .numbers = values_of<double>(after_head.subspan(carried_bytes)),
                  .kept = head.kept,
                  .slice = head.slice};
  const Duration compute{head.compute_ns};
  if (head.micro_batches > 0) message.gradient = Gradient(nullptr, head.micro_batches, compute);
  if (head.is_packed) {
    auto packet = std::make_shared<SentPacket>();
    packet->size = Bytes{head.packet_bytes};
    packet->carried = values_of<MicroBatch>(after_head.first(carried_bytes));
    if (!training_.time_only()) {
      packet->parameters = new_cell();
      packet->parameters->value = std::move(values);
    }
    message.model = std::move(packet);
  } else if (slip.has_values && !training_.time_only()) {
    const bool wide = head.wide && !message.has_model();
    const bool is_whole = head.slice.count == 1 || values.empty();
    FlatVector whole = is_whole ? std::move(values) : spread(values, layout_of(wide), head.slice);
    if (message.has_model())
      message.model = training_.from_averaged(std::make_shared<ModelState>(), travels, whole.data());
    else
      message.gradient = training_.gradient_from(std::move(whole), head.micro_batches, compute, wide,
                                                 values_of<MicroBatch>(after_head.first(carried_bytes)));
  }
  if (head.wide) message.gradient.use_double_precision();
  return {std::move(message), Time{Duration{head.sent_ns}}, Time{Duration{head.heard_ns}}, Bytes{head.bytes},
          std::move(slip)};
}

}  // namespace syncopate
