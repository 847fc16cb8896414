#include "workers/time/outages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/exponential.hpp>
#include <cassert>
#include <set>
#include <utility>

#include "workers/time/trace.hpp"

namespace syncopate {

namespace {

// Returns number `index` of a stream as an exponential time of at least a nanosecond, so that time advances.
Duration exponential_time(const RandomStream& stream, std::uint32_t index, double mean_s) {
  const boost::math::exponential_distribution<double> law(1 / mean_s);
  return std::max(from_seconds(quantile(complement(law, stream.uniform(index)))), Duration{1});
}

// end_of_micro_batch() for the rest of a micro-batch of which `worked` is done. With Preempt::microbatch the rest
// finishes if the micro-batch has begun, with Preempt::backward if the backward pass has begun.
MicroBatchEnd end_of_rest(Time at, Duration duration, Duration worked, const Deadline& deadline) {
  const Duration rest = duration - worked;
  const bool stops = deadline.preempt == Preempt::discard || deadline.preempt == Preempt::layer;
  if (stops || worked == Duration{}) return end_of_micro_batch(at, rest, deadline);
  const bool is_forward = deadline.preempt == Preempt::backward && worked < forward_pass(duration, deadline);
  if (!is_forward) return {later(at, rest), true};
  if (at > deadline.at) return {at, false};
  return end_of_micro_batch(at - worked, duration, deadline);  // as if it had begun earlier by `worked`
}

// The stream of a worker's outages of an entry.
RandomStream outage_stream(std::uint64_t seed, std::size_t entry, Rank worker) {
  return {.seed = seed,
          .purpose = Purpose::outage,
          .stream = static_cast<std::uint8_t>(entry),
          .worker = worker,
          .step = Step{-1}};
}

// The nodes that the entry's workers draw, in their order, and the other nodes after them. It is a permutation, so no
// two workers have the same node.
std::vector<std::uint32_t> drawn_nodes(const RecordedOutages& recorded, RandomStream stream) {
  stream.worker = {};
  return permutation(stream, static_cast<std::size_t>(recorded.node_count));
}

// The node that the entry's worker number `place` follows.
int node_of(const RecordedOutages& recorded, std::size_t place, const RandomStream& stream) {
  if (!recorded.nodes.empty()) return recorded.nodes.at(place);
  return static_cast<int>(drawn_nodes(recorded, stream).at(place));
}

// The outages of one node, in order of time. The list may contain faults beyond the clock's range; no worker reaches
// them.
std::vector<Outage> recorded_outages(const RecordedOutages& recorded, int node, bool loses_state) {
  std::vector<Outage> outages;
  for (const auto& [start_s, duration_s] : recorded.recording->of(node)) {
    const Time begin = later(start_time, from_seconds(start_s * recorded.time_scale));
    const Time end = later(begin, std::max(from_seconds(duration_s * recorded.time_scale), Duration{1}));
    outages.push_back({begin, end, loses_state});
  }
  return outages;
}

std::function<Outage()> one_by_one(std::vector<Outage> outages) {
  return [all = std::make_shared<const std::vector<Outage>>(std::move(outages)), taken = std::size_t{0}]() mutable {
    return taken < all->size() ? (*all)[taken++] : Outage{};
  };
}

// The stream's step is the number of the last outage, at first -1. Number 0 of the stream is the time up before the
// outage, number 1 the outage's length.
std::function<Outage()> random_outages(const RandomOutages& means, RandomStream stream, bool loses_state) {
  return [=, last = Outage{start_time, start_time, loses_state}]() mutable {
    ++stream.step;
    last.begin = later(last.end, exponential_time(stream, 0, means.mean_time_between_s));
    last.end = later(last.begin, exponential_time(stream, 1, means.mean_duration_s));
    return last;
  };
}

bool concerns(const OutageEntry& entry, Rank worker) {
  return entry.workers.empty() || std::ranges::find(entry.workers, worker) != entry.workers.end();
}

}  // namespace

FaultRecording::FaultRecording(std::string file, std::string_view content) : file_(std::move(file)) {
  constexpr std::int64_t most_nodes = 1'000'000;
  CsvRows rows(file_, content, {{"node", std::nullopt, true}, "start_s", "duration_s"});
  bool has_rows = false;
  for (; rows.next(); has_rows = true) {
    const auto node = rows.integer(0, most_nodes);
    const double start_s = rows.number(1), duration_s = rows.number(2);
    if (start_s < 0) rows.fault(fmt::format("start_s = {}; must be at least 0", start_s));
    if (duration_s < 0) rows.fault(fmt::format("duration_s = {}; must be at least 0", duration_s));
    if (!node || start_s < 0 || duration_s < 0) continue;
    faults_.resize(std::max(faults_.size(), static_cast<std::size_t>(*node) + 1));
    if (duration_s > 0) faults_[static_cast<std::size_t>(*node)].push_back({start_s, duration_s});
  }
  rows.check();
  if (!has_rows) rows.fault("there are no rows after the header");
  rows.check();
  for (std::vector<Fault>& of_node : faults_) std::ranges::stable_sort(of_node, {}, &Fault::start_s);
}

const std::vector<FaultRecording::Fault>& FaultRecording::of(int node) const {
  static const std::vector<Fault> none;
  return node < nodes() ? faults_[static_cast<std::size_t>(node)] : none;
}

std::optional<JobRestart> read_job_restart(Settings& settings, bool sends_messages) {
  if (!settings.has("restart")) return std::nullopt;
  if (sends_messages)
    settings.fault("restart",
                   "must not be given: the method's workers send messages, and only methods whose workers meet in "
                   "collectives restart as a whole");
  Settings table =
      settings.section({"restart", "If given, each of the [[outages]] restarts the whole job on a spare server."});
  const Range from_zero = Range::between(0, longest_delay);
  const Range positive{.low = 0, .high = longest_delay, .low_open = true};
  JobRestart restart;
  restart.takes = from_seconds(table.number(
      {"takes_s", "Time from a fault until the job repeats the work since its checkpoint.", "s"}, from_zero));
  restart.checkpoint_every = std::max(
      Duration{1},
      from_seconds(table.number(
          {"checkpoint_every_s", "Time between two checkpoints, without restarts and repeated work.", "s"}, positive)));
  restart.checkpoint_takes = from_seconds(
      table.number({"checkpoint_takes_s", "How long all workers stop for each checkpoint.", "s"}, from_zero));
  return restart;
}

// The outages of a job that restarts. There is one for each pause for a checkpoint, and one from each fault to the end
// of the repeated work. They depend only on the faults, so copies of WorkerOutages share them, and each outage is
// computed once.
class JobOutages {
 public:
  JobOutages(std::vector<WorkerOutages> of_workers, const JobRestart& restart) : restart_(restart) {
    for (WorkerOutages& outages : of_workers) {
      const Outage first = outages.next(start_time);
      faults_.push_back({std::move(outages), first});
    }
  }

  const Outage& at(std::size_t number) {
    while (known_.size() <= number) known_.push_back(next());
    return known_[number];
  }

 private:
  struct Faults {
    WorkerOutages outages;
    Outage next;
  };

  // The first fault of any worker at `time` or later. Times must not decrease from call to call.
  Time fault_from(Time time) {
    Time first = never;
    for (Faults& faults : faults_) {
      while (faults.next.begin < time) faults.next = faults.outages.next(faults.next.end);
      first = std::min(first, faults.next.begin);
    }
    return first;
  }

  Outage next() {
    for (;;) {
      throw_if_interrupted();
      Time fault = fault_from(now_);
      const Time full = later(now_, restart_.checkpoint_every - done_);
      const Time saved = later(full, restart_.checkpoint_takes);
      if (saved == never && fault == never) return {};
      if (saved <= fault) {
        const bool pauses = saved > full;
        // Checkpoints that take no time leave no outage: pass over all of them up to the fault.
        if (!pauses && fault == never) return {};
        now_ = pauses ? saved : fault - (fault - full) % restart_.checkpoint_every;
        done_ = {};
        if (pauses) return {full, saved};
        continue;
      }
      // A fault while the checkpoint is written loses all work since the last one, and the checkpoint is written again.
      const bool writes_again = fault >= full;
      const Duration repeated = writes_again ? restart_.checkpoint_every : fault - now_ + done_;
      const Duration down = restart_.takes + repeated + (writes_again ? restart_.checkpoint_takes : Duration{});
      const Time begin = std::min(fault, full);
      for (std::int64_t met = 0;; ++met) {
        if (met == most_met)
          throw RunFailure(fmt::format(
              "at {:.6f} s: the job restarted {} times without getting beyond its last checkpoint; in the method's "
              "table restart, lower takes_s or checkpoint_every_s, or let outages be rarer",
              to_seconds(begin), most_met));
        now_ = later(fault, down);
        const Time again = fault_from(later(fault, Duration{1}));
        if (again >= now_) break;
        fault = again;
      }
      done_ = writes_again ? Duration{} : repeated;
      if (now_ > begin) return {begin, now_};
    }
  }

  JobRestart restart_;
  std::vector<Faults> faults_;
  std::vector<Outage> known_;
  Time now_ = start_time;  // the end of the last outage, or of the last checkpoint
  Duration done_{};        // work between the newest checkpoint and now_
};

OutagePlan::OutagePlan(const OutagePlan& faults, const JobRestart& restart, int workers)
    : seed_(faults.seed_), entries_(faults.entries_) {
  std::vector<WorkerOutages> of_workers;
  for (int worker = 0; worker < workers; ++worker) of_workers.push_back(faults.of(Rank{worker}));
  job_ = std::make_shared<JobOutages>(std::move(of_workers), restart);
}

OutagePlan::OutagePlan(std::uint64_t seed, std::vector<OutageEntry> entries)
    : seed_(seed), entries_(std::move(entries)) {
  assert(entries_.size() <= most_entries);
}

WorkerOutages OutagePlan::of(Rank worker) const {
  WorkerOutages result;
  result.worker_ = worker;
  const auto add = [&](std::function<Outage()> draw) { result.sources_.push_back({.draw = std::move(draw)}); };
  if (job_) {
    add([job = job_, taken = std::size_t{0}]() mutable { return job->at(taken++); });
    return result;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const OutageEntry& entry = entries_[i];
    if (!concerns(entry, worker)) continue;
    const RandomStream stream = outage_stream(seed_, i, worker);
    if (const auto* scheduled = std::get_if<ScheduledOutage>(&entry.when)) {
      const Time begin = later(start_time, scheduled->at);
      add(one_by_one({{begin, later(begin, scheduled->duration), entry.loses_state}}));
    } else if (const auto* recorded = std::get_if<RecordedOutages>(&entry.when)) {
      const auto own = std::ranges::find(entry.workers, worker);
      const auto place = entry.workers.empty() ? worker.value : own - entry.workers.begin();
      add(one_by_one(
          recorded_outages(*recorded, node_of(*recorded, static_cast<std::size_t>(place), stream), entry.loses_state)));
    } else {
      add(random_outages(std::get<RandomOutages>(entry.when), stream, entry.loses_state));
    }
  }
  return result;
}

bool OutagePlan::loses_state(Rank worker) const {
  return !job_ && std::ranges::any_of(
                      entries_, [&](const OutageEntry& entry) { return entry.loses_state && concerns(entry, worker); });
}

std::vector<std::string> OutagePlan::notes_on_nodes(int workers) const {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto* recorded = std::get_if<RecordedOutages>(&entries_[i].when);
    if (!recorded) continue;
    const FaultRecording& recording = *recorded->recording;
    const std::set<int> listed(recorded->nodes.begin(), recorded->nodes.end());
    std::set<int> without = listed;
    std::erase_if(without, [&](int node) { return !recording.of(node).empty(); });
    if (!without.empty())
      notes.push_back(fmt::format("{}: has no fault of {} of the {} listed nodes, first of node {}", recording.file(),
                                  without.size(), listed.size(), *without.begin()));
    if (!listed.empty()) continue;
    auto drawn = drawn_nodes(*recorded, outage_stream(seed_, i, {}));
    drawn.resize(entries_[i].workers.empty() ? static_cast<std::size_t>(workers) : entries_[i].workers.size());
    if (std::ranges::all_of(drawn, [&](std::uint32_t node) { return recording.of(static_cast<int>(node)).empty(); }))
      notes.push_back(
          fmt::format("{}: has no fault of the nodes that the workers draw with seed {}", recording.file(), seed_));
  }
  return notes;
}

const Outage& WorkerOutages::next(Time time) {
  for (std::int64_t met = 0; current_.end <= time && current_.begin != never; ++met) {
    if (met == most_met) give_up();
    advance();
  }
  return current_;
}

void WorkerOutages::give_up() const {
  throw RunFailure(
      fmt::format("worker {} at {:.6f} s: it had {} outages within one micro-batch, or between two; increase "
                  "mean_time_between_s in [[outages]], or bound the delays: a Pareto distribution with a shape of at "
                  "most about 1, for example, gives some delays longer than any run",
                  worker_.value, to_seconds(current_.begin), most_met));
}

void WorkerOutages::advance() {
  throw_if_interrupted();
  const auto begin_of = [](const Source& source) { return source.next.begin; };
  const auto earliest = [&] { return std::ranges::min_element(sources_, {}, begin_of); };
  auto source = earliest();
  if (source == sources_.end() || source->next.begin == never) {
    current_ = {};
    return;
  }
  current_ = std::exchange(source->next, source->draw());
  for (source = earliest(); source->next.begin != never && source->next.begin <= current_.end; source = earliest()) {
    current_.end = std::max(current_.end, source->next.end);
    current_.loses_state |= source->next.loses_state;
    source->next = source->draw();
  }
}

Passage pass(const WorkerOutages* outages, Time start, Duration duration, const Deadline& deadline) {
  const bool never_ends = duration >= longest_duration && deadline.at == never;
  WorkerOutages ahead;
  if (outages && !never_ends) ahead = *outages;
  Passage passage{.end = start};
  const auto go_on_until = [&](Time end, bool down) {
    if (end > passage.end) {
      passage.pieces.push_back({end, down});
      if (!down) passage.worked += end - passage.end;
    }
    passage.end = end;
  };
  for (std::int64_t met = 0;; ++met) {
    if (met == most_met) ahead.give_up();
    const Outage outage = ahead.next(passage.end);
    if (outage.begin <= passage.end && outage.begin != never) {
      go_on_until(outage.end, true);
      passage.lost_state = outage.loses_state;
      if (passage.lost_state) return passage;
      continue;
    }
    const MicroBatchEnd end = end_of_rest(passage.end, duration, passage.worked, deadline);
    const bool is_through = end.at <= outage.begin;
    go_on_until(is_through ? end.at : outage.begin, false);
    passage.kept = is_through && end.kept;
    if (!is_through) continue;
    if (!passage.kept) passage.backward = backward_share(passage.worked, duration, deadline);
    return passage;
  }
}

void OutageProgress::add(Time begin, Time end, Time met_at) {
  if (!met.empty() && met.back().end <= met_at) met.clear();
  met.push_back({begin, end});
}

Duration OutageProgress::down_beyond(Time time) const {
  Duration beyond{};
  for (const Outage& outage : met) beyond += std::max(outage.end - std::max(outage.begin, time), Duration{});
  return beyond;
}

}  // namespace syncopate
