// A simulation that several processes divide comes to what one process comes to: the same course on the same virtual
// time, to the nanosecond, and the same models up to the rounding of sums that are grouped otherwise; and on all
// processes to the same, to the bit. Every method of the registry, and what workers may hold besides.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "tests/experiments/divided_runs.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/loaded_text.hpp"

namespace syncopate {
namespace {

// Six unlike workers: three and three, or one, two, one, two of four processes.
const std::string cluster = R"(name = "divided"
[cluster]
workers = 6
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8, 1.2, 1.05]
[network]
kind = "fixed"
latency_s = 0.1
[[delays]]
kind = "exponential"
mean = 0.5
[budget]
steps = 12
[recording]
durations = true
arrivals = true
samples = true
parameters = true
)";

const std::string linear = held::linear_training(480) + held::measurements;

// What does not depend on arithmetic.
std::string course_of(Outcome outcome) {
  if (!outcome.failure.empty()) return "failed: " + outcome.failure;
  for (MetricsRow& row : outcome.recording.metrics) row.evaluation.reset();
  std::string text = metrics_csv(outcome.recording.metrics) + steps_csv(outcome.recording.rows);
  for (const Measurement& measurement : outcome.recording.measurements)
    text += fmt::format("{} {} {}\n", measurement.step.value(), measurement.time.time_since_epoch().count(),
                        measurement.quantity);
  text += totals_text(*outcome.totals);
  text += durations_csv(*outcome.durations) + arrivals_csv(*outcome.arrivals);
  if (outcome.samples) text += fmt::format("kept of each class: {}\n", fmt::join(outcome.samples->by_class.kept, " "));
  return text;
}

std::vector<double> numbers_of(const Outcome& outcome) {
  std::vector<double> numbers;
  for (const MetricsRow& row : outcome.recording.metrics)
    if (row.evaluation) numbers.insert(numbers.end(), {row.evaluation->test_loss, row.evaluation->train_loss});
  for (const Measurement& measurement : outcome.recording.measurements) numbers.push_back(measurement.value);
  for (const auto& models : {outcome.recording.parameters, outcome.recording.buffers})
    for (const auto& model : models) numbers.insert(numbers.end(), model.begin(), model.end());
  return numbers;
}

class DividedSimulation : public LoadedText {
 protected:
  void expect_same(const syncopate::Run& of, int processes, double tolerance = 2e-4) const {
    SCOPED_TRACE(fmt::format("{} processes\n{}", processes, of.resolved_toml));
    const Outcome one = outcome_of(of);
    ASSERT_EQ(one.failure, "");
    const std::vector<Outcome> all = divided_outcomes(of, processes);
    for (const Outcome& outcome : all) ASSERT_EQ(course_of(outcome), course_of(one));
    for (const Outcome& outcome : all) EXPECT_EQ(numbers_of(outcome), numbers_of(all.front())) << "to the bit";
    const std::vector<double> expected = numbers_of(one), found = numbers_of(all.front());
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_GT(found.size(), 0u);
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      largest = std::max(largest, std::abs(found[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
    EXPECT_LE(largest, tolerance);
  }
};

TEST_F(DividedSimulation, OfEveryMethodOfTheRegistryComesToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(cluster + linear, row.name, row.example, load_text);
    for (const syncopate::Run& of : experiment.runs) expect_same(of, 2);
  }
}

TEST_F(DividedSimulation, ByFourProcessesComesToTheSame) {
  held::Methods methods = held::families;
  methods.insert(methods.end(), {held::averaged_moments, "algorithm = \"decentralized-sgd\"",
                                 "algorithm = \"decentralized-sgd\"\nevaluated = \"own\""});
  for (const syncopate::Run& of : load(cluster + linear + held::text_of(methods)).runs) expect_same(of, 4);
}

// A process may have no worker at all.
TEST_F(DividedSimulation, OfFewerWorkersThanProcessesComesToTheSame) {
  std::string text = cluster + linear;
  text.replace(text.find("workers = 6"), 11, "workers = 3");
  text.replace(text.find("worker_factors = [1, 1.3, 1.1, 1.8, 1.2, 1.05]"), 46, "worker_factors = [1, 1.3, 1.1]");
  text += held::text_of({held::sync_sgd, held::local_sgd});
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 5);
}

TEST_F(DividedSimulation, WithWhatIsCompressedOrAveragedBesidesComesToTheSame) {
  for (const held::Methods& methods : {held::with_state, held::with_more_compressions})
    for (const syncopate::Run& of : load(cluster + linear + held::text_of(methods)).runs) expect_same(of, 2);
}

TEST_F(DividedSimulation, WhereOutagesTakeTheWorkersStateComesToTheSame) {
  const std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  for (const syncopate::Run& of : load(text + held::text_of(held::that_lose_state)).runs) expect_same(of, 2);
}

TEST_F(DividedSimulation, OfAModelWithBatchNormalisationComesToTheSame) {
  const std::string text = cluster + held::batch_normalised_training + held::text_of(held::families);
  for (const syncopate::Run& of : load(text).runs) expect_same(of, 2, 2e-3);
}

TEST_F(DividedSimulation, ByOneProcessIsTheSameToTheBit) {
  const std::string methods = held::text_of(
      {held::sync_sgd, held::local_sgd, held::async_sgd, "algorithm = \"decentralized-sgd\"", held::top_k});
  for (const syncopate::Run& of : load(cluster + linear + methods).runs)
    EXPECT_EQ(results_text(of, divided_outcomes(of, 1).front()), results_text(of, outcome_of(of)));
}

// All end with the same evaluation, however fast each of them is.
TEST_F(DividedSimulation, ThatDivergesEndsOnAllProcessesWithTheSameRow) {
  std::string text = cluster + linear + held::text_of({held::sync_sgd, held::local_sgd});
  text.replace(text.find("peak = 0.2"), 10, "peak = 3e38");
  text.replace(text.find("steps = 12"), 10, "steps = 90");
  for (const syncopate::Run& of : load(text).runs) {
    const Outcome one = outcome_of(of);
    const auto all = divided_outcomes(of, 2);
    for (const Outcome& outcome : all) {
      EXPECT_EQ(outcome.failure, "");
      ASSERT_FALSE(outcome.recording.metrics.empty());
      EXPECT_FALSE(outcome.recording.metrics.back().evaluation->finite);
      EXPECT_EQ(outcome.recording.metrics.size(), one.recording.metrics.size());
      EXPECT_EQ(summarise(of, outcome).status, RunStatus::diverged);
    }
  }
}

// By two threads each, results are those of one.
TEST_F(DividedSimulation, DoesNotDependOnThreads) {
  const Experiment experiment = load(cluster + linear + held::text_of({held::local_sgd}));
  const syncopate::Run& of = experiment.runs.front();
  EXPECT_EQ(numbers_of(divided_outcomes(of, 3, 1).front()), numbers_of(divided_outcomes(of, 3, 2).front()));
}

}  // namespace
}  // namespace syncopate
