// A recorded run as an experiment's durations, from the file to the table of results.
#include <gmock/gmock.h>

#include <fstream>

#include "experiments/execution/execution.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Three workers, four steps of two micro-batches: worker n takes n + 1 s for each, worker 2 of step s 10 s more.
// Worker 1 has dropped the second one of step 3.
class TraceReplayFile : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    name = file.stem().string() + "_trace.csv";
    std::ofstream trace(file.parent_path() / name);
    trace << "worker,step,micro_batch,duration_s\n";
    for (int worker = 0; worker < 3; ++worker)
      for (int step = 0; step < 4; ++step)
        for (int m = 0; m < 2; ++m)
          if (!(worker == 1 && step == 3 && m == 1))
            trace << worker << "," << step << "," << m << "," << worker + 1 + (worker == 2 ? 10 * step : 0) << "\n";
    trace.close();
    write(R"(
[cluster]
workers = 3
micro_batches = 2
[cluster.trace]
file = ")" +
          name + R"("
end = "error"
[network]
kind = "free"
[training]
model = "none"
parameters = 10
[budget]
steps = 3
[[methods]]
algorithm = "sync-sgd"
)");
  }
  void TearDown() override {
    std::filesystem::remove(file.parent_path() / name);
    ExperimentFile::TearDown();
  }

  // Virtual seconds of the whole run.
  double seconds(const Overrides& overrides) const {
    const auto outcome = outcome_of(load(overrides).runs.at(0));
    EXPECT_EQ(outcome.failure, "");
    return outcome.totals ? to_seconds(outcome.totals->end) : -1;
  }
  std::string failure(const Overrides& overrides) const { return outcome_of(load(overrides).runs.at(0)).failure; }
  static Outcome outcome_of(const syncopate::Run& run) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    return execute(run, {.threads = 1}, progress, [](const Outcome&) {});
  }

  std::string name;
};

TEST_F(TraceReplayFile, TakesTheRecordedDurations) {
  EXPECT_DOUBLE_EQ(seconds({}), 2 * (3 + 13 + 23));
  EXPECT_DOUBLE_EQ(seconds({"cluster.trace.like.2=0"}), 2 * (2 + 2 + 2));  // what if worker 2 were healthy
  EXPECT_DOUBLE_EQ(seconds({"cluster.worker_factors=[1,1,2]"}), 4 * (3 + 13 + 23));
  EXPECT_DOUBLE_EQ(seconds({"delays=[{kind='constant',value=1}]"}), 2 * (4 + 14 + 24));
  EXPECT_NEAR(seconds({"delays=[{kind='constant',value=0.5,unit='micro_batch',workers=[0]}]", "budget.steps=1"}),
              2 + 166.0 / 23, 1e-8);  // of the mean of all rows, once for each of worker 0's two
  // Another method: local steps of which the slowest worker's sum counts.
  EXPECT_DOUBLE_EQ(seconds({"methods=[{algorithm='local-sgd',period={rule='constant',steps=3}}]"}), 2 * (3 + 13 + 23));
}

TEST_F(TraceReplayFile, EndsInTheChosenWay) {
  EXPECT_THAT(faults({"budget.steps=5"}),
              AllOf(HasSubstr(".toml:7:"), HasSubstr("cluster.trace.end"), HasSubstr("ends after 4 steps"),
                    HasSubstr("the budget is of 5"), HasSubstr("\"stop\"")));
  EXPECT_DOUBLE_EQ(seconds({"budget.steps=7", "cluster.trace.end=wrap", "cluster.trace.like.1=0"}),
                   2 * (3 + 13 + 23 + 33 + 3 + 13 + 23));
  const Overrides stop = {"cluster.trace.end=stop", "cluster.trace.like.1=0"};
  for (const std::string budget : {"budget={steps=9}", "budget={seconds=1e9}"}) {
    Overrides overrides = stop;
    overrides.push_back(budget);
    EXPECT_DOUBLE_EQ(seconds(overrides), 2 * (3 + 13 + 23 + 33)) << budget;
    EXPECT_EQ(load(overrides).runs.at(0).budget.steps, Step{4});
  }
  EXPECT_THAT(failure({"budget={seconds=1e9}", "cluster.trace.like.1=0"}),
              AllOf(HasSubstr("step 4"), HasSubstr("ends after 4 steps")));
}

TEST_F(TraceReplayFile, WhatTheRecordedRunDroppedIsMissedOnlyByWhoNeedsIt) {
  EXPECT_THAT(failure({"budget.steps=4"}), HasSubstr("worker 1, step 3, micro-batch 1"));
  // Nobody needs it: under a threshold of 1.5 s worker 1 does not get that far. Steps last 1.5 s each.
  const std::string drop = "methods=[{algorithm='dropcompute',threshold_s=1.5}]";
  EXPECT_DOUBLE_EQ(seconds({"budget.steps=4", drop}), 4 * 1.5);
}

TEST_F(TraceReplayFile, FaultsHavePlaces) {
  EXPECT_THAT(faults({"cluster.micro_batch_s=0.1"}), HasSubstr("together with cluster.trace"));
  EXPECT_THAT(faults({"cluster.workers=4"}), AllOf(HasSubstr("worker 3"), HasSubstr("3 workers"), HasSubstr("like")));
  EXPECT_EQ(faults({"cluster.workers=4", "cluster.trace.like.3=0"}), "");
  EXPECT_EQ(faults({"cluster.workers=2"}), "");
  EXPECT_THAT(faults({"cluster.trace.like.7=0"}), AllOf(HasSubstr("cluster.trace.like.7"), HasSubstr("from 0 to 2")));
  EXPECT_THAT(faults({"cluster.trace.like.1=3"}), HasSubstr("an integer from 0 to 2"));
  EXPECT_THAT(faults({"cluster.micro_batches=3"}), AllOf(HasSubstr("2 micro-batches"), HasSubstr("3, must be")));
  EXPECT_THAT(faults({"cluster.pace=inject"}), HasSubstr("emulate"));
  EXPECT_THAT(faults({"cluster.trace.file=other.csv"}), HasSubstr("there is no file"));
  EXPECT_THAT(faults({"cluster.trace.ends=stop"}), HasSubstr("unknown key"));
  EXPECT_THAT(faults({"cluster={workers=2,trace={file='" + name + "'}}"}), HasSubstr("cluster.trace.end is missing"));
}

// The experiment file's folder comes before the working directory, which is for files that are not there.
TEST_F(TraceReplayFile, IsSoughtBesideTheExperimentFirst) {
  struct Place {
    explicit Place(std::filesystem::path directory) : directory(std::move(directory)) {
      std::filesystem::remove_all(this->directory);
      std::filesystem::create_directory(this->directory);
    }
    ~Place() {
      std::filesystem::current_path(before);
      std::filesystem::remove_all(directory);
    }
    std::filesystem::path directory, before = std::filesystem::current_path();
  } const place(file.parent_path() / (file.stem().string() + "_elsewhere"));
  const std::filesystem::path& elsewhere = place.directory;
  std::ofstream(elsewhere / name) << "worker,step,micro_batch,duration_s\n0,0,0,1\n";
  std::filesystem::copy_file(file.parent_path() / name, elsewhere / "alone.csv");
  std::filesystem::current_path(elsewhere);
  EXPECT_DOUBLE_EQ(seconds({}), 2 * (3 + 13 + 23));
  EXPECT_DOUBLE_EQ(seconds({"cluster.trace.file=alone.csv"}), 2 * (3 + 13 + 23));
  EXPECT_THAT(faults({"cluster.trace.file=nowhere.csv"}),
              HasSubstr("there is no file " + (file.parent_path() / "nowhere.csv").string() + ", nor " +
                        (elsewhere / "nowhere.csv").string()));
  // Where the whole table is that of the command line, too.
  EXPECT_DOUBLE_EQ(seconds({"cluster={workers=3,micro_batches=2,trace={file='" + name + "',end='wrap'}}"}),
                   2 * (3 + 13 + 23));
}

// Each of many workers draws a whole recorded step of one worker, so a step lasts as long as the slowest one that some
// worker has drawn: with 3 x 3 places (the last step has a hole) and 200 workers the longest of all.
TEST_F(TraceReplayFile, StretchesToMoreWorkersThanItHas) {
  const std::string trace = "trace={file='" + name + "',stretch={block_steps=1,redraw_worker=true}}";
  std::ofstream(file.parent_path() / name, std::ios::app) << "1,3,1,2\n";
  EXPECT_DOUBLE_EQ(seconds({"cluster={workers=200,micro_batches=2," + trace + "}"}), 3 * 2 * 33);
  const std::string shared = "trace={file='" + name + "',stretch={block_steps=4,together=true}}";
  // All take the four steps in their order, from a drawn one on; the slowest is always one that follows worker 2.
  EXPECT_DOUBLE_EQ(seconds({"cluster={workers=200,micro_batches=2," + shared + "}", "budget.steps=4"}),
                   2 * (3 + 13 + 23 + 33));
  EXPECT_THAT(faults({"cluster={workers=9,micro_batches=2," + trace + "}", "cluster.trace.like.1=0"}),
              AllOf(HasSubstr("cluster.trace.like"), HasSubstr("together with stretch")));
  EXPECT_THAT(faults({"cluster={workers=9,micro_batches=3," + trace + "}"}), HasSubstr("3, must be at most that"));
}

TEST_F(TraceReplayFile, AChangedTraceIsAnotherRun) {
  const std::string before = load().runs.at(0).hash;
  EXPECT_EQ(load().runs.at(0).hash, before);
  std::ofstream(file.parent_path() / name, std::ios::app) << "0,0,2,1\n";
  EXPECT_NE(load().runs.at(0).hash, before);
}

// A recorded configuration in another directory, run from another one, is the same run: its path is absolute, and does
// not count. Over other contents it is refused.
TEST_F(TraceReplayFile, ARecordedConfigurationFindsItsTraceFromElsewhere) {
  const auto run = load().runs.at(0);
  EXPECT_THAT(run.resolved_toml, HasSubstr((file.parent_path() / name).string()));
  const auto elsewhere = file.parent_path() / (file.stem().string() + "_elsewhere");
  std::filesystem::create_directory(elsewhere);
  std::ofstream(elsewhere / "config.toml") << run.resolved_toml;
  const auto again = load_experiment(elsewhere / "config.toml", {}).runs.at(0);
  EXPECT_EQ(again.hash, run.hash);
  EXPECT_EQ(again.resolved_toml, run.resolved_toml);

  // A copy in another place is the same trace.
  std::filesystem::copy_file(file.parent_path() / name, elsewhere / name);
  const auto copied = load_experiment(elsewhere / "config.toml", {"cluster.trace.file='" + name + "'"}).runs.at(0);
  EXPECT_EQ(copied.hash, run.hash);
  EXPECT_NE(copied.resolved_toml, run.resolved_toml);

  std::ofstream(file.parent_path() / name, std::ios::app) << "0,0,2,1\n";
  try {
    load_experiment(elsewhere / "config.toml", {});
    ADD_FAILURE() << "must be refused";
  } catch (const ConfigurationFault& fault) {
    EXPECT_THAT(fault.what(), AllOf(HasSubstr("config.toml:"), HasSubstr("cluster.trace.file_hash"), HasSubstr(name)));
  }
  std::filesystem::remove_all(elsewhere);
}

TEST_F(TraceReplayFile, AThresholdBelowEveryMicroBatchIsAFault) {
  const auto with = [&](const std::string& method, const std::string& more = "seeds=[1]") {
    return faults({"methods=[{" + method + "}]", more});
  };
  EXPECT_THAT(with("algorithm='dropcompute',threshold_s=0.9"), AllOf(HasSubstr("0.9"), HasSubstr("at least 1 s")));
  EXPECT_EQ(with("algorithm='dropcompute',threshold_s=1"), "");
  EXPECT_EQ(with("algorithm='dropcompute',threshold_s=0.9,preempt='microbatch'"), "");
  EXPECT_EQ(with("algorithm='dropcompute',threshold_s=0.9,preempt='backward',forward_share=0.5"), "");
  EXPECT_THAT(with("algorithm='dropcompute',threshold_s=0.4,preempt='backward',forward_share=0.5"),
              HasSubstr("at least 0.5 s"));
  EXPECT_THAT(with("algorithm='dropcompute',threshold={rule='fixed',threshold_s=0.9}"),
              HasSubstr("methods.0.threshold.threshold_s = 0.9"));
  EXPECT_EQ(with("algorithm='dropcompute',threshold={rule='automatic',warmup_steps=1,calibration_steps=1}"), "");
  for (const std::string clock : {"period", "step"})
    EXPECT_THAT(with("algorithm='dropcompute-local-sgd',threshold_s=0.9,clock='" + clock +
                     "',period={rule='constant',steps=2}"),
                HasSubstr("at least 1 s"));
  EXPECT_THAT(with("algorithm='dropcompute',threshold_s=1.2", "delays=[{kind='constant',value=0.5}]"),
              HasSubstr("at least 1.5 s"));
  EXPECT_EQ(with("algorithm='dropcompute',threshold_s=1.2", "delays=[{kind='constant',value=0.5,scope='step'}]"), "");
}

}  // namespace
}  // namespace syncopate
