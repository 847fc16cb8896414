#include "workers/mpi/mpi_mail.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncopate {

using News = MpiPost::News;

// To the program a worker has left once there is nothing more to receive from it.
bool MpiMail::has_left(Rank worker) const {
  return stage_.has_ended(worker) && !stage_.post.is_arriving(MpiPost::Kind::message, worker);
}

int MpiMail::workers_gone() const {
  int gone = 0;
  for (const Rank worker : stage_.workers()) gone += has_left(worker) ? 1 : 0;
  return gone;
}

int MpiMail::workers_left() {
  waiting_.progress();
  workers_gone_told_ = workers_gone();
  return stage_.options.workers - workers_gone_told_;
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
  Bytes known = stage_.sent_bytes;
  for (int server = stage_.options.workers; stage_.is_worker() && server < stage_.participants(); ++server)
    if (server != to.value) known += bytes_received_[Rank{server}];
  // What is sent to somebody who has ended is sent all the same, as far as the counts are concerned.
  if (to == stage_.self || !stage_.post.has_announced(News::ended, to))
    mailbox_.send(to, message, stage_.clock.booked(), known);
  stage_.clock.book(Activity::communicate, {"send"});
}

// Workers of a method with servers hear from nobody else once these have ended; servers only answer.
bool MpiMail::nobody_can_send(std::optional<Rank> from) const {
  if (stage_.post.is_arriving(MpiPost::Kind::message, from)) return false;
  if (stage_.servers_are_gone()) return true;
  if (from) return *from != stage_.self && stage_.post.has_announced(News::ended, *from);
  if (stage_.is_server()) return workers_gone() == stage_.options.workers;
  const int participants = stage_.participants();
  return stage_.post.count_announced(News::ended, 0, participants) == participants - 1;
}

// Until the message was sent this is waiting, from then on communication.
ReceivedMessage MpiMail::receive(std::optional<Rank> from, Time until, const Place& place) {
  stage_.clock.book(Activity::compute);
  std::optional<MpiMailbox::Delivery> delivery;
  waiting_.wait(
      {.place = &place, .from = from},
      [&] {
        delivery = mailbox_.take(from);
        if (delivery || stage_.now() >= until) return true;
        const bool has_news = stage_.is_server() && workers_gone() > workers_gone_told_;
        return nobody_can_send(from) || (has_news && !stage_.post.is_arriving(MpiPost::Kind::message, from));
      },
      until);
  if (!delivery) {
    workers_gone_told_ = workers_gone();
    stage_.clock.book(Activity::wait, {"receive"});
    return nullptr;
  }
  stage_.clock.book_until(Activity::wait, std::min(delivery->sent, stage_.now()), {"receive"});
  stage_.clock.book(Activity::communicate, {"receive"});
  stage_.clock.meet();
  const Message& message = delivery->message;
  const Rank sender = message.from;
  stage_.bytes_told[sender] = delivery->bytes;
  const Bytes bytes = message_bytes(message, stage_.options.training.parameter_bytes());
  if (message.from.value >= stage_.options.workers) {
    bytes_received_[sender] += bytes;
  } else if (stage_.is_server()) {
    bytes_from_workers_ += bytes;
    ++messages_;
  }
  return ReceivedMessage(new Message(std::move(delivery->message)));
}

}  // namespace syncopate
