#include "workers/mpi/mpi_mail.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

}  // namespace syncopate
