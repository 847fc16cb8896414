#include "algorithms/asynchronous/staleness.hpp"

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

WorkerClocks::WorkerClocks(int workers) : clock_(workers, 0), workers_at_{workers} {}

bool WorkerClocks::tick(Rank worker) {
  const auto ahead = static_cast<std::size_t>(ahead_of_slowest(worker));
  if (ahead + 1 == workers_at_.size()) workers_at_.push_back(0);
  --workers_at_[ahead];
  ++workers_at_[ahead + 1];
  ++*clock_[worker];
  return raise_slowest();
}

bool WorkerClocks::remove(Rank worker) {
  --workers_at_[static_cast<std::size_t>(ahead_of_slowest(worker))];
  clock_[worker].reset();
  return raise_slowest();
}

bool WorkerClocks::raise_slowest() {
  bool raised = false;
  while (workers_at_.front() == 0 && workers_at_.size() > 1) {
    workers_at_.pop_front();
    ++slowest_;
    raised = true;
  }
  return raised;
}

}  // namespace syncopate
