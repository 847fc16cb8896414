#include "algorithms/quorum/observed_gradients.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace syncopate {

void ObservedGradients::take_arrival(Step of_version, Time now) {
  Version& version = versions_[static_cast<std::size_t>(of_version.value())];
  const double after_s = to_seconds(now - version.begun);
  if (version.arrived == arrival_s_.size()) arrival_s_.push_back(after_s);
  double& mean_s = arrival_s_[version.arrived++];
  mean_s = mixed(mean_s, after_s);
}

void ObservedGradients::take_moments(const std::optional<GradientMoments>& newest) {
  if (!newest) return;
  const GradientMoments before = moments_.value_or(*newest);
  moments_ = {.squared_norm = mixed(before.squared_norm, newest->squared_norm),
              .variance = mixed(before.variance, newest->variance)};
}

int ObservedGradients::wanted(int workers) const {
  const int most = std::min(options_.most.value_or(workers), workers), fewest = std::min(options_.fewest, most);
  if (!moments_) return most;
  std::vector<double> arrival_s(std::min(arrival_s_.size(), static_cast<std::size_t>(most)));
  std::partial_sum(arrival_s_.begin(), arrival_s_.begin() + std::ssize(arrival_s), arrival_s.begin(),
                   [](double earlier, double later) { return std::max(earlier, later); });
  return std::clamp(best_gradients(*moments_, options_.rate_times_smoothness, arrival_s), fewest, most);
}

}  // namespace syncopate
