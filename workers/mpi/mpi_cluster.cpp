#include "workers/mpi/mpi_cluster.hpp"

#include <fmt/format.h>

#include <array>
#include <exception>

#include "workers/mpi/mpi_process.hpp"

namespace syncopate {

namespace {

using Call = MpiCourse::Call;
using News = MpiPost::News;

MpiCluster::Options with_observer(MpiCluster::Options options, RunObserver& observer) {
  if (options.observer && options.store) options.observer = &observer;
  return options;
}

}  // namespace

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
  // Servers alone know what they keep, but the workers' spans are in other processes.
  if (spans && options.servers > 0) spans->collect_fates();
  for (const Rank worker : workers()) books_[worker] = Book(worker, start_time, spans);
  clock.restart(communicators.common_start_ns(), spans, self);
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

class MpiCluster::Process {
 public:
  explicit Process(const Options& options);

  RunTotals run(const Program& work, const Program& serve);

  // The parts of a run, made anew for each.
  struct Run {
    Run(const Options& given, MpiCommunicators& communicators, MpiWaitRounds& rounds);

    MpiCourse course;
    NotedRows noted_rows;
    Options options;
    MpiStage stage;
    MpiWaiting waiting;
    MpiCollectives collectives;
    MpiPartialSums partial_sums;
    MpiMail mail;
    MpiMicroBatches micro_batches;
    MpiTotals totals;
    MpiCheckpoints checkpoints;

    // Begins a call that may wait and is not answered from the course.
    void enter(MpiCourse::Call call) {
      if (!course.is_kept()) return;
      if (course.enter(call)) checkpoints.look();
      course.wait();
    }
    // Collectives of any kind; `blocks`: both at once (Cluster::perform).
    StartedCollective start(Collective&& what, const Contribution& contribution, Place place, bool blocks);
    CollectiveResult finish(StartedCollective&& started, Place place, bool blocks);
    void keep(StateArchive& archive) {
      archive(stage, collectives, partial_sums, mail, micro_batches, totals);
      if (options.record) keep_record(archive, stage);
    }

   private:
    void progress() {
      stage.post.progress();
      partial_sums.progress();
      if (collectives.are_under_way()) collectives.advance_all();
    }
    // Values come last: reading them needs the parts' values of the program in their places.
    void write_checkpoint(ByteSink& out, Time at) {
      course.write(out);
      StateArchive archive(out);
      archive(at);
      options.store->keep(archive);
      archive(*this);
      CourseLog::here()->write_values(out, course.position().values);
    }
  };
  const Options& options() const { return options_; }
  Run& parts() { return *run_; }

 private:
  void finish();
  void follow(ByteSource& course);
  void take_up();
  void agree_to_go_on(const std::string& problem);
  [[noreturn]] void fail(const std::string& what);

  Options options_;
  MpiCommunicators communicators_;
  MpiWaitRounds wait_rounds_;
  std::unique_ptr<Run> run_;
  bool has_agreed_ = false;
};

MpiCluster::Process::Process(const Options& options)
    : options_(options),
      communicators_(options.communicator == MPI_COMM_NULL ? options.session.communicator() : options.communicator,
                     options.workers + options.servers, options.workers, options.store != nullptr),
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

StartedCollective MpiCluster::Process::Run::start(Collective&& what, const Contribution& contribution, Place place,
                                                  bool blocks) {
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

// Reads the checkpoint at the end of the replay, when all that programs hold is there, but for its values.
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

// Collective over all ranks: none goes on if one cannot. Throws AnotherCourse then.
void MpiCluster::Process::agree_to_go_on(const std::string& problem) {
  using Text = std::array<char, 256>;
  has_agreed_ = true;
  Text own{};
  problem.copy(own.data(), own.size() - 1);
  const MPI_Comm everyone = communicators_.everyone();
  std::vector<Text> all(static_cast<std::size_t>(ranks_of(everyone)));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), sizeof(Text), MPI_BYTE, all.data(), sizeof(Text), MPI_BYTE, everyone, &request);
  wait_politely_for(request, communicators_.cores_suffice());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (const char* const text = all[rank].data(); *text != '\0')
      throw AnotherCourse(fmt::format("rank {}: {}", rank, text));
}

// After its program a participant announces its end, and takes in what the others still send.
void MpiCluster::Process::finish() {
  using Ending = MpiStage::Ending;
  MpiStage& stage = run_->stage;
  if (!stage.is_worker() && !stage.is_server()) return;
  if (run_->course.replays(Call::end)) throw AnotherCourse("it ends before the call that it had come to");
  run_->enter(Call::end);
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

MpiCluster::MpiCluster(const Options& options) : process_(std::make_unique<Process>(options)) {}
MpiCluster::~MpiCluster() = default;

int MpiCluster::workers() const { return process_->options().workers; }
Servers MpiCluster::servers() const { return process_->options().servers; }
RunTotals MpiCluster::run(const Program& work, const Program& serve) {
  try {
    return process_->run(work, serve);
  } catch (const LeftAtCheckpoint&) {
    // Requests under way never end: MPI may still write to them, and no other communicator must get their messages.
    static_cast<void>(process_.release());
    throw;
  }
}

// While the course is replayed (MpiCourse), the calls below answer programs from it and ignore what programs say.
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
  using Slip = std::optional<MpiMail::Slip>;
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
