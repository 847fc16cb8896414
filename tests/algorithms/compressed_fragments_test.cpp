// Streaming DiLoCo whose fragments' outer gradients are compressed, on the simulated cluster: residuals of workers and
// fragments, identities, steps, times, bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/local_sgd/streaming_diloco.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;
using testing::HasSubstr;

CompressionOptions of(Kind kind, double ratio = 0.01) {
  CompressionOptions options{.kind = kind, .of_averages = true, .ratio = ratio};
  options.error_feedback = kind != Kind::qsgd;
  return options;
}

StreamingDiloco streaming(Step period, int fragments, Step delay = {}, double mixing = 0,
                          std::shared_ptr<const OuterOptimizer> outer = make_plain_outer(1)) {
  return {make_constant_period(period), std::move(outer), {Fragments(fragments), delay, mixing}, {}};
}

template <typename Method>
SimulatedRun::Outcome compressed(const SimulatedRun& setup, Method method, const CompressionOptions& options) {
  method.compress(options);
  return setup.run(method);
}

TEST(CompressedFragments, OfEverythingAreDense) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 22}};
  for (const int fragments : {1, 3, 4})
    for (const Step delay : {Step{0}, Step{2}, Step{5}})
      for (const double mixing : {0.0, 0.3}) {
        const auto method = streaming(5, fragments, delay, mixing, make_diloco(0.7, 0.5));
        const auto dense = setup.run(method);
        for (const Kind kind : {Kind::top_k, Kind::random_k}) {
          const auto found = compressed(setup, method, of(kind, 1));
          EXPECT_LT(largest_difference(found.parameters, dense.parameters), 3e-5) << fragments << " " << delay.value();
          EXPECT_EQ(found.totals.collectives, dense.totals.collectives);
        }
      }
}

// Whose packets have residuals of their own already, and outer steps that are the same everywhere.
TEST(CompressedFragments, OfOneWithoutDelayIsCompressedDiLoCo) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 24}};
  for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
    const OuterLocalSgd diloco(make_constant_period(4), make_diloco(0.7, 0.9), {});
    const auto expected = compressed(setup, diloco, of(kind, 0.5));
    const auto found = compressed(setup, streaming(4, 1, 0, 0, make_diloco(0.7, 0.9)), of(kind, 0.5));
    EXPECT_EQ(found.parameters, expected.parameters) << static_cast<int>(kind);
    EXPECT_EQ(found.totals.bytes, expected.totals.bytes) << static_cast<int>(kind);
  }
}

// Rounds of two steps, at each of which one of two fragments has its turn. Both have the round's gradient in its first
// step, the second fragment a third of it.
TEST(CompressedFragments, TopOneHasTheGoldenStepsOfEach) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(6, 0.0f);
    if (at.step.value() % 2 == 1) return values;
    const auto& round =
        golden[static_cast<std::size_t>(at.worker.value)][static_cast<std::size_t>(at.step.value()) / 2];
    for (std::size_t i = 0; i < 3; ++i) values[i] = round[i], values[3 + i] = round[i] / 3;
    return values;
  };
  std::vector<double> x(3);
  for (int rounds = 1; rounds <= 4; ++rounds) {
    for (std::size_t i = 0; i < 3; ++i) x[i] -= 0.1 * golden_steps[static_cast<std::size_t>(rounds - 1)][i];
    const SimulatedRun setup{
        .workers = 2, .budget = {.steps = 2 * rounds}, .objective = std::make_shared<ListedGradients>(6, listed)};
    const auto found = compressed(setup, streaming(2, 2), of(Kind::top_k)).parameters;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(found[i], x[i], 1e-6) << rounds;
      EXPECT_NEAR(found[3 + i], x[i] / 3, 1e-6) << rounds;
    }
  }
}

TEST(CompressedFragments, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(25, 12)};
  for (const int fragments : {2, 3}) {
    const auto method = streaming(3, fragments);
    setup.budget = {.steps = 600};
    const auto dense = setup.run(method).parameters;
    setup.budget = {.steps = 12};
    const auto early_dense = setup.run(method).parameters;
    for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::int8, Kind::fp4}) {
      setup.budget = {.steps = 12};
      const auto early = compressed(setup, method, of(kind, 0.1)).parameters;
      setup.budget = {.steps = 600};
      const auto late = compressed(setup, method, of(kind, 0.1)).parameters;
      EXPECT_LT(largest_difference(late, dense), 1e-5) << fragments << " " << static_cast<int>(kind);
      EXPECT_GT(largest_difference(early, early_dense), 1e-6) << fragments << " " << static_cast<int>(kind);
    }
    CompressionOptions without = of(Kind::top_k, 0.1);
    without.error_feedback = false;
    EXPECT_GT(largest_difference(compressed(setup, method, without).parameters, dense), 1e-3) << fragments;
  }
}

// Four values in two fragments. Worker 1 is down in the second round and loses its state, with both residuals.
TEST(CompressedFragments, ALostStateTakesAllResidualsAlong) {
  const auto listed = [](const MicroBatch& at) {
    return at.step < 2 ? std::vector<float>{2, 1.5f, 1, 0.5f} : std::vector<float>(4, 0.0f);
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 8}, .objective = std::make_shared<ListedGradients>(4, listed)};
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(3.5), from_seconds(1)},
                                     .loses_state = loses_state}});
    const auto found = compressed(setup, streaming(2, 2), of(Kind::top_k, 0.5)).parameters;
    // The first fragment's turn is between the two steps: its residual is of the first one, 0.15 of each worker; the
    // second's is of both, 0.1. Half of them is worker 1's.
    EXPECT_FLOAT_EQ(found[0], -0.4f);
    EXPECT_FLOAT_EQ(found[1], loses_state ? -0.225f : -0.3f);
    EXPECT_FLOAT_EQ(found[2], -0.2f);
    EXPECT_FLOAT_EQ(found[3], loses_state ? -0.05f : -0.1f);
  }
}

std::string with_compression(const std::string& compression, int fragments = 2, int delay = 0) {
  return "algorithm = \"streaming-diloco\"\nfragments = " + std::to_string(fragments) +
         "\ndelay = " + std::to_string(delay) +
         "\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }\ncompression = " + compression;
}

TEST(CompressedFragments, AreReadAndRefusedWithTheirPlace) {
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.1 }", "{ name = \"random-k\", ratio = 0.1 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"int8\", error_feedback = true }", "{ name = \"fp4\" }"}) {
    const auto reading = read_method(with_compression(compression));
    EXPECT_EQ(reading.faults, "") << compression;
    EXPECT_TRUE(reading.algorithm->compression()->of_averages);
  }
  const auto faults = [](const std::string& compression, int fragments = 2) {
    return read_method(with_compression(compression, fragments)).faults;
  };
  EXPECT_THAT(faults("{ name = \"int8\", scope = \"tensor\" }"), HasSubstr("each of 2 slices of the model"));
  EXPECT_EQ(faults("{ name = \"int8\", scope = \"tensor\" }", 1), "");
  EXPECT_THAT(faults("{ name = \"fp4\", exchange = \"two-phase\" }"), HasSubstr("exchange"));
  EXPECT_THAT(faults("{ name = \"powersgd\" }"), HasSubstr("those of sums of gradients alone"));
}

// Bytes by formula, and the time of rounds whose micro-batches all take 1 s: 4 steps and two fragments' exchanges.
TEST(CompressedFragments, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 12;
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.5 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"int8\" }", "{ name = \"fp4\" }"}) {
    const auto reading = read_method(with_compression(compression));
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    const Exchange of_fragment =
        exchanges_of(reading.algorithm->compression(), {}, Bytes{8}, 4).back().exchanges.front();
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{.workers = 4,
                                   .parameter_bytes = Bytes{16},
                                   .steps = steps,
                                   .learning_rate = rate,
                                   .average_exchanges = {of_fragment, of_fragment}};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{2 * steps / 4, outcome.totals.bytes}))
        << compression;
    const SampledTimes times;
    const PredictionInput prediction{
        .workers = 4, .times = times, .network = *network, .parameter_bytes = Bytes{16}, .learning_rate = rate};
    EXPECT_NEAR(2 * prediction.exchanges_s({of_fragment}), to_seconds(outcome.totals.end) / 3 - 4, 1e-8) << compression;
  }
}

}  // namespace
}  // namespace syncopate
