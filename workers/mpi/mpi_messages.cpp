#include "workers/mpi/mpi_messages.hpp"

#include <fmt/format.h>

#include <numeric>

#include "workers/base/process.hpp"
#include "workers/mpi/mpi_collectives.hpp"

namespace syncopate {

namespace {

using Announcement = MpiTransport::Announcement;

// Envelopes and bodies have separate tags. MPI keeps the order of messages with one tag between two ranks, so a
// sender's n-th envelope that announces a body belongs to its n-th body.
constexpr int envelope_tag = 1;
constexpr int body_tag = 2;

// A model is sent as parameters and normalisation buffers. The receiver keeps its own optimizer moments.
constexpr AveragePolicy travels{.buffers = StatePolicy::average};

// The beginning of a message's frame. The micro-batches of its gradient, as far as known, and its numbers follow.
struct Head {
  Step step{};
  std::int64_t micro_batches = 0;
  Duration compute_time{};
  std::int64_t kept = 0;
  Time sent{};        // on the common clock
  Time last_taken{};  // when the sender last took a message of the receiver
  Bytes bytes{};      // sent by all participants so far, as known to the sender
  std::int64_t carried = 0;
  Bytes packet{};
  Slice slice;
  Message::Kind kind{};
  bool wide = false;
  bool is_packed = false;
  std::uint16_t answers = 0;
};

}  // namespace

void MpiSends::send(std::shared_ptr<const void> owner, const void* data, std::size_t count, MPI_Datatype type,
                    std::span<const Rank> ranks, int tag, MPI_Comm communicator, std::function<void()> when_sent) {
  std::vector<MPI_Request> requests(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i)
    MPI_Isend(data, mpi_count(count), type, ranks[i].value, tag, communicator, &requests[i]);
  sends_.push_back({std::move(owner), std::move(requests), std::move(when_sent)});
}

bool MpiSends::release() {
  return std::erase_if(sends_, [](Send& send) {
           const bool is_sent = are_done(send.requests);
           if (is_sent && send.when_sent) send.when_sent();
           return is_sent;
         }) > 0;
}

std::optional<MPI_Status> find_message(int from, int tag, MPI_Comm communicator) {
  int is_there = 0;
  MPI_Status message{};
  MPI_Iprobe(from, tag, communicator, &is_there, &message);
  return is_there ? std::optional(message) : std::nullopt;
}

std::size_t size_of(const MPI_Status& message, MPI_Datatype type) {
  int count = 0;
  MPI_Get_count(&message, type, &count);
  return static_cast<std::size_t>(count);
}

std::vector<std::byte> take_message(const MPI_Status& message, MPI_Comm communicator) {
  std::vector<std::byte> bytes(size_of(message, MPI_BYTE));
  MPI_Recv(bytes.data(), mpi_count(bytes.size()), MPI_BYTE, message.MPI_SOURCE, message.MPI_TAG, communicator,
           MPI_STATUS_IGNORE);
  return bytes;
}

MpiTransport::MpiTransport(MPI_Comm communicator, int participants)
    : communicator_(communicator), self_(rank_in(communicator)), participants_(participants) {
  for (auto& ranks : announced_) ranks.assign(participants, std::nullopt);
  for (auto* const counts : {&sent_to_, &received_from_}) counts->assign(participants, 0);
}

void MpiTransport::announce(Announcement news, std::int64_t value) {
  const auto kind = static_cast<std::int32_t>(kinds + index(news));
  transport(kind, others_of(Ranks(participants_)), bytes_of(value), nullptr);
}

std::vector<Rank> MpiTransport::others_of(Ranks ranks) const {
  std::vector<Rank> others;
  for (const Rank rank : ranks)
    if (rank != self_) others.push_back(rank);
  return others;
}

void MpiTransport::transport(std::int32_t kind, std::span<const Rank> to, std::span<const std::byte> contents,
                             std::shared_ptr<const FlatVector> body) {
  for (const Rank rank : to) ++sent_to_[rank];
  const Header header{.kind = kind, .from = self_.value, .floats = body ? static_cast<std::int64_t>(body->size()) : 0};
  const auto envelope = std::make_shared<std::vector<std::byte>>(sizeof(Header) + contents.size());
  std::ranges::copy(std::as_bytes(std::span(&header, 1)), envelope->begin());
  std::ranges::copy(contents, envelope->begin() + sizeof(Header));
  sends_.send(envelope, envelope->data(), envelope->size(), MPI_BYTE, to, envelope_tag, communicator_);
  if (header.floats > 0) sends_.send(body, body->data(), body->size(), MPI_FLOAT, to, body_tag, communicator_);
}

void MpiTransport::progress() {
  while (const auto envelope = find_message(MPI_ANY_SOURCE, envelope_tag, communicator_)) accept(*envelope);
  sends_.release();
}

void MpiTransport::accept(const MPI_Status& message) {
  ++received_from_[Rank{message.MPI_SOURCE}];
  const std::vector<std::byte> envelope = take_message(message, communicator_);
  const auto header = read_bytes<Header>(envelope);
  const auto kind = static_cast<std::size_t>(header.kind);
  if (kind >= kinds) {
    announced_.at(kind - kinds)[Rank{header.from}] =
        read_bytes<std::int64_t>(std::span(envelope).subspan(sizeof(Header)));
    return;
  }
  Incoming& incoming = inboxes_[kind].emplace_back();
  incoming.frame.from = Rank{header.from};
  incoming.frame.contents.assign(envelope.begin() + sizeof(Header), envelope.end());
  if (header.floats == 0) return;
  FlatVector& body = incoming.frame.body = FlatVector(static_cast<std::size_t>(header.floats));
  MPI_Irecv(body.data(), mpi_count(body.size()), MPI_FLOAT, header.from, body_tag, communicator_, &incoming.request);
}

std::optional<MpiTransport::Frame> MpiTransport::take(Kind kind, std::optional<Rank> from) {
  auto& inbox = inboxes_[index(kind)];
  const auto first = std::ranges::find_if(inbox, [&](const Incoming& i) { return !from || i.frame.from == *from; });
  if (first == inbox.end() || !is_done(first->request)) return std::nullopt;
  Frame frame = std::move(first->frame);
  inbox.erase(first);
  return frame;
}

bool MpiTransport::is_arriving(Kind kind, std::optional<Rank> from) const {
  const auto& inbox = inboxes_[index(kind)];
  return std::ranges::any_of(inbox, [&](const Incoming& i) { return !from || i.frame.from == *from; });
}

void MpiTransport::serialise(StateArchive& archive) {
  for (auto& inbox : inboxes_) archive(inbox);
  for (auto& ranks : announced_) archive(ranks);
}

bool MpiTransport::has_nothing_half_way() {
  return sends_.empty() && std::ranges::all_of(inboxes_, [](auto& inbox) {
           return std::ranges::all_of(inbox, [](Incoming& incoming) { return is_done(incoming.request); });
         });
}

MpiMessages::MpiMessages(MpiRunState& state, MpiWaiting& waiting)
    : state_(state),
      waiting_(waiting),
      training_(state.options.training),
      bytes_received_(state.participants(), Bytes{0}),
      last_taken_(state.participants(), start_time) {}

Bytes MpiMessages::counted_bytes() const { return state_.sent_bytes - bytes_to_servers_ + bytes_from_workers_; }

Bytes MpiMessages::bytes_to_and_fro() const {
  return std::accumulate(bytes_received_.begin(), bytes_received_.end(), state_.sent_bytes);
}

// Messages of a participant that has ended may not be received yet. It has left once they are.
bool MpiMessages::has_left(Rank other) const {
  return state_.has_ended(other) && !state_.transport.is_arriving(MpiTransport::Kind::message, other);
}

int MpiMessages::gone(Ranks ranks) const {
  int gone = 0;
  for (const Rank rank : ranks) gone += has_left(rank);
  return gone;
}

int MpiMessages::workers_left() {
  waiting_.progress();
  reported_gone_ = gone(state_.notified_of());
  const Servers servers = state_.options.servers;
  const int workers = state_.options.workers;
  return servers.number_served_by(state_.self, workers) - gone(servers.served_by(state_.self, workers));
}

// Bytes that this rank knows to have been sent, except those that the receiver has sent or counts itself. A worker adds
// the bytes that it received from servers other than the receiver. A region's server adds the bytes that its workers
// reported, if the receiver is the global server.
Bytes MpiMessages::known_bytes(Rank receiver) const {
  Bytes known = state_.sent_bytes;
  for (const Rank server : state_.servers())
    if (state_.is_worker() && server != receiver) known += bytes_received_[server];
  const int workers = state_.options.workers;
  const Servers servers = state_.options.servers;
  if (state_.is_server() && receiver != state_.self && receiver == servers.server_of(state_.self, workers))
    for (const Rank worker : servers.served_by(state_.self, workers)) known += state_.bytes_reported[worker];
  return known;
}

void MpiMessages::send(Rank to, Message&& message) {
  if (to.value < 0 || to.value >= state_.participants())
    throw RunFailure(fmt::format("a message to rank {}: the ranks are 0 to {}", to.value, state_.participants() - 1));
  state_.clock.book(Activity::compute);
  waiting_.progress();
  message.from = state_.self;
  const Bytes bytes = message_bytes(message, training_.parameter_bytes());
  state_.sent_bytes += bytes;
  if (state_.is_worker() && to.value >= state_.options.workers)
    bytes_to_servers_ += bytes;
  else
    ++count_;
  // A message to a participant that has ended is counted but not sent.
  if (to == state_.self || !state_.transport.has_announced(Announcement::ended, to)) {
    const std::vector<std::byte> contents = contents_of(to, message);
    state_.transport.send(MpiTransport::Kind::message, to, contents, body_of(message));
  }
  state_.clock.book(Activity::communicate, {"send"});
}

// In a run with servers, workers get no messages after the servers' end. Servers only answer, except to each other.
bool MpiMessages::nobody_can_send(std::optional<Rank> from) const {
  if (state_.transport.is_arriving(MpiTransport::Kind::message, from)) return false;
  if (state_.servers_are_gone()) return true;
  if (from) return *from != state_.self && state_.transport.has_announced(Announcement::ended, *from);
  const int participants = state_.participants();
  if (state_.is_server()) return gone(state_.notified_of()) == state_.number_notified();
  return state_.transport.count_announced(Announcement::ended, 0, participants) == participants - 1;
}

// Books communication until the sender took this rank's last message, waiting until it sent the received one, then
// communication.
ReceivedMessage MpiMessages::receive(std::optional<Rank> from, Time until, const Place& place) {
  state_.clock.enter();
  std::optional<MpiTransport::Frame> frame;
  waiting_.wait(
      {.place = &place, .from = from},
      [&] {
        frame = state_.transport.take(MpiTransport::Kind::message, from);
        if (frame || state_.now() >= until) return true;
        const bool has_news = state_.is_server() && gone(state_.notified_of()) > reported_gone_;
        return nobody_can_send(from) || (has_news && !state_.transport.is_arriving(MpiTransport::Kind::message, from));
      },
      until);
  if (!frame) {
    reported_gone_ = gone(state_.notified_of());
    state_.clock.book(Activity::wait, {"receive"});
    return nullptr;
  }
  const auto head = read_bytes<Head>(frame->contents);
  last_header_ = {frame->from, std::move(frame->contents), !frame->body.empty()};
  ReceivedMessage message(new Message(open(last_header_, std::move(frame->body))));
  const Time sent = std::min(head.sent, state_.now());
  state_.clock.book_until(Activity::communicate, std::min(head.last_taken, sent), {"receive"});
  state_.clock.book_until(Activity::wait, sent, {"receive"});
  state_.clock.book(Activity::communicate, {"receive"});
  state_.clock.book().meet();
  const Rank sender = message->from;
  last_taken_[sender] = state_.now();
  state_.bytes_reported[sender] = head.bytes;
  const Bytes bytes = message_bytes(*message, training_.parameter_bytes());
  if (sender.value >= state_.options.workers) {
    bytes_received_[sender] += bytes;
  } else if (state_.is_server()) {
    bytes_from_workers_ += bytes;
    ++count_;
  }
  return message;
}

std::shared_ptr<const FlatVector> MpiMessages::body_of(const Message& message) {
  if (!message.has_values()) return nullptr;
  if (training_.time_only()) {
    const Bytes bytes = message_bytes(message, training_.parameter_bytes());
    const auto of_numbers = static_cast<Bytes::Rep>(sizeof(double) * message.numbers.size());
    return std::make_shared<FlatVector>(zeros_of(bytes - of_numbers));
  }
  if (message.is_packed) {
    training_.executor().wait(message.model->parameters->producer);
    return std::make_shared<FlatVector>(copy_of(message.model->parameters->value));
  }
  if (message.has_model() && message.model->id == last_model_id_ && message.slice == last_slice_) return last_body_;
  const bool wide = !message.has_model() && message.gradient.wide();
  const ValueLayout layout = layout_of(training_, wide);
  const CheckpointLog::Scope unnoted(nullptr);  // the log needs nothing of this
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

std::vector<std::byte> MpiMessages::contents_of(Rank to, const Message& message) const {
  if (message.has_model() && !message.gradient.terms().empty())
    throw RunFailure("a message carries a gradient or a model, not both");
  const std::vector<MicroBatch> carried =
      message.is_packed ? message.packet().carried : training_.travelling(message.gradient);
  std::vector<std::byte> contents = bytes_of(Head{.step = message.step,
                                                  .micro_batches = message.gradient.micro_batches(),
                                                  .compute_time = message.gradient.compute_time(),
                                                  .kept = message.kept,
                                                  .sent = state_.clock.booked(),
                                                  .last_taken = last_taken_[to],
                                                  .bytes = known_bytes(to),
                                                  .carried = std::ssize(carried),
                                                  .packet = message.is_packed ? message.packet().size : Bytes{},
                                                  .slice = message.slice,
                                                  .kind = message.kind,
                                                  .wide = message.gradient.wide(),
                                                  .is_packed = message.is_packed,
                                                  .answers = message.answers});
  append_bytes<MicroBatch>(contents, carried);
  append_bytes<double>(contents, message.numbers);
  return contents;
}

Message MpiMessages::open(const MessageHeader& header, FlatVector&& values) const {
  const auto head = read_bytes<Head>(header.contents);
  const auto after_head = std::span<const std::byte>(header.contents).subspan(sizeof(Head));
  const auto carried_bytes = static_cast<std::size_t>(head.carried) * sizeof(MicroBatch);
  const auto carried = [&] { return read_all<MicroBatch>(after_head.first(carried_bytes)); };
  Message message{.step = head.step,
                  .kind = head.kind,
                  .is_packed = head.is_packed,
                  .answers = head.answers,
                  .from = header.from,
                  .numbers = read_all<double>(after_head.subspan(carried_bytes)),
                  .kept = head.kept,
                  .slice = head.slice};
  if (head.micro_batches > 0) message.gradient = Gradient(nullptr, head.micro_batches, head.compute_time);
  if (head.is_packed) {
    auto packet = std::make_shared<SentPacket>();
    packet->size = head.packet;
    packet->carried = carried();
    if (!training_.time_only()) {
      packet->parameters = new_cell();
      packet->parameters->value = std::move(values);
    }
    message.model = std::move(packet);
  } else if (header.has_values && !training_.time_only()) {
    const bool wide = head.wide && !message.has_model();
    const bool is_whole = head.slice.count == 1 || values.empty();
    FlatVector whole = is_whole ? std::move(values) : spread(values, layout_of(training_, wide), head.slice);
    if (message.has_model())
      message.model = training_.from_averaged(std::make_shared<ModelState>(), travels, whole.data());
    else
      message.gradient =
          training_.gradient_from(std::move(whole), head.micro_batches, head.compute_time, wide, carried());
  }
  if (head.wide) message.gradient.use_double_precision();
  return message;
}

}  // namespace syncopate
