// DropCompute's reference code contains the log of a run. experiments/examples/reference_run.toml simulates this run,
// and the test compares the simulation with the log. results/reference/dropcompute_run.md lists the values that are
// fitted to the log; all other compared numbers are results of the simulation. The test compares means of 8 seeds of
// the jitter. Standard deviations between seeds: threshold 0.069 s, predicted drop rate 0.0078, predicted savings
// 0.0074, predicted speed-up 0.0021, realised time 0.03 s, realised drop rate 0.005.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithms/synchronous/drop_threshold.hpp"
#include "experiments/execution/execution.hpp"
#include "experiments/sections/experiment.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

constexpr int workers = 16, micro_batches = 12;
constexpr int first_recorded = 6, first_threshold = 50;  // steps, numbered from 1 like the log's iterations
constexpr int recorded = first_threshold - first_recorded;
// Results of the search that the log prints.
constexpr double printed_threshold_s = 5.9942728216276695, printed_drop_rate = 0.07445549242424243;
constexpr double printed_time_saved = 0.14192116260528564, printed_speedup = 0.08308740336944044;
// Values in the experiment file.
constexpr double all_reduce_s = 0.556, trailing_s = 0.25;

double mean(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const double mean_x = mean(x, 0, x.size()), mean_y = mean(y, 0, y.size());
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return xy / std::sqrt(xx * yy);
}

// Element i is the value of iteration i + 1.
struct Log {
  std::vector<double> step_s, average_loss, last_loss;
};

Log read_log() {
  const std::string file = SYNCOPATE_SOURCE_DIR "/experiments/examples/data/dropcompute_run_log.csv";
  const std::string text = file_content(file);
  CsvRows rows(file, text, {"step_time_s", "average_loss", "step_loss"});
  Log log;
  while (rows.next()) {
    log.step_s.push_back(rows.number(0));
    log.average_loss.push_back(rows.number(1));
    log.last_loss.push_back(rows.number(2));
  }
  return log;
}

// The times of the run's workers in the recorded steps, drawn without a simulation. Indices:
// [worker][step][micro-batch].
struct Draws {
  explicit Draws(const Run& run) {
    std::vector<Duration> row(micro_batches);
    for (int n = 0; n < workers; ++n)
      for (int i = first_recorded; i < first_threshold; ++i) {
        run.cluster.compute_time->durations(Rank{n}, Step{i}, 0, row);
        for (int m = 0; m < micro_batches; ++m) {
          computing_s.push_back(to_seconds(row[static_cast<std::size_t>(m)]));
          sleep_s.push_back(to_seconds(run.cluster.pauses->sleep(Rank{n}, Step{i}, static_cast<std::uint32_t>(m))));
        }
      }
  }
  // Returns the times that a timer around each micro-batch and the following sleep shows.
  std::vector<double> by_micro_batch() const {
    std::vector<double> times;
    for (std::size_t i = 0; i < computing_s.size(); ++i) times.push_back(computing_s[i] + sleep_s[i]);
    return times;
  }
  // Returns the times that the step's clock shows: each includes everything since the micro-batch before.
  std::vector<double> by_step() const {
    std::vector<double> times;
    for (std::size_t i = 0; i < computing_s.size(); ++i)
      times.push_back(computing_s[i] + (i % micro_batches == 0 ? 0 : std::max(sleep_s[i - 1], trailing_s)));
    return times;
  }

  std::vector<double> computing_s, sleep_s;
};

// Returns the result of the rule's search in these times. T^c is `step_s` minus the mean time of the slowest worker.
ThresholdEffect search(const std::vector<double>& times, double step_s) {
  double slowest_sum = 0;
  for (int i = 0; i < recorded; ++i) {
    double slowest = 0;
    for (int n = 0; n < workers; ++n) {
      double sum = 0;
      for (int m = 0; m < micro_batches; ++m)
        sum += times[static_cast<std::size_t>((n * recorded + i) * micro_batches + m)];
      slowest = std::max(slowest, sum);
    }
    slowest_sum += slowest;
  }
  return search_threshold({times, workers, recorded, micro_batches}, step_s - slowest_sum / recorded,
                          SpeedupForm::reference);
}

// The simulation of one method with one seed.
struct Simulated {
  explicit Simulated(const Run& run) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    const Outcome outcome = execute(run, {.threads = 1}, progress, [](const Outcome&) {});
    EXPECT_EQ(outcome.failure, "");
    double kept = 0, dropped = 0;
    for (const StepRow& round : outcome.recording.rows) {
      step_s.push_back(to_seconds(round.duration));
      if (round.step <= first_threshold + 2) continue;
      kept += static_cast<double>(round.kept);
      dropped += static_cast<double>(round.dropped);
    }
    drop_rate = dropped / (kept + dropped);
    // Worker 0 logs a step's time after its sleep. So the time includes this sleep, and excludes the previous step's.
    double before_s = 0;
    for (int i = first_recorded; i < first_threshold; ++i) {
      const double sleep_s = to_seconds(run.cluster.pauses->sleep(Rank{0}, Step{i}, micro_batches - 1));
      logged_s.push_back(step_s[static_cast<std::size_t>(i)] + sleep_s - before_s);
      before_s = sleep_s;
    }
    // The recorded steps end with the last sleep. It differs between workers, so its mean counts.
    double last_sleep_s = 0;
    for (int n = 0; n < workers; ++n)
      last_sleep_s +=
          to_seconds(run.cluster.pauses->sleep(Rank{n}, Step{first_threshold - 1}, micro_batches - 1)) / workers;
    recorded_step_s = mean(step_s, first_recorded, first_threshold) + last_sleep_s / recorded;
  }
  double realised_step_s() const { return mean(step_s, first_threshold + 2, step_s.size()); }

  std::vector<double> step_s;
  std::vector<double> logged_s;  // times of the recorded steps
  double recorded_step_s = 0;
  double drop_rate = 0;
};

// Means over the seeds.
struct Figures {
  double threshold_s = 0, predicted_drop = 0, time_saved = 0, speedup = 0;
  double quiet_step_s = 0, recorded_step_s = 0, correlation = 0, realised_step_s = 0, realised_drop = 0;
};

class ReferenceRun : public testing::Test {
 protected:
  static std::vector<syncopate::Run> runs_of(const std::string& method) {
    std::vector<syncopate::Run> runs =
        load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/examples/reference_run.toml", {}).runs;
    std::erase_if(runs, [&](const syncopate::Run& run) { return run.method != method; });
    return runs;
  }

  // `check`: called with each seed's simulation, and with the result of the search in its draws.
  template <typename Check>
  Figures figures_of(const std::string& method, std::vector<double> (Draws::*times)() const, const Check& check) {
    const std::vector<syncopate::Run> runs = runs_of(method);
    const auto count = static_cast<double>(runs.size());
    EXPECT_EQ(count, 8);
    const std::vector<double> log_s(log.step_s.begin() + first_recorded, log.step_s.begin() + first_threshold);
    Figures mean_of;
    for (const syncopate::Run& run : runs) {
      SCOPED_TRACE(run.seed);
      const Simulated simulated(run);
      const ThresholdEffect found = search((Draws(run).*times)(), simulated.recorded_step_s);
      check(simulated, found);
      mean_of.threshold_s += found.threshold / count;
      mean_of.predicted_drop += found.drop_rate / count;
      mean_of.time_saved += found.time_saved / count;
      mean_of.speedup += (found.effective_speedup - 1) / count;
      mean_of.quiet_step_s += mean(simulated.step_s, 1, first_recorded) / count;
      mean_of.recorded_step_s += mean(simulated.logged_s, 0, recorded) / count;
      mean_of.correlation += correlation(simulated.logged_s, log_s) / count;
      mean_of.realised_step_s += simulated.realised_step_s() / count;
      mean_of.realised_drop += simulated.drop_rate / count;
    }
    record(method, mean_of);
    return mean_of;
  }

  // Records the values for the table of results/reference/dropcompute_run.md. Start the test with --gtest_output=xml.
  static void record(const std::string& method, const Figures& figures) {
    const std::string prefix = method.substr(0, 3) + "_";
    RecordProperty(prefix + "threshold_s", std::to_string(figures.threshold_s));
    RecordProperty(prefix + "predicted_drop", std::to_string(figures.predicted_drop));
    RecordProperty(prefix + "time_saved", std::to_string(figures.time_saved));
    RecordProperty(prefix + "speedup", std::to_string(figures.speedup));
    RecordProperty(prefix + "quiet_step_s", std::to_string(figures.quiet_step_s));
    RecordProperty(prefix + "recorded_step_s", std::to_string(figures.recorded_step_s));
    RecordProperty(prefix + "correlation", std::to_string(figures.correlation));
    RecordProperty(prefix + "realised_step_s", std::to_string(figures.realised_step_s));
    RecordProperty(prefix + "realised_drop", std::to_string(figures.realised_drop));
  }

  const Log log = read_log();
};

TEST_F(ReferenceRun, OnItsTwoClocksItIsTheLogs) {
  const Figures ours = figures_of("two clocks", &Draws::by_micro_batch, [](const Simulated& run, const auto& found) {
    // At the threshold some worker always computes a backward pass, which takes 0.424 of a micro-batch. A micro-batch
    // takes at most 0.52 s, about five standard deviations of the jitter above the mean. So the pass ends at most
    // 0.424 x 0.52 s after the threshold, and is followed by the trailing work.
    const double shortest_s = *std::min_element(run.step_s.begin() + first_threshold + 2, run.step_s.end());
    const double longest_s = *std::max_element(run.step_s.begin() + first_threshold + 2, run.step_s.end());
    EXPECT_GT(shortest_s, found.threshold + all_reduce_s);
    EXPECT_LT(longest_s, found.threshold + all_reduce_s + trailing_s + 0.424 * 0.52);
  });
  // This value is fitted.
  EXPECT_NEAR(ours.recorded_step_s, mean(log.step_s, first_recorded, first_threshold), 0.02);
  // These values are not fitted. Tolerances are four standard errors, or as given on the page.
  EXPECT_NEAR(ours.threshold_s, printed_threshold_s, 0.1);
  EXPECT_NEAR(ours.predicted_drop, printed_drop_rate, 0.011);
  EXPECT_NEAR(ours.time_saved, printed_time_saved, 0.0105);
  EXPECT_NEAR(ours.speedup, printed_speedup, 0.004);
  EXPECT_GT(ours.correlation, 0.95);  // the noise alone gives 0.932
  EXPECT_NEAR(ours.quiet_step_s, mean(log.step_s, 1, first_recorded), 0.02 * 8);
  EXPECT_NEAR(ours.realised_step_s, mean(log.step_s, first_threshold + 2, log.step_s.size()), 0.02 * 6.81);
  // Rank 0 logs a sum of losses, divided by 12. The sum includes all micro-batches that the rank computed, and one that
  // it did not finish.
  const std::size_t end = log.step_s.size();
  const double entries =
      micro_batches * mean(log.average_loss, first_threshold + 2, end) / mean(log.last_loss, first_threshold + 2, end);
  const double drop_of_log = 1 - (entries - 1) / micro_batches;
  EXPECT_NEAR(drop_of_log, 0.20, 0.01);
  EXPECT_NEAR(ours.realised_drop, drop_of_log, 0.015);
}

TEST_F(ReferenceRun, OnOneClockThePredictionComesTrue) {
  const Figures ours = figures_of("one clock", &Draws::by_step, [](const Simulated& run, const auto& found) {
    // A step ends at the threshold, or with the trailing work of a worker that finished a micro-batch just before.
    const double shortest_s = *std::min_element(run.step_s.begin() + first_threshold + 2, run.step_s.end());
    EXPECT_GT(shortest_s, found.threshold + all_reduce_s - 1e-6);
    EXPECT_LT(run.realised_step_s(), found.threshold + all_reduce_s + trailing_s);
    // The search has the times of 44 steps of 16 workers. Both servers had the same noise, so the times of only 8
    // workers are independent. The drop rate of about 0.06 varies by 0.1 from step to step.
    EXPECT_NEAR(run.drop_rate, found.drop_rate, 0.02);
  });
  EXPECT_NEAR(ours.realised_drop, ours.predicted_drop, 0.01);
  EXPECT_GT(ours.threshold_s, printed_threshold_s + 1);
  EXPECT_LT(ours.realised_drop, 0.08);
}

}  // namespace
}  // namespace syncopate
