// Entries of [[delays]]: the table of distributions, and the workers and steps to which a delay applies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

// Bursts: the steps of a worker, or of a group, alternate between on and off according to a Markov chain with two
// states. Thread-safe.
class Bursts {
 public:
  // The lengths of both states are geometric with these means, at least 1. Each step, including the first, is on with
  // probability share(). Caches the state of `chains` workers or groups; calls for other workers take longer.
  Bursts(double mean_on_steps, double mean_off_steps, std::size_t chains);

  // A pure function of the stream's seed, number, worker (or group) and step, independent of earlier calls. No other
  // object may use `stream`.
  bool is_on(RandomStream stream) const;

  double share() const { return share_; }  // share of steps that are on

 private:
  // One uniform number per step decides: below `on_below_` the step is on, from `off_from_` on it is off. Between these
  // bounds the step keeps the state of the preceding step or, with `flips_`, has the opposite state. `flips_` is set if
  // states are so short that a change is more likely.
  double share_;
  double on_below_;
  double off_from_;
  bool flips_;
  // By chain: the step and state of the last call, encoded as 2 step + on + 2. 0: no call yet.
  mutable std::vector<std::atomic<std::int64_t>> memory_;
};

struct DelayContext {
  double base_s;                              // duration of a micro-batch without delays, a unit for entries
  int workers = 0;                            // number of workers in the cluster; 0: unknown
  std::vector<TraceLimit>* traces = nullptr;  // limits to check against the budget; null: not checked
  int micro_batches = 0;                      // micro-batches per step; 0: unknown
  double unit_s = 1;                          // seconds per unit of the entry's quantities
};

// A family of delays: its name, one sentence for `syncopate list` and messages, and the factory that reads its keys.
struct DelayRow {
  std::string_view name;
  std::string_view sentence;
  std::shared_ptr<const DelayProcess> (*make)(Settings& settings, const DelayContext& context);
  bool follows_steps = false;  // its delays depend on the step
};

std::span<const DelayRow> delays();

// Reads one entry of [[delays]]: `kind`, the keys of that family, `unit` and the keys of DelayReach. The unit is
// "seconds" (the default) or "micro_batch", multiples of base_s (cluster.micro_batch_s). `settings` collects faults.
// Never null: an unknown kind gives a delay of 0 s.
std::shared_ptr<const DelayProcess> make_delay(Settings& settings, DelayContext context);

enum class DelayScope {
  micro_batch,  // one draw per micro-batch
  step,         // one draw per step, added to its first micro-batch
  whole_step,   // one draw per step, added to each of its micro-batches
  worker,       // one draw for the whole run, added to each micro-batch: a slow machine
};

struct BurstLengths {
  double mean_on_steps = 1;
  double mean_off_steps = 1;
};

struct DelayReach {
  DelayScope scope = DelayScope::micro_batch;
  int group_size = 1;                    // consecutive ranks that share draws and bursts: a rack, a server
  std::vector<int> workers{};            // workers that have the delay; empty: all
  std::optional<BurstLengths> bursts{};  // if given, the delay occurs only in bursts
  int cluster_size = 0;                  // number of workers whose bursts are cached
};

// Restricts a process to the scope, workers and bursts of `reach`. Group g draws the random numbers of worker g. Scope
// "worker" and bursts have separate random numbers. mean_s(), variance_s2() and minimum_s() describe a micro-batch of a
// worker that has the delay; with scope "step" they describe a step's first micro-batch.
std::shared_ptr<const DelayProcess> scoped_delay(std::shared_ptr<const DelayProcess> process, DelayReach reach);

}  // namespace syncopate
