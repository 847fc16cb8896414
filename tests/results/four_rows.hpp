// A run of 30 steps with four evaluations and two rounds, by two workers, and what it was planned as.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

#include "results/summary.hpp"

namespace syncopate {

inline MetricsRow row(std::int64_t step, double loss, double accuracy) {
  MetricsRow row;
  row.step = step;
  row.samples = step * 64;
  row.time = Time{std::chrono::milliseconds(100 * step)};
  row.evaluation = Evaluation{loss, accuracy, loss / 2, std::isfinite(loss)};
  return row;
}

inline Run plan() {
  Run run;
  run.experiment = "quickstart";
  run.method = "DropCompute";
  run.method_index = 2;
  run.sweep = {{"methods.threshold_s", "0.07"}};
  run.seed = 3;
  run.hash = "0123456789abcdef";
  run.evaluation.target_accuracy = 0.8;
  return run;
}

inline Recording four_rows() {
  Recording recording;
  recording.metrics = {row(0, 2.3, 0.1), row(10, 0.6, 0.79), row(20, 0.4, 0.85), row(30, 0.5, 0.83)};
  recording.rows = {{.step = 10,
                     .end = Time{std::chrono::milliseconds(1000)},
                     .duration = {},
                     .kept = 30,
                     .dropped = 2,
                     .period = 10,
                     .bytes = 500},
                    {.step = 30,
                     .end = Time{std::chrono::milliseconds(3000)},
                     .duration = {},
                     .kept = 60,
                     .dropped = 4,
                     .period = 20,
                     .bytes = 500}};
  return recording;
}

// Two workers for 3 s: 2.5 s compute and 0.5 s wait; 2 s compute, 0.4 s discarded and 0.6 s communication.
inline RunTotals totals() {
  RunTotals totals;
  totals.end = Time{std::chrono::milliseconds(3000)};
  totals.accounts.resize(2);
  totals.accounts[0][Activity::compute] = std::chrono::milliseconds(2500);
  totals.accounts[0][Activity::wait] = std::chrono::milliseconds(500);
  totals.accounts[1][Activity::compute] = std::chrono::milliseconds(2000);
  totals.accounts[1][Activity::discarded] = std::chrono::milliseconds(400);
  totals.accounts[1][Activity::communicate] = std::chrono::milliseconds(600);
  totals.kept = {50, 40};
  totals.dropped = {0, 10};
  totals.bytes = 1000;
  totals.collectives = 6;
  totals.messages = 7;
  return totals;
}

}  // namespace syncopate
