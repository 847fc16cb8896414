#include "algorithms/local_sgd/local_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace syncopate {

void LocalSgd::run(Worker& worker) const {
  while (worker.budget_left()) {
    take_local_steps(worker, period_->at(worker.step(), worker.learning_rate(), worker.steps_left()));
    worker.average_model(policies_.average);
    publish(worker, policies_);
  }
}

void take_local_steps(Worker& worker, Step count) {
  for (Step taken{}; taken < count && worker.budget_left_alone(); ++taken)
    worker.descend(worker.compute_step_gradient() / worker.micro_batches());
}

std::vector<Prediction> LocalSgd::predict(const PredictionInput& input) const {
  return predict_rounds(*period_, policies_.average, input);
}

std::vector<Prediction> predict_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                       const PredictionInput& input) {
  constexpr Step longest_round = 1'000'000'000;  // longer ones end with a budget that does not count steps
  constexpr int most_rounds = 1'000'000;
  const double average_s = input.average_s(policy);
  const double samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  const double steps = std::min(input.budget.steps ? static_cast<double>(input.budget.steps->value()) : 1e15,
                                input.budget.samples ? *input.budget.samples / samples_per_step : 1e15);
  const Step end = static_cast<Step::Rep>(std::ceil(steps));
  std::map<Step, double> slowest_sums;  // by their length
  double time_s = 0;
  Step done{};
  int rounds = 0;
  for (; done < end && time_s < input.budget.seconds.value_or(1e300); ++rounds) {
    const Step length = period.at(done, input.learning_rate.at(done), end - done);
    if (length > longest_round || rounds == most_rounds || (input.budget.bytes && steps == 1e15)) return {};
    const auto [sum, is_new] = slowest_sums.try_emplace(length);
    if (is_new)
      sum->second =
          expected_slowest_sum(input.times, input.workers, input.micro_batches, static_cast<double>(length.value()));
    time_s += sum->second + average_s;
    done += length;
  }
  const auto taken = static_cast<double>(done.value());
  const double sync_s = expected_slowest_sum(input.times, input.workers, input.micro_batches) + input.all_reduce_s();
  return {{.formula = "rounds of normal sums",
           .step_time_s = time_s / taken,
           .communication_s = rounds * average_s / taken,
           .kept = 1,
           .drop_rate = 0,
           .sync_step_time_s = sync_s}};
}

std::shared_ptr<const SyncPeriod> read_sync_period(Settings& settings, const AlgorithmContext& context) {
  Settings period = settings.section("period");
  return make_sync_period(period, {context.learning_rate_warmup, context.total_steps, context.budget_ends_alone});
}

std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context) {
  auto period = read_sync_period(settings, context);
  return std::make_unique<LocalSgd>(std::move(period), read_state_policies(settings));
}

}  // namespace syncopate
