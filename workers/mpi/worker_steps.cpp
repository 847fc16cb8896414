#include "workers/mpi/worker_steps.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace syncopate {

void close_rows(const std::vector<std::vector<StepRow>>& by_worker, StepRows& rows) {
  std::map<Step, StepRow> merged;
  for (const std::vector<StepRow>& steps : by_worker) {
    Bytes before{};
    for (StepRow own : steps) {
      own.bytes -= std::exchange(before, own.bytes);
      merged[own.step].merge(own);
    }
  }
  for (const auto& [step, row] : merged) rows.close(row, std::max(row.end, rows.begin()), rows.sent() + row.bytes);
}

}  // namespace syncopate
