// Messages between ranks: non-blocking sends whose buffers live until MPI has taken them, and an
// inbox in order of arrival. A message is a header and, if it carries values, one flat body.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "workers/cluster.hpp"

namespace syncopate {

class MpiMailbox {
 public:
  // `communicator` belongs to the mailbox alone. Participants are ranks 0 .. participants-1 of it.
  MpiMailbox(MPI_Comm communicator, int participants, Training& training);
  MpiMailbox(const MpiMailbox&) = delete;
  MpiMailbox& operator=(const MpiMailbox&) = delete;

  struct Delivery {
    Message message;
    Time sent;
  };

  // Starts a send and returns. Gradients are evaluated here, models copied, so the caller may go on.
  void send(Rank to, const Message& message, Time sent);

  // Tells every other participant that nothing more will come from here.
  void announce_end();

  // Lets MPI work: takes in what has arrived and releases what has been sent. Cheap; to be called
  // whenever this rank waits.
  void progress();

  // The next message that is complete, in order of arrival.
  std::optional<Delivery> take();

  bool has_ended(Rank rank) const { return ended_[static_cast<std::size_t>(rank.value)]; }
  bool all_others_ended() const;
  bool inbox_empty() const { return inbox_.empty(); }
  bool nothing_under_way() const { return outbox_.empty() && inbox_.empty(); }
  bool sending() const { return !outbox_.empty(); }

 private:
  enum class Kind : std::int32_t { gradient, model, end };
  struct Header {
    Kind kind = Kind::end;
    std::int32_t from = 0;
    std::int64_t step = 0;
    std::int64_t micro_batches = 0;
    std::int64_t compute_ns = 0;
    std::int64_t sent_ns = 0;  // since the common start
    std::int64_t floats = 0;   // of the body that follows; 0: none
  };
  struct Outgoing {
    Header header;
    std::shared_ptr<const FlatVector> body;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };
  struct Incoming {
    Header header;
    FlatVector body;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void post(Rank to, const Header& header, std::shared_ptr<const FlatVector> body);
  void accept_headers();
  std::shared_ptr<const FlatVector> body_of(const Message& message);
  Message open(Incoming incoming);

  MPI_Comm communicator_;
  Rank self_;
  Training& training_;
  std::vector<bool> ended_;
  std::list<Outgoing> outbox_;
  std::deque<Incoming> inbox_;
  // A server sends one model to many workers: its body is written once.
  std::uint64_t last_model_id_ = 0;
  std::shared_ptr<const FlatVector> last_body_;
};

}  // namespace syncopate
