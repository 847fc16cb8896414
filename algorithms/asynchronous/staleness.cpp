#include "algorithms/asynchronous/staleness_weight.hpp"

#include <algorithm>
#include <string>

namespace syncopate {

double staleness_weight(StalenessWeight rule, Step staleness, int workers) {
  const auto tau = static_cast<double>(staleness.value());
  switch (rule) {
    case StalenessWeight::none:
      break;
    case StalenessWeight::inverse:
      return 1 / std::max(tau, 1.0);
    case StalenessWeight::inverse_plus_one:
      return 1 / (tau + 1);
    case StalenessWeight::beyond_workers:
      return workers / std::max<double>(workers, tau);
  }
  return 1;
}

UpdateRate read_update_rate(Settings& settings) {
  UpdateRate rate;
  rate.weight = settings.choice(
      {"staleness_weight",
       "Factor of the learning rate for a gradient of staleness tau; a weighted mean goes at the mean weight."},
      {{"none", StalenessWeight::none},
       {"1/tau", StalenessWeight::inverse},
       {"1/(tau+1)", StalenessWeight::inverse_plus_one},
       {"N/max(N,tau)", StalenessWeight::beyond_workers}},
      rate.weight);
  rate.scaling = settings.choice(
      {"rate_scaling", "Whether the learning rate is multiplied by an update's share of the workers' gradients."},
      {{"linear", RateScaling::linear}, {"none", RateScaling::none}},
      rate.weight == StalenessWeight::none ? RateScaling::linear : RateScaling::none,
      "\"linear\"; with a staleness_weight \"none\"");
  return rate;
}

}  // namespace syncopate
