#include "workers/mpi/mpi_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_work.hpp"

namespace syncopate {

MpiRunState::MpiRunState(const MpiOptions& given, RunObserver* gets_rows)
    : options(given),
      communicators(options.session.communicator(), participants(), options.workers, options.store != nullptr),
      self(communicators.rank()),
      transport(communicators.messages(), participants()),
      spans(takes_part() && options.record && options.record->spans ? &*options.record->spans : nullptr),
      clock(spans, self),
      rows(gets_rows),
      bytes_reported(participants(), Bytes{0}),
      books_(options.workers) {
  // Only servers know which gradients they keep, but the workers' spans are in other processes, so fates are collected.
  if (spans && options.servers > 0) spans->collect_fates();
  for (const Rank worker : workers()) books_[worker] = Book(worker, start_time, spans);
}

bool MpiRunState::others_are_through() const {
  for (const Rank worker : workers())
    if (worker != self && !has_ended(worker) && !transport.has_announced(MpiTransport::Announcement::lost, worker))
      return false;
  return true;
}

void MpiRunState::keep(const BookedTime& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(std::max<Step::Rep>(staleness.value(), 0));
  if (staleness_counts.size() <= steps) staleness_counts.resize(steps + 1);
  ++staleness_counts[steps];
  book_of(work.worker).keep(work);
}

void MpiRunState::report_steps(const Contribution& contribution, Bytes bytes) {
  clock.book(Activity::compute);
  if (own_steps.empty() || own_steps.back().step != contribution.step) own_steps.emplace_back();
  StepRow& row = own_steps.back();
  clock.book().contribute(contribution, row);
  row.end = clock.booked();
  row.bytes = bytes;
}

void MpiRunState::serialise(StateArchive& archive) {
  archive(transport, clock.book(), rows, collective_bytes, sent_bytes, bytes_reported, collectives, collectives_of_all,
          kept_in_collectives, kept_in_partial_sums, has_partial_sums, ending, program_end, program_has_ended, is_lost,
          books_);
}

namespace {

using Announcement = MpiTransport::Announcement;

// Log of everything the cluster returned to this rank's program, call by call, a few bytes each. Gradients and models
// appear by their numbers (CheckpointLog), not their values. A restarted process replays the log: it answers the
// program's calls from the log, without arithmetic, waiting or communication, until the call at which the ranks
// stopped. There the state of the run is read from the checkpoint, and that call continues.
class MpiReplayLog final : public RunObserver {
 public:
  // A call of Cluster, or an event between calls.
  enum class Call : std::uint8_t {
    now,
    has_left,
    workers_left,
    has_lost_state,
    bytes_sent,
    compute,
    start,  // starts a collective, even if the worker waits for its result in the same call
    finish,
    has_ended,
    receive,
    endless_micro_batch,  // ends a program (MpiMicroBatches::EndlessMicroBatch)
    row,                  // not a call: a row of steps.csv, for the observer
    end,                  // not a call: the end of the program
  };

  // The call at which a rank stopped.
  struct Position {
    Call call{};
    bool is_inside = false;    // whether the call had begun to wait when the rank stopped
    std::uint64_t values = 0;  // number of values created before the call began
  };

  // `log`: null if nothing is logged. `observer`: gets logged rows again during a replay; may be null.
  MpiReplayLog(CheckpointLog* log, RunObserver* observer) : log_(log), observer_(observer) {}
  MpiReplayLog(const MpiReplayLog&) = delete;
  MpiReplayLog& operator=(const MpiReplayLog&) = delete;

  bool is_kept() const { return log_ != nullptr; }
  bool replays() const { return replays_; }

  // Whether this call is answered from the log. At the end of the log it calls `at_end` and ends the replay.
  bool replays(Call call) {
    if (!replays_) return false;
    replay_rows();
    if (!calls_.is_through()) return true;
    if (call != position_.call)
      throw ReplayMismatch("the method comes to another call than the one at which the checkpoint was written");
    at_end();
    replays_ = false;
    has_just_resumed_ = true;
    return false;
  }

  std::function<void()> at_end;
  // Returns the logged answer to the next call.
  template <typename Answer>
  Answer next_answer(Call call) {
    if (next() != call) throw ReplayMismatch("the method makes another call than before the checkpoint");
    ++calls_.next;
    Answer answer{};
    StateArchive(calls_.source())(answer);
    return answer;
  }

  bool next_is(Call call) const { return replays_ && !calls_.is_through() && next() == call; }

  // Logs the answer that a call gets now.
  template <typename Answer>
  void record(Call call, const Answer& answer) {
    if (!is_kept()) return;
    calls_.bytes.push_back(static_cast<char>(call));
    Answer written = answer;
    StateArchive(calls_.sink())(written);
  }

  template <typename Answer, typename Ask>
  Answer answered(Call call, const Ask& ask) {
    if (replays(call)) return next_answer<Answer>(call);
    const Answer answer = ask();
    record(call, answer);
    return answer;
  }

  // Begins a call that may wait, at which a rank may stop: calls `stop`, unless the run has resumed inside this call.
  template <typename Stop>
  void enter(Call call, const Stop& stop) {
    if (!is_kept()) return;
    if (!std::exchange(has_just_resumed_, false))
      position_ = {.call = call, .is_inside = false, .values = log_->last_number()};
    if (!position_.is_inside) stop();
    position_.is_inside = true;
  }

  const Position& position() const { return position_; }

  void write(ByteSink& out) {
    log_->write_log(out, position_.values);
    StateArchive archive(out);
    archive(position_, calls_.bytes);
  }

  // Starts a replay of the log in `in`. Call it at the beginning of the run.
  void follow(ByteSource& in) {
    log_->follow(in);
    StateArchive archive(in);
    archive(position_, calls_.bytes);
    calls_.next = 0;
    replays_ = true;
  }

  // Logs a row and passes it to the observer. A replay repeats the other calls of the observer, so they are not logged.
  void on_row(const StepRow& row) override {
    record(Call::row, row);
    observer_->on_row(row);
  }
  void on_publish(const Publication&) override {}

 private:
  Call next() const { return static_cast<Call>(calls_.bytes[calls_.next]); }
  void replay_rows() {
    while (!calls_.is_through() && next() == Call::row) {
      const auto row = next_answer<StepRow>(Call::row);
      if (observer_) observer_->on_row(row);
    }
  }

  CheckpointLog* log_;
  RunObserver* observer_;
  StoredBytes calls_;  // each call is followed by its answer
  bool replays_ = false;
  bool has_just_resumed_ = false;
  Position position_;
};

using Call = MpiReplayLog::Call;

// The parts of a run, and the stops of all ranks for checkpoints.
//
// Rank 0 asks its store whether a checkpoint is due, and announces it. The other ranks notice the announcement at the
// start of their next call that may wait, in a wait or in a sleep. They stop there, even if they wait for another rank.
// Stopped ranks send no new messages:
// - Ranks receive until each rank has every frame that was sent to it.
// - Collectives that all members have entered are finished. For the other collectives each rank saves its contribution.
// - Each rank writes its part. The run continues once all parts are written. Clocks stand still until then.
struct MpiRun {
  explicit MpiRun(const MpiOptions& given)
      : replay_log(given.store ? CheckpointLog::here() : nullptr, given.observer),
        state(given, given.observer ? &replay_log : nullptr),
        waiting(
            state, [this] { progress(); }, [this] { stop_if_called(); }),
        collectives(state, waiting),
        partial_sums(state, waiting),
        messages(state, waiting),
        micro_batches(state, waiting, collectives, partial_sums, messages) {}

  MpiReplayLog replay_log;
  MpiRunState state;
  MpiWaiting waiting;
  MpiCollectives collectives;
  MpiPartialSums partial_sums;
  MpiMessages messages;
  MpiMicroBatches micro_batches;

  // Begins a call that may wait and whose answer is not in the log.
  void enter(Call call) {
    replay_log.enter(call, [this] { stop_if_called(); });
  }

  // Start and finish a collective of any kind. `blocks`: the worker does both in one call (Cluster::perform).
  StartedCollective start(Collective&& what, const Contribution& contribution, Place place, bool blocks) {
    const bool is_partial = what.kind == Collective::Kind::partial_all_reduce;
    if (replay_log.replays(Call::start)) {
      const auto number = replay_log.next_answer<std::int64_t>(Call::start);
      if (is_partial) return {what.kind, std::nullopt, number, contribution.step};
      return collectives.started_before(std::move(what), contribution.step);
    }
    enter(Call::start);
    StartedCollective started = is_partial ? partial_sums.start(std::move(what), contribution, place, blocks)
                                           : collectives.start(std::move(what), contribution, place, blocks);
    replay_log.record(Call::start, started.number);
    return started;
  }

  CollectiveResult finish(StartedCollective&& started, Place place, bool blocks) {
    using Outcomes = std::vector<PartialOutcome>;
    const bool is_partial = started.kind == Collective::Kind::partial_all_reduce;
    if (replay_log.replays(Call::finish)) {
      if (is_partial) return partial_sums.finished_before(replay_log.next_answer<Outcomes>(Call::finish));
      return collectives.finished_before(std::move(started),
                                         replay_log.next_answer<MpiCollectives::Finished>(Call::finish));
    }
    enter(Call::finish);
    CollectiveResult result;
    if (!is_partial) {
      result = collectives.finish(std::move(started), place);
      replay_log.record(Call::finish, collectives.last_finished());
    } else {
      result = partial_sums.finish(place, blocks);
      replay_log.record(Call::finish, partial_sums.last_outcome());
    }
    return result;
  }

  void serialise(StateArchive& archive) {
    archive(state, collectives, partial_sums, messages, micro_batches, state.own_steps, state.staleness_counts);
    if (state.options.record) serialise_record(archive, state);
  }

 private:
  void progress() {
    state.transport.progress();
    partial_sums.progress();
    if (collectives.are_under_way()) collectives.advance_all();
  }

  // Call it repeatedly wherever a rank may stop; it is cheap. Throws LeftAtCheckpoint if the run ends at a checkpoint.
  void stop_if_called() {
    if (!state.options.store || monotonic_ns() < next_look_ns_) return;
    constexpr std::int64_t look_every_ns = 1'000'000;
    next_look_ns_ = monotonic_ns() + look_every_ns;
    if (const auto number = called_for()) stop(*number);
  }

  // Once rank 0 has announced `closed`, it calls for no more checkpoints, because other ranks may leave then.
  std::optional<std::int64_t> called_for() {
    constexpr auto call = Announcement::checkpoint;
    if (state.self != Rank{0}) {
      state.transport.progress();
      return state.transport.take_announced(call, Rank{0});
    }
    if (state.ending == MpiRunState::Ending::closed) return std::nullopt;
    const auto number = state.options.store->due();
    if (number) state.transport.announce(call, *number);
    return number;
  }

  void stop(std::int64_t number) {
    std::vector<std::int64_t> clock_and_sent = {state.now().time_since_epoch().count()};
    clock_and_sent.insert(clock_and_sent.end(), state.transport.sent_to().begin(), state.transport.sent_to().end());
    const std::vector<std::int64_t> of_all = gather(clock_and_sent, true);
    Time at{};                              // latest time of any rank's clock
    std::vector<std::int64_t> sent_to_own;  // frames sent to this rank, by sender
    for (auto of_rank = of_all.begin(); of_rank != of_all.end(); of_rank += std::ssize(clock_and_sent)) {
      at = std::max(at, Time{Duration{of_rank[0]}});
      sent_to_own.push_back(of_rank[1 + state.self.value]);
    }
    const std::int64_t begin_ns = monotonic_ns();
    wait_politely(state.communicators.cores_suffice(), [&] {
      drive();
      return std::ranges::equal(state.transport.received_from(), sent_to_own) &&
             state.transport.has_nothing_half_way() && collectives.have_ended();
    });
    gather<std::int64_t>({0}, true);  // ranks with collectives left to finish may need this rank

    const auto digest = state.options.store->write(number, [&](ByteSink& out) { write_checkpoint(out, at); });
    const std::vector<std::uint64_t> own = {digest ? 1U : 0U, digest.value_or(0),
                                            static_cast<std::uint64_t>(monotonic_ns() - begin_ns)};
    const std::vector<std::uint64_t> all = gather(own, false);
    std::uint64_t longest_ns = 0;
    std::vector<std::optional<std::uint64_t>> digests;
    for (std::size_t part = 0; part < all.size(); part += own.size()) {
      digests.push_back(all[part] ? std::optional(all[part + 1]) : std::nullopt);
      longest_ns = std::max(longest_ns, all[part + 2]);
    }
    // All clocks skip the same time: the longest that any rank took from `begin_ns` until it had written its part.
    state.clock.stood_still(static_cast<std::int64_t>(longest_ns));
    if (state.options.store->written(number, digests)) throw LeftAtCheckpoint();
  }

  void drive() {
    state.transport.progress();
    collectives.drive();
  }
  template <typename Number>
  std::vector<Number> gather(const std::vector<Number>& own, bool drives) {
    const MpiCommunicators& communicators = state.communicators;
    return gather_politely(own, communicators.checkpoints(), communicators.cores_suffice(), [this, drives] {
      if (drives) drive();
    });
  }

  // Values are written last: to read them, the handles must exist, which the program holds only after the replay.
  void write_checkpoint(ByteSink& out, Time at) {
    replay_log.write(out);
    StateArchive archive(out);
    archive(at);
    state.options.store->serialise(archive);
    archive(*this);
    CheckpointLog::here()->write_values(out, replay_log.position().values);
  }

  std::int64_t next_look_ns_ = 0;  // when to ask again whether a checkpoint is due
};

// During a replay the programs' calls are answered from MpiReplayLog, without any effect on other ranks.
class MpiCluster : public Cluster {
 public:
  explicit MpiCluster(const MpiOptions& options) : options_(options), run_(std::make_unique<MpiRun>(options_)) {}

  int workers() const override { return options_.workers; }
  Servers servers() const override { return options_.servers; }

  RunTotals run(const Program& work, const Program& serve) override {
    try {
      MpiRunState& state = run_->state;
      state.clock.start_at(state.communicators.common_start_ns(), false);
      if (options_.store && options_.store->resumes()) {
        run_->replay_log.at_end = [this] { resume(); };
        if (state.takes_part())
          follow();
        else
          resume();
      }
      try {
        if (state.is_worker()) work(state.self);
        if (state.is_server() && serve) serve(state.self);
      } catch (const MpiMicroBatches::EndlessMicroBatch&) {
      }
      finish();
      return add_up(state, run_->waiting, run_->messages, run_->partial_sums, run_->micro_batches);
    } catch (const ReplayMismatch& other) {
      if (run_->replay_log.replays() && !has_agreed_) agree_to_resume(other.what());
      throw;
    } catch (const LeftAtCheckpoint&) {
      // Pending requests never finish, so their buffers are leaked: MPI may still write to them, and no other
      // communicator may get their messages.
      static_cast<void>(run_.release());
      throw;
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("an exception of unknown type");
    }
  }

  Time now(Rank) const override {
    return run_->replay_log.answered<Time>(Call::now, [&] { return run_->state.now(); });
  }
  Bytes bytes_sent() const override {
    return run_->replay_log.answered<Bytes>(Call::bytes_sent, [&] { return run_->state.bytes_sent(); });
  }
  int workers_left(Rank) override {
    return run_->replay_log.answered<int>(Call::workers_left, [&] { return run_->messages.workers_left(); });
  }
  bool has_left(Rank, Rank other) const override {
    return run_->replay_log.answered<bool>(Call::has_left, [&] { return run_->messages.has_left(other); });
  }

  std::optional<Gradient> compute_gradient(Rank, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    if (run_->replay_log.replays(Call::compute)) {
      if (run_->replay_log.next_is(Call::endless_micro_batch)) {
        run_->replay_log.next_answer<bool>(Call::endless_micro_batch);
        throw MpiMicroBatches::EndlessMicroBatch();
      }
      const auto outcome = run_->replay_log.next_answer<MpiMicroBatches::Outcome>(Call::compute);
      return run_->micro_batches.computed_before(at, samples, outcome);
    }
    run_->enter(Call::compute);
    try {
      auto gradient = run_->micro_batches.compute(at, slot, samples, deadline);
      run_->replay_log.record(Call::compute, run_->micro_batches.outcome());
      return gradient;
    } catch (const MpiMicroBatches::EndlessMicroBatch&) {
      run_->replay_log.record(Call::endless_micro_batch, true);
      throw;
    }
  }

  bool may_lose_state(Rank) const override { return run_->micro_batches.may_lose_state(); }
  bool has_lost_state(Rank) override {
    return run_->replay_log.answered<bool>(Call::has_lost_state, [&] { return run_->micro_batches.has_lost_state(); });
  }

  StartedCollective start(Rank, Collective&& what, const Contribution& contribution, Place place) override {
    return run_->start(std::move(what), contribution, place, false);
  }
  CollectiveResult finish(Rank, StartedCollective&& started, Place place) override {
    return run_->finish(std::move(started), place, false);
  }
  bool has_ended(Rank, const StartedCollective& started, Place) override {
    return run_->replay_log.answered<bool>(Call::has_ended, [&] { return run_->collectives.has_ended(started); });
  }
  CollectiveResult perform(Rank, Collective&& what, const Contribution& contribution, Place place) override {
    return run_->finish(run_->start(std::move(what), contribution, place, true), place, true);
  }

  void report_steps(Rank, const Contribution& contribution) override {
    if (!run_->replay_log.replays()) run_->state.report_steps(contribution, run_->messages.bytes_to_and_fro());
  }
  void send(Rank, Rank to, Message&& message, Place) override {
    if (!run_->replay_log.replays()) run_->messages.send(to, std::move(message));
  }
  ReceivedMessage receive(Rank, std::optional<Rank> from, Time until, Place place) override {
    using MessageHeader = std::optional<MpiMessages::MessageHeader>;
    if (run_->replay_log.replays(Call::receive)) {
      MessageHeader header = run_->replay_log.next_answer<MessageHeader>(Call::receive);
      return header ? run_->messages.received_before(*header) : nullptr;
    }
    run_->enter(Call::receive);
    ReceivedMessage message = run_->messages.receive(from, until, place);
    if (run_->replay_log.is_kept())
      run_->replay_log.record(Call::receive, message ? MessageHeader(run_->messages.last_header()) : MessageHeader());
    return message;
  }

  void discard(Rank, const BookedTime& work) override {
    if (!run_->replay_log.replays()) run_->state.book_of(work.worker).lose(work.time);
  }
  void keep(Rank, const BookedTime& work, Step staleness) override {
    if (!run_->replay_log.replays()) run_->state.keep(work, staleness);
  }

 private:
  // After its program a participant announces its end and receives messages that the others still send.
  void finish() {
    using Ending = MpiRunState::Ending;
    MpiRunState& state = run_->state;
    if (!state.takes_part()) return;
    if (run_->replay_log.replays(Call::end))
      throw ReplayMismatch("the method ends before it repeats the call at which the checkpoint was written");
    run_->enter(Call::end);
    if (state.ending == Ending::none) {
      if (!state.is_lost) {
        state.clock.book(Activity::compute);
        state.program_end = state.clock.booked();
      }
      state.program_has_ended = true;
      state.transport.announce(Announcement::ended);
      state.ending = Ending::announced;
    }
    // Worker 0 sends the results of partial all-reduces until all workers have ended.
    if (state.is_worker() && state.ending != Ending::closed) run_->collectives.wait_for_all_ends();
    if (state.ending != Ending::closed) state.transport.announce(Announcement::closed);
    state.ending = Ending::closed;
    run_->waiting.wait({}, [&] {
      for (const auto kind : {MpiTransport::Kind::message, MpiTransport::Kind::group_arrival})
        while (state.transport.take(kind)) continue;  // the frame arrived too late and is dropped unread
      const int participants = state.participants();
      return state.transport.count_announced(Announcement::closed, 0, participants) == participants - 1 &&
             state.transport.nothing_under_way();
    });
  }

  void follow() {
    try {
      run_->replay_log.follow(options_.store->part());
    } catch (const std::exception& fault) {
      agree_to_resume(fault.what());
    }
  }

  // Reads the checkpoint at the end of the replay, when all objects of the program exist and only values are missing.
  void resume() {
    std::string problem;
    Time at{};
    if (run_->replay_log.replays()) {
      try {
        ByteSource& in = options_.store->part();
        StateArchive archive(in);
        archive(at);
        options_.store->serialise(archive);
        archive(*run_);
        CheckpointLog::here()->read_values(in);
      } catch (const std::exception& fault) {
        problem = fault.what();
      }
    }
    agree_to_resume(problem);
    if (run_->replay_log.replays()) CheckpointLog::here()->end_replay();
    MpiRunState& state = run_->state;
    const bool is_inside = run_->replay_log.replays() && run_->replay_log.position().is_inside;
    state.clock.start_at(state.communicators.common_start_ns() - at.time_since_epoch().count(), is_inside);
    options_.store->resumed();
  }

  // Collective over all ranks. Throws ReplayMismatch on all ranks if any rank has a problem.
  void agree_to_resume(const std::string& problem) {
    has_agreed_ = true;
    const MpiCommunicators& communicators = run_->state.communicators;
    const auto problems = gather_texts(problem, communicators.everyone(), communicators.cores_suffice());
    for (std::size_t rank = 0; rank < problems.size(); ++rank)
      if (!problems[rank].empty()) throw ReplayMismatch(fmt::format("rank {}: {}", rank, problems[rank]));
  }

  [[noreturn]] void fail(const std::string& what) {
    const MpiRunState& state = run_->state;
    const std::string role = state.is_worker()    ? fmt::format("worker {}", state.self.value)
                             : state.takes_part() ? "server"
                                                  : "idle rank";
    const std::string text = fmt::format("{} after {:.6f} s (seed {}): {}", role, to_seconds(state.now()),
                                         options_.compute_time.seed(), what);
    if (options_.before_abort) options_.before_abort(text);
    options_.session.abort(text);
  }

  MpiOptions options_;
  std::unique_ptr<MpiRun> run_;
  bool has_agreed_ = false;
};

}  // namespace

std::unique_ptr<Cluster> make_mpi_cluster(const MpiOptions& options) { return std::make_unique<MpiCluster>(options); }

}  // namespace syncopate
