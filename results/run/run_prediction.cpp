#include "results/run/run_prediction.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

std::optional<SampledTimes> sample_times(const Run& run) {
  if (!run.cluster.compute_time->has_finite_mean()) return std::nullopt;
  try {
    return sample_times(*run.cluster.compute_time, run.cluster.workers, run.cluster.micro_batches, planned_steps(run));
  } catch (const RunFailure&) {  // a trace that ends: a run may not need what the sample asks for
    return std::nullopt;
  }
}

KnownExchanges known_exchanges(const Run& run) {
  const auto& compression = run.algorithm->compression();
  const std::vector<ParameterTensor>& tensors = run.training.tensors;
  if (compression && compression->needs_tensors() && tensors.empty())
    return {.why_none = "its packets depend on the model's tensors, which are not known before it is made"};
  if (compression && compression->follows_values())
    return {.why_none = "what it sends depends on the tokens of each step"};
  try {
    const int workers = run.cluster.workers, slices = run.algorithm->traits().compressed_slices();
    const Bytes bytes = run.training.parameter_bytes;
    KnownExchanges known;
    if (!compression || (!compression->of_averages && !compression->of_messages)) {
      known.all = exchanges_of(compression, tensors, bytes, workers);
      return known;
    }
    for (int index = 0; index < slices; ++index) {
      const Slice slice{.index = index, .count = slices};
      const auto own = exchanges_of(compression, tensors, slice.bytes_of(bytes), workers).back().exchanges;
      known.of_average.insert(known.of_average.end(), own.begin(), own.end());
    }
    // Of equal slices the last one is never the smaller one.
    if (compression->of_messages) known.packet = std::exchange(known.of_average, {}).back().packet;
    return known;
  } catch (const RunFailure& failure) {  // as the run will say
    return {.why_none = failure.what()};
  }
}

Step settles_after(const Run& run) {
  const auto& compression = run.algorithm->compression();
  return std::max(run.algorithm->traits().settles_after, compression ? compression->warmup_steps : Step{});
}

bool ends_by_steps(const Budget& budget) { return budget.steps && !budget.seconds && !budget.samples && !budget.bytes; }

FormulaTimes predict_by_formula(const Run& run, const std::optional<SampledTimes>& times) {
  // Who leaves, or is down for a while, changes the maximum, which no formula follows.
  if (!run.cluster.data_of.empty())
    return {.all = {}, .why_none = "workers that run out of data change who is waited for"};
  if (run.cluster.outages) return {.all = {}, .why_none = "outages change who is waited for"};
  if (run.cluster.pauses) return {.all = {}, .why_none = "sleeps and trailing work overlap with what comes next"};
  KnownExchanges exchanges = known_exchanges(run);
  if (!exchanges.why_none.empty()) return {.all = {}, .why_none = exchanges.why_none};
  if (!times)
    return {.all = {},
            .why_none = run.cluster.compute_time->has_finite_mean() ? "the trace is too short for a sample of its steps"
                                                                    : "a micro-batch has no expected duration"};
  // Its share of the steps is not known where these are not.
  if (const auto& compression = run.algorithm->compression();
      compression && compression->warmup_steps > 0 && !ends_by_steps(run.budget))
    return {.all = {}, .why_none = "how much of it is its compression's warm-up is known where steps alone end it"};
  const PredictionInput input{.workers = run.cluster.workers,
                              .micro_batches = run.cluster.micro_batches,
                              .times = *times,
                              .network = *run.cluster.network,
                              .parameter_bytes = run.training.parameter_bytes,
                              .moments = run.training.optimizer->moments(),
                              .budget = run.budget,
                              .samples_per_micro_batch = run.training.samples_per_micro_batch,
                              .learning_rate = *run.training.learning_rate,
                              .exchanges = std::move(exchanges.all),
                              .average_exchanges = std::move(exchanges.of_average),
                              .packet = exchanges.packet};
  FormulaTimes result;
  Forecast forecast = run.algorithm->forecast(input);
  const Traits traits = run.algorithm->traits();
  if (traits.follows_values) return {.all = {}, .why_none = std::move(forecast.why_none)};
  if (run.cluster.network->overlap() && !forecast.minds_overlap && !forecast.predictions.empty())
    return {.all = {}, .why_none = "what is left of an exchange depends on when each worker has each bucket"};
  const bool may_queue = traits.sends_messages() && run.cluster.network->has_shared_links();
  if (may_queue && !forecast.minds_shared_links && !forecast.predictions.empty())
    return {.all = {}, .why_none = "messages wait on shared links"};
  for (Prediction& prediction : forecast.predictions) {
    const auto total_time_s = time_of_budget(input, prediction);
    result.all.push_back({std::move(prediction), total_time_s});
  }
  result.why_none = std::move(forecast.why_none);
  return result;
}

}  // namespace syncopate
