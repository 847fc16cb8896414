// A row of steps.csv.
#pragma once

#include <algorithm>
#include <cstdint>

#include "workers/cluster/collective.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// A step that all take together, or what they do on their own until they synchronise.
struct StepRow {
  Step step{};  // at its end
  Time end{};
  Duration duration{};
  std::int64_t kept = 0;
  std::int64_t dropped = 0;
  Step period{};  // the longest of its workers
  Bytes bytes{};  // sent in it, over all workers

  void add(const Contribution& part) {
    kept += part.kept;
    dropped += part.dropped();
    step = std::max(step, part.step);
    period = std::max(period, part.period);
  }
  // Parts of one row that were added up apart: it ends with the last.
  void merge(const StepRow& part) {
    add({.kept = part.kept, .planned = part.kept + part.dropped, .step = part.step, .period = part.period});
    end = std::max(end, part.end);
    bytes += part.bytes;
  }
};

}  // namespace syncopate
