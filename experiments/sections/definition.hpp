// All tables of an experiment file as read once, with the seed that stands first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sections/cluster_section.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct Definition;

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;  // null after a fault
  // All tables as they are with the method's own [methods.training]; null where it has none.
  std::shared_ptr<const Definition> own{};
};

// Complete only if there were no faults.
struct Definition {
  std::string name;
  std::string description;
  std::vector<std::uint64_t> seeds;
  ClusterSection cluster;
  TrainingSection training;
  Budget budget;
  EvaluationPlan evaluation;
  MeasurementPlan measurements;
  RecordingPlan recording;
  CheckpointPlan checkpoint;
  StepBudget steps;
  bool is_clean = false;  // there were no faults, so nothing stands in for what is faulty
  std::vector<Method> methods;

  // What holds for the method.
  const Definition& of(const Method& method) const { return method.own ? *method.own : *this; }
};

struct DefinitionOptions {
  std::string file;                                      // which gives the experiment its name, unless it says another
  bool finite_means = false;                             // delays without an expected value are faults
  bool looks_for_data = true;                            // false: keys are read, but no data sets are looked for
  bool reads_methods = true;                             // false: all but methods
  bool takes_common = true;                              // false: [training] has no [training.common]
  std::optional<Step> after_common_phase{};              // first step of the data, where there is such a phase
  std::vector<std::shared_ptr<const Definition>> own{};  // of methods, in their order; null or left out: none
};

// Faults are collected by `root`. [sweep] is left as it is written.
Definition read_definition(Settings& root, const DefinitionOptions& options);

}  // namespace syncopate
