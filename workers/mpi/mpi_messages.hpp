// Messages between MPI ranks: sends and receives of any kind, frames, and the messages of a method as frames.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

class MpiRunState;
class MpiWaiting;
struct ValueLayout;

// Sends that are under way. What they read lives until MPI has taken it.
class MpiSends {
 public:
  // `owner` keeps the `count` values of `type` at `data`. Calls `when_sent` once all of `ranks` have been sent them.
  void send(std::shared_ptr<const void> owner, const void* data, std::size_t count, MPI_Datatype type,
            std::span<const Rank> ranks, int tag, MPI_Comm communicator, std::function<void()> when_sent = {});
  // Lets MPI progress, and lets go of what has been sent. Returns whether anything was.
  bool release();
  bool empty() const { return sends_.empty(); }

 private:
  struct Send {
    std::shared_ptr<const void> owner;
    std::vector<MPI_Request> requests;  // by receiver
    std::function<void()> when_sent;
  };
  std::vector<Send> sends_;
};

// The first message with such a source and tag that has come and is not received yet.
std::optional<MPI_Status> find_message(int from, int tag, MPI_Comm communicator);
std::size_t size_of(const MPI_Status& message, MPI_Datatype type);  // in values
// Receives it.
std::vector<std::byte> take_message(const MPI_Status& message, MPI_Comm communicator);

// Frames between ranks: one inbox per kind in order of arrival. A frame is a few bytes of contents and, if it carries
// values, one flat body. All frames of one sender, announcements too, arrive in the order in which it sent them.
class MpiTransport {
 public:
  enum class Kind : std::int32_t { message, arrival, group_arrival, partial_arrival, partial_result };
  // A participant tells all others.
  enum class Announcement : std::int32_t {
    ended,       // its program has
    lost,        // it is in a micro-batch that never ends
    closed,      // it sends nothing any more
    checkpoint,  // rank 0: all are to stop for one, of this number
  };
  struct Frame {
    Rank from{};
    std::vector<std::byte> contents;
    FlatVector body;
  };

  // `communicator` belongs to the transport alone. Participants are ranks 0 .. participants-1 of it.
  MpiTransport(MPI_Comm communicator, int participants);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // Start to send and return.
  void send(Kind kind, Rank to, std::span<const std::byte> contents, std::shared_ptr<const FlatVector> body = nullptr) {
    transport(static_cast<std::int32_t>(kind), {&to, 1}, contents, std::move(body));
  }
  // To all of them but this one.
  void send(Kind kind, Ranks to, std::span<const std::byte> contents) {
    transport(static_cast<std::int32_t>(kind), others_of(to), contents, nullptr);
  }
  void announce(Announcement news, std::int64_t value = 0);

  // Lets MPI work: receives what has arrived and releases what has been sent. Cheap; call it whenever this rank waits.
  void progress();

  // The first frame of its kind, of `from` alone if that is given, once it is complete.
  std::optional<Frame> take(Kind kind, std::optional<Rank> from = {});
  // Whether take would give something now.
  bool has_first(Kind kind) {
    auto& inbox = inboxes_[index(kind)];
    return !inbox.empty() && is_done(inbox.front().request);
  }
  // Whether a frame has arrived, even partly.
  bool is_arriving(Kind kind, std::optional<Rank> from = {}) const;

  // The value that came with it; nothing if there was no such announcement. A rank hears nothing from itself.
  std::optional<std::int64_t> announced(Announcement news, Rank rank) const { return announced_[index(news)][rank]; }
  // The same, once: it is forgotten then.
  std::optional<std::int64_t> take_announced(Announcement news, Rank rank) {
    return std::exchange(announced_[index(news)][rank], std::nullopt);
  }
  bool has_announced(Announcement news, Rank rank) const { return announced(news, rank).has_value(); }
  // Counts the ranks from `begin` to before `end`.
  int count_announced(Announcement news, int begin, int end) const {
    const auto& ranks = announced_[index(news)];
    return static_cast<int>(
        std::count_if(ranks.begin() + begin, ranks.begin() + end, [](const auto& value) { return value.has_value(); }));
  }

  bool nothing_under_way() const {
    return sends_.empty() && std::ranges::all_of(inboxes_, [](const auto& inbox) { return inbox.empty(); });
  }
  // Whether no frame is half sent or half received here.
  bool has_nothing_half_way();
  bool sending() const { return !sends_.empty(); }
  // Frames so far, announcements too.
  std::int64_t frames_sent() const { return frames_sent_; }
  std::int64_t frames_received() const { return frames_received_; }
  const ByRank<std::int64_t>& sent_to() const { return sent_to_; }
  const ByRank<std::int64_t>& received_from() const { return received_from_; }

  // Archives what has come and is not taken yet; nothing is half way. After reading, counts begin at zero on all ranks.
  void serialise(StateArchive& archive);

 private:
  static constexpr std::size_t kinds = 5;
  struct Header {
    std::int32_t kind = 0;  // a Kind, or kinds + an Announcement
    std::int32_t from = 0;
    std::int64_t floats = 0;  // of the body that follows; 0: none
  };
  struct Incoming {
    Frame frame;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  template <typename T>
  static std::size_t index(T value) {
    return static_cast<std::size_t>(value);
  }
  std::vector<Rank> others_of(Ranks ranks) const;
  void transport(std::int32_t kind, std::span<const Rank> to, std::span<const std::byte> contents,
                 std::shared_ptr<const FlatVector> body);
  void accept(const MPI_Status& message);

  MPI_Comm communicator_;
  Rank self_;
  int participants_;
  std::int64_t frames_sent_ = 0;
  std::int64_t frames_received_ = 0;
  ByRank<std::int64_t> sent_to_;
  ByRank<std::int64_t> received_from_;
  MpiSends sends_;
  std::array<std::deque<Incoming>, kinds> inboxes_;
  std::array<ByRank<std::optional<std::int64_t>>, 4> announced_;  // by announcement
};

// Contents of a frame: a value, and the values that follow it.
template <typename T>
void append_bytes(std::vector<std::byte>& bytes, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto begin = bytes.insert(bytes.end(), values.size_bytes(), std::byte{});
  std::ranges::copy(std::as_bytes(values), begin);
}

template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  std::vector<std::byte> bytes;
  append_bytes(bytes, std::span<const T>(&value, 1));
  return bytes;
}

template <typename T>
T read_bytes(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(T));
  return value;
}

template <typename T>
std::vector<T> read_all(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
  return values;
}

// Messages of an MPI rank, who can still send any, and how they count. The frame's body is the gradient or model.
class MpiMessages {
 public:
  MpiMessages(MpiRunState& state, MpiWaiting& waiting);

  // A frame without its values.
  struct MessageHeader {
    Rank from{};
    std::vector<std::byte> contents;
    bool has_values = false;

    void serialise(StateArchive& archive) { archive(from, contents, has_values); }
  };

  // See Cluster. Sending evaluates gradients and copies models, so that the caller may go on.
  void send(Rank to, Message&& message);
  ReceivedMessage receive(std::optional<Rank> from, Time until, const Place& place);
  // The header of the last message received, unless there was none; and its message, in another process.
  const MessageHeader& last_header() const { return last_header_; }
  ReceivedMessage received_before(MessageHeader&& header) {
    return ReceivedMessage(new Message(open(std::move(header), {}).message));
  }
  int workers_left();
  bool has_left(Rank other) const;

  bool nobody_can_send(std::optional<Rank> from) const;

  void serialise(StateArchive& archive) {
    archive(bytes_received_, last_taken_, bytes_to_servers_, bytes_from_workers_, count_, reported_gone_);
  }

  // Messages count where the simulated cluster counts them: those to a server once it has taken them, others when sent.
  std::int64_t count() const { return count_; }
  Bytes counted_bytes() const;
  // Sent by this worker, and to it by servers.
  Bytes bytes_to_and_fro() const;

 private:
  struct OpenedMessage {
    Message message;
    Time sent;
    Time last_taken;  // when the sender had last taken a message from here
    Bytes bytes;      // sent so far, as the sender knows it
    MessageHeader header;
  };

  int gone(Ranks ranks) const;
  Bytes known_bytes(Rank receiver) const;
  std::vector<std::byte> contents_of(Rank to, const Message& message) const;
  ValueLayout layout_of(bool wide) const;
  std::shared_ptr<const FlatVector> body_of(const Message& message);
  // The message of a frame with these values. A replayed one (MpiReplayLog) has none.
  OpenedMessage open(MessageHeader&& header, FlatVector&& values) const;

  MpiRunState& state_;
  MpiWaiting& waiting_;
  Training& training_;
  ByRank<Bytes> bytes_received_;  // from each server
  ByRank<Time> last_taken_;       // when the last message of each was taken
  Bytes bytes_to_servers_{};      // of what this rank has sent: as a worker
  Bytes bytes_from_workers_{};    // taken as a server
  std::int64_t count_ = 0;
  int reported_gone_ = 0;  // a server: of those that have ended
  MessageHeader last_header_;
  // A server sends one model to many workers: its body is written once.
  std::uint64_t last_model_id_ = 0;
  Slice last_slice_;
  std::shared_ptr<const FlatVector> last_body_;
};

}  // namespace syncopate
