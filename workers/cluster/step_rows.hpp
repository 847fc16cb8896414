// The rows of steps.csv of a run, in their order: every cluster closes its rows here.
#pragma once

#include <utility>

#include "workers/cluster/run_observer.hpp"
#include "workers/cluster/step_row.hpp"

namespace syncopate {

class StepRows {
 public:
  // `observer` (may be null) is told of each. The first one begins with the run, or where another cluster has left off.
  explicit StepRows(RunObserver* observer, Time begin = start_time, Bytes sent = {})
      : observer_(observer), begin_(begin), sent_(sent) {}

  // A row lasts from the end of the one before, and has the bytes that were sent since then.
  void close(StepRow row, Time end, Bytes sent_so_far) {
    row.end = end;
    row.duration = end - std::exchange(begin_, end);
    row.bytes = sent_so_far - std::exchange(sent_, sent_so_far);
    if (observer_) observer_->on_row(row);
  }

  // What a collective of all workers makes of it.
  void close(Collective::Kind kind, const StepRow& row, Time end, Bytes sent_so_far) {
    if (is_row(kind, row)) close(row, end, sent_so_far);
  }
  static bool is_row(Collective::Kind kind, const StepRow& row) {
    return properties_of(kind).makes_row || row.kept + row.dropped > 0;
  }

  // Of the next row: when it begins, and what has been sent by then.
  Time begin() const { return begin_; }
  Bytes sent() const { return sent_; }

 private:
  RunObserver* observer_;
  Time begin_;
  Bytes sent_;
};

}  // namespace syncopate
