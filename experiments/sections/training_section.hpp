// The table [training]: what is trained, by which optimizer, at which learning rate.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "results/run/run.hpp"
#include "workers/models/registry.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/optimizer.hpp"
#include "workers/units/units.hpp"
#include "workers/worker.hpp"

namespace syncopate {

struct TrainingSection {
  ObjectivePlan objective;
  TrainingPlan plan;  // its learning rate is read later
};

// Never has a null optimizer; faults are collected by the settings. In a time-only run everything but
// `parameters` is optional.
TrainingSection read_training(Settings& root, const ObjectiveContext& context);

// The table [training.learning_rate]. `budget` gives the total number of steps where the file does not;
// steps_per_epoch = 0: there is no data set. Never null.
std::shared_ptr<const LearningRate> read_learning_rate(Settings& root, const Budget& budget,
                                                       std::int64_t steps_per_epoch, bool time_only);

// One row per schedule that [training.learning_rate] may name.
struct LearningRateRow {
  std::string_view name;
  std::string_view sentence;
  LearningRate::Shape shape;
};
std::span<const LearningRateRow> learning_rate_schedules();

// One row per optimizer that [training.optimizer] may name.
struct OptimizerRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<Optimizer> (*make)(Settings& settings);
};
std::span<const OptimizerRow> optimizers();

// `epochs` in optimizer steps, rounded to the nearest; a fault at `key` where there is no data set.
Step steps_of_epochs(Settings& settings, std::string_view key, double epochs, std::int64_t steps_per_epoch);

}  // namespace syncopate
