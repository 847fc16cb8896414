// The kept and dropped samples in a run's summary, by class and by length. They are compared with those of the test's
// own sampler.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "results/summary.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/text_lines.hpp"
#include "tests/workers/sample_tokens.hpp"

namespace syncopate {
namespace {

struct SamplesKept : TextLines {
  // Repeats the run, records its parameters too, and returns the last model.
  std::vector<float> last_model(Overrides how) {
    how.push_back("recording={samples=true,parameters=true}");
    return outcome_of(load(how).runs.at(0)).recording.parameters.at(0);
  }
};

// The test counts the samples that the threshold keeps, by class and by length, with a model and without.
TEST_F(SamplesKept, WhatIsDroppedIsToldByClassAndLength) {
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
    std::vector<MicroBatch> kept_ones, dropped_ones;
    const auto add = [&](int worker, int step, int m, bool kept) {
      (kept ? kept_ones : dropped_ones).push_back({Rank{worker}, step, m});
      std::vector<std::uint32_t> samples;
      drawn.append_samples({Rank{worker}, step, m}, samples);
      std::vector<std::int64_t> labels(samples.size());
      data->gather(Split::train, samples, nullptr, labels.data());
      for (std::size_t i = 0; i < samples.size(); ++i) {
        std::size_t bin = 0;
        while (std::ssize(sample_tokens(*data, Split::train, samples[i])) > longest[bin]) ++bin;
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
    // With a model there is a loss on the test samples of each length. The mean of these losses is the loss on all
    // samples.
    EXPECT_EQ(told.test_loss.size(), run.training.time_only ? 0 : longest.size());
    EXPECT_EQ(told.test_accuracy.size(), told.test_loss.size());
    if (!told.test_loss.empty()) {
      std::vector<double> samples(longest.size());
      for (std::uint32_t sample = 0; sample < data->size().test; ++sample) {
        std::size_t bin = 0;
        while (bin + 1 < longest.size() && std::ssize(sample_tokens(*data, Split::test, sample)) > longest[bin]) ++bin;
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
    // The bias of the kept gradients is estimated at the last model from the samples of all 20 steps.
    EXPECT_EQ(told.gradient_bias.has_value(), !run.training.time_only);
    if (told.gradient_bias) {
      const auto bias = gradient_bias(*run.training.make_objective(), last_model(how).data(), kept_ones, dropped_ones);
      EXPECT_NEAR(told.gradient_bias->squared_bias, bias->squared_bias, 1e-6 * bias->squared_gradient);
      EXPECT_NEAR(told.gradient_bias->squared_gradient, bias->squared_gradient, 1e-6 * bias->squared_gradient);
      EXPECT_NEAR(told.gradient_bias->squared_noise, bias->squared_noise, 1e-6 * bias->squared_noise);
      EXPECT_NEAR(*measure_named("gradient_bias_to_gradient")->value(summary),
                  bias->squared_bias / bias->squared_gradient, 1e-6);
    }
    expected.gradient_bias = told.gradient_bias;
    EXPECT_EQ(told, expected);
    // Long samples are dropped more often than short ones. DropCompute's assumption of independence ignores this.
    const auto share = [&](std::size_t bin) {
      return static_cast<double>(told.by_length.kept[bin]) / static_cast<double>(told.by_length.offered[bin]);
    };
    EXPECT_LT(share(longest.size() - 1), share(0));
    EXPECT_EQ(summary_from_json(to_json(summary))->samples_kept, summary.samples_kept);
  }
}

// The estimate groups gradients by step, so all workers must take the same steps. Asynchronous workers do not, but the
// samples that they were offered are known.
TEST_F(SamplesKept, TheBiasIsEstimatedOnlyIfAllWorkersTakeTheSameSteps) {
  const std::string trains =
      "training={model='linear',dataset='text-lines',micro_batch_size=4,optimizer={name='sgd'},"
      "learning_rate={schedule='constant',peak=0.1}}";
  for (const auto& [method, is_estimated] :
       {std::pair<std::string, bool>{"{algorithm='random-drop',drop_rate=0.3,from_step=0}", true},
        {"{algorithm='async-sgd',maximum_staleness=2}", false},
        {"{algorithm='sync-sgd'}", false}}) {
    SCOPED_TRACE(method);
    const auto run = load({"methods=[" + method + "]", "recording={samples=true}", trains}).runs.at(0);
    const RunSummary summary = summarise(run, outcome_of(run));
    EXPECT_FALSE(summary.samples_kept->by_class.offered.empty());
    EXPECT_EQ(summary.dropped_micro_batches > 0, method != "{algorithm='sync-sgd'}");
    EXPECT_EQ(summary.samples_kept->gradient_bias.has_value(), is_estimated);
  }
}

TEST_F(SamplesKept, WithoutDroppingAllIsKept) {
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

// The numbers of kept and offered samples must agree with the run's numbers of micro-batches. Otherwise shares of kept
// samples would contradict the drop rate.
TEST_F(SamplesKept, SharesThatAreToldAgreeWithTheDropRate) {
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

// Several processes together report kept samples. If a method does the same on the MPI and the simulated cluster, the
// samples are the same. Their number always agrees with the number of kept micro-batches.

using Json = nlohmann::json;

// Worker 2 takes four times as long as the others. It is too slow for a second micro-batch within the threshold, and
// for a quorum.
constexpr const char* all_kinds = R"(name = "kinds"
[cluster]
workers = 3
micro_batches = 2
micro_batch_s = 0.02
worker_factors = [1, 1, 4]
pace = "emulate"
[network]
kind = "free"
[training]
model = "linear"
dataset = "text-lines"
micro_batch_size = 4
learning_rate = { schedule = "constant", peak = 0.1 }
optimizer = { name = "sgd" }
[datasets.text-lines]
file = "lines.txt"
labelled = true
[budget]
steps = 5
[recording]
samples = true
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "dropcompute"
threshold_s = 0.12
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 2 }
[[methods]]
algorithm = "random-drop"
drop_rate = 0.5
from_step = 0
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
label = "two servers"
algorithm = "backup-workers"
backups = 1
servers = 2
[[methods]]
algorithm = "async-sgd"
maximum_staleness = 2
[[methods]]
algorithm = "backup-all-reduce"
backups = 1
[[methods]]
algorithm = "decentralized-sgd"
)";

struct KeptOnRanks : ProgramTest {
  void SetUp() override {
    ProgramTest::SetUp();
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      lines += std::string(1, static_cast<char>('a' + i * i % 3)) + "\tword" + std::to_string(i);
      for (int j = 0; j < i * i % 13; ++j) lines += " word";
      lines += "\n";
    }
    write("lines.txt", lines);
    file = write("e.toml", all_kinds);
  }

  // Executes the runs and returns their summaries, by method.
  std::map<std::string, Json> run(int ranks, const std::string& overrides = "") const {
    const std::string results = ranks > 0 ? "mpi" : "virtual";
    std::filesystem::remove_all(directory / results);
    const auto outcome = syncopate("run " + file + " --quiet --results " + results + " " + overrides, ranks);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::map<std::string, Json> summaries;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / results))
      if (entry.path().filename() == "summary.json") {
        const Json summary = Json::parse(read(entry.path()));
        summaries[summary["method"]] = summary;
      }
    return summaries;
  }

  std::string file;
};

std::int64_t sum(const Json& list) {
  const auto numbers = list.get<std::vector<std::int64_t>>();
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

TEST_F(KeptOnRanks, IsWhatTheAccountsAndTheSimulatedClusterSay) {
  const auto simulated = run(0), mpi = run(5);
  ASSERT_EQ(simulated.size(), 9u);
  ASSERT_EQ(mpi.size(), 9u);
  for (const auto& [method, summary] : mpi) {
    SCOPED_TRACE(method);
    for (const Json& one : {summary, simulated.at(method)}) {
      const Json& told = one.at("samples_kept");
      EXPECT_EQ(sum(told["by_class"]["kept"]), 4 * one["kept_micro_batches"].get<std::int64_t>());
      EXPECT_EQ(sum(told["by_length"]["kept"]), 4 * one["kept_micro_batches"].get<std::int64_t>());
      EXPECT_EQ(told["by_length"]["test_loss"].size(), told["by_length"]["longest"].size());
    }
    if (method == "async-sgd") continue;  // depends on the order of arrivals
    const Json& told = summary["samples_kept"];
    const Json& expected = simulated.at(method)["samples_kept"];
    EXPECT_EQ(told["by_class"], expected["by_class"]);
    EXPECT_EQ(told["by_length"]["kept"], expected["by_length"]["kept"]);
    EXPECT_EQ(told["by_length"].contains("offered"), expected["by_length"].contains("offered"));
    if (!told["by_length"].contains("offered")) continue;
    EXPECT_EQ(told["by_length"]["offered"], expected["by_length"]["offered"]);
    EXPECT_NEAR(
        static_cast<double>(sum(told["by_class"]["kept"])) / static_cast<double>(sum(told["by_class"]["offered"])),
        1 - summary["drop_rate"].get<double>(), 1e-12);
    for (std::size_t bin = 0; bin < told["by_length"]["longest"].size(); ++bin) {
      const Json &found = told["by_length"]["test_loss"][bin], &wanted = expected["by_length"]["test_loss"][bin];
      ASSERT_EQ(found.is_null(), wanted.is_null());
      if (wanted.is_null()) continue;
      EXPECT_NEAR(found.get<double>(), wanted.get<double>(), 1e-4);
    }
  }
  EXPECT_LT(sum(mpi.at("dropcompute")["samples_kept"]["by_class"]["kept"]),
            sum(mpi.at("dropcompute")["samples_kept"]["by_class"]["offered"]));
}

// Without a model it is unknown which micro-batches are in a sum. So finished micro-batches are reported as kept, but
// only for methods that keep all of them.
TEST_F(KeptOnRanks, WithoutAModelIsToldWhereWhatHasEndedIsKept) {
  const std::string alone = "training.model=none training.parameters=10";
  const auto simulated = run(0, alone), mpi = run(5, alone);
  for (const auto& summaries : {simulated, mpi})
    for (const auto& [method, summary] : summaries) {
      SCOPED_TRACE(method);
      const bool is_told =
          method == "sync-sgd" || method == "dropcompute" || method == "local-sgd" || method == "decentralized-sgd";
      EXPECT_EQ(summary.contains("samples_kept"), is_told);
      if (!is_told || !summary.contains("samples_kept")) continue;
      EXPECT_EQ(sum(summary["samples_kept"]["by_class"]["kept"]),
                4 * summary["kept_micro_batches"].get<std::int64_t>());
      EXPECT_EQ(summary["samples_kept"], simulated.at(method)["samples_kept"]);
    }
}

}  // namespace
}  // namespace syncopate
