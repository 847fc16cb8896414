// Outages: times in which a worker makes no progress. They are scheduled, recorded, or random with exponential times up
// and down. Each outage is a pure function of (seed, entry, worker, number), so all methods on both clusters get the
// same outages. Outages of one worker that overlap or touch count as one outage, which loses the state if any of them
// does.
//
// An outage that begins while a worker computes stops its micro-batch. The time of the outage is booked as down.
// - State kept: the micro-batch continues after the outage.
// - State lost: the computed part of the micro-batch is lost (discarded). The worker computes it again from the newest
//   model (see Worker). Finished micro-batches of the current step still count, unless the step is computed at a
//   server's newer model.
// An outage that begins while a worker waits or communicates takes effect when the worker next computes. The worker is
// then down until the outage's end; the time before counts as waiting. If the outage has ended by then, it has no
// effect: results that the worker has sent are not lost, and the models that it receives are up to date. If a deadline
// has passed when an outage ends, the micro-batch stops there. Exceptions: a micro-batch that Preempt::microbatch lets
// finish continues, and so does one whose backward pass Preempt::backward lets finish. Preempt::layer keeps the tensors
// that were done before an outage that kept the state. A message that would end the micro-batch also waits for the end
// of the outage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// The run fails if a worker has this many outages in one micro-batch, or between two micro-batches. Counting that many
// takes a tenth of a second. Without a limit a run might never end if micro-batch times have a heavy tail, above all
// without a finite mean.
inline constexpr std::int64_t most_met = 1'000'000;
inline constexpr const char* outage_name = "outage";  // name of outages' spans

struct Outage {
  Time begin = never;
  Time end = never;
  bool loses_state = false;
};

struct ScheduledOutage {
  Duration at{};        // since the start, >= 0
  Duration duration{};  // > 0
};

struct RandomOutages {
  double mean_time_between_s = 0;  // > 0; from the end of one outage to the beginning of the next
  double mean_duration_s = 0;      // > 0
};

// Recorded faults of a cluster's nodes.
class FaultRecording {
 public:
  // Parses a file's content, compressed or not: comma-separated node, start_s, duration_s in any order, other columns
  // ignored, nodes numbered from 0. Rows need no order, and faults of a node may overlap. A fault that takes no time is
  // ignored. Throws FileFault, which names `file` and the line.
  FaultRecording(std::string file, std::string_view content);

  struct Fault {
    double start_s, duration_s;
  };
  const std::vector<Fault>& of(int node) const;                   // by ascending start; none for nodes without rows
  int nodes() const { return static_cast<int>(faults_.size()); }  // the largest number, plus 1
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::vector<std::vector<Fault>> faults_;
};

// Each worker of the entry is down when its node was, at `time_scale` times the recorded times.
struct RecordedOutages {
  std::shared_ptr<const FaultRecording> recording{};
  double time_scale = 1;     // > 0
  std::vector<int> nodes{};  // node of each of the entry's workers, in their order; empty: drawn by the seed
  int node_count = 0;        // number of nodes to draw from, each at most once; unrecorded nodes have no fault
};

struct OutageEntry {
  std::vector<Rank> workers{};  // empty: all
  std::variant<ScheduledOutage, RandomOutages, RecordedOutages> when{};
  bool loses_state = false;
};

// The table `restart` of a method whose workers communicate by collectives alone. The beginning of each outage is a
// fault that stops the whole job. A spare server replaces the worker's, so the outage's length does not matter. The
// job continues from its newest checkpoint and repeats the work since then. Repeating gives the same model, so all
// workers are down during a restart and keep their state.
// Differs: a restart that begins while workers communicate takes effect afterwards (see above).
struct JobRestart {
  Duration takes{};             // >= 0; from a fault until the job runs again
  Duration checkpoint_every{};  // > 0; work of the job between two checkpoints
  Duration checkpoint_takes{};  // >= 0; all workers stop meanwhile; a fault before its end leaves no checkpoint
};

// Reads the table `restart` of a method; nullopt without it. `sends_messages`: whether the method's workers send
// messages. The table is then a fault, because a restart does not stop messages.
std::optional<JobRestart> read_job_restart(Settings& settings, bool sends_messages);

class JobOutages;  // the outages that all workers of a job have in common

// The outages of one worker, in order of time.
class WorkerOutages {
 public:
  // Returns the first outage that ends after `time`, which must not decrease from call to call; a default Outage if
  // there is none. Throws RunFailure if most_met other outages end before it.
  const Outage& next(Time time);
  [[noreturn]] void give_up() const;  // throws the RunFailure of next()

 private:
  friend class OutagePlan;
  // The outages of one entry, or of the job.
  struct Source {
    std::function<Outage()> draw;  // returns one outage after another; a default Outage after the last one
    Outage next = draw();
  };
  void advance();

  Rank worker_{};
  std::vector<Source> sources_;
  Outage current_{.begin = start_time, .end = start_time};
};

class OutagePlan {
 public:
  static constexpr std::size_t most_entries = 255;  // each has its own random stream

  OutagePlan(std::uint64_t seed, std::vector<OutageEntry> entries);
  // Treats the outages of `faults` as faults of a restarting job with `workers` workers.
  OutagePlan(const OutagePlan& faults, const JobRestart& restart, int workers);

  const std::vector<OutageEntry>& entries() const { return entries_; }
  WorkerOutages of(Rank worker) const;
  bool loses_state(Rank worker) const;  // whether any outage of the worker loses the state
  // Returns notes for users on recordings: how many of the listed nodes have no fault, or that all nodes that the
  // entry's workers draw have none. `workers`: number of workers of the cluster.
  std::vector<std::string> notes_on_nodes(int workers) const;

 private:
  std::uint64_t seed_;
  std::vector<OutageEntry> entries_;
  std::shared_ptr<JobOutages> job_{};  // null: each worker has its own outages
};

// How a micro-batch passes through outages and a deadline.
struct Passage {
  struct Piece {
    Time end;
    bool down;
  };
  std::vector<Piece> pieces{};  // in order and without gaps, from the start
  Duration worked{};            // total duration of the pieces that are not down
  Time end{};
  bool kept = false;
  bool lost_state = false;    // an outage erased the state; the worker is up again at the end
  bool is_timed_out = false;  // the deadline passed before a message that could have ended the micro-batch
  double backward = 0;        // if not kept and the state was not lost: the share that counts (see backward_share)
};
// Returns the passage of a micro-batch that starts at `start` and takes `duration` if nothing stops it. `outages`: null
// for none. A micro-batch that never ends has no outages, unless a deadline ends it. Throws RunFailure if it has
// most_met outages.
Passage pass(const WorkerOutages* outages, Time start, Duration duration, const Deadline& deadline);

// One worker's state in a simulation of outages.
struct OutageProgress {
  WorkerOutages outages;
  bool may_lose_state = false;
  bool has_lost_state = false;
  std::vector<Outage> met{};  // outages since the worker last met others

  void add(Time begin, Time end, Time met_at);
  Duration down_beyond(Time time) const;
};

}  // namespace syncopate
