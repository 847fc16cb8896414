#include "workers/mpi/mpi_record.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_reduction.hpp"
#include "workers/training/state_archive.hpp"

namespace syncopate {
namespace {

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

}  // namespace

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

}  // namespace syncopate
