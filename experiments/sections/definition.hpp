// All tables of an experiment file as read once, with the seed that stands first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/sections/cluster_section.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;  // null after a fault
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
  RecordingPlan recording;
  std::vector<Method> methods;
};

struct DefinitionOptions {
  std::string file;            // which gives the experiment its name, unless it says another
  bool finite_means = false;   // delays without an expected value are faults
  bool looks_for_data = true;  // false: keys are read, but no data sets are looked for
};

// Faults are collected by `root`. [sweep] is left as it is written.
Definition read_definition(Settings& root, const DefinitionOptions& options);

}  // namespace syncopate
