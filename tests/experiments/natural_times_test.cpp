// Times that go by the lengths of sequences, from the experiment file to the run: hand-worked where all are of one
// length, and against sums over what a sampler of the test's own draws.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "results/directory/summary_json.hpp"
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
      text << (i % 3 == 0 ? "a" : "b") << "\tline" << i;
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
labelled = true
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
)",
                      text_.string()));
  }

  std::shared_ptr<const Dataset> dataset() const { return load_text_dataset(text_lines(true), {}, text_); }
  // Of lines as they are after `longest` tokens of each.
  Sampler sampler(Batching batching, std::int64_t token_budget = 0, std::int32_t longest = 1000) const {
    const auto data = dataset();
    auto lengths = training_lengths(*data);
    for (std::int32_t& length : lengths) length = std::min(length, longest);
    return Sampler({.samples = data->size().train,
                    .workers = 4,
                    .micro_batches = 3,
                    .micro_batch_size = 4,
                    .seed = 3,
                    .batching = batching,
                    .token_budget = token_budget,
                    .lengths = std::make_shared<const std::vector<std::int32_t>>(std::move(lengths))});
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

const std::string cuts =
    "training={model='text-transformer',dataset='text-lines',micro_batch_size=4,optimizer={name='sgd'},"
    "learning_rate={schedule='constant',peak=0.1}}";
const std::string cut_to_8 = "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=8,cut=true}";

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

// Of what a threshold leaves, and of all, by class and by length; with a model and without.
TEST_F(NaturalTimes, WhatIsDroppedIsToldByClassAndLength) {
  const std::string drop = "methods=[{algorithm='dropcompute',threshold_s=0.16}]";
  const std::string trains =
      "training={model='linear',dataset='text-lines',micro_batch_size=4,optimizer={name='sgd'},"
      "learning_rate={schedule='constant',peak=0.1}}";
  for (const Overrides& how :
       {Overrides{drop, "recording={samples=true}"}, Overrides{drop, "recording={samples=true}", trains}}) {
    SCOPED_TRACE(how.size());
    const auto run = load(how).runs.at(0);
    const Outcome outcome = outcome_of(run);
    EXPECT_FALSE(outcome.durations.has_value());
    const RunSummary summary = summarise(run, outcome);
    ASSERT_TRUE(summary.samples_kept.has_value());
    const KeptSamples& told = *summary.samples_kept;
    const std::vector<std::int32_t>& longest = told.longest;
    ASSERT_GE(longest.size(), 6u);
    ASSERT_TRUE(std::ranges::is_sorted(longest));

    KeptSamples expected{
        .by_class = {{0, 0}, {0, 0}},
        .by_length = {std::vector<std::int64_t>(longest.size()), std::vector<std::int64_t>(longest.size())},
        .longest = longest};
    const auto data = dataset();
    const Sampler drawn = sampler(Batching::count);
    const auto add = [&](int worker, int step, int m, bool kept) {
      std::vector<std::uint32_t> samples;
      drawn.append_samples({Rank{worker}, step, m}, samples);
      std::vector<std::int64_t> labels(samples.size());
      data->gather(Split::train, samples, nullptr, labels.data());
      for (std::size_t i = 0; i < samples.size(); ++i) {
        std::size_t bin = 0;
        while (std::ssize(data->tokens(Split::train, samples[i])) > longest[bin]) ++bin;
        const auto label = static_cast<std::size_t>(labels[i]);
        expected.by_class.kept[label] += kept;
        ++expected.by_class.offered[label];
        expected.by_length.kept[bin] += kept;
        ++expected.by_length.offered[bin];
      }
    };
    for (int step = 0; step < 20; ++step)
      for (int worker = 0; worker < 4; ++worker) {
        double end_s = 0;
        for (int m = 0; m < 3; ++m) {
          end_s += 0.01 + 0.001 * tokens_of(lengths(drawn, worker, step, m));
          add(worker, step, m, end_s < 0.16 - 1e-9);
        }
      }
    // With a model there is its loss on the test samples of each length, whose mean is that on all of them.
    EXPECT_EQ(told.test_loss.size(), run.training.time_only ? 0 : longest.size());
    EXPECT_EQ(told.test_accuracy.size(), told.test_loss.size());
    if (!told.test_loss.empty()) {
      std::vector<double> samples(longest.size());
      for (std::uint32_t sample = 0; sample < data->size().test; ++sample) {
        std::size_t bin = 0;
        while (bin + 1 < longest.size() && std::ssize(data->tokens(Split::test, sample)) > longest[bin]) ++bin;
        ++samples[bin];
      }
      double sum = 0, right = 0;
      for (std::size_t bin = 0; bin < longest.size(); ++bin) {
        if (samples[bin] > 0) sum += samples[bin] * told.test_loss[bin];
        if (samples[bin] > 0) right += samples[bin] * told.test_accuracy[bin];
      }
      EXPECT_NEAR(sum / static_cast<double>(data->size().test), summary.final_test_loss.value(), 1e-5);
      EXPECT_NEAR(right / static_cast<double>(data->size().test), summary.final_test_accuracy.value(), 1e-9);
    }
    expected.test_loss = told.test_loss;
    expected.test_accuracy = told.test_accuracy;
    EXPECT_EQ(told, expected);
    // Long ones are dropped more often: what DropCompute's assumption of independence leaves out.
    const auto share = [&](std::size_t bin) {
      return static_cast<double>(told.by_length.kept[bin]) / static_cast<double>(told.by_length.offered[bin]);
    };
    EXPECT_LT(share(longest.size() - 1), share(0));
    EXPECT_EQ(summary_from_json(to_json(summary))->samples_kept, summary.samples_kept);
  }
}

TEST_F(NaturalTimes, WithoutDroppingAllIsKept) {
  for (const std::string method :
       {"{algorithm='sync-sgd'}", "{algorithm='local-sgd',period={rule='constant',steps=4}}"}) {
    const auto run = load({"methods=[" + method + "]", "recording.samples=true"}).runs.at(0);
    const KeptSamples told = summarise(run, outcome_of(run)).samples_kept.value();
    EXPECT_EQ(told.by_class.kept, told.by_class.offered);
    EXPECT_EQ(told.by_length.kept, told.by_length.offered);
    EXPECT_EQ(told.by_class.kept.at(0) + told.by_class.kept.at(1), 20 * 4 * 3 * 4);
  }
  const auto silent = load({}).runs.at(0);
  EXPECT_FALSE(summarise(silent, outcome_of(silent)).samples_kept.has_value());
}

// What the accounts of kept and dropped micro-batches are of: other shares than their drop rate would be wrong.
TEST_F(NaturalTimes, SharesThatAreToldAgreeWithTheDropRate) {
  const std::string drops = "{algorithm='dropcompute',threshold_s=0.11";
  for (const auto& [method, is_known] :
       {std::pair<std::string, bool>{"{algorithm='sync-sgd'}", true},
        {drops + "}", true},
        {drops + ",compensation='extra-steps',redundancy=0.25}", true},
        {drops + ",compensation='larger-batch',redundancy=0.34}", true},
        {drops + ",compensation='recompute',recompute_every_steps=5}", false},
        {drops + ",compensation='carry-over'}", false},
        {"{algorithm='random-drop',drop_rate=0.3}", true},
        {"{algorithm='local-sgd',period={rule='constant',steps=4}}", true},
        {"{algorithm='local-sgd',period={rule='swap',switch_step=10},local_phase={micro_batches=1}}", true},
        {"{algorithm='local-sgd',period={rule='swap',switch_step=10},local_phase={micro_batches=1,"
         "sampling='own-order'}}",
         false},
        {"{algorithm='async-sgd',maximum_staleness=2}", true},
        {"{algorithm='softsync',splitting=2}", true},
        {"{algorithm='stale-synchronous',slack=1}", true},
        {"{algorithm='backup-tokens',backups=1}", true}}) {
    SCOPED_TRACE(method);
    const auto run = load({cuts, cut_to_8, "methods=[" + method + "]", "recording.samples=true"}).runs.at(0);
    const RunSummary summary = summarise(run, outcome_of(run));
    const KeptSamples told = summary.samples_kept.value();
    for (const KeptSamples::Kinds& kinds : {told.by_class, told.by_length}) {
      EXPECT_EQ(!kinds.offered.empty(), is_known);
      const auto kept = std::accumulate(kinds.kept.begin(), kinds.kept.end(), 0.0);
      EXPECT_EQ(kept, 4 * static_cast<double>(summary.kept_micro_batches));
      if (!kinds.offered.empty()) {
        EXPECT_NEAR(kept / std::accumulate(kinds.offered.begin(), kinds.offered.end(), 0.0), 1 - summary.drop_rate(),
                    1e-12);
      }
    }
    if (method.starts_with(drops)) {
      EXPECT_GT(summary.drop_rate(), 0.1);
    }
    const auto json = nlohmann::json::parse(to_json(summary));
    EXPECT_EQ(json.at("samples_kept").at("by_length").contains("kept_share"), is_known);
    EXPECT_EQ(summary_from_json(to_json(summary))->samples_kept->by_class, told.by_class);
  }
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
