// The table `compression`: what it reads, what it refuses, what formulas make of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "algorithms/registry.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/compression/options.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

std::string faults_of(const std::string& compression, const std::string& method = "algorithm = \"sync-sgd\"",
                      bool time_only = false) {
  return read_method(method + "\ncompression = " + compression, {.workers = 4, .time_only = time_only}).faults;
}

TEST(CompressionSettings, WithoutTheTableNothingIsCompressed) {
  const auto reading = read_method("algorithm = \"sync-sgd\"");
  EXPECT_FALSE(reading.algorithm->compression());
  EXPECT_THAT(reading.resolved, testing::Not(HasSubstr("compression")));
}

TEST(CompressionSettings, AreReadWithTheirDefaults) {
  const auto reading = read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"powersgd\", rank = 4 }");
  ASSERT_EQ(reading.faults, "");
  const CompressionOptions& options = *reading.algorithm->compression();
  EXPECT_EQ(options.kind, CompressionOptions::Kind::power);
  EXPECT_EQ(options.rank, 4);
  EXPECT_TRUE(options.warm_start);
  EXPECT_TRUE(options.error_feedback);
  for (const char* key : {"least_rate", "warm_start", "error_feedback", "residual", "removed"})
    EXPECT_THAT(reading.resolved, HasSubstr(key));
}

TEST(CompressionSettings, AreRefusedWithTheirPlace) {
  EXPECT_EQ(faults_of("{ name = \"top-k\", ratio = 0.01 }"), "");
  EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 0 }"), HasSubstr("test.toml:2:"));
  EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 1.5 }"), HasSubstr("ratio = 1.5"));
  EXPECT_THAT(faults_of("{ name = \"random-k\" }"), HasSubstr("ratio"));
  EXPECT_THAT(faults_of("{ name = \"topk\", ratio = 0.1 }"), HasSubstr("top-k"));
  EXPECT_THAT(faults_of("{ name = \"powersgd\", rank = 0 }"), HasSubstr("rank = 0"));
  EXPECT_THAT(faults_of("{ name = \"qsgd\", levels = 128 }"), HasSubstr("levels = 128"));
  EXPECT_THAT(faults_of("{ name = \"majority\", error_feedback = true }"), HasSubstr("error_feedback"));
  EXPECT_THAT(faults_of("{ name = \"majority\", momentum = 1 }"), HasSubstr("momentum"));
}

TEST(CompressionSettings, AreRefusedWithTheMethodsReasonWhereNothingCanBeCompressed) {
  int refused = 0;
  for (const AlgorithmRow& row : algorithms()) {
    const std::string method = fmt::format("algorithm = \"{}\"\n{}", row.name, row.example);
    const auto reading = read_method(method);
    ASSERT_EQ(reading.faults, "") << row.name;
    const Traits traits = reading.algorithm->traits();
    if (traits.compresses() != Compresses::nothing) continue;
    ++refused;
    EXPECT_NE(traits.exchanged_whole, "") << row.name;
    EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 0.01 }", method),
                HasSubstr("compression = a table; must not be given: " + std::string(traits.exchanged_whole)));
  }
  EXPECT_GE(refused, 12);
}

// Whoever has compressed gradients with it wants to know why it is none for what this method sends.
TEST(CompressionSettings, EachThatIsForGradientsAloneIsRefusedWithAReason) {
  for (const auto& [what, method] :
       {std::pair(Compresses::averages,
                  std::string("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 2 }")),
        std::pair(Compresses::moments, std::string("algorithm = \"one-bit-adam\"\nfreeze_step = 2")),
        std::pair(Compresses::messages, std::string("algorithm = \"async-sgd\""))}) {
    ASSERT_EQ(read_method(method, {.workers = 4}).faults, "");
    for (const CompressionRow& row : compressions_of(Compresses::gradients)) {
      const auto known = compressions_of(what);
      if (std::ranges::find(known, row.name, &CompressionRow::name) != known.end()) continue;
      EXPECT_THAT(faults_of(fmt::format("{{ name = \"{}\" }}", row.name), method),
                  HasSubstr("must not be given here: "))
          << row.name << " in " << method;
    }
  }
}

TEST(CompressionSettings, OfTwoPhasesAreRefusedWithAReasonWhereThereIsOne) {
  const std::string two_phases = "{ name = \"sign\", exchange = \"two-phase\" }";
  EXPECT_THAT(faults_of(two_phases, "algorithm = \"async-sgd\""), HasSubstr("a message goes to one server"));
  EXPECT_THAT(faults_of(two_phases, "algorithm = \"cocod-sgd\"\nperiod = { rule = \"constant\", steps = 2 }"),
              HasSubstr("the second phase would follow the first while workers compute"));
}

TEST(CompressionSettings, OfTheWarmUpAreRefusedWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return faults_of("{ name = \"dgc\", ratio = 0.001, " + keys + " }");
  };
  EXPECT_EQ(faults("warmup_ratios = [0.25, 0.063, 0.015, 0.004], warmup_steps = 40"), "");
  EXPECT_THAT(faults("warmup_ratios = [0.25, 0.0], warmup_steps = 40"), HasSubstr("warmup_ratios"));
  EXPECT_THAT(faults("warmup_ratios = [0.25]"), HasSubstr("needs warmup_steps"));
  EXPECT_THAT(faults("warmup_ratios = [0.25], warmup_epochs = 2"), HasSubstr("needs a data set"));
  EXPECT_THAT(faults("warmup_steps = 40"), HasSubstr("there are no warmup_ratios"));
  EXPECT_THAT(faults("warmup_ratios = [0.25], warmup_steps = 0"), HasSubstr("warmup_steps = 0"));
}

TEST(CompressionSettings, AWarmUpTakesAnEpochPerRatioUnlessItSaysOtherwise) {
  const auto steps_of = [](const std::string& keys) {
    const auto reading = read_method(
        "algorithm = \"sync-sgd\"\ncompression = { name = \"dgc\", ratio = 0.001, warmup_ratios = [0.3, 0.1, 0.03]" +
            keys + " }",
        {.workers = 4, .steps_per_epoch = Step{50}});
    EXPECT_EQ(reading.faults, "");
    return reading.algorithm->compression()->warmup_steps;
  };
  EXPECT_EQ(steps_of(""), Step{150});
  EXPECT_EQ(steps_of(", warmup_epochs = 1.5"), Step{75});
  EXPECT_EQ(steps_of(", warmup_steps = 20"), Step{20});
}

TEST(CompressionSettings, OfWhatIsNewAreRefusedWithTheirPlace) {
  EXPECT_THAT(faults_of("{ name = \"scalecom\", ratio = 0.1, filter = 0 }"), HasSubstr("filter = 0"));
  EXPECT_THAT(faults_of("{ name = \"scalecom\", ratio = 0.1, error_feedback = false, filter = 0.5 }"),
              HasSubstr("filter"));
  EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 0.1, exchange = \"two-phase\" }"), HasSubstr("exchange"));
  EXPECT_THAT(faults_of("{ name = \"majority\", exchange = \"two-phase\" }"), HasSubstr("exchange"));
  EXPECT_THAT(faults_of("{ name = \"sign\", exchange = \"ring\" }"), HasSubstr("two-phase"));
  EXPECT_THAT(faults_of("{ name = \"one-bit\" }", "algorithm = \"sync-sgd\"", true), HasSubstr("needs a model"));
  EXPECT_EQ(faults_of("{ name = \"one-bit\", scope = \"model\" }", "algorithm = \"sync-sgd\"", true), "");
  EXPECT_THAT(faults_of("{ name = \"dgc\", ratio = 0.1, dense_vectors = true }", "algorithm = \"sync-sgd\"", true),
              HasSubstr("needs a model"));
  EXPECT_THAT(faults_of("{ name = \"dgc\", ratio = 0.1, clip = 1, clip_by = \"tensor-norm\" }",
                        "algorithm = \"sync-sgd\"", true),
              HasSubstr("needs a model"));
  EXPECT_EQ(faults_of("{ name = \"dgc\", ratio = 0.1, clip = 1, clip_by = \"value\", clip_scaling = \"1/sqrt(N)\" }"),
            "");
  EXPECT_THAT(faults_of("{ name = \"dgc\", ratio = 0.1, clip = 0 }"), HasSubstr("clip = 0"));
  EXPECT_THAT(faults_of("{ name = \"dgc\", ratio = 0.1, clip_by = \"value\" }"), HasSubstr("there is no `clip`"));
  EXPECT_THAT(faults_of("{ name = \"one-bit\", threshold = 0.5 }"), HasSubstr("threshold"));
  EXPECT_THAT(faults_of("{ name = \"powersgd\", least_rate = -1 }"), HasSubstr("least_rate = -1"));
  EXPECT_THAT(faults_of("{ name = \"powersgd\", factors = \"in-turn\", warm_start = false }"),
              HasSubstr("the other one is the last step's"));
}

// What does not write them is what it was before there were such keys: finished runs stay what they are.
TEST(CompressionSettings, OfFormsAreInNoFileThatDoesNotWriteThem) {
  for (const char* compression :
       {"{ name = \"dgc\", ratio = 0.1 }", "{ name = \"one-bit\" }", "{ name = \"powersgd\" }"}) {
    const auto reading = read_method(std::string("algorithm = \"sync-sgd\"\ncompression = ") + compression);
    for (const char* key : {"nesterov", "clip", "threshold", "factors"})
      EXPECT_THAT(reading.resolved, testing::Not(HasSubstr(key))) << compression;
  }
}

// What has been computed can be folded in; what a deadline has stopped has no gradient.
TEST(CompressionSettings, OnlyWhatIsComputedCanBeFolded) {
  const std::string folding = "{ name = \"top-k\", ratio = 0.1, dropped = \"fold\" }";
  EXPECT_EQ(faults_of(folding, "algorithm = \"random-drop\"\ndrop_rate = 0.1"), "");
  EXPECT_THAT(faults_of(folding, "algorithm = \"dropcompute\"\nthreshold_s = 2"),
              HasSubstr("has not been computed to its end"));
  EXPECT_EQ(faults_of("{ name = \"top-k\", ratio = 0.1, dropped = \"lost\" }",
                      "algorithm = \"dropcompute\"\nthreshold_s = 2"),
            "");
  EXPECT_THAT(faults_of(folding), HasSubstr("this method leaves nothing out"));
  EXPECT_THAT(faults_of("{ name = \"qsgd\", dropped = \"fold\" }", "algorithm = \"random-drop\"\ndrop_rate = 0.1"),
              HasSubstr("dropped"));
}

TEST(CompressionSettings, AreForMethodsThatSumGradients) {
  const std::string top_k = "{ name = \"top-k\", ratio = 0.1 }";
  for (const char* method :
       {"algorithm = \"decentralized-sgd\"", "algorithm = \"gradient-coding\"\ncode = \"fractional\"\nstragglers = 1",
        "algorithm = \"dynamic-averaging\"\nthreshold = 1\ncheck_every = 2",
        "algorithm = \"dropcompute\"\nthreshold_s = 2\npreempt = \"layer\""})
    EXPECT_THAT(faults_of(top_k, method), HasSubstr("must not be given")) << method;
  for (const char* method : {"algorithm = \"stale-sgd\"\nstaleness = 2", "algorithm = \"random-drop\"\ndrop_rate = 0.1",
                             "algorithm = \"dropcompute\"\nthreshold_s = 2"})
    EXPECT_EQ(faults_of(top_k, method), "") << method;
}

TEST(CompressionSettings, ByTensorsNeedAModel) {
  EXPECT_THAT(faults_of("{ name = \"powersgd\" }", "algorithm = \"sync-sgd\"", true), HasSubstr("needs a model"));
  EXPECT_THAT(faults_of("{ name = \"sign\", scope = \"tensor\" }", "algorithm = \"sync-sgd\"", true),
              HasSubstr("needs a model"));
  EXPECT_EQ(faults_of("{ name = \"sign\" }", "algorithm = \"sync-sgd\"", true), "");
}

// Rounds, bytes and step times by formula, against a run whose micro-batches all take 1 s.
TEST(CompressionSettings, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 5;
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.25 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"scalecom\", ratio = 0.5 }", "{ name = \"one-bit\", scope = \"model\" }",
        "{ name = \"sign\", exchange = \"two-phase\" }",
        "{ name = \"dgc\", ratio = 0.25, warmup_ratios = [1.0, 0.5], warmup_steps = 3 }"}) {
    const auto reading = read_method(std::string("algorithm = \"sync-sgd\"\ncompression = ") + compression);
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    const auto exchanges = exchanges_of(reading.algorithm->compression(), {}, Bytes{16}, 4);
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{
        .workers = 4, .parameter_bytes = Bytes{16}, .steps = steps, .learning_rate = rate, .exchanges = exchanges};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{steps, outcome.totals.bytes})) << compression;
    const SampledTimes times;
    const PredictionInput prediction{.workers = 4,
                                     .times = times,
                                     .network = *network,
                                     .parameter_bytes = Bytes{16},
                                     .budget = {.steps = steps},
                                     .learning_rate = rate,
                                     .exchanges = exchanges};
    EXPECT_NEAR(prediction.all_reduce_s(), to_seconds(outcome.totals.end) / steps - 1, 1e-8) << compression;
    EXPECT_NE(prediction.all_reduce_s(), prediction.dense_all_reduce_s()) << compression;
  }
}

}  // namespace
}  // namespace syncopate
