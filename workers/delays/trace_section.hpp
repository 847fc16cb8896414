// How an experiment file names a trace: [cluster.trace], or an entry of [[delays]] with kind = "trace".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "workers/delays/trace.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// What a trace asks of the budget; checked once that is known, with faults at `table`.
struct TraceLimit {
  Settings table;
  std::string file;
  int workers = 0;
  Step steps{};
  TraceEnd end = TraceEnd::error;
  int micro_batches = 0;
};

// Keys: file, end, and stretch = { block_steps, redraw_worker, together }, which has no end and takes its place. Null
// after a fault; else `limits` is one longer.
std::shared_ptr<const Trace> read_trace(Settings& table, TraceReplay& replay, std::vector<TraceLimit>& limits);

// [cluster.trace], whose durations are whole ones. Keys: those above, and like = { "3" = 0 }: worker 3 follows
// worker 0's rows. `workers`, `micro_batches`: of the cluster; 0: not known. Null after a fault.
std::shared_ptr<const DelayProcess> read_base_trace(Settings& table, int workers, int micro_batches,
                                                    std::vector<TraceLimit>& limits);

}  // namespace syncopate
