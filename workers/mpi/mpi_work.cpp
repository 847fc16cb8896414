#include "workers/mpi/mpi_work.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <type_traits>

#include "workers/base/process.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

// Names of operations are few, so names from other processes are stored until this process ends.
const char* interned(const std::string& name) {
  static std::set<std::string> names;
  return names.insert(name).first->c_str();
}

// A rank's part of the record: spans and micro-batches of its own participant, and the gradients' fates that it knows.
struct PartOfRecord {
  std::vector<Span> spans{};
  bool has_stopped = false;  // whether the recording of spans has stopped
  Duration cut_off{};        // time of micro-batches computed beyond the end of the run
  std::vector<SpanRecorder::Fate> fates{};
  std::vector<GradientArrival> arrivals{};
  std::vector<MicroBatchTime> durations{};

  // A span's name is a pointer, so it is sent as an index into a list of names.
  void serialise(StateArchive& archive) {
    std::vector<std::string> names;
    std::vector<std::int64_t> name_of;
    for (const Span& span : spans) {
      name_of.push_back(std::ranges::find(names, span.what) - names.begin());
      if (name_of.back() == std::ssize(names)) names.emplace_back(span.what);
    }
    archive(names, spans, name_of, has_stopped, cut_off, fates, arrivals, durations);
    if (!archive.reads()) return;
    for (std::size_t i = 0; i < spans.size(); ++i)
      spans[i].what = interned(names.at(static_cast<std::size_t>(name_of[i])));
  }
};

PartOfRecord own_part(const MpiRunState& state, Duration cut_off) {
  const RunRecord& record = *state.options.record;
  PartOfRecord part{.cut_off = cut_off};
  if (record.arrivals) part.arrivals = *record.arrivals;
  if (record.durations) part.durations = *record.durations;
  if (!record.spans) return part;
  if (state.takes_part()) {
    part.spans = record.spans->spans(state.self);
    part.has_stopped = record.spans->stopped(state.self);
  }
  if (record.spans->collected_fates()) part.fates = *record.spans->collected_fates();
  return part;
}

void clear(const MpiRunState& state) {
  RunRecord& record = *state.options.record;
  if (record.spans)
    record.spans.emplace(state.options.workers, state.options.servers, SpanRecorder::Limits(record.spans->limits()));
  if (record.durations) record.durations->clear();
  if (record.arrivals) record.arrivals->clear();
}

void add(const PartOfRecord& part, Rank of, RunRecord& record) {
  if (!part.spans.empty()) record.spans->move_in(of, part.spans);
  if (part.has_stopped) record.spans->stop(of);
  if (record.arrivals) record.arrivals->insert(record.arrivals->end(), part.arrivals.begin(), part.arrivals.end());
  if (record.durations) record.durations->insert(record.durations->end(), part.durations.begin(), part.durations.end());
}

// Collective over all ranks. Returns the values of all ranks, by rank, on rank `root`; empty vectors on other ranks.
// The total is at most 2^31 - 1 words of 64 bits.
template <typename T>
std::vector<std::vector<T>> gather(const std::vector<T>& own, int root, MPI_Comm everyone) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  constexpr int words = sizeof(T) / 8;  // 64-bit words per value
  const auto ranks = static_cast<std::size_t>(ranks_of(everyone));
  const int own_count = mpi_count(words * own.size());
  std::vector<int> counts(ranks), begin(ranks);
  MPI_Gather(&own_count, 1, MPI_INT, counts.data(), 1, MPI_INT, root, everyone);
  const int total = mpi_count(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  std::exclusive_scan(counts.begin(), counts.end(), begin.begin(), 0);
  std::vector<T> all(static_cast<std::size_t>(total / words));
  MPI_Gatherv(own.data(), own_count, MPI_INT64_T, all.data(), counts.data(), begin.data(), MPI_INT64_T, root, everyone);
  std::vector<std::vector<T>> by_rank;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto first = all.begin() + begin[rank] / words;
    by_rank.emplace_back(first, first + counts[rank] / words);
  }
  return by_rank;
}

// The numbers that a rank has about a worker. Sums over the ranks are sums of 64-bit numbers.
struct WorkerSums {
  Account account;
  Tally tally;
  MpiMicroBatches::Emulation emulation;
  Duration cut_time{};  // time computed beyond the end of the run
};

// Collective over all ranks: reduces the 64-bit numbers of which the values consist, in place.
template <typename T>
MPI_Request begin_to_reduce(std::vector<T>& values, MPI_Op operation, MPI_Comm everyone) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::int64_t) == 0);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), mpi_count(std::span(values).size_bytes() / sizeof(std::int64_t)),
                 MPI_INT64_T, operation, everyone, &request);
  return request;
}

const Awaited endless{.state = "in a micro-batch that never ends"};
constexpr Duration longest_slice = std::chrono::milliseconds(2);

std::int64_t since_start(Time time) { return time.time_since_epoch().count(); }

// Collective over all ranks: gathers the records of all ranks on rank 0. `cut_time`: how long this rank computed beyond
// the end of the run. That time is in no account.
void gather_record(const MpiRunState& state, Duration cut_time, const MpiPartialSums& partial_sums) {
  StoredBytes own;
  PartOfRecord own_record = own_part(state, cut_time);
  StateArchive(own.sink())(own_record);
  const auto all = gather(own.words(), 0, state.communicators.everyone());
  if (state.self.value != 0) return;

  RunRecord& record = *state.options.record;
  clear(state);
  ByRank<PartOfRecord> parts(static_cast<int>(all.size()));
  for (const Rank rank : Ranks(parts.size())) {
    StoredBytes stored(all[static_cast<std::size_t>(rank.value)]);
    StateArchive(stored.source())(parts[rank]);
    add(parts[rank], rank, record);
  }
  if (!record.spans) return;
  for (const PartOfRecord& part : parts)
    for (const SpanRecorder::Fate& fate : part.fates) record.spans->decide(fate);
  // Late gradients that no partial all-reduce took are lost. Their time beyond the end of the run is in no record.
  for (const Rank worker : state.workers())
    record.spans->lose(worker, partial_sums.pending_of(worker) - parts[worker].cut_off);
}

// The run ends with its servers, or without servers with its last worker. With partial all-reduces it ends when a
// worker last met others. Beyond that time workers have run ahead with work that came too late.
Time agree_on_end(MpiRunState& state, MpiWaiting& waiting) {
  const std::int64_t own_end = since_start(state.program_end);
  std::vector<std::int64_t> most = {state.is_server() ? own_end : 0, state.is_worker() ? own_end : 0,
                                    state.is_worker() ? since_start(state.clock.book().met_at()) : 0,
                                    state.has_partial_sums ? 1 : 0,
                                    static_cast<std::int64_t>(state.staleness_counts.size())};
  // Idle ranks wait in this collective for the whole run.
  const char* const reason = state.takes_part() ? nullptr : "needed by no method of this run";
  waiting.wait_for_the_end(begin_to_reduce(most, MPI_MAX, state.communicators.everyone()), reason);
  state.staleness_counts.resize(static_cast<std::size_t>(most[4]));
  const bool has_partial_rounds = most[3] > 0;
  return Time{Duration{state.options.servers > 0 ? most[0] : has_partial_rounds ? most[2] : most[1]}};
}

// Rows are closed on the first server's rank, or on worker 0 if there are no servers.
void report_rows(MpiRunState& state) {
  const int booking_rank = state.options.servers > 0 ? state.options.workers : 0;
  auto by_worker = gather(state.own_steps, booking_rank, state.communicators.everyone());
  if (state.self.value != booking_rank || !state.options.observer) return;
  by_worker.resize(static_cast<std::size_t>(state.options.workers));
  close_rows(by_worker, state.rows);
}

}  // namespace

void serialise_record(StateArchive& archive, const MpiRunState& state) {
  PartOfRecord part;
  if (!archive.reads()) part = own_part(state, {});
  archive(part);
  if (!archive.reads()) return;
  RunRecord& record = *state.options.record;
  clear(state);
  if (record.spans && state.options.servers > 0) record.spans->collect_fates();
  add(part, state.self, record);
  for (const SpanRecorder::Fate& fate : part.fates) record.spans->decide(fate);
}

std::optional<Gradient> MpiMicroBatches::compute(const ModelStatePtr& at, const MicroBatch& slot,
                                                 const MicroBatch& samples, const Deadline& deadline) {
  outcome_ = {};
  const bool begins = state_.clock.enter();  // false: the run has resumed in the middle of the micro-batch
  throw_if_interrupted();
  if (state_.options.servers > 0 || state_.has_partial_sums || deadline.at_message || collectives_.are_under_way())
    waiting_.progress();
  const Time start = state_.clock.booked();
  const bool is_up = !outages_ || outages_->next(start).begin > start;
  if (is_up && is_cancelled(deadline)) {
    state_.clock.book(Activity::discarded, label_of(slot));
    state_.clock.book().cancel();
    return std::nullopt;
  }
  if (is_up && !end_of_micro_batch(start, Duration{0}, deadline).kept) return std::nullopt;  // not begun

  const bool emulates = state_.options.pace == Pace::emulate || state_.options.training.time_only();
  const ComputeTime& compute_time = state_.options.compute_time;
  const auto index = static_cast<std::uint32_t>(slot.index);
  const Duration drawn =
      emulates ? compute_time.duration(slot, samples) : compute_time.added(state_.self, slot.step, index);

  // A gradient that is lost even if its computation takes no more than the drawn time is not computed: the rank sleeps
  // for that time instead.
  WorkerOutages* const outages = outages_ ? &*outages_ : nullptr;
  Passage passage = pass(outages, start, drawn, deadline);
  const bool is_endless = state_.options.servers == 0 && passage.worked >= longest_duration;
  const bool stops = deadline.preempt == Preempt::discard || deadline.preempt == Preempt::layer;
  const bool certain = emulates || stops;
  Duration injected{}, measured{};
  std::shared_ptr<GradientSum> sum;
  const bool is_used = passage.kept || passage.backward > 0;
  if ((is_used || !certain) && !passage.lost_state && !is_endless && !state_.servers_are_gone()) {
    const Time begin = begins ? start : state_.clock.now();
    sum = evaluate(at, samples);
    measured = state_.clock.now() - begin;
    outcome_.is_evaluated = sum != nullptr;
    const double factor = compute_time.factor(state_.self);
    const Duration total = emulates
                               ? std::max(drawn, measured)
                               : drawn + measured + from_seconds((std::max(factor, 1.0) - 1) * to_seconds(measured));
    injected = total - measured;
    passage = pass(outages, start, total, deadline);
  }
  if (is_endless && !deadline.at_message) sleep_for_ever();
  for (const auto& [end, down] : passage.pieces) {
    sleep_until(end, down ? Deadline() : deadline, is_endless);
    if (down || !is_cancelled(deadline)) continue;
    if (emulates && sum) count_overrun(drawn, measured);
    book_passage(slot, passage, false);
    state_.clock.book().cancel();
    return std::nullopt;
  }
  if (is_endless) sleep_for_ever();  // the loop ended because no other participant can send any more
  if (emulates && sum) count_overrun(drawn, measured);
  const Duration spent = book_passage(slot, passage, passage.kept);
  has_lost_state_ = passage.lost_state;
  if (deadline.at_message && !passage.kept && !passage.lost_state) state_.clock.book().cancel();
  outcome_.is_kept = passage.kept;
  outcome_.is_cut = !passage.kept;
  outcome_.backward = passage.backward;
  outcome_.spent = spent;
  if (!passage.kept) return state_.options.training.partial_gradient(std::move(sum), passage.backward);
  state_.clock.book().compute(1, spent);
  const bool is_through = passage.end <= state_.clock.booked();  // false if the servers ended and cut it short
  if (is_through && state_.options.record && state_.options.record->durations) {
    const Duration added = emulates ? compute_time.added(state_.self, slot.step, index) : injected;
    state_.options.record->durations->push_back({state_.self, slot.step, slot.index, spent, added});
  }
  return sum ? Gradient(std::move(sum), 1, spent) : Gradient(at, samples, spent);
}

// Books the time until now, divided into work and outages as in the passage. Returns the duration of the work.
Duration MpiMicroBatches::book_passage(const MicroBatch& slot, const Passage& passage, bool kept) {
  const Activity work = kept ? Activity::compute : Activity::discarded;
  const Time now = state_.clock.now();
  Duration worked{};
  for (std::size_t i = 0; i < passage.pieces.size(); ++i) {
    const auto& [planned, down] = passage.pieces[i];
    const bool is_last = i + 1 == passage.pieces.size();
    const Time begin = state_.clock.booked();
    state_.clock.book_until(down ? Activity::down : work, is_last ? now : std::min(planned, now),
                            down ? SpanLabel{outage_name} : label_of(slot));
    if (!down) worked += state_.clock.booked() - begin;
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
  return state_.options.training.partial_gradient(std::move(sum), outcome.backward);
}

std::shared_ptr<GradientSum> MpiMicroBatches::promise(const ModelStatePtr& at, const MicroBatch& samples) const {
  return fix_sum(Gradient(at, samples, {}), state_.options.training.objective()).sum;
}

// Computes the gradient now and leaves it in the memory where the backward pass wrote it.
std::shared_ptr<GradientSum> MpiMicroBatches::evaluate(const ModelStatePtr& at, const MicroBatch& samples) {
  if (!at) return nullptr;  // time-only
  Training& training = state_.options.training;
  training.executor().wait(at->parameters->producer);
  auto sum = promise(at, samples);
  for (auto& chunk : sum->chunks) {
    evaluate_chunk(chunk, std::exchange(chunk.at, nullptr), training.objective());
    if (collectives_.are_under_way()) waiting_.progress();
  }
  sum->submitted = true;
  return sum;
}

void MpiMicroBatches::count_overrun(Duration drawn, Duration measured) {
  ++emulation_.emulated;
  if (measured <= drawn) return;
  ++emulation_.overruns;
  emulation_.overrun_excess += measured - drawn;
}

// Sleeps in slices, so that messages keep flowing, interrupts are noticed and the servers' end ends even an endless
// sleep. Slices are short if other ranks wait for messages of this rank, or this rank waits for a message. It does not
// sleep while values of a collective are being sent and cores suffice, because MPI advances only when it is called.
void MpiMicroBatches::sleep_until(Time end, const Deadline& deadline, bool is_endless) {
  constexpr Duration short_slice = std::chrono::microseconds(200);
  const bool ends = end - state_.now() < longest_duration / 2;
  const bool is_awaited =
      deadline.at_message || (state_.is_coordinator() && state_.has_partial_sums) || collectives_.are_under_way();
  const auto is_ended = [&] {
    return state_.servers_are_gone() || is_cancelled(deadline) || (is_endless && messages_.nobody_can_send({}));
  };
  const auto pause = [&] {
    if (state_.communicators.cores_suffice() && collectives_.are_moving()) return Duration{};
    return is_awaited || state_.transport.sending() ? short_slice : longest_slice;
  };
  if (!waiting_.sleep(endless, is_ended, ends ? end : never, pause) && deadline.at_message) waiting_.progress();
}

// A worker in a micro-batch that never ends sends nothing any more. Its process ends once all other workers have ended
// or are lost.
void MpiMicroBatches::sleep_for_ever() {
  if (!std::exchange(state_.is_lost, true)) {  // false: the loss was announced before the checkpoint
    partial_sums_.drop_results();
    state_.transport.announce(MpiTransport::Announcement::lost, state_.collectives_of_all);
  }
  waiting_.sleep(
      endless, [this] { return state_.others_are_through(); }, never, [] { return longest_slice; });
  state_.clock.book(Activity::discarded, {"a micro-batch that never ends"});
  if (state_.transport.count_announced(MpiTransport::Announcement::ended, 0, state_.options.workers) == 0)
    throw RunFailure("no worker can continue: all are in a micro-batch that never ends");
  throw EndlessMicroBatch();
}

RunTotals add_up(MpiRunState& state, MpiWaiting& waiting, const MpiMessages& messages,
                 const MpiPartialSums& partial_sums, const MpiMicroBatches& micro_batches) {
  RunTotals totals;
  totals.end = agree_on_end(state, waiting);
  Duration cut_time = state.clock.close(totals.end);
  if (!state.is_worker()) cut_time = {};
  std::vector<WorkerSums> workers;
  for (const Rank worker : state.workers()) {
    WorkerSums& own = workers.emplace_back();
    own.tally = state.book_of(worker).tally();
    own.tally += partial_sums.tally_of(worker);
    if (worker == state.self) own = {state.clock.book().account(), own.tally, micro_batches.emulation(), cut_time};
  }
  const Bytes collective_bytes = state.self == Rank{0} ? state.collective_bytes : Bytes{0};
  std::vector<std::int64_t> sums = {(messages.counted_bytes() + collective_bytes).value(), state.collectives,
                                    messages.count()};
  sums.insert(sums.end(), state.staleness_counts.begin(), state.staleness_counts.end());
  for (MPI_Request request : {begin_to_reduce(workers, MPI_SUM, state.communicators.everyone()),
                              begin_to_reduce(sums, MPI_SUM, state.communicators.everyone())})
    wait_politely_for(request, state.communicators.cores_suffice());
  for (WorkerSums& of : workers) {
    totals.emulated.push_back(of.emulation.emulated);
    totals.overruns.push_back(of.emulation.overruns);
    totals.overrun_excess += of.emulation.overrun_excess;
    const Duration lost = of.tally.lost_time(state.decided_by()) - of.cut_time;
    of.account.lose(std::clamp(lost, Duration{0}, of.account[Activity::compute]));
    totals.add(of.account, of.tally, state.decided_by());
  }
  totals.bytes = Bytes{sums[0]};
  totals.collectives = sums[1];
  totals.messages = sums[2];
  totals.staleness.assign(sums.begin() + 3, sums.end());
  report_rows(state);
  if (state.options.record) gather_record(state, cut_time, partial_sums);
  return totals;
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
