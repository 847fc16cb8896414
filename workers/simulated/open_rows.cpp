#include "workers/simulated/open_rows.hpp"

#include <algorithm>

namespace syncopate {

void OpenRows::contribute(Rank worker, const Contribution& part) {
  last_[worker] = part.step;
  auto& [row, workers] = open_[part.step];
  ++workers;
  Book& book = stage_[worker].book;
  book.contribute(part, row);
  row.end = std::max(row.end, book.now());
  close_complete();
}

void OpenRows::leave(Rank worker) {
  ++ended_after_[last_[worker]];
  close_complete();
}

// Those to which nobody will add any more, in the order of the steps.
void OpenRows::close_complete() {
  while (!open_.empty()) {
    const auto& [step, open] = *open_.begin();
    int expected = stage_.options.workers;
    for (const auto& [last, ended] : ended_after_)
      if (last < step) expected -= ended;
    if (open.workers < expected) return;
    stage_.kept += open.row.kept;
    stage_.rows.close(open.row, open.row.end, stage_.bytes);
    open_.erase(open_.begin());
  }
}

}  // namespace syncopate
