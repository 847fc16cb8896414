// The delay families that an experiment file may name. One row each: its name,
// one sentence for `syncopate list` and the messages, and the factory that reads its keys.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/delays/compute_time.hpp"
#include "workers/delays/trace_section.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

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
// "micro_batch", multiples of base_s (cluster.micro_batch_s), and the keys of its reach (scoped_delay.hpp).
// Faults are collected by `settings`; with an unknown kind the result is a delay of 0 s, so it is never null.
std::shared_ptr<const DelayProcess> make_delay(Settings& settings, DelayContext context);

}  // namespace syncopate
