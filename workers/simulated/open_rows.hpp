// Rows of steps.csv of methods without collectives on the simulated cluster: each is open until all workers have done
// its step, or have ended.
#pragma once

#include <map>

#include "workers/simulated/stage.hpp"

namespace syncopate {

class OpenRows {
 public:
  explicit OpenRows(Stage& stage) : stage_(stage), last_(stage.options.workers) {}

  void contribute(Rank worker, const Contribution& part);
  void leave(Rank worker);  // its program has ended

 private:
  struct OpenRow {
    StepRow row;
    int workers = 0;
  };
  void close_complete();

  Stage& stage_;
  std::map<Step, OpenRow> open_;
  ByRank<Step> last_;                // of each worker
  std::map<Step, int> ended_after_;  // how many workers have ended, by their last row
};

}  // namespace syncopate
