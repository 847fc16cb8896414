// Methods in rounds whose averages are compressed: residuals, identities, and recursions in double precision.
#include "tests/algorithms/compressed_averages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/formulas.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

TEST(CompressedAverages, OfEverythingAreDense) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 20}};
  for (const auto& [name, method] : in_rounds(3)) {
    const auto dense = setup.run(*method).parameters;
    for (const std::string_view kind : {"top-k", "random-k"})
      EXPECT_LT(largest_difference(compressed(setup, *method, of(kind, 1)), dense), 3e-5) << name;
  }
}

TEST(CompressedAverages, OfSingleStepsAndEverythingAreSynchronousSgd) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 20}};
  LocalSgd local(make_constant_period(1), {});
  EXPECT_LT(largest_difference(compressed(setup, local, of("top-k", 1)), setup.run(SyncSgd()).parameters), 2e-5);
}

// Without pulls PALSGD is DiLoCo; with rounds of constant length AdaComm is Local SGD.
TEST(CompressedAverages, OfPalSgdAndAdaCommAreThoseOfTheirLimitCases) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 18}};
  for (const std::string_view kind : {"top-k", "random-k", "sign", "qsgd", "int8", "fp4"}) {
    OuterLocalSgd diloco(make_constant_period(3), make_diloco(0.7, 0.5), {});
    PalSgd pulled(make_constant_period(3), make_diloco(0.7, 0.5), {.probability = 0});
    EXPECT_EQ(compressed(setup, pulled, of(kind, 0.5)), compressed(setup, diloco, of(kind, 0.5)));
    LocalSgd local(make_constant_period(3), {});
    AdaComm constant({.period = {.initial = 3, .minimum = 3, .maximum = Step{3}}});
    EXPECT_EQ(compressed(setup, constant, of(kind, 0.5)), compressed(setup, local, of(kind, 0.5)));
  }
}

// If everything is sent, losses equal those of the dense run, and so do the rounds, which depend on losses.
TEST(CompressedAverages, OfEverythingLeaveAdaCommsRoundsAsTheyAre) {
  SimulatedRun setup{.workers = 3, .rate = 0.05, .budget = {.steps = 60}};
  setup.objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 4, .condition = 1, .noise = 0}, 3);
  AdaComm method({.period = {.initial = 9}});
  const auto dense = setup.run(method);
  method.compress(of("top-k", 1));
  const auto found = setup.run(method);
  EXPECT_LT(largest_difference(found.parameters, dense.parameters), 3e-5);
  EXPECT_EQ(found.rounds.size(), dense.rounds.size());
  EXPECT_GT(dense.rounds.size(), 60u / 9 + 1) << "rounds became shorter";
}

// A round has two steps: the first has a quarter of the golden gradient, the second has the rest.
std::vector<float> golden_gradient(const MicroBatch& at) {
  auto gradient = golden[static_cast<std::size_t>(at.worker.value)][static_cast<std::size_t>(at.step.value()) / 2];
  for (float& value : gradient) value *= at.step.value() % 2 == 0 ? 0.25f : 0.75f;
  return gradient;
}

// A worker's difference is -rate x the sum of its gradients, so models move by -rate x the golden steps. An outer
// optimizer steps along this mean, which is the same on all workers.
TEST(CompressedAverages, TopOneHasTheGoldenSteps) {
  std::vector<double> plain(3), outer(3), velocity(3);
  for (int rounds = 1; rounds <= 4; ++rounds) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double delta = 0.1 * golden_steps[static_cast<std::size_t>(rounds - 1)][i];
      plain[i] -= delta;
      velocity[i] = 0.5 * velocity[i] + delta;
      outer[i] -= 0.7 * (delta + 0.5 * velocity[i]);
    }
    const SimulatedRun setup{.workers = 2,
                             .budget = {.steps = 2 * rounds},
                             .objective = std::make_shared<ListedGradients>(3, golden_gradient)};
    LocalSgd local(make_constant_period(2), {});
    OuterLocalSgd diloco(make_constant_period(2), make_diloco(0.7, 0.5), {});
    const auto of_plain = compressed(setup, local, of("top-k")), of_outer = compressed(setup, diloco, of("top-k"));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(of_plain[i], plain[i], 1e-6) << rounds;
      EXPECT_NEAR(of_outer[i], outer[i], 1e-6) << rounds;
    }
  }
}

// Values that were held back are sent later. A change of the learning rate has no effect on them, because differences
// already contain the rate.
TEST(CompressedAverages, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 12)};
  setup.learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
      .shape = LearningRate::Shape::step, .peak = 0.1, .decay_steps = {Step{6}}, .decay_factor = 0.25});
  Methods methods = in_rounds(3);
  methods.erase(std::remove_if(methods.begin(), methods.end(),
                               [](const auto& one) {
                                 const std::string name = one.first;  // keeps only methods without an outer step
                                 return name != "local-sgd" && name != "cocod";
                               }),
                methods.end());
  for (const auto& [name, method] : methods) {
    setup.budget = {.steps = 12};
    const auto dense = setup.run(*method).parameters;
    for (const std::string_view kind : {"top-k", "random-k", "int8", "fp4"}) {
      CompressionOptions options = of(kind, 0.1);
      options.error_feedback = true;
      setup.budget = {.steps = 12};
      const auto early = compressed(setup, *method, options);
      setup.budget = {.steps = 600};
      const auto late = compressed(setup, *method, options);
      EXPECT_LT(largest_difference(late, dense), 1e-5) << name << " " << kind;
      EXPECT_GT(largest_difference(early, dense), 1e-6) << name << " " << kind;
    }
  }
}

// In two phases, both workers and owners have residuals.
TEST(CompressedAverages, ErrorFeedbackInTwoPhasesLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(400, 12)};  // an owner's 100 values share some bins
  LocalSgd local(make_constant_period(3), {});
  setup.budget = {.steps = 12};
  const auto dense = setup.run(local).parameters;
  for (const std::string_view kind : {"int8", "fp4"}) {
    const CompressionOptions options =
        compression(kind, R"(error_feedback = true, exchange = "two-phase")", Compresses::averages);
    setup.budget = {.steps = 12};
    EXPECT_GT(largest_difference(compressed(setup, local, options), dense), 1e-6) << kind;
    setup.budget = {.steps = 600};
    EXPECT_LT(largest_difference(compressed(setup, local, options), dense), 1e-5) << kind;
  }
}

// Each of two owners has four values with a bin each, so packets are exact, and so is their mean.
TEST(CompressedAverages, OfExactPacketsInTwoPhasesAreDense) {
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 8}, .objective = noise_at_first(8, 8)};
  for (const auto& [name, method] : in_rounds(2)) {
    if (!method->traits().waits_for_averages) continue;
    const CompressionOptions options = compression("int8", R"(exchange = "two-phase")", Compresses::averages);
    EXPECT_LT(largest_difference(compressed(setup, *method, options), setup.run(*method).parameters), 1e-6) << name;
  }
}

TEST(CompressedAverages, WithoutErrorFeedbackWhatIsNotSentIsLost) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 600}, .objective = noise_at_first(24, 12)};
  LocalSgd local(make_constant_period(3), {});
  const CompressionOptions options = compression("top-k", "ratio = 0.1, error_feedback = false", Compresses::averages);
  EXPECT_GT(largest_difference(compressed(setup, local, options), setup.run(local).parameters), 1e-3);
}

// The difference of one worker over a round of two steps is known. Its packet has its signs, times its mean magnitude.
TEST(CompressedAverages, OfSignsHaveTheMeanMagnitude) {
  const auto listed = [](const MicroBatch&) { return std::vector<float>{0.5f, -1.5f, -0.0f, 2.0f}; };
  const SimulatedRun setup{
      .workers = 1, .rate = 0.5, .budget = {.steps = 2}, .objective = std::make_shared<ListedGradients>(4, listed)};
  LocalSgd local(make_constant_period(2), {});
  // The differences are -0.5, 1.5, 0 and -2: their mean magnitude is 1, and the sign of 0 is +1.
  EXPECT_EQ(compressed(setup, local, of("sign")), (std::vector<float>{-1, 1, 1, -1}));
}

TEST(CompressedAverages, WithEightBitsAreWithinABinOfDenseOnes) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 3}, .objective = noise_at_first(1000, 3)};
  LocalSgd local(make_constant_period(3), {});
  const CompressionOptions options = compression("int8", "range_std = 6", Compresses::averages);
  const auto dense = setup.run(local).parameters, found = compressed(setup, local, options);
  // A difference is 0.1 times a sum of three uniform numbers from -1 to 1, with a standard deviation of 0.1. The 256
  // bins cover 12 deviations, so a bin is 12 x 0.1 / 256 wide.
  const double difference = largest_difference(found, dense);
  EXPECT_LT(difference, 0.11 * 12 / 256);
  EXPECT_GT(difference, 1e-5);
}

// Normalisation statistics are averaged without compression. The expected statistics are those of a dense run with the
// same models.
TEST(CompressedAverages, OfStatisticsAreDense) {
  struct WithStatistics : PullObjective {
    std::size_t buffers() const override { return 3; }
    std::vector<float> initial_buffers() const override { return {0, 0, 0}; }
    PartialGradient gradient(const float* parameters, const float* buffers,
                             std::span<const MicroBatch> micro_batches) const override {
      PartialGradient result = PullObjective::gradient(parameters, nullptr, micro_batches);
      result.buffers_sum.assign(3, 0.0f);
      for (const MicroBatch& at : micro_batches)
        for (std::size_t i = 0; i < 3; ++i)
          result.buffers_sum[i] += buffers[i] + 0.5f * (static_cast<float>(i) + target(at, i) - buffers[i]);
      return result;
    }
  };
  for (const StatePolicy policy : {StatePolicy::average, StatePolicy::keep, StatePolicy::reset}) {
    SimulatedRun setup{.workers = 3, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 8}};
    setup.objective = std::make_shared<WithStatistics>();
    StatePolicies policies;
    policies.average.buffers = policy;
    LocalSgd local(make_constant_period(4), policies);
    const auto dense = setup.run(local);
    local.compress(of("top-k", 1));
    const auto found = setup.run(local);
    EXPECT_LT(largest_difference(found.buffers, dense.buffers), 1e-5);
    // An all-gather has an index and a value (8 bytes) for each of 4 values, and the statistics. There are two averages
    // over three workers.
    const int statistics = policy == StatePolicy::average ? 12 : 0;
    EXPECT_EQ(found.totals.bytes, Bytes{2 * 2 * 3 * (32 + statistics)});
  }
}

// Worker 1 is down in the second round and loses its state: it adopts the common model, and its residual is lost.
TEST(CompressedAverages, ALostStateTakesItsResidualAlong) {
  const auto listed = [](const MicroBatch& at) {
    return at.step < 2 ? std::vector<float>{2, 1.5f} : std::vector<float>{0, 0};
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 6}, .objective = std::make_shared<ListedGradients>(2, listed)};
  LocalSgd local(make_constant_period(2), {});
  EXPECT_FLOAT_EQ(compressed(setup, local, of("top-k", 0.5))[1], -0.1f * 3);
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(3), from_seconds(1)},
                                     .loses_state = loses_state}});
    EXPECT_FLOAT_EQ(compressed(setup, local, of("top-k", 0.5))[1], loses_state ? -0.1f * 3 / 2 : -0.1f * 3);
  }
}

TEST(CompressedAverages, AWorkerThatHasLeftIsMissedAsInADenseAverage) {
  for (const auto& [name, method] : in_rounds(2)) {
    const auto why = [&, method = method]() -> std::string {
      const SimulatedRun setup{.workers = 3, .budget = {.steps = 8}, .data_of = {std::nullopt, Step{3}, std::nullopt}};
      try {
        setup.run(*method);
      } catch (const RunFailure& failure) {
        return std::string(failure.what()).substr(0, std::string(failure.what()).find(','));
      }
      return "";
    };
    const std::string of_dense = why();
    method->compress(of("top-k", 0.5));
    EXPECT_EQ(why(), of_dense) << name;
  }
}

TEST(CompressedAverages, DoNotDependOnThreads) {
  for (const auto& [name, method] : in_rounds(2))
    for (const std::string_view kind : {"top-k", "random-k", "sign", "qsgd", "int8", "fp4"}) {
      SimulatedRun setup{.workers = 4, .threads = 0, .momentum = 0.9, .budget = {.steps = 8}};
      setup.objective = noise_at_first(300, 8);
      const auto alone = compressed(setup, *method, of(kind, 0.2));
      setup.threads = 3;
      EXPECT_EQ(compressed(setup, *method, of(kind, 0.2)), alone) << name << " " << kind;
    }
}

TEST(CompressedAverages, LeaveSynchronousStepsBeforeRoundsDense) {
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 4}, .objective = noise_at_first(24, 9)};
  LocalSgd local(make_post_local_period(Step{4}, Step{2}), {});
  EXPECT_EQ(compressed(setup, local, of("top-k")), setup.run(SyncSgd()).parameters);
}

TEST(CompressedAverages, ANotANumberReachesTheModel) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(8, 1.0f);
    if (at.worker == Rank{1} && at.step == 2) values[5] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  SimulatedRun setup{.workers = 3, .objective = std::make_shared<ListedGradients>(8, listed)};
  for (const std::string_view kind : {"top-k", "sign", "qsgd", "int8", "fp4"}) {
    const auto has_it = [&](int steps) {
      setup.budget = {.steps = steps};
      LocalSgd local(make_constant_period(2), {});
      const auto found = compressed(setup, local, of(kind));
      return std::any_of(found.begin(), found.end(), [](float value) { return std::isnan(value); });
    };
    EXPECT_FALSE(has_it(2));
    EXPECT_TRUE(has_it(4)) << kind;
  }
}

// Worker 2 takes 4 s for a round of 2 steps. On a ring of latency L and bandwidth B an all-gather of packets of p bytes
// takes (N - 1) (L + p / B), and an all-reduce of P bytes 2 (N - 1) (L + P / (N B)). Top-k gathers 30 of 300 values
// with their indices, 8 bytes each, and random-k all-reduces 30 values of 4 bytes.
TEST(CompressedAveragesTimes, TakeWhatTheNetworkSays) {
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .budget = {.steps = 4},
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(300, 4)};
  LocalSgd local(make_constant_period(2), {});
  local.compress(of("top-k", 0.1));
  const auto outcome = setup.run(local);
  EXPECT_EQ(outcome.log,
            (std::vector<std::string>{"step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 9.000 s: kept 6, dropped 0"}));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 3 * 2 * 240});
  EXPECT_EQ(outcome.totals.collectives, 2);
  expect_exact_accounts(outcome);
  local.compress(of("random-k", 0.1));
  EXPECT_EQ(setup.run(local).log.front(), "step 2 at 4.200 s: kept 6, dropped 0");
  // int8 sends 256 means and a byte per value, fp4 a scale per 128 values and half a byte per value.
  const auto bytes_of = [&](std::string_view kind) {
    local.compress(of(kind));
    return setup.run(local).totals.bytes;
  };
  EXPECT_EQ(bytes_of("int8"), Bytes{2 * 3 * 2 * (1024 + 300)});
  EXPECT_EQ(bytes_of("fp4"), Bytes{2 * 3 * 2 * (4 * 3 + 4 * 38)});
}

// The matrix of 16 x 15 values has six tiles of 8 x 5, the vector of 60 has ten of 6. Workers send five values of each
// tile: 30 with indices of 6 bits, in 6 words, and 50 with indices of 3 bits, in 5 words. A round takes 4 s, and an
// all-gather of packets of p bytes 2 (0.01 + p / 1000) s.
TEST(CompressedAveragesTimes, OfBinsAndTilesTakeWhatTheNetworkSays) {
  const std::vector<ParameterTensor> tensors = {{.name = "matrix", .offset = 0, .size = 240, .place = 0, .rows = 16},
                                                {.name = "vector", .offset = 240, .size = 60, .place = 1}};
  const SimulatedRun setup{.workers = 3,
                           .network = make_ring_network(0.01, 1000),
                           .budget = {.steps = 4},
                           .worker_factors = {1, 1, 2},
                           .objective = noise_at_first(300, 4, tensors)};
  LocalSgd local(make_constant_period(2), {});
  const auto expect = [&](std::string_view kind, const std::string& keys, const char* first, const char* second,
                          int bytes_of_worker, int collectives = 2) {
    local.compress(compression(kind, keys, Compresses::averages));
    const auto outcome = setup.run(local);
    EXPECT_EQ(outcome.log, (std::vector<std::string>{std::string("step 2 at ") + first + " s: kept 6, dropped 0",
                                                     std::string("step 4 at ") + second + " s: kept 6, dropped 0"}))
        << kind << " " << keys;
    EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 3 * 2 * bytes_of_worker}) << kind << " " << keys;
    EXPECT_EQ(outcome.totals.collectives, collectives);
    expect_exact_accounts(outcome);
  };
  // Four means per tensor, and 15 and 4 words with two bits per value.
  expect("bins", "", "4.236", "8.472", 4 * (4 + 15 + 4 + 4));
  // Chunks of 100 values go to three owners and back. Each phase takes as long as an all-gather of packets of 44 bytes:
  // four means, and 7 words with two bits per value.
  expect("bins", R"(scope = "model", exchange = "two-phase")", "4.216", "8.432", 2 * 4 * (4 + 7), 4);
  // Per tensor four means, and 2 and 4 words with two bits per value.
  expect("tiles", "tile = 8, kept = 5", "4.220", "8.440", 4 * (6 + 4 + 2 + 5 + 4 + 4));
  expect("tiles", R"(tile = 8, kept = 5, values = "float")", "4.748", "9.496", 4 * (6 + 30 + 5 + 50));
  // In the authors' code a value and its index take 14 and 11 bits, in 14 and 18 words.
  expect("tiles", R"(tile = 8, kept = 5, packing = "published")", "4.340", "8.680", 4 * (14 + 4 + 18 + 4));
}

// Time-only runs, on fibers and in lockstep, take the same time as training, even if the next round hides averages.
TEST(CompressedAveragesTimes, TimesNeedNoModel) {
  for (const auto& [name, method] : in_rounds(3))
    for (const CompressionOptions& options :
         {of("top-k"), of("random-k"), of("sign"), of("qsgd"), of("int8"), of("fp4"),
          compression("bins", R"(scope = "model")", Compresses::averages)}) {
      SimulatedRun setup{.workers = 3, .network = make_ring_network(0.01, 1000), .worker_factors = {1, 1, 2}};
      setup.budget = {.steps = 10};
      method->compress(options);
      const auto trained = setup.run(*method);
      setup.objective = nullptr;
      const auto timed = setup.run(*method);
      setup.in_lockstep = true;
      const auto in_lockstep = setup.run(*method);
      EXPECT_EQ(timed.log, trained.log) << name;
      EXPECT_EQ(in_lockstep.log, trained.log) << name;
      EXPECT_EQ(timed.totals.bytes, trained.totals.bytes) << name;
      EXPECT_EQ(in_lockstep.totals.bytes, trained.totals.bytes) << name;
    }
}

// Rounds, bytes and round times by formula, compared with a run whose micro-batches all take 1 s.
TEST(CompressedAveragesTimes, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 6;
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.25 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"int8\" }", "{ name = \"fp4\" }", "{ name = \"bins\", scope = \"model\" }",
        "{ name = \"sign\", exchange = \"two-phase\" }"}) {
    const auto reading = read_method(local_sgd + "\ncompression = " + compression);
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    EXPECT_TRUE(reading.algorithm->compression()->of_averages());
    const auto exchanges = exchanges_of(reading.algorithm->compression(), {}, Bytes{16}, 4).back().exchanges;
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{.workers = 4,
                                   .parameter_bytes = Bytes{16},
                                   .steps = steps,
                                   .learning_rate = rate,
                                   .average_exchanges = exchanges};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{steps / 3, outcome.totals.bytes})) << compression;
    const SampledTimes times;
    const PredictionInput prediction{.workers = 4,
                                     .times = times,
                                     .network = *network,
                                     .parameter_bytes = Bytes{16},
                                     .learning_rate = rate,
                                     .average_exchanges = exchanges};
    EXPECT_NEAR(prediction.average_s({}), to_seconds(outcome.totals.end) / 2 - 3, 1e-8) << compression;
  }
}

using testing::HasSubstr;

std::string average_faults(const std::string& compression, const std::string& method, bool time_only = false) {
  return read_method(method + "\ncompression = " + compression, {.workers = 4, .time_only = time_only}).faults;
}

TEST(CompressedAveragesSettings, AreReadForMethodsThatAverageModels) {
  const std::string period = "\nperiod = { rule = \"constant\", steps = 3 }";
  const std::string outer = "\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }";
  for (const std::string& method :
       {local_sgd, "algorithm = \"outer-local-sgd\"" + period + outer, "algorithm = \"cocod-sgd\"" + period,
        "algorithm = \"overlap-local-sgd\"\nmixing = 0.5" + period, "algorithm = \"co2\"" + period,
        "algorithm = \"overlapped-diloco\"" + period + outer, "algorithm = \"palsgd\"" + period + outer,
        std::string("algorithm = \"adacomm\"\ninitial_period = 4")}) {
    for (const char* compression :
         {"{ name = \"top-k\", ratio = 0.1 }", "{ name = \"random-k\", ratio = 0.1, error_feedback = false }",
          "{ name = \"sign\" }", "{ name = \"qsgd\" }", "{ name = \"int8\", range_std = 6 }",
          "{ name = \"fp4\", rounding = \"random\", error_feedback = true }"})
      EXPECT_EQ(average_faults(compression, method), "") << method << compression;
    const bool waits = read_method(method).algorithm->traits().waits_for_averages;
    EXPECT_EQ(average_faults("{ name = \"sign\", exchange = \"two-phase\" }", method).empty(), waits) << method;
    EXPECT_THAT(average_faults("{ name = \"powersgd\" }", method), HasSubstr("which only sums of gradients support"));
    EXPECT_THAT(average_faults("{ name = \"scalecom\", ratio = 0.1 }", method),
                HasSubstr("which only sums of gradients support"));
    EXPECT_THAT(average_faults("{ name = \"majority\" }", method), HasSubstr("has no length"));
    EXPECT_THAT(average_faults("{ name = \"dgc\", ratio = 0.1 }", method), HasSubstr("test.toml:"));
  }
}

// Without the table, a method's resolved form has no such key. So finished runs of this method stay valid.
TEST(CompressedAveragesSettings, WithoutATableAreDense) {
  EXPECT_THAT(read_method(local_sgd).resolved, testing::Not(HasSubstr("compression")));
  EXPECT_FALSE(read_method(local_sgd).algorithm->compression());
  EXPECT_FALSE(read_method(local_sgd + "\ncompression = { name = \"none\" }").algorithm->compression());
  EXPECT_THAT(average_faults("{ ratio = 0.1 }", local_sgd), HasSubstr("ratio"));
}

TEST(CompressedAveragesSettings, AreRefusedWithTheirPlace) {
  EXPECT_THAT(average_faults("{ name = \"int8\" }", local_sgd + "\nmoments = \"average\""),
              testing::AllOf(HasSubstr("test.toml:4:"), HasSubstr("if moments are averaged")));
  EXPECT_THAT(average_faults("{ name = \"int8\" }",
                             "algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1\n"
                             "period = { rule = \"constant\", steps = 3 }"),
              HasSubstr("averages of groups and averages of all would need separate residuals"));
  EXPECT_THAT(average_faults("{ name = \"int8\", range_std = 0 }", local_sgd), HasSubstr("range_std = 0"));
  EXPECT_THAT(average_faults("{ name = \"fp4\", bucket = 0 }", local_sgd), HasSubstr("bucket = 0"));
  EXPECT_THAT(average_faults("{ name = \"fp4\", rounding = \"down\" }", local_sgd), HasSubstr("nearest"));
  EXPECT_THAT(average_faults("{ name = \"fp4\", scope = \"tensor\" }", local_sgd), HasSubstr("scope"));
  EXPECT_THAT(average_faults("{ name = \"top-k\", ratio = 0.1, residual = \"step\" }", local_sgd),
              HasSubstr("residual"));
  EXPECT_THAT(average_faults("{ name = \"int8\", scope = \"tensor\" }", local_sgd, true), HasSubstr("needs a model"));
}

}  // namespace
}  // namespace syncopate
