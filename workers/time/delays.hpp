// Whom a delay concerns, and how long a draw lasts: the keys that every entry of [[delays]] may have.
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

// Bursts: a worker, or a group, is on for some steps and off for some, by a Markov chain with two states.
class Bursts {
 public:
  // Geometric lengths of these means, both at least 1. The first step is on with the share of on-steps, so that
  // every step is. `chains`: as many workers or groups are remembered, those beyond cost time.
  Bursts(double mean_on_steps, double mean_off_steps, std::size_t chains);

  // A pure function of the stream's seed, number and worker (or group), and of the step, whatever was asked
  // before. `stream` belongs to this object alone.
  bool is_on(RandomStream stream) const;

  double share() const { return share_; }  // of the steps that are on

 private:
  bool starts_on(RandomStream stream) const;

  // One uniform number per step decides: below `on_below_` the next state is on whatever it was, from `off_from_`
  // on it is off. Between them it is what it was, or, where states are so short that staying is less likely than
  // changing, what it was not.
  double share_;
  double on_below_;
  double off_from_;
  bool flips_;
  // Per chain, the latest step that was asked for, and its state: 2 step + on, plus 2. 0: none yet.
  mutable std::vector<std::atomic<std::int64_t>> memory_;
};

// The delay families that an experiment file may name. One row each: its name,
// one sentence for `syncopate list` and the messages, and the factory that reads its keys.
// What an entry of [[delays]] is read with.
struct DelayContext {
  DelayContext(double base_s, int workers = 0, std::vector<TraceLimit>* traces = nullptr,  // NOLINT
               int micro_batches = 0)
      : base_s(base_s), workers(workers), traces(traces), micro_batches(micro_batches) {}
  double base_s;                    // a micro-batch without delays, for entries whose unit it is
  int workers;                      // of the cluster; 0: not known
  std::vector<TraceLimit>* traces;  // may be null: nobody checks them against the budget
  int micro_batches;                // of a step; 0: not known
  double unit_s = 1;                // the seconds that one unit of the entry's quantities stands for
};

struct DelayRow {
  std::string_view name;
  std::string_view sentence;
  std::shared_ptr<const DelayProcess> (*make)(Settings& settings, const DelayContext& context);
  bool follows_steps = false;  // tells step from step by itself
};

std::span<const DelayRow> delays();

// One entry of [[delays]]: `kind`, the keys of that family, `unit`: "seconds" (the default) or
// "micro_batch", multiples of base_s (cluster.micro_batch_s), and the keys of its reach.
// Faults are collected by `settings`; with an unknown kind the result is a delay of 0 s, so it is never null.
std::shared_ptr<const DelayProcess> make_delay(Settings& settings, DelayContext context);

enum class DelayScope {
  micro_batch,  // a draw per micro-batch
  step,         // a draw per step, added to its first micro-batch
  whole_step,   // a draw per step, added to each of its micro-batches: they are as slow as each other
  worker,       // a draw for the whole run, added to each micro-batch: a slow machine
};

struct BurstLengths {
  double mean_on_steps = 1;
  double mean_off_steps = 1;
};

struct DelayReach {
  DelayScope scope = DelayScope::micro_batch;
  int group_size = 1;                    // so many consecutive ranks share their draws and bursts: a rack, a server
  std::vector<int> workers{};            // who is concerned; empty: everybody
  std::optional<BurstLengths> bursts{};  // the delay counts in bursts alone
  int cluster_size = 0;                  // bursts are fastest for so many workers

  bool everything() const { return scope == DelayScope::micro_batch && group_size == 1 && workers.empty() && !bursts; }
};

// The process with this reach. Group g draws what worker g would draw by itself; scope "worker" and
// bursts have random numbers of their own. mean_s(), variance_s2() and minimum_s() are of a micro-batch on a worker
// that it concerns; with scope "step" of a step's first one.
std::shared_ptr<const DelayProcess> scoped_delay(std::shared_ptr<const DelayProcess> process, DelayReach reach);

// Keys: scope, group_size, workers, bursts = { mean_on_steps, mean_off_steps }. `follows_steps`: the process tells
// step from step by itself, so that a draw for the whole run makes no sense.
DelayReach read_delay_reach(Settings& settings, int workers, bool follows_steps);

}  // namespace syncopate
