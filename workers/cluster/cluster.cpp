#include "workers/cluster/cluster.hpp"

namespace syncopate {

Gradient Cluster::compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) {
  Gradient sum;
  for (MicroBatch next = first; next.index < first.index + count; ++next.index)
    sum += *compute_gradient(self, at, next, next, {});
  return sum;
}

}  // namespace syncopate
