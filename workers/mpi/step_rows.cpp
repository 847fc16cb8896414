#include "workers/mpi/step_rows.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace syncopate {

std::vector<Round> merge_rows(const std::vector<std::vector<StepRow>>& by_worker) {
  std::map<std::int64_t, Round> merged;
  for (const std::vector<StepRow>& rows : by_worker) {
    std::int64_t bytes_before = 0;
    for (const StepRow& row : rows) {
      Round& round = merged[row.step];
      round.step = Step{row.step};
      round.end = std::max(round.end, Time{Duration{row.end_ns}});
      round.kept += row.kept;
      round.dropped += row.dropped;
      round.period = std::max(round.period, Step{row.period});
      round.bytes += Bytes{row.bytes - std::exchange(bytes_before, row.bytes)};
    }
  }
  std::vector<Round> rounds;
  Time last_end{};
  for (const auto& [step, row] : merged) {
    Round& round = rounds.emplace_back(row);
    round.end = std::max(round.end, last_end);
    round.duration = round.end - std::exchange(last_end, round.end);
  }
  return rounds;
}

}  // namespace syncopate
