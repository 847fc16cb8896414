#include "workers/mpi/mpi_stage.hpp"

#include <fmt/format.h>

#include "workers/training/state_archive.hpp"

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

}  // namespace syncopate
