#include "workers/mpi/mpi_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "workers/interrupt.hpp"
#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {
namespace {

MPI_Comm communicator_of(const MpiCluster::Options& options) {
  return options.communicator == MPI_COMM_NULL ? options.session.communicator() : options.communicator;
}

int ranks_of(const MpiCluster::Options& options) { return options.workers + (options.has_server ? 1 : 0); }

// Sums (or maxima) over all ranks, politely: idle ranks wait here for the whole run.
void reduce_politely(std::vector<std::int64_t>& values, MPI_Op operation, MPI_Comm everyone, bool cores_suffice) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T, operation, everyone,
                 &request);
  wait_politely(cores_suffice, [&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

}  // namespace

MpiCluster::Process::Process(const Options& options)
    : options_(options), communicators_(communicator_of(options), ranks_of(options), options.workers) {
  self_ = Rank{communicators_.rank()};
}

RunTotals MpiCluster::Process::run(const Program& work, const Program& serve) {
  try {
    start();
    if (is_worker()) work(self_);
    if (is_server() && serve) serve(self_);
    finish();
    return totals();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of unknown type");
  }
}

void MpiCluster::Process::start() {
  mailbox_.emplace(communicators_.messages(), ranks_of(options_), options_.training);
  tallies_.assign(static_cast<std::size_t>(options_.workers), {});
  kept_in_collectives_ = collectives_ = messages_ = 0;
  collective_bytes_ = sent_bytes_ = received_bytes_ = bytes_at_last_round_ = Bytes{0};
  last_round_end_ = start_time;
  clock_.restart(communicators_.common_start_ns());
}

// After its program a participant says so, and takes in what the others still send.
void MpiCluster::Process::finish() {
  if (!is_worker() && !is_server()) return;
  clock_.book(Activity::compute);
  end_ = clock_.booked();
  mailbox_->announce_end();
  if (is_worker()) meet({.operation = Collective::end}, {}, {});
  wait_politely(communicators_.cores_suffice(), [&] {
    mailbox_->progress();
    while (mailbox_->take()) continue;  // too late for anybody: neither kept nor read
    return mailbox_->all_others_ended() && mailbox_->nothing_under_way();
  });
}

// T: the server's end, or the end of the last worker. Idle ranks wait here for the whole run.
Time MpiCluster::Process::agree_on_end() {
  const bool counts = options_.has_server ? is_server() : is_worker();
  std::vector<std::int64_t> end = {counts ? end_.time_since_epoch().count() : 0};
  reduce_politely(end, MPI_MAX, communicators_.everyone(), communicators_.cores_suffice());
  return Time{Duration{end.front()}};
}

RunTotals MpiCluster::Process::totals() {
  const Time end = agree_on_end();
  clock_.close(end);
  std::vector<std::int64_t> sums;
  for (int worker = 0; worker < options_.workers; ++worker) {
    const Tally& known = tally(Rank{worker});
    for (const Duration time : clock_.account().time) sums.push_back(worker == self_.value ? time.count() : 0);
    sums.insert(sums.end(), {known.kept, known.dropped, known.computed, known.computed_ns, known.kept_ns});
  }
  const bool counts_collectives = self_.value == 0;
  sums.insert(sums.end(), {sent_bytes_.value() + (counts_collectives ? collective_bytes_.value() : 0),
                           counts_collectives ? collectives_ : 0, messages_});
  reduce_politely(sums, MPI_SUM, communicators_.everyone(), communicators_.cores_suffice());
  RunTotals totals = read_totals(sums);
  totals.end = end;
  return totals;
}

RunTotals MpiCluster::Process::read_totals(std::span<const std::int64_t> sums) const {
  RunTotals totals;
  auto next = sums.begin();
  for (int worker = 0; worker < options_.workers; ++worker) {
    Account account;
    for (Duration& time : account.time) time = Duration{*next++};
    const std::int64_t kept = *next++, dropped = *next++, computed = *next++, computed_ns = *next++, kept_ns = *next++;
    if (options_.has_server) {  // what was computed and not kept
      const Duration lost = std::clamp(Duration{computed_ns - kept_ns}, Duration{0}, account[Activity::compute]);
      account[Activity::compute] -= lost;
      account[Activity::discarded] += lost;
    }
    totals.accounts.push_back(account);
    totals.kept.push_back(kept);
    totals.dropped.push_back(options_.has_server ? computed - kept : dropped);
  }
  totals.bytes = Bytes{*next++};
  totals.collectives = *next++;
  totals.messages = *next++;
  return totals;
}

void MpiCluster::Process::fail(const std::string& what) {
  std::string role = is_worker() ? fmt::format("worker {}", self_.value) : is_server() ? "server" : "idle rank";
  const std::string text =
      fmt::format("{} after {:.6f} s (seed {}): {}", role, to_seconds(now()), options_.compute_time.seed(), what);
  if (options_.before_abort) options_.before_abort(text);
  options_.session.abort(text);
}

bool MpiCluster::Process::server_is_gone() const {
  return options_.has_server && is_worker() && mailbox_->has_ended(Rank{options_.workers});
}

bool MpiCluster::Process::nobody_can_send() const { return server_is_gone() || mailbox_->all_others_ended(); }

void MpiCluster::Process::send(Rank to, Message message) {
  if (to.value < 0 || to.value >= ranks_of(options_))
    throw RunFailure(
        fmt::format("a message to rank {}, but there are ranks 0 to {}", to.value, ranks_of(options_) - 1));
  clock_.book(Activity::compute);
  mailbox_->progress();
  message.from = self_;
  // What is sent to somebody who has ended is sent all the same, as far as the counts are concerned.
  if (!mailbox_->has_ended(to)) mailbox_->send(to, message, clock_.booked());
  sent_bytes_ += options_.training.parameter_bytes();
  ++messages_;
  clock_.book(Activity::communicate);
}

// Until the message was sent this is waiting, from then on communication.
std::optional<Message> MpiCluster::Process::receive(Time until) {
  clock_.book(Activity::compute);
  std::optional<MpiMailbox::Delivery> delivery;
  const auto arrived_or_in_vain = [&] {
    mailbox_->progress();
    delivery = mailbox_->take();
    return delivery || now() >= until || (nobody_can_send() && mailbox_->inbox_empty());
  };
  wait_politely(communicators_.cores_suffice(), arrived_or_in_vain, clock_.to_monotonic_ns(until));
  if (!delivery) {
    clock_.book(Activity::wait);
    return std::nullopt;
  }
  clock_.book_until(Activity::wait, std::min(delivery->sent, now()));
  clock_.book(Activity::communicate);
  received_bytes_ += options_.training.parameter_bytes();
  return std::move(delivery->message);
}

void MpiCluster::Process::keep(const Message& message) {
  Tally& sender = tally(message.from);
  sender.kept += message.gradient.micro_batches();
  sender.kept_ns += message.gradient.compute_time().count();
}

}  // namespace syncopate
