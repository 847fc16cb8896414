#include "algorithms/local_sgd/local_phase.hpp"

#include <limits>

namespace syncopate {
namespace {

// Epochs that no training comes to are the orders of single workers.
constexpr std::int64_t first_own_epoch = std::int64_t{1} << 30;

}  // namespace

std::optional<LearningRate> LocalPhase::learning_rate_over(Step steps) const {
  if (!learning_rate) return std::nullopt;
  LearningRate::Options options = *learning_rate;
  if (options.shape == LearningRate::Shape::constant) return LearningRate(options);
  if (steps < Step{1}) return std::nullopt;
  options.total_steps = steps;
  return LearningRate(options);
}

LocalTraining::LocalTraining(const LocalPhase& phase, Worker& worker)
    : phase_(phase), worker_(worker), begun_(worker.step()) {}

void LocalTraining::take_steps(Step count) {
  for (Step taken{}; taken < count && worker_.budget_left(Judged::alone); ++taken) {
    const Gradient sum = compute_step();
    worker_.descend(sum / phase_.micro_batches.value_or(worker_.micro_batches()),
                    {.micro_batches = phase_.micro_batches});
  }
}

Gradient LocalTraining::compute_step() {
  if (!phase_.micro_batches && phase_.sampling == LocalPhase::Sampling::shards) return worker_.compute_step_gradient();
  Gradient sum;
  for (int m = 0; m < phase_.micro_batches.value_or(worker_.micro_batches()); ++m)
    sum += *worker_.compute_gradient(next_samples(), Deadline());
  return sum;
}

// Those of its shard follow each other whatever the size of a step. Of all samples, those of one worker after the
// other, as an epoch of nobody else divides them: an epoch of the data, which begins before the run's first step.
MicroBatch LocalTraining::next_samples() {
  const std::int64_t number = taken_++, of_step = worker_.micro_batches();
  if (phase_.sampling == LocalPhase::Sampling::shards)
    return {worker_.rank(), begun_ + number / of_step, static_cast<int>(number % of_step)};
  const std::int64_t workers = worker_.size(), steps = phase_.steps_per_epoch.value();
  const std::int64_t of_epoch = workers * steps * of_step;
  const std::int64_t epoch = first_own_epoch + number / of_epoch * workers + worker_.rank().value;
  const std::int64_t place = number % of_epoch;
  const std::int64_t step = epoch * steps + place / workers / of_step - phase_.first_step.value() % steps;
  return {Rank{static_cast<int>(place % workers)}, Step{step}, static_cast<int>(place / workers % of_step)};
}

// The card.
LocalPhase read_local_phase(Settings& settings, const AlgorithmContext& context) {
  LocalPhase phase;
  if (!settings.has("local_phase")) return phase;
  Settings table = settings.section({"local_phase", "What is otherwise once workers train on their own (SWAP)."});
  if (const auto count =
          table.optional_integer({"micro_batches", "Of a worker's step.", "micro-batches", "as before"}, 1, 1'000'000))
    phase.micro_batches = static_cast<int>(*count);
  using Sampling = LocalPhase::Sampling;
  phase.sampling =
      table.choice({"sampling", "Each worker takes its part of each epoch, or all samples in its own order."},
                   {{"shards", Sampling::shards}, {"own-order", Sampling::own}}, phase.sampling);
  if (phase.sampling == Sampling::own && !context.has_epochs) table.fault("sampling", "needs a data set");
  if (phase.sampling == Sampling::own && context.divides_data)
    table.fault("sampling", "must be \"shards\" where training.partition divides the data among the workers");
  phase.first_step = context.first_step;
  phase.steps_per_epoch = context.steps_per_epoch.value_or(Step{1});
  using Shape = LearningRate::Shape;
  if (const auto peak = table.optional_number({"peak", "Its learning rate, first of all.", "", "the schedule goes on"},
                                              Range::positive())) {
    LearningRate::Options rate;
    rate.peak = *peak;
    rate.shape = table.choice({"schedule", "How the learning rate goes on from there to `final`."},
                              {{"constant", Shape::constant}, {"linear", Shape::linear}, {"cosine", Shape::cosine}},
                              Shape::constant);
    rate.final = table.number({"final", "Where linear and cosine end."}, Range::at_least(0), 0.0);
    if (rate.shape != Shape::constant && !context.counts_steps)
      table.fault("schedule", "must be constant where the budget is not counted in steps");
    phase.learning_rate = rate;
  }
  return phase;
}

}  // namespace syncopate
