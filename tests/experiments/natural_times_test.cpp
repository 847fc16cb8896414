// Times that go by the lengths of sequences, from the experiment file to the run: hand-worked where all are of one
// length, and against sums over what a sampler of the test's own draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "results/summary.hpp"
#include "tests/experiments/text_lines.hpp"

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

// Five words with the line's own, and a token at each end: 7. Of four lines 10 ms + 28 ms.
TEST_F(NaturalTimes, OfEqualLinesAreEqual) {
  write_lines([](int) { return 4; });
  EXPECT_NEAR(seconds({}), 20 * 3 * 0.038, 1e-9);
  EXPECT_NEAR(seconds({"cluster.micro_batch_s={per_padded_token_s=0.001}"}), 20 * 3 * 0.028, 1e-9);
  EXPECT_NEAR(seconds({"cluster.micro_batch_s={per_squared_length_s=0.001}"}), 20 * 3 * 4 * 0.049, 1e-9);
  EXPECT_NEAR(seconds({"cluster.worker_factors=[1,1,2,1]"}), 2 * 20 * 3 * 0.038, 1e-9);
  // In multiples of the mean micro-batch.
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

// Times, packing, fits and what is told go by the tokens that are computed, of lines of 3 to 25.
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

// Where each next token is asked for, the last one is only an answer: of L tokens L - 1 are computed, and these are
// what is paid for, packed, fitted and told.
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

// What "measured" times of padded micro-batches: the gradient of the longest text alone is that of so many like it.
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

// DropCompute on lengths alone, without any injected delay: micro-batches that end after the threshold are dropped.
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
              AllOf(HasSubstr("cluster.micro_batch_s"), HasSubstr("must name a data set of tokens")));
  EXPECT_THAT(faults({"training.dataset='gaussian-mixture'"}), HasSubstr("must name a data set of tokens"));
  EXPECT_THAT(faults({"training.dataset='gaussian-mixture'", "cluster.micro_batch_s=1", "training.batching='padded'"}),
              AllOf(HasSubstr("training.batching"), HasSubstr("no sequences")));
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

}  // namespace
}  // namespace syncopate
