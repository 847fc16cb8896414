// The table [training]: what is trained, by which optimizer, at which learning rate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "results/run/run.hpp"
#include "workers/models/objective_plan.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/optimizer.hpp"
#include "workers/units/units.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// How many steps an epoch has: none where there is no data set, or where what says so is faulty. What would follow from
// that is then no fault of its own.
struct EpochLength {
  std::optional<Step> steps{};
  bool is_faulty = false;
};

struct TrainingSection {
  ObjectivePlan objective;
  TrainingPlan plan;  // its learning rate is read later
  EpochLength epoch;
  Step first_step{};  // of the data: so many steps lie before the run's first
};

// Never has a null optimizer; faults are collected by the settings. In a time-only run everything but
// `parameters` is optional. `after_common_phase`: the first step of the data where there is such a phase.
// `takes_common`: whether there may be one.
TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase = {},
                              bool takes_common = true);

// The steps of a budget: whether it counts them, and how many they are, as far as its keys are without faults.
struct StepBudget {
  bool is_counted = false;
  std::optional<Step> steps{};
};

// The table [training.learning_rate]. `budget` gives the total number of steps where the file does not. Never null.
std::shared_ptr<const LearningRate> read_learning_rate(Settings& training, const StepBudget& budget,
                                                       const EpochLength& epoch, bool time_only);

// One row per schedule that [training.learning_rate] may name.
struct LearningRateRow {
  std::string_view name;
  std::string_view sentence;
  LearningRate::Shape shape;
};
std::span<const LearningRateRow> learning_rate_schedules();

// The table [training.optimizer]. Never null.
std::unique_ptr<Optimizer> read_optimizer(Settings& training, const ObjectivePlan& objective);

// One row per optimizer that [training.optimizer] may name.
struct OptimizerRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<Optimizer> (*make)(Settings& settings);
};
std::span<const OptimizerRow> optimizers();

// `epochs` in optimizer steps, rounded to the nearest; none, with a fault at `key`, where there is no data set.
std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch);

}  // namespace syncopate
