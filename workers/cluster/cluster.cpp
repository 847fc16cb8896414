#include "workers/cluster/cluster.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

Gradient Cluster::compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) {
  Gradient sum;
  for (MicroBatch next = first; next.index < first.index + count; ++next.index)
    sum += *compute_gradient(self, at, next, next, {});
  return sum;
}

AgreedProgress Cluster::all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                       const Contribution& contribution, Place place) {
  CollectiveResult result = perform(self, Collective::all_reduce(std::move(gradient), numbers), contribution, place);
  gradient = std::move(result.gradient);
  if (result.numbers) std::ranges::copy(*result.numbers, numbers.begin());
  return result.agreement;
}

std::vector<PartialSum> Cluster::partial_all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                                    LateGradient late, const Contribution& contribution, Place place) {
  return perform(self, Collective::partial_all_reduce(std::move(gradient), activation, late), contribution, place).sums;
}

AgreedProgress Cluster::average(Rank self, ModelStatePtr& state, const Averaging& averaging,
                                const Contribution& contribution, Place place) {
  CollectiveResult result = perform(self, Collective::average(std::move(state), averaging), contribution, place);
  state = std::move(result.model);
  return result.agreement;
}

AgreedProgress Cluster::broadcast(Rank self, ModelStatePtr& state, Rank root, Place place) {
  CollectiveResult result = perform(self, Collective::broadcast(std::move(state), root), {}, place);
  state = std::move(result.model);
  return result.agreement;
}

AgreedProgress Cluster::barrier(Rank self, Place place, const Contribution& contribution) {
  return perform(self, Collective::barrier(), contribution, place).agreement;
}

SharedNumbers Cluster::all_gather(Rank self, std::span<const double> numbers, Place place) {
  return perform(self, Collective::all_gather(numbers), {}, place).numbers;
}

}  // namespace syncopate
