#include "workers/mpi/mpi_process.hpp"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_record.hpp"
#include "workers/mpi/mpi_wait.hpp"
#include "workers/training/state_archive.hpp"

namespace syncopate {
namespace {

using News = MpiPost::News;

MPI_Comm communicator_of(const MpiCluster::Options& options) {
  return options.communicator == MPI_COMM_NULL ? options.session.communicator() : options.communicator;
}

MpiCluster::Options with_observer(MpiCluster::Options options, RunObserver& observer) {
  if (options.observer && options.store) options.observer = &observer;
  return options;
}

}  // namespace

MpiCluster::Process::Process(const Options& options)
    : options_(options),
      communicators_(communicator_of(options), options.workers + options.servers, options.workers,
                     options.store != nullptr),
      wait_rounds_(communicators_.waits()) {}

MpiCluster::Process::Run::Run(const Options& given, MpiCommunicators& communicators, MpiWaitRounds& rounds)
    : course(given.store ? CourseLog::here() : nullptr, given.observer),
      noted_rows(course, given.observer),
      options(with_observer(given, noted_rows)),
      stage(options, communicators),
      waiting(
          stage, rounds, [this] { progress(); }, [this] { checkpoints.look(); }),
      collectives(stage, waiting),
      partial_sums(stage, waiting),
      mail(stage, waiting),
      micro_batches(stage, waiting, collectives, partial_sums, mail),
      totals(stage, waiting, rounds, mail, partial_sums, micro_batches),
      checkpoints(stage, collectives, [this](ByteSink& out, Time at) { write_checkpoint(out, at); }) {}

void MpiCluster::Process::Run::progress() {
  stage.post.progress();
  partial_sums.progress();
  if (collectives.are_under_way()) collectives.advance_all();
}

void MpiCluster::Process::Run::enter(MpiCourse::Call call) {
  if (!course.is_kept()) return;
  if (course.enter(call)) checkpoints.look();
  course.wait();
}

StartedCollective MpiCluster::Process::Run::start(Collective&& what, const Contribution& contribution, Place place,
                                                  bool blocks) {
  using Call = MpiCourse::Call;
  const bool is_partial = what.kind == Collective::Kind::partial_all_reduce;
  if (course.replays(Call::start)) {
    const auto number = course.told<std::int64_t>(Call::start);
    if (is_partial) return {what.kind, std::nullopt, number, contribution.step};
    return collectives.started_before(std::move(what), contribution.step);
  }
  enter(Call::start);
  StartedCollective started = is_partial ? blocks ? partial_sums.begin(std::move(what), contribution)
                                                  : partial_sums.start(std::move(what), contribution, place)
                              : blocks ? collectives.arrive(std::move(what), true, contribution, place)
                                         : collectives.start(std::move(what), contribution, place);
  course.note(Call::start, started.number);
  return started;
}

CollectiveResult MpiCluster::Process::Run::finish(StartedCollective&& started, Place place, bool blocks) {
  using Call = MpiCourse::Call;
  using Told = std::vector<MpiPartialSums::Told>;
  const bool is_partial = started.kind == Collective::Kind::partial_all_reduce;
  if (course.replays(Call::finish)) {
    if (is_partial) return partial_sums.finished_before(course.told<Told>(Call::finish));
    return collectives.finished_before(std::move(started), course.told<MpiCollectives::Finished>(Call::finish));
  }
  enter(Call::finish);
  CollectiveResult result;
  if (!is_partial) {
    result = collectives.finish(std::move(started), place);
    course.note(Call::finish, collectives.last_finished());
  } else {
    result = blocks ? partial_sums.wait_for_result(place) : partial_sums.finish(place);
    course.note(Call::finish, partial_sums.last_told());
  }
  return result;
}

void MpiCluster::Process::Run::keep(StateArchive& archive) {
  archive(stage, collectives, partial_sums, mail, micro_batches, totals);
  if (options.record) keep_record(archive, stage);
}

// Values come last: what the parts hold of the program's must be in its place before.
void MpiCluster::Process::Run::write_checkpoint(ByteSink& out, Time at) {
  course.write(out);
  StateArchive archive(out);
  archive(at);
  options.store->keep(archive);
  archive(*this);
  CourseLog::here()->write_values(out, course.position().values);
}

RunTotals MpiCluster::Process::run(const Program& work, const Program& serve) {
  try {
    run_ = std::make_unique<Run>(options_, communicators_, wait_rounds_);
    const MpiStage& stage = run_->stage;
    if (options_.store && options_.store->goes_on()) {
      run_->course.at_end = [this] { take_up(); };
      if (stage.is_worker() || stage.is_server())
        follow(options_.store->part());
      else
        take_up();
    }
    try {
      if (stage.is_worker()) work(stage.self);
      if (stage.is_server() && serve) serve(stage.self);
    } catch (const MpiMicroBatches::NeverHeardOfAgain&) {
    }
    finish();
    RunTotals totals = run_->totals.add_up(stage.program_end);
    if (options_.record) gather_record(stage, run_->totals.cut_time(), run_->partial_sums);
    return totals;
  } catch (const AnotherCourse& other) {
    if (run_ && run_->course.replays() && !has_agreed_) agree_to_go_on(other.what());
    throw;
  } catch (const LeftAtCheckpoint&) {
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of unknown type");
  }
}

void MpiCluster::Process::follow(ByteSource& course) {
  try {
    run_->course.follow(course);
  } catch (const std::exception& fault) {
    agree_to_go_on(fault.what());
  }
}

// All that programs hold is there, but for its values.
void MpiCluster::Process::take_up() {
  std::string problem;
  Time at{};
  if (run_->course.replays()) {
    try {
      ByteSource& in = options_.store->part();
      StateArchive archive(in);
      archive(at);
      options_.store->keep(archive);
      archive(*run_);
      CourseLog::here()->read_values(in);
    } catch (const std::exception& fault) {
      problem = fault.what();
    }
  }
  agree_to_go_on(problem);
  if (run_->course.replays()) CourseLog::here()->end_replay();
  MpiStage& stage = run_->stage;
  const bool is_inside = run_->course.replays() && run_->course.position().is_inside;
  stage.clock.go_on_from(communicators_.common_start_ns() - at.time_since_epoch().count(), is_inside);
  run_->collectives.go_on();
  options_.store->gone_on();
}

// Collective over all ranks: none goes on where one cannot. Throws AnotherCourse then.
void MpiCluster::Process::agree_to_go_on(const std::string& problem) {
  using Text = std::array<char, 256>;
  has_agreed_ = true;
  Text own{};
  problem.copy(own.data(), own.size() - 1);
  const MPI_Comm everyone = communicators_.everyone();
  int ranks = 0;
  MPI_Comm_size(everyone, &ranks);
  std::vector<Text> all(static_cast<std::size_t>(ranks));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), sizeof(Text), MPI_BYTE, all.data(), sizeof(Text), MPI_BYTE, everyone, &request);
  wait_politely(communicators_.cores_suffice(), [&request] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  for (int rank = 0; rank < ranks; ++rank)
    if (const char* const text = all[static_cast<std::size_t>(rank)].data(); *text != '\0')
      throw AnotherCourse(fmt::format("rank {}: {}", rank, text));
}

// After its program a participant says so, and takes in what the others still send.
void MpiCluster::Process::finish() {
  using Ending = MpiStage::Ending;
  MpiStage& stage = run_->stage;
  if (!stage.is_worker() && !stage.is_server()) return;
  if (run_->course.replays(MpiCourse::Call::end)) throw AnotherCourse("it ends before the call that it had come to");
  run_->enter(MpiCourse::Call::end);
  if (stage.ending == Ending::none) {
    if (!stage.is_lost) {
      stage.clock.book(Activity::compute);
      stage.program_end = stage.clock.booked();
    }
    stage.program_has_ended = true;
    stage.post.announce(News::ended);
    stage.ending = Ending::announced;
  }
  // Until all workers have ended, worker 0 still sends the results of partial all-reduces.
  if (stage.is_worker() && stage.ending != Ending::closed) run_->collectives.meet_at_the_end();
  if (stage.ending != Ending::closed) stage.post.announce(News::closed);
  stage.ending = Ending::closed;
  run_->waiting.wait({}, [&] {
    for (const auto kind : {MpiPost::Kind::message, MpiPost::Kind::arrival})
      while (stage.post.take(kind)) continue;  // too late for anybody: neither kept nor read
    const int participants = stage.participants();
    return stage.post.count_announced(News::closed, 0, participants) == participants - 1 &&
           stage.post.nothing_under_way();
  });
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
