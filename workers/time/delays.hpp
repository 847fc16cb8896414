// Whom a delay concerns, and how long a draw lasts: the keys that every entry of [[delays]] may have.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

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
