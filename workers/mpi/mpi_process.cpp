#include "workers/mpi/mpi_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {
namespace {

using News = MpiPost::News;

MPI_Comm communicator_of(const MpiCluster::Options& options) {
  return options.communicator == MPI_COMM_NULL ? options.session.communicator() : options.communicator;
}

int ranks_of(const MpiCluster::Options& options) { return options.workers + options.servers; }

}  // namespace

MpiCluster::Process::Process(const Options& options)
    : options_(options),
      communicators_(communicator_of(options), ranks_of(options), options.workers),
      wait_rounds_(communicators_.waits()) {
  self_ = Rank{communicators_.rank()};
}

RunTotals MpiCluster::Process::run(const Program& work, const Program& serve) {
  try {
    start();
    try {
      if (is_worker()) work(self_);
      if (is_server() && serve) serve(self_);
    } catch (const NeverHeardOfAgain&) {
    }
    finish();
    return totals();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of unknown type");
  }
}

void MpiCluster::Process::start() {
  const int participants = ranks_of(options_);
  post_.emplace(communicators_.messages(), participants);
  mailbox_.emplace(*post_, options_.training);
  SpanRecorder* const recorder = is_worker() || is_server() ? spans() : nullptr;
  // What servers keep they know alone, and the workers' spans are elsewhere.
  if (recorder && options_.servers > 0) recorder->collect_fates();
  books_ = ByRank<Book>(options_.workers);
  for (const Rank worker : Ranks(options_.workers)) books_[worker] = Book(worker, start_time, recorder);
  emulation_ = {};
  cut_time_ = {};
  own_steps_.clear();
  staleness_.clear();
  end_ = start_time;
  closed_rows_.emplace(options_.observer);
  has_ended_ = is_lost_ = partial_used_ = false;
  outages_.reset();
  if (options_.outages && is_worker()) outages_ = options_.outages->of(self_);
  has_lost_state_ = false;
  workers_gone_told_ = 0;
  all_.emplace(Members{Rank{0}, options_.workers}, false);
  groups_.clear();
  kept_in_collectives_ = collectives_ = messages_ = partial_kept_ = next_round_ = 0;
  collective_bytes_ = sent_bytes_ = bytes_to_servers_ = bytes_from_workers_ = Bytes{0};
  bytes_told_.assign(participants, Bytes{0});
  bytes_received_.assign(participants, Bytes{0});
  results_.clear();
  partial_.reset();
  rounds_.reset();
  if (is_coordinator()) {
    ValueLayout layout;
    if (!options_.training.time_only())
      layout = {.parameters = options_.training.objective().parameters(),
                .buffers = options_.training.objective().buffers()};
    rounds_.emplace(options_.workers, layout);
  }
  clock_.restart(communicators_.common_start_ns(), recorder, self_);
}

// After its program a participant says so, and takes in what the others still send.
void MpiCluster::Process::finish() {
  if (!is_worker() && !is_server()) return;
  if (!is_lost_) {
    clock_.book(Activity::compute);
    end_ = clock_.booked();
  }
  has_ended_ = true;
  post_->announce(News::ended);
  // Until all workers have ended, worker 0 still sends the results of partial all-reduces.
  if (is_worker()) meet_at_the_end();
  post_->announce(News::closed);
  wait({}, [&] {
    for (const auto kind : {MpiPost::Kind::message, MpiPost::Kind::arrival})
      while (post_->take(kind)) continue;  // too late for anybody: neither kept nor read
    const int participants = ranks_of(options_);
    return post_->count_announced(News::closed, 0, participants) == participants - 1 && post_->nothing_under_way();
  });
}

void MpiCluster::Process::progress() {
  post_->progress();
  if (is_coordinator()) coordinate();
  if (is_worker()) take_partial_results();
  if (has_collectives_under_way()) advance_collectives();
}

bool MpiCluster::Process::has_ended(Rank worker) const {
  return worker == self_ ? has_ended_ : post_->has_announced(News::ended, worker);
}

// To the program a worker has left once there is nothing more to receive from it.
bool MpiCluster::Process::has_left(Rank worker) const {
  return has_ended(worker) && !post_->is_arriving(MpiPost::Kind::message, worker);
}

int MpiCluster::Process::workers_gone() const {
  int gone = 0;
  for (int worker = 0; worker < options_.workers; ++worker) gone += has_left(Rank{worker}) ? 1 : 0;
  return gone;
}

int MpiCluster::Process::workers_left() {
  progress();
  workers_gone_told_ = workers_gone();
  return options_.workers - workers_gone_told_;
}

bool MpiCluster::Process::servers_are_gone() const {
  return options_.servers > 0 && is_worker() &&
         post_->count_announced(News::ended, options_.workers, ranks_of(options_)) == options_.servers;
}

// Whether all other workers have ended, or never will.
bool MpiCluster::Process::others_are_through() const {
  for (int worker = 0; worker < options_.workers; ++worker) {
    const Rank rank{worker};
    if (rank != self_ && !has_ended(rank) && !post_->has_announced(News::lost, rank)) return false;
  }
  return true;
}

void MpiCluster::Process::fail(const std::string& what) {
  std::string role = is_worker() ? fmt::format("worker {}", self_.value) : is_server() ? "server" : "idle rank";
  const std::string text =
      fmt::format("{} after {:.6f} s (seed {}): {}", role, to_seconds(now()), options_.compute_time.seed(), what);
  if (options_.before_abort) options_.before_abort(text);
  options_.session.abort(text);
}

}  // namespace syncopate
