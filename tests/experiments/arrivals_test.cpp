// Arrival times of the k-th gradient, from the experiment file to arrivals.csv and summary.json.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/execution/execution.hpp"
#include "results/recorder.hpp"
#include "results/summary.hpp"
#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Arrivals : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    name_ = file.stem().string() + "_trace.csv";
    std::ofstream(file.parent_path() / name_) << "worker,step,micro_batch,duration_s\n"
                                                 "0,0,0,1\n1,0,0,2\n2,0,0,4\n"
                                                 "0,1,0,3\n1,1,0,1\n2,1,0,2\n";
    write(R"(
[cluster]
workers = 3
[cluster.trace]
file = ")" +
          name_ +
          R"("
end = "wrap"
[network]
kind = "fixed"
latency_s = 0.5
[training]
model = "none"
parameters = 10
[budget]
steps = 2
[recording]
arrivals = true
[[methods]]
algorithm = "sync-sgd"
)");
  }
  void TearDown() override {
    std::filesystem::remove(file.parent_path() / name_);
    ExperimentFile::TearDown();
  }

  static Outcome outcome_of(const syncopate::Run& run) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    Outcome outcome = execute(run, {.threads = 1}, progress, [](const Outcome&) {});
    EXPECT_EQ(outcome.failure, "");
    return outcome;
  }
  std::string table(const Overrides& overrides) const {
    return arrivals_csv(outcome_of(load(overrides).runs.at(0)).arrivals.value());
  }

  std::string name_;
};

TEST_F(Arrivals, AtAnAllReduceAreSinceTheRoundBefore) {
  const std::string expected =
      "step,k,worker,arrival_s\n"
      "1,1,0,1\n1,2,1,2\n1,3,2,4\n"
      "2,1,1,1\n2,2,2,2\n2,3,0,3\n";
  EXPECT_EQ(table({}), expected);
  // Two micro-batches each, of which the deadline cuts what is later than 2.5 s.
  EXPECT_EQ(table({"methods=[{algorithm='dropcompute',threshold_s=2.5}]"}),
            "step,k,worker,arrival_s\n"
            "1,1,0,1\n1,2,1,2\n1,3,2,2.5\n"
            "2,1,1,1\n2,2,2,2\n2,3,0,2.5\n");
}

// Both steps of a worker, then the average.
TEST_F(Arrivals, AtAnAverageAreThoseOfARound) {
  EXPECT_EQ(table({"methods=[{algorithm='local-sgd',period={rule='constant',steps=2}}]"}),
            "step,k,worker,arrival_s\n2,1,1,3\n2,2,0,4\n2,3,2,6\n");
}

// The model takes 0.5 s down, the gradient 0.5 s up. The first two make a step: at 3 s worker 2 is still in its step 1,
// whose gradient comes at 5 s, as the third of that step; then it starts step 3 of the trace with the newest model.
TEST_F(Arrivals, AtAServerBelongToTheStepOfTheirModel) {
  const std::string text = table({"methods=[{algorithm='backup-workers',backups=1}]", "budget.steps=3"});
  EXPECT_THAT(text, HasSubstr("step,k,worker,arrival_s\n1,1,0,2\n1,2,1,3\n1,3,2,5\n"));
  // Step 2 begins at 3 s; worker 1 needs 1 s and worker 0 3 s.
  EXPECT_THAT(text, HasSubstr("\n2,1,1,2\n2,2,0,4\n"));
}

// A task is over when the slowest has come; each gradient's time is nevertheless its own.
TEST_F(Arrivals, AtAServerAreWhenTheyComeThoughATaskEndsLater) {
  const Overrides free_network = {"cluster={workers=2,micro_batch_s=0.125}", "network={kind='free'}",
                                  "cluster.slow_workers={count=1,factor=2}"};
  const auto with = [&](const std::string& method, int steps) {
    Overrides overrides = free_network;
    overrides.push_back("methods=[{algorithm=" + method + "}]");
    overrides.push_back("budget.steps=" + std::to_string(steps));
    return table(overrides);
  };
  const std::string synchronous = "step,k,worker,arrival_s\n1,1,0,0.125\n1,2,1,0.25\n2,1,0,0.125\n2,2,1,0.25\n";
  EXPECT_EQ(with("'sync-sgd'", 2), synchronous);
  EXPECT_EQ(with("'backup-workers',backups=0", 2), synchronous);
  EXPECT_EQ(with("'bounded-delay',maximum_delay=0", 2), synchronous);
  // Worker 0 may be one task ahead: its second gradient is of the first model too, as is what worker 1 needs 0.25 s
  // for.
  EXPECT_THAT(with("'bounded-delay',maximum_delay=1", 4),
              HasSubstr("step,k,worker,arrival_s\n1,1,0,0.125\n1,2,0,0.25\n1,3,1,0.25\n2,1,0,0.125\n"));
}

// The first two are summed at 2 s, and the sum is there at 2.5 s; worker 2 comes at 4 s to round 1, which is over.
TEST_F(Arrivals, AtAPartialAllReduceBelongToTheRoundThatWasMeant) {
  EXPECT_THAT(table({"methods=[{algorithm='backup-all-reduce',backups=1}]"}),
              HasSubstr("step,k,worker,arrival_s\n1,1,0,1\n1,2,1,2\n1,3,2,4\n2,1,1,1\n"));
}

TEST_F(Arrivals, OfMethodsInWhichNobodyComesTogetherAreNone) {
  EXPECT_EQ(table({"methods=[{algorithm='decentralized-sgd'}]"}), "step,k,worker,arrival_s\n");
}

TEST_F(Arrivals, MeansAreInTheSummary) {
  const auto run = load({}).runs.at(0);
  const RunSummary summary = summarise(run, outcome_of(run));
  const std::vector<MeanArrival> expected = {{1, 2}, {2, 2}, {3.5, 2}};
  EXPECT_EQ(summary.arrivals, expected);
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["arrivals"]["mean_s"], (std::vector{1.0, 2.0, 3.5}));
  EXPECT_EQ(json["arrivals"]["rounds"], (std::vector{2, 2, 2}));
  EXPECT_EQ(json["recorded"]["arrivals"], true);
  EXPECT_EQ(summary_from_json(to_json(summary))->arrivals, expected);

  const auto other = load({"recording.arrivals=false"}).runs.at(0);
  EXPECT_EQ(other.hash, run.hash);
  const Outcome outcome = outcome_of(other);
  EXPECT_FALSE(outcome.arrivals.has_value());
  EXPECT_FALSE(nlohmann::json::parse(to_json(summarise(other, outcome))).contains("arrivals"));
}

// Times of 1 s + an exponential of mean 0.5 s: the k-th of n has the mean 1 + 0.5 (H_n - H_(n - k)), and the variance
// 0.25 times the sum of 1 / i^2 over i = n - k + 1 .. n.
TEST_F(Arrivals, HaveTheMeansOfOrderStatistics) {
  constexpr int workers = 100, steps = 2000;
  const auto run = load({"cluster={workers=100,micro_batch_s=1}", "delays=[{kind='exponential',mean=0.5}]",
                         "budget.steps=2000", "network={kind='free'}"})
                       .runs.at(0);
  const auto means = mean_arrivals(outcome_of(run).arrivals.value());
  ASSERT_EQ(std::ssize(means), workers);
  double mean_s = 1, variance_s2 = 0;
  for (int k = 1; k <= workers; ++k) {
    const int left = workers - k + 1;
    mean_s += 0.5 / left;
    variance_s2 += 0.25 / (static_cast<double>(left) * left);
    const MeanArrival& mean = means.at(static_cast<std::size_t>(k - 1));
    EXPECT_EQ(mean.rounds, steps);
    EXPECT_NEAR(mean.mean_s, mean_s, 5 * std::sqrt(variance_s2 / steps)) << k;
  }
}

TEST_F(Arrivals, WrongKeysAreFaults) {
  EXPECT_THAT(faults({"recording.arrivals=3"}), HasSubstr("recording.arrivals = 3; must be true or false"));
  EXPECT_THAT(faults({"recording.arrival=true"}), AllOf(HasSubstr("unknown key"), HasSubstr("arrivals")));
}

}  // namespace
}  // namespace syncopate
