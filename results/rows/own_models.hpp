// Models that each worker has of its own, put together step by step: what they are after so many steps is known once
// every worker has said so, or has ended.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "workers/cluster/run_observer.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

class ModelsByStep {
 public:
  explicit ModelsByStep(int workers) : workers_(workers) {}

  void add(OwnModel&& model);
  void end(Rank worker) { ended_.insert(worker); }

  // The models of the earliest step, by worker, if no further ones will come to it (`at_the_end`: whatever has come).
  std::optional<std::map<Rank, OwnModel>> take_first(bool at_the_end = false);

 private:
  int workers_;
  std::set<Rank> ended_;
  std::map<Step, std::map<Rank, OwnModel>> open_;
};

// As they are evaluated: after the most steps, at the time of the last, with what it says; the models' mean is not
// filled in. In time-only runs there are none.
Publication as_publication(const std::map<Rank, OwnModel>& models);

}  // namespace syncopate
