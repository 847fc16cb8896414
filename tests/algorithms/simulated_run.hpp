// Runs an algorithm on a small simulated cluster with declared durations and a known objective.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {

// Adds a fixed delay (in seconds) to every micro-batch of given workers.
class DelayOfWorker : public DelayProcess {
 public:
  explicit DelayOfWorker(std::vector<double> delay_s) : delay_s_(std::move(delay_s)) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override;
  double mean_s() const override { return 0; }

 private:
  std::vector<double> delay_s_;
};

struct SimulatedRun {
  int workers = 3;
  int micro_batches = 1;
  int threads = 2;
  double base_s = 1.0;
  double network_s = 0.5;                         // seconds of a collective, and of a message
  std::shared_ptr<const NetworkModel> network{};  // replaces the fixed cost
  double momentum = 0;
  double rate = 0.1;
  std::shared_ptr<const LearningRate> learning_rate{};  // replaces the constant `rate`
  std::shared_ptr<const Optimizer> optimizer{};         // replaces SGD with `momentum`
  double clip_norm = 0;                                 // 0: gradients are not clipped
  Budget budget{.steps = 2};
  std::vector<double> worker_factors{};
  std::vector<std::shared_ptr<const DelayProcess>> delays{};
  std::vector<std::optional<Step>> data_of{};   // steps after which workers leave
  std::shared_ptr<const OutagePlan> outages{};  // null: none
  bool in_lockstep = false;                     // simulate in lockstep if the method allows it
  std::shared_ptr<const Pauses> pauses{};       // null: none
  std::shared_ptr<const Objective> objective = std::make_shared<PullObjective>();  // null: time-only
  std::uint64_t seed = 1;                                                          // seed of the delays
  Step individual_models_every{0};  // steps at which workers' own models are kept; 0: none

  struct Outcome : RunObserver {
    std::vector<StepRow> rounds;
    std::vector<float> parameters;            // parameters of the last publication
    std::vector<float> buffers;               // buffers of the last publication, recalibrated if requested
    std::vector<std::vector<float>> members;  // parameters of the last publication's ensemble, if it has one
    std::vector<std::string> log;             // one line per round, with virtual times
    Step published{};
    std::int64_t samples = 0;
    double learning_rate = 0;
    std::vector<Publication> publications;  // `model` is null
    RunTotals totals;
    Step individual_models_every{};
    std::vector<WorkerModel> individual_models;                     // `model` is null; in the order of arrival
    std::map<Step, std::map<Rank, std::vector<float>>> own_values;  // parameters of these models
    std::function<std::vector<float>(const ModelStatePtr&)> read;
    ModelStatePtr last;
    std::vector<ModelStatePtr> last_members;
    std::map<Step, std::map<Rank, ModelStatePtr>> own_states;

    bool wants_individual_models(Step step) const override {
      return individual_models_every > Step{0} && step.value() % individual_models_every.value() == 0;
    }
    void on_individual_model(WorkerModel&& model) override;
    void on_row(const StepRow& round) override;
    void on_publish(const Publication& publication) override;
  };

  Outcome run(const Algorithm& algorithm) const;
};

}  // namespace syncopate
