// What a run leaves behind as rows: the tables metrics.csv and steps.csv.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/cluster/run_observer.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// A row of metrics.csv: the global model at one point of the run.
struct MetricsRow {
  Step step{};
  std::optional<double> epoch;  // passes over the data; none without a data set
  std::int64_t samples = 0;     // that went into the model
  Time time{};
  std::optional<Evaluation> evaluation;  // none in time-only runs
  double learning_rate = 0;
  Bytes bytes{};  // sent so far, over all workers
};

// A row of measurements.csv: what is measured beside the evaluations, a number each.
struct Measurement {
  Step step{};
  Time time{};
  std::string quantity;
  double value = 0;
};

struct Recording {
  std::vector<MetricsRow> metrics{};        // ascending in step and time
  std::vector<StepRow> rows{};              // in the order in which they ended
  std::vector<Measurement> measurements{};  // ascending in step and time
  bool diverged = false;                    // the last row of `metrics` is the first one that is not finite
  // (P,) of the last model, or of each member of the last ensemble; empty unless asked for.
  std::vector<std::vector<float>> parameters{};
  std::vector<std::vector<float>> buffers{};  // of these, where the model has any: its normalisation statistics
};

// Ends the recording at its first model that is not finite. How far a run goes on after it depends
// on when the evaluation is ready, so nothing beyond may be reported.
void cut_after_divergence(Recording& recording);

// Whole files, with a header line; units stand in the column names. Numbers have the shortest form
// that reads back to the same value, an empty cell is a value that does not exist for this run.
std::string metrics_csv(std::span<const MetricsRow> rows);
std::string steps_csv(std::span<const StepRow> rows);
std::string measurements_csv(std::span<const Measurement> rows);

}  // namespace syncopate
