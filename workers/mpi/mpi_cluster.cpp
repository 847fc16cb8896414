#include "workers/mpi/mpi_cluster.hpp"

#include <fmt/format.h>

#include <utility>

#include "workers/mpi/mpi_process.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

using News = MpiPost::News;

MpiStage::MpiStage(const MpiCluster::Options& given, MpiCommunicators& given_communicators)
    : options(given),
      communicators(given_communicators),
      self(given_communicators.rank()),
      post(communicators.messages(), participants()),
      rows(options.observer),
      bytes_told(participants(), Bytes{0}),
      books_(options.workers) {
  const bool takes_part = is_worker() || is_server();
  SpanRecorder* const spans = takes_part && options.record && options.record->spans ? &*options.record->spans : nullptr;
  // What servers keep they know alone, and the workers' spans are elsewhere.
  if (spans && options.servers > 0) spans->collect_fates();
  for (const Rank worker : workers()) books_[worker] = Book(worker, start_time, spans);
  clock.restart(communicators.common_start_ns(), spans, self);
}

std::string MpiStage::name_of(Rank rank) const {
  if (rank.value < options.workers) return fmt::format("worker {}", rank.value);
  return options.servers.name_of(rank, options.workers);
}

bool MpiStage::has_ended(Rank worker) const {
  return worker == self ? program_has_ended : post.has_announced(News::ended, worker);
}

bool MpiStage::servers_are_gone() const {
  return options.servers > 0 && is_worker() &&
         post.count_announced(News::ended, options.workers, participants()) == options.servers;
}

bool MpiStage::others_are_through() const {
  for (const Rank worker : workers())
    if (worker != self && !has_ended(worker) && !post.has_announced(News::lost, worker)) return false;
  return true;
}

void MpiStage::keep(StateArchive& archive) {
  Time row_begin = rows.begin();
  Bytes row_sent = rows.sent();
  archive(post, clock.book(), row_begin, row_sent, collective_bytes, sent_bytes, bytes_told, collectives, meetings,
          kept_in_collectives, kept_in_partial_sums, has_partial_sums, ending, program_end, program_has_ended, is_lost,
          books_);
  if (archive.reads()) rows = StepRows(options.observer, row_begin, row_sent);
}

Bytes MpiStage::bytes_sent() const {
  Bytes bytes = collective_bytes + sent_bytes;
  for (const Bytes told : bytes_told) bytes += told;
  return bytes;
}

using Call = MpiCourse::Call;

MpiCluster::MpiCluster(const Options& options) : process_(std::make_unique<Process>(options)) {}
MpiCluster::~MpiCluster() = default;

int MpiCluster::workers() const { return process_->options().workers; }
Servers MpiCluster::servers() const { return process_->options().servers; }
RunTotals MpiCluster::run(const Program& work, const Program& serve) {
  try {
    return process_->run(work, serve);
  } catch (const LeftAtCheckpoint&) {
    // What is under way never ends: MPI may still write to it, and no other communicator must get its messages.
    static_cast<void>(process_.release());
    throw;
  }
}
// What programs have been told in another process they are told again (MpiCourse); what they say then has been heard.
Time MpiCluster::now(Rank) const {
  auto& parts = process_->parts();
  return parts.course.answered<Time>(Call::now, [&] { return parts.stage.now(); });
}
Bytes MpiCluster::bytes_sent() const {
  auto& parts = process_->parts();
  return parts.course.answered<Bytes>(Call::bytes_sent, [&] { return parts.stage.bytes_sent(); });
}
int MpiCluster::workers_left(Rank) {
  auto& parts = process_->parts();
  return parts.course.answered<int>(Call::workers_left, [&] { return parts.mail.workers_left(); });
}
bool MpiCluster::has_left(Rank, Rank other) const {
  auto& parts = process_->parts();
  return parts.course.answered<bool>(Call::has_left, [&] { return parts.mail.has_left(other); });
}

std::optional<Gradient> MpiCluster::compute_gradient(Rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                     const MicroBatch& samples, const Deadline& deadline) {
  auto& parts = process_->parts();
  if (parts.course.replays(Call::compute)) {
    if (parts.course.comes(Call::never_heard_of_again)) {
      parts.course.told<bool>(Call::never_heard_of_again);
      throw MpiMicroBatches::NeverHeardOfAgain();
    }
    const auto outcome = parts.course.told<MpiMicroBatches::Outcome>(Call::compute);
    return parts.micro_batches.computed_before(at, samples, outcome);
  }
  parts.enter(Call::compute);
  try {
    auto gradient = parts.micro_batches.compute(at, slot, samples, deadline);
    parts.course.note(Call::compute, parts.micro_batches.outcome());
    return gradient;
  } catch (const MpiMicroBatches::NeverHeardOfAgain&) {
    parts.course.note(Call::never_heard_of_again, true);
    throw;
  }
}

bool MpiCluster::may_lose_state(Rank) const { return process_->parts().micro_batches.may_lose_state(); }
bool MpiCluster::has_lost_state(Rank) {
  auto& parts = process_->parts();
  return parts.course.answered<bool>(Call::has_lost_state, [&] { return parts.micro_batches.has_lost_state(); });
}

StartedCollective MpiCluster::start(Rank, Collective&& what, const Contribution& contribution, Place place) {
  return process_->parts().start(std::move(what), contribution, place, false);
}
CollectiveResult MpiCluster::finish(Rank, StartedCollective&& started, Place place) {
  return process_->parts().finish(std::move(started), place, false);
}
CollectiveResult MpiCluster::perform(Rank, Collective&& what, const Contribution& contribution, Place place) {
  auto& parts = process_->parts();
  return parts.finish(parts.start(std::move(what), contribution, place, true), place, true);
}

void MpiCluster::report_steps(Rank, const Contribution& contribution) {
  auto& parts = process_->parts();
  if (!parts.course.replays()) parts.totals.report_steps(contribution);
}
void MpiCluster::send(Rank, Rank to, Message&& message, Place) {
  auto& parts = process_->parts();
  if (!parts.course.replays()) parts.mail.send(to, std::move(message));
}
ReceivedMessage MpiCluster::receive(Rank, std::optional<Rank> from, Time until, Place place) {
  using Slip = std::optional<MpiMailbox::Slip>;
  auto& parts = process_->parts();
  if (parts.course.replays(Call::receive)) {
    Slip slip = parts.course.told<Slip>(Call::receive);
    return slip ? parts.mail.received_before(std::move(*slip)) : nullptr;
  }
  parts.enter(Call::receive);
  ReceivedMessage message = parts.mail.receive(from, until, place);
  if (parts.course.is_kept()) parts.course.note(Call::receive, message ? Slip(parts.mail.last_slip()) : Slip());
  return message;
}
void MpiCluster::discard(Rank, const Work& work) {
  auto& parts = process_->parts();
  if (!parts.course.replays()) parts.stage.book_of(work.worker).lose(work.time);
}
void MpiCluster::keep(Rank, const Work& work, Step staleness) {
  auto& parts = process_->parts();
  if (!parts.course.replays()) parts.totals.keep(work, staleness);
}

}  // namespace syncopate
