#include "tests/algorithms/simulated_run.hpp"

#include <fmt/format.h>

#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/network.hpp"

namespace syncopate {

void DelayOfWorker::add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const {
  for (double& added : added_s) added += delay_s_.at(static_cast<std::size_t>(stream.worker.value));
}

void SimulatedRun::Outcome::on_row(const StepRow& round) {
  rounds.push_back(round);
  log.push_back(fmt::format("step {} at {:.3f} s: kept {}, dropped {}", round.step.value(), to_seconds(round.end),
                            round.kept, round.dropped));
}

void SimulatedRun::Outcome::on_publish(const Publication& publication) {
  last = publication.model;
  last_members = publication.ensemble;
  published = publication.step;
  samples = publication.samples;
  learning_rate = publication.learning_rate;
  publications.push_back(publication);
  publications.back().model = nullptr;  // so that steps may update it in place
  publications.back().ensemble.clear();
  publications.back().own.models.clear();
}

void SimulatedRun::Outcome::on_individual_model(WorkerModel&& model) {
  own_states[model.step][model.worker] = std::exchange(model.model, nullptr);
  individual_models.push_back(std::move(model));
}

SimulatedRun::Outcome SimulatedRun::run(const Algorithm& algorithm) const {
  Outcome outcome;
  outcome.individual_models_every = individual_models_every;
  Executor executor(threads);
  Training training(objective, optimizer ? optimizer : make_sgd({.momentum = momentum}), {.clip_norm = clip_norm},
                    executor);
  training.set_parameter_bytes(16);
  const ComputeTime compute_time(seed, base_s, worker_factors, delays);
  const auto fixed = make_fixed_network(network_s);
  const NetworkModel& cost = network ? *network : *fixed;
  const auto cluster = make_simulated_cluster({.workers = workers,
                                               .servers = algorithm.traits().servers,
                                               .micro_batches = micro_batches,
                                               .compute_time = compute_time,
                                               .network = cost,
                                               .training = training,
                                               .observer = &outcome,
                                               .record = nullptr,
                                               .outages = outages.get(),
                                               .pauses = pauses.get()},
                                              in_lockstep ? algorithm.traits().lockstep_under(budget) : std::nullopt);
  const LearningRate constant(LearningRate::Options{.peak = rate});
  const RunContext context{.cluster = *cluster,
                           .training = training,
                           .learning_rate = learning_rate ? *learning_rate : constant,
                           .budget = budget,
                           .micro_batches = micro_batches,
                           .observer = &outcome,
                           .initial_model = training.initial_state(),
                           .seed = 1,
                           .data_of = data_of};
  outcome.totals = run_algorithm(algorithm, context);
  if (outcome.last) {
    outcome.parameters = training.values(outcome.last);
    for (const auto& member : outcome.last_members) outcome.members.push_back(training.values(member));
    const auto estimated = training.recalibrated(outcome.last, outcome.publications.back().recalibration);
    executor.wait(producer(estimated->buffers));
    if (estimated->buffers) {
      const auto values = estimated->buffers->value.span();
      outcome.buffers.assign(values.begin(), values.end());
    }
  }
  for (const auto& [step, models] : outcome.own_states)
    for (const auto& [worker, model] : models)
      if (model) outcome.own_values[step][worker] = training.values(model);
  outcome.own_states.clear();
  outcome.last = nullptr;
  outcome.last_members.clear();
  return outcome;
}

}  // namespace syncopate
