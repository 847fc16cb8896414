// Times that depend on the lengths of sequences, from the experiment file to the run. Expected values are computed by
// hand if all lengths are equal. Otherwise they come from draws of the test's own sampler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "results/recorder.hpp"
#include "results/summary.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/text_lines.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct NaturalTimes : TextLines {};

double padded_of(const std::vector<std::int32_t>& lengths) {
  return static_cast<double>(lengths.size()) * std::ranges::max(lengths);
}
double squares_of(const std::vector<std::int32_t>& lengths) {
  double sum = 0;
  for (const double length : lengths) sum += length * length;
  return sum;
}

// A line has five words including one of its own, and a token at each end: 7 tokens. Four lines take 10 ms + 28 ms.
TEST_F(NaturalTimes, OfEqualLinesAreEqual) {
  write_lines([](int) { return 4; });
  EXPECT_NEAR(seconds({}), 20 * 3 * 0.038, 1e-9);
  EXPECT_NEAR(seconds({"cluster.micro_batch_s={per_padded_token_s=0.001}"}), 20 * 3 * 0.028, 1e-9);
  EXPECT_NEAR(seconds({"cluster.micro_batch_s={per_squared_length_s=0.001}"}), 20 * 3 * 4 * 0.049, 1e-9);
  EXPECT_NEAR(seconds({"cluster.worker_factors=[1,1,2,1]"}), 2 * 20 * 3 * 0.038, 1e-9);
  // A delay in multiples of the mean micro-batch.
  EXPECT_NEAR(seconds({"delays=[{kind='constant',value=0.5,unit='micro_batch'}]"}), 1.5 * 20 * 3 * 0.038, 1e-9);
  EXPECT_NEAR(seconds({"training.batching='packed'", "training.token_budget=21"}), 20 * 3 * 0.031, 1e-9);
}

TEST_F(NaturalTimes, AreThoseOfWhatEachMicroBatchHolds) {
  EXPECT_NEAR(seconds({}), slowest_s(sampler(Batching::count), [](auto l) { return 0.01 + 0.001 * tokens_of(l); }),
              1e-6);
  EXPECT_NEAR(seconds({"training.batching='padded'", "cluster.micro_batch_s={per_squared_length_s=1e-4}"}),
              slowest_s(sampler(Batching::count), [](auto l) { return 1e-4 * padded_of(l) * std::ranges::max(l); }),
              1e-6);
  EXPECT_NEAR(seconds({"cluster.micro_batch_s={per_squared_length_s=1e-4,per_padded_token_s=1e-3}"}),
              slowest_s(sampler(Batching::count), [](auto l) { return 1e-4 * squares_of(l) + 1e-3 * padded_of(l); }),
              1e-6);
  EXPECT_NEAR(seconds({"training.batching='bucketed'", "cluster.micro_batch_s={per_padded_token_s=1e-3}"}),
              slowest_s(sampler(Batching::bucketed), [](auto l) { return 1e-3 * padded_of(l); }), 1e-6);
  EXPECT_NEAR(seconds({"training.batching='packed'", "training.token_budget=40"}),
              slowest_s(sampler(Batching::packed, 40), [](auto l) { return 0.01 + 0.001 * tokens_of(l); }), 1e-6);
}

// Texts have 3 to 25 tokens. Times, packing, fits and records count only tokens that are computed.
TEST_F(NaturalTimes, OfTextsThatAModelCutsAreThoseOfWhatIsLeft) {
  const auto time_s = [](const auto& lengths) { return 0.01 + 0.001 * tokens_of(lengths); };
  const Overrides cut = {cuts, cut_to_8};
  EXPECT_NEAR(seconds(cut), slowest_s(sampler(Batching::count, 0, 8), time_s), 1e-6);
  const Overrides packed = {cuts, cut_to_8, "training.batching='packed'", "training.token_budget=40"};
  const Sampler drawn = sampler(Batching::packed, 40, 8);
  ASSERT_NE(drawn.samples_per_micro_batch(), sampler(Batching::packed, 40).samples_per_micro_batch());
  EXPECT_NEAR(seconds(packed), slowest_s(drawn, time_s), 1e-6);
  EXPECT_EQ(load(packed).runs.at(0).training.samples_per_micro_batch, drawn.samples_per_micro_batch());

  std::shared_ptr<const BatchLengths> fitted;
  load_experiment(file.string(), {cuts, cut_to_8, "cluster.micro_batch_s='measured'"},
                  {.measure = [&](const MicroBatchWork& work) {
                    fitted = work.lengths;
                    return MeasuredMicroBatch{.micro_batch_s = 1};
                  }});
  ASSERT_TRUE(fitted);
  std::vector<std::int32_t> of_fit;
  for (int step = 0; step < 20; ++step) fitted->append({Rank{1}, step, 0}, of_fit);
  EXPECT_EQ(std::ranges::max(of_fit), 8);

  const auto run = load({cuts, cut_to_8, "recording.samples=true"}).runs.at(0);
  const KeptSamples told = summarise(run, outcome_of(run)).samples_kept.value();
  EXPECT_EQ(told.longest.back(), 8);
  ASSERT_EQ(told.test_loss.size(), told.longest.size());
  const std::vector<std::int32_t> all = training_lengths(*dataset());
  const auto in_last = static_cast<double>(std::ranges::count_if(all, [](auto length) { return length >= 8; }));
  EXPECT_NEAR(static_cast<double>(told.by_length.offered.back()) / (20 * 4 * 3 * 4),
              in_last / static_cast<double>(all.size()), 0.05);
}

// If each next token is predicted, the last token of a text is not an input. So L - 1 of L tokens are computed, and
// these count for times, packing, fits and records.
TEST_F(NaturalTimes, OfNextTokensAreThoseOfAllButTheLast) {
  const std::string causal = "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,task='causal-lm',";
  for (const std::int32_t cut : {0, 8}) {
    SCOPED_TRACE(cut);
    const std::string positions = cut > 0 ? "positions=8,cut=true}" : "positions=40}";
    const auto shorter = [&](Batching batching, std::int64_t budget) {
      auto options = sampler(Batching::count, 0, cut > 0 ? cut : 1000).options();
      std::vector<std::int32_t> lengths = *options.lengths;
      for (std::int32_t& length : lengths) --length;
      options.lengths = std::make_shared<const std::vector<std::int32_t>>(std::move(lengths));
      options.batching = batching;
      options.token_budget = budget;
      return Sampler(options);
    };
    const auto time_s = [](const auto& lengths) { return 0.01 + 0.001 * tokens_of(lengths); };
    EXPECT_NEAR(seconds({cuts, causal + positions}), slowest_s(shorter(Batching::count, 0), time_s), 1e-6);
    EXPECT_NEAR(seconds({cuts, causal + positions, "training.batching='packed'", "training.token_budget=40"}),
                slowest_s(shorter(Batching::packed, 40), time_s), 1e-6);
    const auto run = load({cuts, causal + positions, "recording.samples=true"}).runs.at(0);
    const KeptSamples told = summarise(run, outcome_of(run)).samples_kept.value();
    const std::vector<std::int32_t> all = training_lengths(*dataset());
    EXPECT_EQ(told.longest.back(), (cut > 0 ? cut : std::ranges::max(all)) - 1);
    EXPECT_EQ(told.test_loss.size(), told.longest.size());
  }
}

// For padded micro-batches, "measured" times a batch of copies of the longest text. This batch has the gradient of one
// copy.
TEST_F(NaturalTimes, WhatIsTimedOfPaddedMicroBatchesIsTheirLongestTextSoManyTimes) {
  for (const std::string batching : {"count", "padded", "bucketed"}) {
    SCOPED_TRACE(batching);
    std::vector<MicroBatchWork> works;
    const auto run = load_experiment(
        file.string(), {cuts, cut_to_8, "cluster.micro_batch_s='measured'", "training.batching='" + batching + "'"},
        {.measure = [&](const MicroBatchWork& work) {
          works.push_back(work);
          return MeasuredMicroBatch{.micro_batch_s = 1};
        }});
    ASSERT_EQ(works.size(), 1u);
    EXPECT_EQ(works[0].pads, batching != "count");
    const auto timed = works[0].load(), trained = run.runs.at(0).training.make_objective();
    const auto at = timed->initial_parameters(1);
    const auto loss = [&](const Objective& objective, const MicroBatch& micro_batch) {
      return objective.gradient(at.data(), nullptr, {&micro_batch, 1}).loss_sum;
    };
    const auto data = dataset();
    const Sampler drawn = sampler(batching == "bucketed" ? Batching::bucketed : Batching::count, 0, 8);
    for (int step = 0; step < 4; ++step) {
      const MicroBatch micro_batch{Rank{2}, step, 1};
      std::vector<std::uint32_t> samples;
      drawn.append_samples(micro_batch, samples);
      double mean = 0;
      for (const std::uint32_t& sample : samples)
        mean += trained->evaluate_samples(at.data(), nullptr, Split::train, {&sample, 1}).loss / 4;
      EXPECT_NEAR(loss(*trained, micro_batch), mean, 1e-5);
      const std::uint32_t longest = *std::ranges::max_element(
          samples, {}, [&](std::uint32_t sample) { return (*drawn.options().lengths)[sample]; });
      const double of_longest = trained->evaluate_samples(at.data(), nullptr, Split::train, {&longest, 1}).loss;
      EXPECT_NEAR(loss(*timed, micro_batch), batching == "count" ? mean : of_longest, 1e-5);
    }
  }
}

// DropCompute without injected delays, so times depend on lengths alone. Micro-batches that end after the threshold are
// dropped.
TEST_F(NaturalTimes, AThresholdDropsWhatIsLong) {
  const Sampler drawn = sampler(Batching::count);
  constexpr double threshold_s = 0.16;
  std::int64_t kept = 0;
  double time_s = 0;
  for (int step = 0; step < 20; ++step) {
    double slowest_s = 0;
    for (int worker = 0; worker < 4; ++worker) {
      double end_s = 0;
      for (int m = 0; m < 3; ++m) {
        end_s += 0.01 + 0.001 * tokens_of(lengths(drawn, worker, step, m));
        kept += end_s < threshold_s - 1e-9;
      }
      slowest_s = std::max(slowest_s, end_s);
    }
    time_s += std::min(slowest_s, threshold_s);
  }
  ASSERT_GT(kept, 150);
  ASSERT_LT(kept, 235);
  const Outcome outcome = outcome_of(load({"methods=[{algorithm='dropcompute',threshold_s=0.16}]"}).runs.at(0));
  std::int64_t counted = 0;
  for (const std::int64_t of_worker : outcome.totals->kept) counted += of_worker;
  EXPECT_EQ(counted, kept);
  EXPECT_NEAR(to_seconds(outcome.totals->end), time_s, 1e-6);
}

TEST_F(NaturalTimes, AllMethodsMeetTheSame) {
  const std::string lone = "methods=[{algorithm='local-sgd',period={rule='constant',steps=20}}]";
  const Sampler drawn = sampler(Batching::count);
  double slowest = 0;
  for (int worker = 0; worker < 4; ++worker) {
    double sum = 0;
    for (int step = 0; step < 20; ++step)
      for (int m = 0; m < 3; ++m) sum += 0.01 + 0.001 * tokens_of(lengths(drawn, worker, step, m));
    slowest = std::max(slowest, sum);
  }
  EXPECT_NEAR(seconds({lone}), slowest, 1e-6);
}

TEST_F(NaturalTimes, AnEpochOfPackedMicroBatchesIsTheFirstOnes) {
  const auto run = load({"training.batching='packed'", "training.token_budget=40", "budget={epochs=2}"}).runs.at(0);
  EXPECT_EQ(run.budget.steps, 2 * sampler(Batching::packed, 40).steps_per_epoch());
  const Sampler drawn = sampler(Batching::packed, 40);
  EXPECT_EQ(run.training.samples_per_micro_batch, drawn.samples_per_micro_batch());
  for (int step = 0; step < 40; ++step)
    for (int worker = 0; worker < 4; ++worker)
      for (int m = 0; m < 4; ++m) {
        const auto own = lengths(drawn, worker, step, m);
        EXPECT_TRUE(tokens_of(own) <= 40 || own.size() == 1);
      }
}

TEST_F(NaturalTimes, FaultsHavePlaces) {
  EXPECT_THAT(faults({"cluster.micro_batch_s={per_tokens_s=1}"}), HasSubstr("cluster.micro_batch_s.per_tokens_s"));
  EXPECT_THAT(faults({"cluster.micro_batch_s={per_token_s=-1}"}), HasSubstr("cluster.micro_batch_s.per_token_s = -1"));
  EXPECT_THAT(faults({"cluster.micro_batch_s={base_s=0}"}), HasSubstr("must have a cost above 0"));
  EXPECT_THAT(faults({"cluster.micro_batch_s=[1]"}), HasSubstr("cluster.micro_batch_s = [1]"));
  EXPECT_THAT(faults({"training={model='none',parameters=10}"}),
              AllOf(HasSubstr("cluster.micro_batch_s"), HasSubstr("must be a data set of tokens")));
  EXPECT_THAT(faults({"training.dataset='gaussian-mixture'"}), HasSubstr("must be a data set of tokens"));
  EXPECT_THAT(faults({"training.dataset='gaussian-mixture'", "cluster.micro_batch_s=1", "training.batching='padded'"}),
              AllOf(HasSubstr("training.batching"), HasSubstr("not sequences")));
  EXPECT_THAT(faults({"training.batching='packed'"}), HasSubstr("training.token_budget is missing"));
  EXPECT_THAT(faults({"training.batching='pack'"}), HasSubstr("did you mean"));
  EXPECT_THAT(faults({"training.token_budget=0"}), HasSubstr("training.token_budget = 0"));
  EXPECT_THAT(faults({"training.batching='packed'", "training.token_budget=100000"}),
              AllOf(HasSubstr("training.token_budget"), HasSubstr("fewer than one step's 4 workers x 3")));
  EXPECT_THAT(faults({"training.batching='bucketed'", "training.partition={kind='size'}"}),
              HasSubstr("training.partition"));
  EXPECT_THAT(faults({"training.micro_batch_size=500"}), HasSubstr("fewer than one step's"));
  EXPECT_THAT(faults({"methods=[{algorithm='dropcompute',threshold_s=0.01}]"}), HasSubstr("0.01"));
}

// The durations of a recorded run are replayed. Tested from the experiment file to the table of results.

using testing::AllOf;
using testing::HasSubstr;

// Three workers, four steps of two micro-batches. A micro-batch of worker n takes n + 1 s. Worker 2 takes 10 k s more
// in step k (from 0). Worker 1 has dropped the second micro-batch of step 3.
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

  // Returns the virtual seconds of the whole run.
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
  EXPECT_DOUBLE_EQ(seconds({"cluster.trace.like.2=0"}), 2 * (2 + 2 + 2));  // worker 2 gets the durations of worker 0
  EXPECT_DOUBLE_EQ(seconds({"cluster.worker_factors=[1,1,2]"}), 4 * (3 + 13 + 23));
  EXPECT_DOUBLE_EQ(seconds({"delays=[{kind='constant',value=1}]"}), 2 * (4 + 14 + 24));
  EXPECT_NEAR(seconds({"delays=[{kind='constant',value=0.5,unit='micro_batch',workers=[0]}]", "budget.steps=1"}),
              2 + 166.0 / 23, 1e-8);  // two delays, each half of the mean duration of 166 s / 23
  // With local steps, a round takes as long as the worker with the largest sum of step times.
  EXPECT_DOUBLE_EQ(seconds({"methods=[{algorithm='local-sgd',period={rule='constant',steps=3}}]"}), 2 * (3 + 13 + 23));
}

TEST_F(TraceReplayFile, EndsInTheChosenWay) {
  EXPECT_THAT(faults({"budget.steps=5"}),
              AllOf(HasSubstr(".toml:7:"), HasSubstr("cluster.trace.end"), HasSubstr("ends after 4 steps"),
                    HasSubstr("the budget is 5"), HasSubstr("\"stop\"")));
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
  // The missing row is not needed, because worker 1 does not reach this micro-batch within the threshold of 1.5 s. Each
  // step takes 1.5 s.
  const std::string drop = "methods=[{algorithm='dropcompute',threshold_s=1.5}]";
  EXPECT_DOUBLE_EQ(seconds({"budget.steps=4", drop}), 4 * 1.5);
}

TEST_F(TraceReplayFile, FaultsHavePlaces) {
  EXPECT_THAT(faults({"cluster.micro_batch_s=0.1"}), HasSubstr("cannot be combined with cluster.trace"));
  EXPECT_THAT(faults({"cluster.workers=4"}), AllOf(HasSubstr("worker 3"), HasSubstr("3 workers"), HasSubstr("like")));
  EXPECT_EQ(faults({"cluster.workers=4", "cluster.trace.like.3=0"}), "");
  EXPECT_EQ(faults({"cluster.workers=2"}), "");
  EXPECT_THAT(faults({"cluster.trace.like.7=0"}), AllOf(HasSubstr("cluster.trace.like.7"), HasSubstr("from 0 to 2")));
  EXPECT_THAT(faults({"cluster.trace.like.1=3"}), HasSubstr("an integer from 0 to 2"));
  EXPECT_THAT(faults({"cluster.micro_batches=3"}),
              HasSubstr("has 2 micro-batches per step, fewer than cluster.micro_batches = 3; lower that"));
  EXPECT_THAT(faults({"cluster.pace=inject"}), HasSubstr("emulate"));
  EXPECT_THAT(faults({"cluster.trace.file=other.csv"}), HasSubstr("there is no file"));
  EXPECT_THAT(faults({"cluster.trace.ends=stop"}), HasSubstr("unknown key"));
  EXPECT_THAT(faults({"cluster={workers=2,trace={file='" + name + "'}}"}), HasSubstr("cluster.trace.end is missing"));
}

// The experiment file's folder is searched before the working directory.
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
  // The path is resolved in the same way if the command line gives the whole table.
  EXPECT_DOUBLE_EQ(seconds({"cluster={workers=3,micro_batches=2,trace={file='" + name + "',end='wrap'}}"}),
                   2 * (3 + 13 + 23));
}

// Each worker draws a whole recorded step of one worker, so a step takes as long as the slowest step drawn. There are 4
// steps of 3 workers to draw from, so with 200 workers the slowest of all is always drawn.
TEST_F(TraceReplayFile, StretchesToMoreWorkersThanItHas) {
  const std::string trace = "trace={file='" + name + "',stretch={block_steps=1,redraw_worker=true}}";
  std::ofstream(file.parent_path() / name, std::ios::app) << "1,3,1,2\n";
  EXPECT_DOUBLE_EQ(seconds({"cluster={workers=200,micro_batches=2," + trace + "}"}), 3 * 2 * 33);
  const std::string shared = "trace={file='" + name + "',stretch={block_steps=4,together=true}}";
  // All workers take the four steps in order, from a drawn step on. The slowest one always follows worker 2.
  EXPECT_DOUBLE_EQ(seconds({"cluster={workers=200,micro_batches=2," + shared + "}", "budget.steps=4"}),
                   2 * (3 + 13 + 23 + 33));
  EXPECT_THAT(faults({"cluster={workers=9,micro_batches=2," + trace + "}", "cluster.trace.like.1=0"}),
              AllOf(HasSubstr("cluster.trace.like"), HasSubstr("left out with stretch")));
  EXPECT_THAT(faults({"cluster={workers=9,micro_batches=3," + trace + "}"}),
              HasSubstr("fewer than cluster.micro_batches = 3; lower that"));
}

TEST_F(TraceReplayFile, AChangedTraceIsAnotherRun) {
  const std::string before = load().runs.at(0).hash;
  EXPECT_EQ(load().runs.at(0).hash, before);
  std::ofstream(file.parent_path() / name, std::ios::app) << "0,0,2,1\n";
  EXPECT_NE(load().runs.at(0).hash, before);
}

// A resolved configuration stays the same run in another directory, because the path of its trace is absolute and not
// hashed. If the trace's contents differ, the configuration is refused.
TEST_F(TraceReplayFile, ARecordedConfigurationFindsItsTraceFromElsewhere) {
  const auto run = load().runs.at(0);
  EXPECT_THAT(run.resolved_toml, HasSubstr((file.parent_path() / name).string()));
  const auto elsewhere = file.parent_path() / (file.stem().string() + "_elsewhere");
  std::filesystem::create_directory(elsewhere);
  std::ofstream(elsewhere / "config.toml") << run.resolved_toml;
  const auto again = load_experiment(elsewhere / "config.toml", {}).runs.at(0);
  EXPECT_EQ(again.hash, run.hash);
  EXPECT_EQ(again.resolved_toml, run.resolved_toml);

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

// The times at which the k-th gradient arrives, from the experiment file to arrivals.csv and summary.json.

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
  // Each worker has two micro-batches. The threshold cuts those that end after 2.5 s.
  EXPECT_EQ(table({"methods=[{algorithm='dropcompute',threshold_s=2.5}]"}),
            "step,k,worker,arrival_s\n"
            "1,1,0,1\n1,2,1,2\n1,3,2,2.5\n"
            "2,1,1,1\n2,2,2,2\n2,3,0,2.5\n");
}

// An average comes after two steps of each worker.
TEST_F(Arrivals, AtAnAverageAreThoseOfARound) {
  EXPECT_EQ(table({"methods=[{algorithm='local-sgd',period={rule='constant',steps=2}}]"}),
            "step,k,worker,arrival_s\n2,1,1,3\n2,2,0,4\n2,3,2,6\n");
}

// The model takes 0.5 s to a worker, and the gradient 0.5 s back. The first two gradients make a step. At 3 s worker 2
// is still in its step 1. Its gradient arrives at 5 s, as the third one of that step. Then it starts step 3 of the
// trace with the newest model.
TEST_F(Arrivals, AtAServerBelongToTheStepOfTheirModel) {
  const std::string text = table({"methods=[{algorithm='backup-workers',backups=1}]", "budget.steps=3"});
  EXPECT_THAT(text, HasSubstr("step,k,worker,arrival_s\n1,1,0,2\n1,2,1,3\n1,3,2,5\n"));
  // Step 2 begins at 3 s. Worker 1 needs 1 s, and worker 0 needs 3 s.
  EXPECT_THAT(text, HasSubstr("\n2,1,1,2\n2,2,0,4\n"));
}

// A task of the arithmetic ends with the slowest gradient, but arrivals.csv has the time of each gradient.
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
  // Worker 0 may be one task ahead. So its second gradient is computed at the first model as well, like worker 1's, and
  // both arrive at 0.25 s.
  EXPECT_THAT(with("'bounded-delay',maximum_delay=1", 4),
              HasSubstr("step,k,worker,arrival_s\n1,1,0,0.125\n1,2,0,0.25\n1,3,1,0.25\n2,1,0,0.125\n"));
}

// The first two gradients are summed at 2 s, and the sum arrives at 2.5 s. Worker 2's gradient for round 1 arrives at 4
// s, when this round is over.
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

// A gradient takes 1 s plus an exponential time with mean 0.5 s. So the k-th arrival of n has the mean 1 + 0.5 (H_n -
// H_(n - k)), with harmonic numbers H, and 0.25 times the sum of 1 / i^2 over i = n - k + 1 .. n as its variance.
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
