// What every participant did when, as spans without gaps or overlaps: what a timeline is drawn from.
// A span counts as the activity that it turns out to be: work whose gradient is dropped later becomes discarded
// work, and so the spans of a worker sum to its Account.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "workers/cluster/account.hpp"
#include "workers/training/objective.hpp"
#include "workers/units/by_rank.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

inline constexpr const char* micro_batch_name = "micro-batch";

struct Span {
  Activity activity{};
  Time begin{};
  Time end{};
  const char* what = "";   // lives as long as the program: "micro-batch", "all_reduce_sum", "receive", ...
  Step step{-1};           // of the micro-batch, or of the worker's last one; -1: none
  int micro_batch = -1;    // -1: not one
  bool completed = false;  // a micro-batch that came to its end, whatever became of it
  Duration duration() const { return end - begin; }
};

// What a span is for (see Span).
struct SpanLabel {
  const char* what = "algorithm";  // between the calls
  Step step{-1};
  int micro_batch = -1;
};

inline SpanLabel label_of(const MicroBatch& micro_batch) {
  return {micro_batch_name, micro_batch.step, micro_batch.index};
}

// One transfer over a server's link.
struct LinkUse {
  Time begin{};
  Time end{};
  std::optional<Rank> other{};  // who sends it, or gets it; none: a collective's
};
// What a server's link carries, one transfer after the other, with gaps.
struct LinkTracks {
  std::vector<LinkUse> in, out;
};

struct Timeline {
  std::vector<std::vector<Span>> tracks;  // by rank, servers last; each from the start, without gaps
  std::vector<LinkTracks> links{};        // by server; empty where nothing passed a link that is shared
  int workers = 0;
  Time end{};    // of the run
  Time until{};  // the tracks go so far: the run's end, unless a limit cut them
  bool capped = false;
};

class SpanRecorder {
 public:
  // Recording ends at the first that is reached. Workers share the number of spans equally (with servers half of
  // it, the servers the other half), since on the simulated cluster one worker may run far ahead of the others;
  // the spans of a step that has begun still come in.
  struct Limits {
    Duration time = Duration::max();
    std::int64_t spans = std::numeric_limits<std::int64_t>::max();
  };

  SpanRecorder(int workers, int servers) : SpanRecorder(workers, servers, Limits{}) {}
  SpanRecorder(int workers, int servers, const Limits& limits);

  // Begins where the participant's last one has ended; nothing if it ends there, too. A negative step or index:
  // see Span.
  void add(Rank rank, Activity activity, Time end, const char* what) { add(rank, activity, end, what, Step{-1}, -1); }
  void add(Rank rank, Activity activity, Time end, const char* what, Step step, int micro_batch);

  // A transfer over the link of a server; of each way in the order of their begins.
  void add_use(Rank server, bool is_in, const LinkUse& transfer);

  // What becomes of a gradient that took the worker so long. A gradient does not say which micro-batches it is made of.
  // With servers it is taken to be the worker's first undecided micro-batches that last so long together; without, its
  // last ones. Micro-batches that stay undecided are kept, so that it need not be said where there are no servers.
  void keep(Rank worker, Duration computed) {
    if (servers_ > 0) decide(worker, computed, Activity::compute);
  }
  void lose(Rank worker, Duration computed) { decide(worker, computed, Activity::discarded); }

  // Where a worker's spans are in another process, its fates are collected, and decided there in their order.
  struct Fate {
    Rank worker{};
    Duration computed{};
    Activity is{};  // compute: kept
  };
  void collect_fates() { collected_.emplace(); }
  const std::optional<std::vector<Fate>>& collected_fates() const { return collected_; }
  void decide(const Fate& fate) { decide(fate.worker, fate.computed, fate.is); }

  // Removes what lies beyond `end`, and says how much it was, as it was added; nothing if recording has ended
  // before.
  struct Removed {
    Account account;
    Duration micro_batches{};  // the part of compute that was micro-batches
  };
  std::optional<Removed> remove_beyond(Rank rank, Time end);

  // Until `end`, the end of the run: who has not come so far waits for it.
  Timeline finish(Time end);

  // To move a participant's spans to another recorder of the same limits.
  const Limits& limits() const { return limits_; }
  const std::vector<Span>& spans(Rank rank) const { return tracks_[rank].spans; }
  bool stopped(Rank rank) const { return tracks_[rank].stopped; }
  void stop(Rank rank);
  void move_in(Rank rank, const std::vector<Span>& spans);

 private:
  struct Track {
    std::vector<Span> spans;
    std::vector<std::size_t> open;  // micro-batches without a fate
    std::int64_t most_spans = 0;
    Time at{};          // the end of the last span, also if it was not recorded
    Time stopped_at{};  // of the last one that was
    // How long micro-batches since then have taken, while their fates may be those of what is open, too: after each of
    // them, and without servers after all.
    std::vector<Duration> unrecorded;
    Step step{-1};
    bool stopped = false;
  };
  struct LinkWay {
    std::vector<LinkUse> transfers;
    Time stopped_at{};  // the begin of the first that was not recorded
    bool stopped = false;
  };
  struct Run {
    std::size_t first = 0;  // in `open`
    std::size_t count = 0;
  };

  void add_unrecorded(Track& track, Duration micro_batch) const;
  void decide(Rank worker, Duration computed, Activity fate);
  std::optional<Run> find_run(const Track& track, Duration total, bool of_one_step) const;
  static std::optional<Run> find_begun_run(const Track& track, Duration total);
  static void decide_run(Track& track, const Run& run, Activity fate);
  void decide_amount(Track& track, Duration amount, Activity fate) const;

  int workers_;
  int servers_;
  Limits limits_;
  ByRank<Track> tracks_;
  std::vector<LinkWay> link_ways_;  // of servers, the way in and the way out of each; empty before the first transfer
  std::optional<std::vector<Fate>> collected_;
};

// The spans' durations by activity.
Account account_of(const std::vector<Span>& spans);

}  // namespace syncopate
