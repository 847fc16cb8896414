#include "workers/mpi/worker_steps.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace syncopate {

void close_rows(const std::vector<std::vector<WorkerStep>>& by_worker, StepRows& rows) {
  std::map<std::int64_t, StepRow> merged;
  for (const std::vector<WorkerStep>& steps : by_worker) {
    std::int64_t bytes_before = 0;
    for (const WorkerStep& own : steps) {
      StepRow& row = merged[own.step];
      row.step = Step{own.step};
      row.end = std::max(row.end, Time{Duration{own.end_ns}});
      row.kept += own.kept;
      row.dropped += own.dropped;
      row.period = std::max(row.period, Step{own.period});
      row.bytes += Bytes{own.bytes - std::exchange(bytes_before, own.bytes)};
    }
  }
  for (const auto& [step, row] : merged) rows.close(row, std::max(row.end, rows.begin()), rows.sent() + row.bytes);
}

}  // namespace syncopate
