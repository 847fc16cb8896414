#include "workers/mpi/mpi_process.hpp"

#include <fmt/format.h>

#include <exception>

#include "workers/mpi/mpi_record.hpp"

namespace syncopate {
namespace {

using News = MpiPost::News;

MPI_Comm communicator_of(const MpiCluster::Options& options) {
  return options.communicator == MPI_COMM_NULL ? options.session.communicator() : options.communicator;
}

}  // namespace

MpiCluster::Process::Process(const Options& options)
    : options_(options),
      communicators_(communicator_of(options), options.workers + options.servers, options.workers),
      wait_rounds_(communicators_.waits()) {}

MpiCluster::Process::Run::Run(const Options& options, MpiCommunicators& communicators, MpiWaitRounds& rounds)
    : stage(options, communicators),
      waiting(stage, rounds, [this] { progress(); }),
      collectives(stage, waiting),
      partial_sums(stage, waiting),
      mail(stage, waiting),
      micro_batches(stage, waiting, collectives, partial_sums, mail),
      totals(stage, waiting, rounds, mail, partial_sums, micro_batches) {}

void MpiCluster::Process::Run::progress() {
  stage.post.progress();
  partial_sums.progress();
  if (collectives.are_under_way()) collectives.advance_all();
}

RunTotals MpiCluster::Process::run(const Program& work, const Program& serve) {
  try {
    run_.emplace(options_, communicators_, wait_rounds_);
    const MpiStage& stage = run_->stage;
    try {
      if (stage.is_worker()) work(stage.self);
      if (stage.is_server() && serve) serve(stage.self);
    } catch (const MpiMicroBatches::NeverHeardOfAgain&) {
    }
    const Time end = finish();
    RunTotals totals = run_->totals.add_up(end);
    if (options_.record) gather_record(stage, run_->totals.cut_time(), run_->partial_sums);
    return totals;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of unknown type");
  }
}

// After its program a participant says so, and takes in what the others still send. When the program has ended.
Time MpiCluster::Process::finish() {
  MpiStage& stage = run_->stage;
  if (!stage.is_worker() && !stage.is_server()) return start_time;
  Time end = start_time;
  if (!stage.is_lost) {
    stage.clock.book(Activity::compute);
    end = stage.clock.booked();
  }
  stage.program_has_ended = true;
  stage.post.announce(News::ended);
  // Until all workers have ended, worker 0 still sends the results of partial all-reduces.
  if (stage.is_worker()) run_->collectives.meet_at_the_end();
  stage.post.announce(News::closed);
  run_->waiting.wait({}, [&] {
    for (const auto kind : {MpiPost::Kind::message, MpiPost::Kind::arrival})
      while (stage.post.take(kind)) continue;  // too late for anybody: neither kept nor read
    const int participants = stage.participants();
    return stage.post.count_announced(News::closed, 0, participants) == participants - 1 &&
           stage.post.nothing_under_way();
  });
  return end;
}

void MpiCluster::Process::fail(const std::string& what) {
  const Rank self{communicators_.rank()};
  const bool is_worker = self.value < options_.workers, is_idle = self.value >= options_.workers + options_.servers;
  const std::string role = is_worker ? fmt::format("worker {}", self.value) : is_idle ? "idle rank" : "server";
  const Time now = run_ ? run_->stage.now() : start_time;
  const std::string text =
      fmt::format("{} after {:.6f} s (seed {}): {}", role, to_seconds(now), options_.compute_time.seed(), what);
  if (options_.before_abort) options_.before_abort(text);
  options_.session.abort(text);
}

}  // namespace syncopate
