// Letters between ranks: non-blocking sends whose buffers live until MPI has taken them, and for each
// kind an inbox in order of arrival. A letter is a few bytes of contents and, if it carries values, one
// flat body. All letters of one sender arrive in the order in which it sent them, announcements too.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

class StateArchive;

class MpiPost {
 public:
  enum class Kind : std::int32_t { message, arrival, partial_arrival, partial_result };
  // What a participant tells all others about itself, once.
  enum class News : std::int32_t {
    ended,   // its program has
    lost,    // it is in a micro-batch that never ends
    closed,  // nothing at all will come from there any more
  };
  struct Letter {
    Rank from{};
    std::vector<std::byte> contents;
    FlatVector body;
  };

  // `communicator` belongs to the post alone. Participants are ranks 0 .. participants-1 of it.
  MpiPost(MPI_Comm communicator, int participants);
  MpiPost(const MpiPost&) = delete;
  MpiPost& operator=(const MpiPost&) = delete;

  // Start a send and return.
  void send(Kind kind, Rank to, std::vector<std::byte> contents, std::shared_ptr<const FlatVector> body = nullptr);
  void announce(News news, std::int64_t value = 0);

  // Lets MPI work: takes in what has arrived and releases what has been sent. Cheap; to be called
  // whenever this rank waits.
  void progress();

  // The first letter of its kind, of `from` alone if that is given, once it is complete.
  std::optional<Letter> take(Kind kind, std::optional<Rank> from = {});
  // Whether take would give something now.
  bool has_first(Kind kind);
  // Whether a letter has arrived, even partly.
  bool is_arriving(Kind kind, std::optional<Rank> from = {}) const;

  // The value that came with it; nothing if there was no such news, as of oneself.
  std::optional<std::int64_t> announced(News news, Rank rank) const { return said_[index(news)][rank]; }
  bool has_announced(News news, Rank rank) const { return announced(news, rank).has_value(); }
  // Of the ranks from `begin` to before `end`.
  int count_announced(News news, int begin, int end) const;

  bool nothing_under_way() const;
  // Whether no letter is half sent or half received here.
  bool has_nothing_half_way();
  // So far, announcements too.
  std::int64_t letters_sent() const { return letters_sent_; }
  std::int64_t letters_received() const { return letters_received_; }
  // So far, by rank, announcements too.
  const ByRank<std::int64_t>& sent_to() const { return sent_to_; }
  const ByRank<std::int64_t>& received_from() const { return received_from_; }
  bool sending() const { return !outbox_.empty(); }
  int participants() const { return participants_; }
  Rank self() const { return self_; }

  // What has come and is not taken yet; nothing is half way. Read, all that is counted begins anew, on all ranks.
  void keep(StateArchive& archive);

 private:
  static constexpr std::size_t kinds = 4;
  struct Header {
    std::int32_t kind = 0;  // a Kind, or kinds + a News
    std::int32_t from = 0;
    std::int64_t floats = 0;  // of the body that follows; 0: none
  };
  struct Outgoing {
    std::vector<std::byte> envelope;  // header and contents
    std::shared_ptr<const FlatVector> body;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };
  struct Incoming {
    Letter letter;
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_complete();
  };

  template <typename T>
  static std::size_t index(T value) {
    return static_cast<std::size_t>(value);
  }
  void post(std::int32_t kind, Rank to, std::span<const std::byte> contents, std::shared_ptr<const FlatVector> body);
  void accept(const MPI_Status& status);

  MPI_Comm communicator_;
  Rank self_;
  int participants_;
  std::int64_t letters_sent_ = 0;
  std::int64_t letters_received_ = 0;
  ByRank<std::int64_t> sent_to_;
  ByRank<std::int64_t> received_from_;
  std::list<Outgoing> outbox_;
  std::array<std::deque<Incoming>, kinds> inboxes_;
  std::array<ByRank<std::optional<std::int64_t>>, 3> said_;  // by news
};

// Contents of a letter: a value, and what follows it.
template <typename T>
void append_bytes(std::vector<std::byte>& bytes, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (values.empty()) return;
  const std::size_t end = bytes.size();
  bytes.resize(end + values.size_bytes());
  std::memcpy(bytes.data() + end, values.data(), values.size_bytes());
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

}  // namespace syncopate
