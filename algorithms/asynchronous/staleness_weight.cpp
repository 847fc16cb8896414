#include "algorithms/asynchronous/staleness_weight.hpp"

#include <algorithm>
#include <string>

namespace syncopate {

double staleness_weight(StalenessWeight rule, Step staleness) {
  const auto tau = static_cast<double>(staleness.value());
  switch (rule) {
    case StalenessWeight::none:
      break;
    case StalenessWeight::inverse:
      return 1 / std::max(tau, 1.0);
    case StalenessWeight::inverse_plus_one:
      return 1 / (tau + 1);
  }
  return 1;
}

UpdateRate read_update_rate(Settings& settings) {
  static constexpr std::string_view weights[] = {"none", "1/tau", "1/(tau+1)"};
  static constexpr std::string_view scalings[] = {"linear", "none"};
  const std::string weight = settings.choice("staleness_weight", weights, "none");
  const std::string scaling = settings.choice("rate_scaling", scalings, weight == "none" ? "linear" : "none");
  return {.weight = weight == "1/tau"       ? StalenessWeight::inverse
                    : weight == "1/(tau+1)" ? StalenessWeight::inverse_plus_one
                                            : StalenessWeight::none,
          .scaling = scaling == "none" ? RateScaling::none : RateScaling::linear};
}

}  // namespace syncopate
