#include "algorithms/local_sgd.hpp"

namespace syncopate {

void LocalSgd::run(Worker& worker) const {
  while (worker.budget_left()) {
    const Step period = period_->at(worker.step(), worker.learning_rate(), worker.steps_left());
    for (Step s = 0; s < period && worker.budget_left_alone(); ++s)
      worker.descend(worker.compute_step_gradient() / worker.micro_batches());
    worker.average_model(policy_);
    worker.publish();
  }
}

namespace {

StatePolicy read_policy(Settings& settings, std::string_view key, std::string_view fallback) {
  static constexpr std::string_view names[] = {"keep", "average", "reset"};
  const std::string name = settings.choice(key, names, std::string(fallback));
  return name == "keep" ? StatePolicy::keep : name == "average" ? StatePolicy::average : StatePolicy::reset;
}

}  // namespace

std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context) {
  Settings period = settings.section("period");
  std::shared_ptr<const SyncPeriod> rule =
      make_sync_period(period, {context.learning_rate_warmup, context.total_steps});
  const AveragePolicy policy{.moments = read_policy(settings, "moments", "keep"),
                             .buffers = read_policy(settings, "buffers", "average")};
  return std::make_unique<LocalSgd>(std::move(rule), policy);
}

}  // namespace syncopate
