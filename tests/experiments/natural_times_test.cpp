// Times that go by the lengths of sequences, from the experiment file to the run: hand-worked where all are of one
// length, and against sums over what a sampler of the test's own draws.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/datasets/registry.hpp"
#include "workers/datasets/sampled_lengths.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/datasets/text_dataset.hpp"
#include "workers/datasets/text_sources.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NaturalTimes : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    text_ = file.parent_path() / (file.stem().string() + ".txt");
    write_lines([](int i) { return 1 + i * i % 23; });
  }
  void TearDown() override {
    std::filesystem::remove(text_);
    ExperimentFile::TearDown();
  }

  // 700 lines of so many words, and one that tells them apart.
  template <typename Words>
  void write_lines(const Words& words) {
    std::ofstream text(text_);
    for (int i = 0; i < 700; ++i) {
      text << "line" << i;
      for (int j = 0; j < words(i); ++j) text << " word";
      text << "\n";
    }
    text.close();
    write(fmt::format(R"(
seeds = [3]
[cluster]
workers = 4
micro_batches = 3
micro_batch_s = {{ base_s = 0.01, per_token_s = 0.001 }}
[network]
kind = "free"
[training]
model = "none"
parameters = 10
dataset = "text-lines"
micro_batch_size = 4
[datasets.text-lines]
file = "{}"
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
)",
                      text_.string()));
  }

  std::shared_ptr<const Dataset> dataset() const { return load_text_dataset(text_lines(false), {}, text_); }
  Sampler sampler(Batching batching, std::int64_t token_budget = 0) const {
    const auto data = dataset();
    return Sampler({.samples = data->size().train,
                    .workers = 4,
                    .micro_batches = 3,
                    .micro_batch_size = 4,
                    .seed = 3,
                    .batching = batching,
                    .token_budget = token_budget,
                    .lengths = std::make_shared<const std::vector<std::int32_t>>(training_lengths(*data))});
  }
  std::vector<std::int32_t> lengths(const Sampler& sampler, int worker, int step, int m) const {
    std::vector<std::uint32_t> samples;
    sampler.append_samples({Rank{worker}, step, m}, samples);
    std::vector<std::int32_t> lengths;
    for (const std::uint32_t sample : samples) lengths.push_back((*sampler.options().lengths)[sample]);
    return lengths;
  }
  // Of the slowest worker of each step together, with `of` giving a micro-batch's time.
  template <typename TimeOf>
  double slowest_s(const Sampler& sampler, const TimeOf& of) const {
    double sum_s = 0;
    for (int step = 0; step < 20; ++step) {
      double slowest = 0;
      for (int worker = 0; worker < 4; ++worker) {
        double step_s = 0;
        for (int m = 0; m < 3; ++m) step_s += of(lengths(sampler, worker, step, m));
        slowest = std::max(slowest, step_s);
      }
      sum_s += slowest;
    }
    return sum_s;
  }

  static Outcome outcome_of(const syncopate::Run& run) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    Outcome outcome = execute(run, {.threads = 1}, progress, [](const Outcome&) {});
    EXPECT_EQ(outcome.failure, "");
    return outcome;
  }
  double seconds(const Overrides& overrides) const {
    return to_seconds(outcome_of(load(overrides).runs.at(0)).totals->end);
  }

  std::filesystem::path text_;
};

double tokens_of(const std::vector<std::int32_t>& lengths) {
  double sum = 0;
  for (const std::int32_t length : lengths) sum += length;
  return sum;
}
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
