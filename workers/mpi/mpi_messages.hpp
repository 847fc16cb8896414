// Messages between MPI ranks: sends, receives, frames (a few bytes and optionally a vector), and a method's messages.
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

// Sends under way. A send's buffer lives until MPI has sent it.
class MpiSends {
 public:
  // `owner` keeps the `count` values of `type` at `data` alive. Calls `when_sent` once they are sent to all `ranks`.
  void send(std::shared_ptr<const void> owner, const void* data, std::size_t count, MPI_Datatype type,
            std::span<const Rank> ranks, int tag, MPI_Comm communicator, std::function<void()> when_sent = {});
  // Lets MPI progress and releases finished sends. Returns whether any send had finished.
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

// Returns the first message with this source and tag that has arrived and has not been received yet.
std::optional<MPI_Status> find_message(int from, int tag, MPI_Comm communicator);
std::size_t size_of(const MPI_Status& message, MPI_Datatype type);  // number of values of this type
// Receives a message that find_message has found.
std::vector<std::byte> take_message(const MPI_Status& message, MPI_Comm communicator);

// Frames between ranks, with one inbox per kind in order of arrival. A frame has a few bytes of contents and, if it
// carries values, one flat vector as its body. A sender's frames, including announcements, arrive in order.
class MpiTransport {
 public:
  enum class Kind : std::int32_t { message, arrival, group_arrival, partial_arrival, partial_result };
  // The announcements that a participant sends to all others.
  enum class Announcement : std::int32_t {
    ended,       // its program has ended
    lost,        // it is in a micro-batch that never ends
    closed,      // it sends nothing any more
    checkpoint,  // from rank 0: all ranks must stop for the checkpoint with this number
  };
  struct Frame {
    Rank from{};
    std::vector<std::byte> contents;
    FlatVector body;
  };

  // `communicator` is for the transport alone. Participants are its ranks 0 .. participants-1.
  MpiTransport(MPI_Comm communicator, int participants);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // Sends without blocking.
  void send(Kind kind, Rank to, std::span<const std::byte> contents, std::shared_ptr<const FlatVector> body = nullptr) {
    transport(static_cast<std::int32_t>(kind), {&to, 1}, contents, std::move(body));
  }
  // Sends to all of these ranks except this one.
  void send(Kind kind, Ranks to, std::span<const std::byte> contents) {
    transport(static_cast<std::int32_t>(kind), others_of(to), contents, nullptr);
  }
  void announce(Announcement news, std::int64_t value = 0);

  // Lets MPI progress: receives frames that have arrived, releases finished sends. Cheap; call it in every wait.
  void progress();

  // Takes the first frame of this kind (from `from`, if given) if all of it has arrived.
  std::optional<Frame> take(Kind kind, std::optional<Rank> from = {});
  // Whether `take` would return a frame now.
  bool has_first(Kind kind) {
    auto& inbox = inboxes_[index(kind)];
    return !inbox.empty() && is_done(inbox.front().request);
  }
  // Whether a frame of this kind has arrived, completely or in part.
  bool is_arriving(Kind kind, std::optional<Rank> from = {}) const;

  // Returns the value that `rank` announced; nullopt if there is none. A rank does not receive its own announcements.
  std::optional<std::int64_t> announced(Announcement news, Rank rank) const { return announced_[index(news)][rank]; }
  // Returns the value that `rank` announced, and forgets the announcement.
  std::optional<std::int64_t> take_announced(Announcement news, Rank rank) {
    return std::exchange(announced_[index(news)][rank], std::nullopt);
  }
  bool has_announced(Announcement news, Rank rank) const { return announced(news, rank).has_value(); }
  // Counts the ranks in [begin, end) that have announced `news`.
  int count_announced(Announcement news, int begin, int end) const {
    const auto& ranks = announced_[index(news)];
    return static_cast<int>(
        std::count_if(ranks.begin() + begin, ranks.begin() + end, [](const auto& value) { return value.has_value(); }));
  }

  bool nothing_under_way() const {
    return sends_.empty() && std::ranges::all_of(inboxes_, [](const auto& inbox) { return inbox.empty(); });
  }
  // Whether no frame is partly sent or partly received on this rank.
  bool has_nothing_half_way();
  bool sending() const { return !sends_.empty(); }
  // Numbers of frames so far, including announcements.
  const ByRank<std::int64_t>& sent_to() const { return sent_to_; }
  const ByRank<std::int64_t>& received_from() const { return received_from_; }

  // Archives frames that have arrived and are not taken yet. No frame may be partly sent or partly received. After
  // reading, frame counts start at zero on all ranks.
  void serialise(StateArchive& archive);

 private:
  static constexpr std::size_t kinds = 5;
  struct Header {
    std::int32_t kind = 0;  // a Kind, or `kinds` plus an Announcement
    std::int32_t from = 0;
    std::int64_t floats = 0;  // number of floats in the body that follows; 0: no body
  };
  struct Incoming {
    Frame frame;
    MPI_Request request = MPI_REQUEST_NULL;

    void serialise(StateArchive& archive) { archive(frame.from, frame.contents, frame.body); }
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
  ByRank<std::int64_t> sent_to_;
  ByRank<std::int64_t> received_from_;
  MpiSends sends_;
  std::array<std::deque<Incoming>, kinds> inboxes_;
  std::array<ByRank<std::optional<std::int64_t>>, 4> announced_;  // by announcement, then by rank
};

// A frame's contents are one value of a fixed type and the values appended to it.
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

// Messages of an MPI rank, whether any rank can still send one, and message counts. A frame's body is a gradient or
// model.
class MpiMessages {
 public:
  MpiMessages(MpiRunState& state, MpiWaiting& waiting);

  // A message's frame without the body's values.
  struct MessageHeader {
    Rank from{};
    std::vector<std::byte> contents;
    bool has_values = false;

    void serialise(StateArchive& archive) { archive(from, contents, has_values); }
  };

  // See Cluster. `send` evaluates gradients and copies models, so that the caller may change its model afterwards.
  void send(Rank to, Message&& message);
  ReceivedMessage receive(std::optional<Rank> from, Time until, const Place& place);
  // The header of the last received message (valid if there was one). A replay creates the message from its header.
  const MessageHeader& last_header() const { return last_header_; }
  ReceivedMessage received_before(const MessageHeader& header) {
    return ReceivedMessage(new Message(open(header, {})));
  }
  int workers_left();
  bool has_left(Rank other) const;

  bool nobody_can_send(std::optional<Rank> from) const;

  void serialise(StateArchive& archive) {
    archive(bytes_received_, last_taken_, bytes_to_servers_, bytes_from_workers_, count_, reported_gone_);
  }

  // Counts messages as the simulated cluster does: those to a server when it takes them, all others when they are sent.
  std::int64_t count() const { return count_; }
  Bytes counted_bytes() const;
  // Bytes that this worker sent, plus bytes that servers sent to this worker.
  Bytes bytes_to_and_fro() const;

 private:
  int gone(Ranks ranks) const;
  Bytes known_bytes(Rank receiver) const;
  std::vector<std::byte> contents_of(Rank to, const Message& message) const;
  std::shared_ptr<const FlatVector> body_of(const Message& message);
  // Creates the message of a frame with these body values. A replayed message (MpiReplayLog) has no values.
  Message open(const MessageHeader& header, FlatVector&& values) const;

  MpiRunState& state_;
  MpiWaiting& waiting_;
  Training& training_;
  ByRank<Bytes> bytes_received_;  // by server: bytes received from it
  ByRank<Time> last_taken_;       // by sender: time at which its last message was taken
  Bytes bytes_to_servers_{};      // sent by this rank as a worker
  Bytes bytes_from_workers_{};    // taken by this rank as a server
  std::int64_t count_ = 0;
  int reported_gone_ = 0;  // on a server: the number of ended participants that its program last learned of
  MessageHeader last_header_;
  // The body of the model sent last, because a server sends one model to many workers.
  std::uint64_t last_model_id_ = 0;
  Slice last_slice_;
  std::shared_ptr<const FlatVector> last_body_;
};

}  // namespace syncopate
