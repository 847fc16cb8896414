// Messages of an MPI rank, and who can still send any.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_process.hpp"

namespace syncopate {

using News = MpiPost::News;

// Each participant counts what it has sent, and tells so in its messages; a worker adds what it has got
// from other servers than the receiver, so that a server knows of all.
Bytes MpiCluster::Process::bytes_sent() const {
  Bytes bytes = collective_bytes_ + sent_bytes_;
  for (const Bytes told : bytes_told_) bytes += told;
  return bytes;
}

void MpiCluster::Process::send(Rank to, Message&& message) {
  if (to.value < 0 || to.value >= post_->participants())
    throw RunFailure(
        fmt::format("a message to rank {}, but there are ranks 0 to {}", to.value, post_->participants() - 1));
  clock_.book(Activity::compute);
  progress();
  message.from = self_;
  const Bytes bytes = message_bytes(message, options_.training.parameter_bytes());
  sent_bytes_ += bytes;
  if (is_worker() && to.value >= options_.workers)
    bytes_to_servers_ += bytes;
  else
    ++messages_;
  Bytes known = sent_bytes_;
  for (int server = options_.workers; is_worker() && server < post_->participants(); ++server)
    if (server != to.value) known += bytes_received_[Rank{server}];
  // What is sent to somebody who has ended is sent all the same, as far as the counts are concerned.
  if (to == self_ || !post_->has_announced(News::ended, to)) mailbox_->send(to, message, clock_.booked(), known);
  clock_.book(Activity::communicate, {"send"});
}

// Workers of a method with servers hear from nobody else once these have ended; servers only answer.
bool MpiCluster::Process::nobody_can_send(std::optional<Rank> from) const {
  if (post_->is_arriving(MpiPost::Kind::message, from)) return false;
  if (servers_are_gone()) return true;
  if (from) return *from != self_ && post_->has_announced(News::ended, *from);
  if (is_server()) return workers_gone() == options_.workers;
  const int participants = post_->participants();
  return post_->count_announced(News::ended, 0, participants) == participants - 1;
}

// Until the message was sent this is waiting, from then on communication.
ReceivedMessage MpiCluster::Process::receive(std::optional<Rank> from, Time until, const Place& place) {
  clock_.book(Activity::compute);
  std::optional<MpiMailbox::Delivery> delivery;
  wait(
      {.place = &place, .from = from},
      [&] {
        delivery = mailbox_->take(from);
        if (delivery || now() >= until) return true;
        const bool has_news = is_server() && workers_gone() > workers_gone_told_;
        return nobody_can_send(from) || (has_news && !post_->is_arriving(MpiPost::Kind::message, from));
      },
      until);
  if (!delivery) {
    workers_gone_told_ = workers_gone();
    clock_.book(Activity::wait, {"receive"});
    return nullptr;
  }
  clock_.book_until(Activity::wait, std::min(delivery->sent, now()), {"receive"});
  clock_.book(Activity::communicate, {"receive"});
  clock_.meet();
  const Message& message = delivery->message;
  const Rank sender = message.from;
  bytes_told_[sender] = delivery->bytes;
  const Bytes bytes = message_bytes(message, options_.training.parameter_bytes());
  if (message.from.value >= options_.workers) {
    bytes_received_[sender] += bytes;
  } else if (is_server()) {
    bytes_from_workers_ += bytes;
    ++messages_;
  }
  return ReceivedMessage(new Message(std::move(delivery->message)));
}

void MpiCluster::Process::keep(const Work& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(std::max<Step::Rep>(staleness.value(), 0));
  if (staleness_.size() <= steps) staleness_.resize(steps + 1);
  ++staleness_[steps];
  book_of(work.worker).keep(work);
}

void MpiCluster::Process::discard(const Work& work) { book_of(work.worker).lose(work.time); }

void MpiCluster::Process::finish_round(const Contribution& contribution) {
  clock_.book(Activity::compute);
  if (own_steps_.empty() || own_steps_.back().step != contribution.step) own_steps_.emplace_back();
  StepRow& row = own_steps_.back();
  clock_.book().contribute(contribution, row);
  row.end = clock_.booked();
  row.bytes = sent_bytes_;
  for (const Bytes received : bytes_received_) row.bytes += received;
}

}  // namespace syncopate
