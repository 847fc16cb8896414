// Runs an algorithm on a small simulated cluster with declared durations and a known objective.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/network/fixed.hpp"
#include "workers/simulated/fibers_then_lockstep.hpp"

namespace syncopate {

// Adds a fixed delay (in seconds) to every micro-batch of given workers.
class DelayOfWorker : public DelayProcess {
 public:
  explicit DelayOfWorker(std::vector<double> delay_s) : delay_s_(std::move(delay_s)) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& added : added_s) added += delay_s_.at(static_cast<std::size_t>(stream.worker.value));
  }
  double mean_s() const override { return 0; }

 private:
  std::vector<double> delay_s_;
};

struct SimulatedRun {
  int workers = 3;
  int micro_batches = 1;
  int threads = 2;
  double base_s = 1.0;
  double network_s = 0.5;                         // per collective and per message
  std::shared_ptr<const NetworkModel> network{};  // instead of the fixed cost
  double momentum = 0;
  double rate = 0.1;
  std::shared_ptr<const LearningRate> learning_rate{};  // instead of the constant `rate`
  std::shared_ptr<const Optimizer> optimizer{};         // instead of SGD with `momentum`
  Budget budget{.steps = 2};
  std::vector<double> worker_factors{};
  std::vector<std::shared_ptr<const DelayProcess>> delays{};
  std::vector<std::optional<Step>> data_of{};                                      // steps after which workers leave
  std::shared_ptr<const OutagePlan> outages{};                                     // null: none
  bool in_lockstep = false;                                                        // where that is possible
  std::shared_ptr<const Pauses> pauses{};                                          // null: none
  std::shared_ptr<const Objective> objective = std::make_shared<PullObjective>();  // null: time-only
  std::uint64_t seed = 1;                                                          // of the delays

  // What happened.
  struct Outcome : RunObserver {
    std::vector<StepRow> rounds;
    std::vector<float> parameters;            // of the last publication
    std::vector<float> buffers;               // of it, estimated anew where it asks for that
    std::vector<std::vector<float>> members;  // parameters of the last publication's ensemble, if it has one
    std::vector<std::string> log;             // one line per round: virtual times are the test
    Step published{};
    std::int64_t samples = 0;
    double learning_rate = 0;
    std::vector<Publication> publications;  // without their models
    RunTotals totals;
    std::function<std::vector<float>(const ModelStatePtr&)> read;
    ModelStatePtr last;
    std::vector<ModelStatePtr> last_members;

    void on_row(const StepRow& round) override {
      rounds.push_back(round);
      log.push_back(fmt::format("step {} at {:.3f} s: kept {}, dropped {}", round.step.value(), to_seconds(round.end),
                                round.kept, round.dropped));
    }
    void on_publish(const Publication& publication) override {
      last = publication.model;
      last_members = publication.ensemble;
      published = publication.step;
      samples = publication.samples;
      learning_rate = publication.learning_rate;
      publications.push_back(publication);
      publications.back().model = nullptr;  // so that steps may go on in place
      publications.back().ensemble.clear();
    }
  };

  Outcome run(const Algorithm& algorithm) const {
    Outcome outcome;
    Executor executor(threads);
    Training training(objective, optimizer ? optimizer : make_sgd({.momentum = momentum}), {}, executor);
    training.set_parameter_bytes(16);
    const ComputeTime compute_time(seed, base_s, worker_factors, delays);
    const auto fixed = make_fixed_network(network_s);
    const NetworkModel& cost = network ? *network : *fixed;
    const auto cluster =
        make_simulated_cluster({.workers = workers,
                                .servers = algorithm.traits().servers,
                                .micro_batches = micro_batches,
                                .compute_time = compute_time,
                                .network = cost,
                                .training = training,
                                .observer = &outcome,
                                .record = nullptr,
                                .outages = outages.get(),
                                .pauses = pauses.get()},
                               in_lockstep ? algorithm.traits().same_course_under(budget) : std::nullopt);
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
    outcome.last = nullptr;
    outcome.last_members.clear();
    return outcome;
  }
};

}  // namespace syncopate
