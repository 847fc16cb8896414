// Models that each worker has of its own, put together at multiples of an interval of the cluster's clock: of each
// worker the model after its first step that ends at or after the multiple. Whoever is slow decides when all have one;
// multiples up to that time are passed with it. Once a worker has ended without one there are no more: those of the
// others alone would not stand for all.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "workers/cluster/run_observer.hpp"
#include "workers/units/by_rank.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

class ModelsByTime {
 public:
  ModelsByTime(int workers, Duration every) : every_(every), workers_(workers), of_(workers) {}

  // Whether a model that this worker has now is its first at or after some multiple.
  bool wants(Rank worker, Time now) const { return !is_over_ && multiple_of(now) > of_[worker].reached; }
  void add(OwnModel&& model);  // one that is wanted
  void end(Rank worker) { of_[worker].has_ended = true; }

  // The next ones by worker, if all have one.
  std::optional<std::map<Rank, OwnModel>> take_first();
  // All that are not yet passed, worker by worker.
  std::vector<OwnModel> take_all();

 private:
  struct OfWorker {
    std::deque<OwnModel> models{};  // ascending in time
    std::int64_t reached = 0;       // the multiple at or before the newest
    bool has_ended = false;
  };
  std::int64_t multiple_of(Time time) const { return time.time_since_epoch() / every_; }

  Duration every_;
  int workers_;
  ByRank<OfWorker> of_;
  std::int64_t next_ = 1;  // multiple
  bool is_over_ = false;
};

}  // namespace syncopate
