#include "workers/mpi/mpi_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

class StateArchive;

namespace {

// The records of all ranks come together on rank 0: each has the spans and micro-batches of its own participant,
// and what it knows of the fate of gradients. Everything travels as 64-bit integers.

// Collective over all ranks, where a record is asked for. `cut_time`: see MpiTotals.
void gather_record(const MpiStage& stage, Duration cut_time, const MpiPartialSums& partial_sums);

// What this rank has recorded so far, where a record is asked for. Of a trace that has come to its limit, what was
// computed since then is not in it.
void keep_record(StateArchive& archive, const MpiStage& stage);

// Operations' names are few; those of other processes stay for the rest of this one.
const char* interned(const std::string& name) {
  static std::set<std::string> names;
  return names.insert(name).first->c_str();
}

class Writer {
 public:
  void put(std::int64_t number) { numbers_.push_back(number); }
  void put(Time time) { put(time.time_since_epoch().count()); }
  void put(Duration duration) { put(duration.count()); }
  void put(const std::string& text) {
    put(std::ssize(text));
    numbers_.insert(numbers_.end(), text.begin(), text.end());
  }
  std::vector<std::int64_t> take() { return std::move(numbers_); }

 private:
  std::vector<std::int64_t> numbers_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> numbers) : numbers_(numbers) {}
  std::int64_t number() {
    const std::int64_t first = numbers_.front();
    numbers_ = numbers_.subspan(1);
    return first;
  }
  Duration duration() { return Duration{number()}; }
  Time time() { return Time{duration()}; }
  Rank rank() { return Rank{static_cast<int>(number())}; }
  std::string text() {
    std::string result(static_cast<std::size_t>(number()), ' ');
    for (char& letter : result) letter = static_cast<char>(number());
    return result;
  }

 private:
  std::span<const std::int64_t> numbers_;
};

void put_spans(Writer& out, const std::vector<Span>& spans) {
  std::vector<std::string> names;
  for (const Span& span : spans) names.emplace_back(span.what);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  out.put(std::ssize(names));
  for (const std::string& name : names) out.put(name);
  out.put(std::ssize(spans));
  for (const Span& span : spans) {
    out.put(static_cast<std::int64_t>(span.activity));
    out.put(span.begin);
    out.put(span.end);
    out.put(std::lower_bound(names.begin(), names.end(), span.what) - names.begin());
    out.put(span.step.value());
    out.put(span.micro_batch);
    out.put(span.completed);
  }
}

std::vector<Span> read_spans(Reader& in) {
  std::vector<const char*> names(static_cast<std::size_t>(in.number()));
  for (const char*& name : names) name = interned(in.text());
  std::vector<Span> spans(static_cast<std::size_t>(in.number()));
  for (Span& span : spans) {
    span.activity = static_cast<Activity>(in.number());
    span.begin = in.time();
    span.end = in.time();
    span.what = names.at(static_cast<std::size_t>(in.number()));
    span.step = in.number();
    span.micro_batch = static_cast<int>(in.number());
    span.completed = in.number() != 0;
  }
  return spans;
}

// What rank `from` has written (see own_record): its spans and micro-batches go into the record.
struct RestOfRecord {
  Duration cut_off{};  // of its computed micro-batches, beyond the end of the run
  std::vector<SpanRecorder::Fate> fates;
};
RestOfRecord read_record(Reader in, Rank from, RunRecord& record) {
  RestOfRecord rest;
  if (record.spans) {
    const std::vector<Span> spans = read_spans(in);
    const bool stopped = in.number() != 0;
    if (!spans.empty()) record.spans->move_in(from, spans);
    if (stopped) record.spans->stop(from);
    rest.cut_off = in.duration();
    for (std::int64_t count = in.number(); count > 0; --count) {
      const Rank worker = in.rank();
      const Duration computed = in.duration();
      rest.fates.push_back({worker, computed, static_cast<Activity>(in.number())});
    }
  }
  for (std::int64_t count = record.arrivals ? in.number() : 0; count > 0; --count) {
    GradientArrival arrival;
    arrival.round_begin = Time{in.duration()};
    arrival.step = in.number();
    arrival.worker = in.rank();
    arrival.since = in.duration();
    record.arrivals->push_back(arrival);
  }
  if (!record.durations) return rest;
  for (std::int64_t count = in.number(); count > 0; --count) {
    MicroBatchTime time;
    time.worker = in.rank();
    time.step = in.number();
    time.index = static_cast<int>(in.number());
    time.duration = in.duration();
    time.added = in.duration();
    record.durations->push_back(time);
  }
  return rest;
}

std::vector<std::int64_t> own_record(const MpiStage& stage, Duration cut_time) {
  Writer out;
  const RunRecord& record = *stage.options.record;
  if (record.spans) {
    const bool takes_part = stage.is_worker() || stage.is_server();
    put_spans(out, takes_part ? record.spans->spans(stage.self) : std::vector<Span>{});
    out.put(takes_part && record.spans->stopped(stage.self));
    out.put(cut_time);
    const auto fates = record.spans->collected_fates().value_or(std::vector<SpanRecorder::Fate>());
    out.put(std::ssize(fates));
    for (const SpanRecorder::Fate& fate : fates) {
      out.put(fate.worker.value);
      out.put(fate.computed);
      out.put(static_cast<std::int64_t>(fate.is));
    }
  }
  if (record.arrivals) {
    out.put(std::ssize(*record.arrivals));
    for (const GradientArrival& arrival : *record.arrivals) {
      out.put(arrival.round_begin.time_since_epoch());
      out.put(arrival.step.value());
      out.put(arrival.worker.value);
      out.put(arrival.since);
    }
  }
  if (record.durations) {
    out.put(std::ssize(*record.durations));
    for (const MicroBatchTime& time : *record.durations) {
      out.put(time.worker.value);
      out.put(time.step.value());
      out.put(time.index);
      out.put(time.duration);
      out.put(time.added);
    }
  }
  return out.take();
}

void keep_record(StateArchive& archive, const MpiStage& stage) {
  std::vector<std::int64_t> numbers;
  if (!archive.reads()) numbers = own_record(stage, {});
  archive(numbers);
  if (!archive.reads()) return;
  RunRecord& record = *stage.options.record;
  if (record.spans) {
    record.spans.emplace(stage.options.workers, stage.options.servers, SpanRecorder::Limits(record.spans->limits()));
    if (stage.options.servers > 0) record.spans->collect_fates();
  }
  if (record.durations) record.durations->clear();
  if (record.arrivals) record.arrivals->clear();
  const RestOfRecord rest = read_record(Reader(numbers), stage.self, record);
  for (const SpanRecorder::Fate& fate : rest.fates) record.spans->decide(fate);
}

void gather_record(const MpiStage& stage, Duration cut_time, const MpiPartialSums& partial_sums) {
  const MPI_Comm everyone = stage.communicators.everyone();
  int ranks = 0;
  MPI_Comm_size(everyone, &ranks);
  const std::vector<std::int64_t> own = own_record(stage, cut_time);
  const int own_count = mpi_count(own.size());
  std::vector<int> counts(static_cast<std::size_t>(ranks)), begin(static_cast<std::size_t>(ranks));
  MPI_Gather(&own_count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, everyone);
  const auto total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  mpi_count(total);
  std::exclusive_scan(counts.begin(), counts.end(), begin.begin(), 0);
  std::vector<std::int64_t> all(total);
  MPI_Gatherv(own.data(), own_count, MPI_INT64_T, all.data(), counts.data(), begin.data(), MPI_INT64_T, 0, everyone);
  if (stage.self.value != 0) return;

  RunRecord& record = *stage.options.record;
  if (record.spans)
    record.spans.emplace(stage.options.workers, stage.options.servers, SpanRecorder::Limits(record.spans->limits()));
  if (record.durations) record.durations->clear();
  if (record.arrivals) record.arrivals->clear();
  ByRank<RestOfRecord> rests(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const std::span<const std::int64_t> part(all.data() + begin[at], static_cast<std::size_t>(counts[at]));
    rests[Rank{rank}] = read_record(Reader(part), Rank{rank}, record);
  }
  if (!record.spans) return;
  for (const RestOfRecord& rest : rests)
    for (const SpanRecorder::Fate& fate : rest.fates) record.spans->decide(fate);
  // Late gradients that no round of partial all-reduces took any more; of what was cut off nothing is there.
  for (const Rank worker : stage.workers())
    record.spans->lose(worker, partial_sums.pending_of(worker) - rests[worker].cut_off);
}

}  // namespace

std::optional<Gradient> MpiMicroBatches::compute(const ModelStatePtr& at, const MicroBatch& slot,
                                                 const MicroBatch& samples, const Deadline& deadline) {
  outcome_ = {};
  const bool begins = stage_.clock.enter();  // else another process was in the middle of it
  if (interrupted()) throw Interrupted();
  if (stage_.options.servers > 0 || stage_.has_partial_sums || deadline.at_message || collectives_.are_under_way())
    waiting_.progress();
  const Time start = stage_.clock.booked();
  const bool is_up = !outages_ || outages_->next(start).begin > start;
  if (is_up && is_cancelled(deadline)) return cancel(slot);
  if (is_up && !end_of_micro_batch(start, Duration{0}, deadline).kept) return std::nullopt;  // not begun

  const bool emulates = stage_.options.pace == Pace::emulate || stage_.options.training.time_only();
  Duration drawn{};
  if (emulates)
    drawn = stage_.options.compute_time.duration(slot, samples);
  else
    drawn = stage_.options.compute_time.added(stage_.self, slot.step, static_cast<std::uint32_t>(slot.index));

  // Work that will certainly be lost is slept through, not computed: the time is the same. Of what takes longer than
  // what is drawn no more can be left.
  Passage passage = pass(start, drawn, deadline);
  const bool is_endless = stage_.options.servers == 0 && passage.worked >= longest_duration;
  const bool stops = deadline.preempt == Preempt::discard || deadline.preempt == Preempt::layer;
  const bool certain = emulates || stops;
  Duration injected{}, measured{};
  std::shared_ptr<GradientSum> sum;
  const bool is_used = passage.kept || passage.backward > 0;
  if ((is_used || !certain) && !passage.lost_state && !is_endless && !stage_.servers_are_gone()) {
    const Time begin = begins ? start : stage_.clock.now();
    sum = evaluate(at, samples);
    measured = stage_.clock.now() - begin;
    outcome_.is_evaluated = sum != nullptr;
    const double factor = stage_.options.compute_time.factor(stage_.self);
    const Duration total = emulates
                               ? std::max(drawn, measured)
                               : drawn + measured + from_seconds((std::max(factor, 1.0) - 1) * to_seconds(measured));
    injected = total - measured;
    passage = pass(start, total, deadline);
  }
  if (is_endless && !deadline.at_message) sleep_for_ever();
  for (const auto& [end, down] : passage.pieces) {
    sleep_until(end, down ? Deadline() : deadline, is_endless);
    if (down || !is_cancelled(deadline)) continue;
    if (emulates && sum) count_overrun(drawn, measured);
    book_passage(slot, passage, false);
    stage_.clock.book().cancel();
    return std::nullopt;
  }
  if (is_endless) sleep_for_ever();  // nobody is left who could send
  if (emulates && sum) count_overrun(drawn, measured);
  const Duration spent = book_passage(slot, passage, passage.kept);
  has_lost_state_ = passage.lost_state;
  if (deadline.at_message && !passage.kept && !passage.lost_state) stage_.clock.book().cancel();
  outcome_.is_kept = passage.kept;
  outcome_.is_cut = !passage.kept;
  outcome_.backward = passage.backward;
  outcome_.spent = spent;
  if (!passage.kept) return stage_.options.training.cut_gradient(std::move(sum), passage.backward);
  stage_.clock.book().compute(1, spent);
  const bool is_through = passage.end <= stage_.clock.booked();  // not cut short by the servers' end
  if (is_through && stage_.options.record && stage_.options.record->durations) record_duration(slot, spent, injected);
  return sum ? Gradient(std::move(sum), 1, spent) : Gradient(at, samples, spent);
}

Passage MpiMicroBatches::pass(Time start, Duration duration, const Deadline& deadline) {
  return syncopate::pass(outages_ ? &*outages_ : nullptr, start, duration, deadline);
}

// Books what has passed until now: as work lies in the passage, and as outages do. How long the work was.
Duration MpiMicroBatches::book_passage(const MicroBatch& slot, const Passage& passage, bool kept) {
  const Activity work = kept ? Activity::compute : Activity::discarded;
  const Time now = stage_.clock.now();
  Duration worked{};
  for (std::size_t i = 0; i < passage.pieces.size(); ++i) {
    const auto& [planned, down] = passage.pieces[i];
    const bool is_last = i + 1 == passage.pieces.size();
    const Time begin = stage_.clock.booked();
    stage_.clock.book_until(down ? Activity::down : work, is_last ? now : std::min(planned, now),
                            down ? SpanLabel{outage_name} : SpanLabel{micro_batch_name, slot.step, slot.index});
    if (!down) worked += stage_.clock.booked() - begin;
  }
  return worked;
}

std::optional<Gradient> MpiMicroBatches::computed_before(const ModelStatePtr& at, const MicroBatch& samples,
                                                         const Outcome& outcome) {
  std::shared_ptr<GradientSum> sum;
  if (outcome.is_evaluated) {
    sum = promise(at, samples);
    for (auto& chunk : sum->chunks) chunk.at = nullptr;
    sum->submitted = true;
  }
  if (outcome.is_kept) return sum ? Gradient(std::move(sum), 1, outcome.spent) : Gradient(at, samples, outcome.spent);
  if (!outcome.is_cut) return std::nullopt;
  return stage_.options.training.cut_gradient(std::move(sum), outcome.backward);
}

std::shared_ptr<GradientSum> MpiMicroBatches::promise(const ModelStatePtr& at, const MicroBatch& samples) const {
  double scale = 1;
  return fix_sum(Gradient(at, samples, {}), stage_.options.training.objective(), scale);
}

// The value now, left where the backward pass put it.
std::shared_ptr<GradientSum> MpiMicroBatches::evaluate(const ModelStatePtr& at, const MicroBatch& samples) {
  if (!at) return nullptr;  // time-only
  Training& training = stage_.options.training;
  training.executor().wait(at->parameters->producer);
  auto sum = promise(at, samples);
  for (auto& chunk : sum->chunks) {
    evaluate_chunk(chunk, std::exchange(chunk.at, nullptr), training.objective());
    if (collectives_.are_under_way()) waiting_.progress();
  }
  sum->submitted = true;
  return sum;
}

bool MpiMicroBatches::is_cancelled(const Deadline& deadline) {
  return deadline.at_message && stage_.post.has_first(MpiPost::Kind::message);
}

std::optional<Gradient> MpiMicroBatches::cancel(const MicroBatch& slot) {
  stage_.clock.book(Activity::discarded, {micro_batch_name, slot.step, slot.index});
  stage_.clock.book().cancel();
  return std::nullopt;
}

void MpiMicroBatches::count_overrun(Duration drawn, Duration measured) {
  ++emulation_.emulated;
  if (measured <= drawn) return;
  ++emulation_.overruns;
  emulation_.overrun_excess += measured - drawn;
}

void MpiMicroBatches::record_duration(const MicroBatch& slot, Duration spent, Duration injected) {
  const bool emulates = stage_.options.pace == Pace::emulate || stage_.options.training.time_only();
  const Duration added =
      emulates ? stage_.options.compute_time.added(stage_.self, slot.step, static_cast<std::uint32_t>(slot.index))
               : injected;
  stage_.options.record->durations->push_back({stage_.self, slot.step, slot.index, spent, added});
}

// In slices, so that messages keep flowing, an interrupt is heard, and the end of the servers ends a
// sleep of any length. Short ones where somebody waits for what this rank sends, or it for a message; none while values
// of a collective are on their way and cores suffice, since MPI moves a piece of them at each call.
void MpiMicroBatches::sleep_until(Time end, const Deadline& deadline, bool is_endless) {
  constexpr Duration slice = std::chrono::milliseconds(2);
  constexpr Duration short_slice = std::chrono::microseconds(200);
  const bool ends = end - stage_.now() < longest_duration / 2;
  waiting_.begin();
  const bool is_awaited =
      deadline.at_message || (stage_.is_coordinator() && stage_.has_partial_sums) || collectives_.are_under_way();
  for (Time at = stage_.now(); at < end; at = stage_.now()) {
    if (interrupted()) throw Interrupted();
    waiting_.progress();
    if (stage_.servers_are_gone() || is_cancelled(deadline)) return;
    waiting_.stop();
    if (is_endless && mail_.nobody_can_send({})) return;
    if (!ends) waiting_.look_for_standstill({.state = "in a micro-batch that never ends"});
    if (stage_.communicators.cores_suffice() && collectives_.are_moving()) continue;
    const Time wake = std::min(end, later(at, is_awaited || stage_.post.sending() ? short_slice : slice));
    sleep_until_monotonic(stage_.clock.to_monotonic_ns(wake));
  }
  if (deadline.at_message) waiting_.progress();
}

// A worker in a micro-batch that never ends is never heard of again. It ends when all others have, or are
// in such a micro-batch themselves.
void MpiMicroBatches::sleep_for_ever() {
  if (!std::exchange(stage_.is_lost, true)) {  // else another process has said so
    partial_sums_.drop_results();
    stage_.post.announce(MpiPost::News::lost, stage_.meetings);
  }
  waiting_.begin();
  while (!stage_.others_are_through()) {
    if (interrupted()) throw Interrupted();
    waiting_.progress();
    waiting_.stop();
    if (!stage_.others_are_through()) waiting_.look_for_standstill({.state = "in a micro-batch that never ends"});
    sleep_until_monotonic(stage_.clock.to_monotonic_ns(later(stage_.now(), std::chrono::milliseconds(2))));
  }
  stage_.clock.book(Activity::discarded, {"a micro-batch that never ends"});
  if (stage_.post.count_announced(MpiPost::News::ended, 0, stage_.options.workers) == 0)
    throw RunFailure("no worker can go on: all are in a micro-batch that never ends");
  throw NeverHeardOfAgain();
}

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

namespace {

// Sums (or maxima) over all ranks, politely. Calls `meanwhile` as long as it waits.
template <typename Meanwhile>
void reduce_politely(std::vector<std::int64_t>& values, MPI_Op operation, const MpiCommunicators& communicators,
                     Meanwhile meanwhile) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T, operation,
                 communicators.everyone(), &request);
  wait_politely(communicators.cores_suffice(), [&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) meanwhile();
    return done != 0;
  });
}

std::int64_t since_start(Time time) { return time.time_since_epoch().count(); }

}  // namespace

void MpiTotals::keep(const Work& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(std::max<Step::Rep>(staleness.value(), 0));
  if (staleness_.size() <= steps) staleness_.resize(steps + 1);
  ++staleness_[steps];
  stage_.book_of(work.worker).keep(work);
}

void MpiTotals::report_steps(const Contribution& contribution) {
  stage_.clock.book(Activity::compute);
  if (own_steps_.empty() || own_steps_.back().step != contribution.step) own_steps_.emplace_back();
  StepRow& row = own_steps_.back();
  stage_.clock.book().contribute(contribution, row);
  row.end = stage_.clock.booked();
  row.bytes = mail_.bytes_to_and_fro();
}

// T: the end of the servers, or of the last worker. Where rounds do not wait for everybody, it is the
// last time that workers have met: who computes beyond has run ahead with what came too late.
Time MpiTotals::agree_on_end(Time own_end, std::size_t& staleness_size) {
  std::vector<std::int64_t> most = {stage_.is_server() ? since_start(own_end) : 0,
                                    stage_.is_worker() ? since_start(own_end) : 0,
                                    stage_.is_worker() ? since_start(stage_.clock.met_at()) : 0,
                                    stage_.has_partial_sums ? 1 : 0, static_cast<std::int64_t>(staleness_.size())};
  // Idle ranks wait here for the whole run.
  waiting_.begin();
  const char* const state = stage_.is_worker() || stage_.is_server() ? nullptr : "needed by no method of this run";
  reduce_politely(most, MPI_MAX, stage_.communicators,
                  [&] { waiting_.look_for_standstill({.state = state, .what = WaitReport::For::the_end}); });
  rounds_.finish(stage_.communicators.everyone(), stage_.communicators.cores_suffice());
  staleness_size = static_cast<std::size_t>(most[4]);
  const bool has_partial_rounds = most[3] > 0;
  return Time{Duration{stage_.options.servers > 0 ? most[0] : has_partial_rounds ? most[2] : most[1]}};
}

RunTotals MpiTotals::add_up(Time own_end) {
  std::size_t staleness_size = 0;
  const Time end = agree_on_end(own_end, staleness_size);
  const Duration cut = stage_.clock.close(end);
  if (stage_.is_worker()) cut_time_ = cut;
  std::vector<std::int64_t> sums = own_sums(staleness_size);
  reduce_politely(sums, MPI_SUM, stage_.communicators, [] {});
  RunTotals totals = read_totals(sums, staleness_size);
  totals.end = end;
  report_rows();
  return totals;
}

std::vector<std::int64_t> MpiTotals::own_sums(std::size_t staleness_size) {
  std::vector<std::int64_t> sums;
  for (const Rank worker : Ranks(stage_.options.workers)) {
    const bool is_own = worker == stage_.self;
    Tally tally = stage_.book_of(worker).tally();
    tally += partial_sums_.tally_of(worker);
    const MpiMicroBatches::Emulation emulation = is_own ? micro_batches_.emulation() : MpiMicroBatches::Emulation();
    for (const Duration time : (is_own ? stage_.clock.book().account() : Account()).time) sums.push_back(time.count());
    for (const std::int64_t number : tally.numbers()) sums.push_back(number);
    sums.insert(sums.end(), {emulation.emulated, emulation.overruns, emulation.overrun_excess.count(),
                             is_own ? cut_time_.count() : 0});
  }
  const Bytes collective_bytes = stage_.self.value == 0 ? stage_.collective_bytes : Bytes{0};
  sums.insert(sums.end(), {(mail_.counted_bytes() + collective_bytes).value(), stage_.collectives, mail_.messages()});
  staleness_.resize(staleness_size);
  sums.insert(sums.end(), staleness_.begin(), staleness_.end());
  return sums;
}

RunTotals MpiTotals::read_totals(std::span<const std::int64_t> sums, std::size_t staleness_size) const {
  RunTotals totals;
  auto next = sums.begin();
  for (int worker = 0; worker < stage_.options.workers; ++worker) {
    Account account;
    for (Duration& time : account.time) time = Duration{*next++};
    Tally::Numbers numbers;
    for (std::int64_t& number : numbers) number = *next++;
    const Tally tally = Tally::of(numbers);
    totals.emulated.push_back(*next++);
    totals.overruns.push_back(*next++);
    totals.overrun_excess += Duration{*next++};
    const Duration cut_time{*next++};
    // As far as it lies within the run.
    const Duration lost = tally.lost_time(stage_.decided_by()) - cut_time;
    account.lose(std::clamp(lost, Duration{0}, account[Activity::compute]));
    totals.add(account, tally, stage_.decided_by());
  }
  totals.bytes = Bytes{*next++};
  totals.collectives = *next++;
  totals.messages = *next++;
  totals.staleness.assign(next, next + static_cast<std::ptrdiff_t>(staleness_size));
  return totals;
}

// The first server's rank books rounds, or worker 0 where there is none.
void MpiTotals::report_rows() {
  const int booking_rank = stage_.options.servers > 0 ? stage_.options.workers : 0;
  const MPI_Comm everyone = stage_.communicators.everyone();
  int ranks = 0;
  MPI_Comm_size(everyone, &ranks);
  const int own_bytes = static_cast<int>(own_steps_.size() * sizeof(StepRow));
  std::vector<int> bytes(static_cast<std::size_t>(ranks)), begin(static_cast<std::size_t>(ranks));
  MPI_Gather(&own_bytes, 1, MPI_INT, bytes.data(), 1, MPI_INT, booking_rank, everyone);
  std::exclusive_scan(bytes.begin(), bytes.end(), begin.begin(), 0);
  std::vector<StepRow> all(static_cast<std::size_t>(begin.back() + bytes.back()) / sizeof(StepRow));
  MPI_Gatherv(own_steps_.data(), own_bytes, MPI_BYTE, all.data(), bytes.data(), begin.data(), MPI_BYTE, booking_rank,
              everyone);
  if (stage_.self.value != booking_rank || !stage_.options.observer) return;
  std::vector<std::vector<StepRow>> by_worker;
  auto next = all.begin();
  for (int worker = 0; worker < stage_.options.workers; ++worker) {
    const auto count = static_cast<std::ptrdiff_t>(bytes[static_cast<std::size_t>(worker)]) /
                       static_cast<std::ptrdiff_t>(sizeof(StepRow));
    by_worker.emplace_back(next, next + count);
    next += count;
  }
  close_rows(by_worker, stage_.rows);
}

void close_rows(const std::vector<std::vector<StepRow>>& by_worker, StepRows& rows) {
  std::map<Step, StepRow> merged;
  for (const std::vector<StepRow>& steps : by_worker) {
    Bytes before{};
    for (StepRow own : steps) {
      own.bytes -= std::exchange(before, own.bytes);
      merged[own.step].merge(own);
    }
  }
  for (const auto& [step, row] : merged) rows.close(row, std::max(row.end, rows.begin()), rows.sent() + row.bytes);
}

}  // namespace syncopate
