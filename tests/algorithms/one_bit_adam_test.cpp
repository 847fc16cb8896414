// 1-bit Adam on the simulated cluster: identities, recursions in double precision, times, bytes.
#include "algorithms/synchronous/one_bit_adam.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/compressions.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

constexpr double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-4, decay = 0.02, rate = 0.1;
constexpr std::size_t size = 40;

std::shared_ptr<const Optimizer> adam() {
  return make_adamw({.beta1 = beta1,
                     .beta2 = beta2,
                     .epsilon = epsilon,
                     .corrects_bias = false,
                     .weight_decay = {.rate = decay, .scope = DecayScope::all, .form = DecayForm::decoupled}});
}

CompressionOptions of_moments(std::string_view kind, const std::string& keys) {
  CompressionOptions options = compression(kind, keys, Compresses::moments);
  options.beta1 = beta1;
  return options;
}
CompressionOptions signs() { return of_moments("sign", R"(exchange = "gather")"); }

OneBitAdam compressed(Step freeze_step, const CompressionOptions& options = signs()) {
  OneBitAdam method(freeze_step);
  method.compress(options);
  return method;
}

float noise(const MicroBatch& at, std::size_t i) {
  std::mt19937 engine(static_cast<unsigned>(1000 * at.worker.value + at.step.value() + 77 * static_cast<int>(i)));
  return std::uniform_real_distribution<float>(-1, 1)(engine) + 0.3f * static_cast<float>(i % 3);
}
std::vector<float> listed(const MicroBatch& at) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = noise(at, i);
  return values;
}
SimulatedRun of_noise(int workers, int steps) {
  return {.workers = workers,
          .rate = rate,
          .optimizer = adam(),
          .budget = {.steps = steps},
          .objective = std::make_shared<ListedGradients>(size, listed)};
}

// Sends one packet of the frozen phase: returns the values that are sent, and leaves the residual in p.
using Send = std::vector<double> (*)(std::vector<double>& p);
std::vector<double> whole(std::vector<double>& p) { return std::exchange(p, std::vector<double>(p.size())); }
std::vector<double> scaled_signs(std::vector<double>& p) {
  double square = 0;
  for (const double value : p) square += value * value;
  const double scale = std::sqrt(square / static_cast<double>(p.size()));
  std::vector<double> sent;
  for (double& value : p) {
    sent.push_back(std::signbit(value) ? -scale : scale);
    value -= sent.back();
  }
  return sent;
}

// Sends in chunks, each with its own scale. Workers send packets to owners in this way, and owners send the packets'
// mean.
std::vector<double> in_chunks(std::vector<double>& p, int chunks, Send send) {
  const std::size_t most = (p.size() + static_cast<std::size_t>(chunks) - 1) / static_cast<std::size_t>(chunks);
  std::vector<double> sent;
  for (std::size_t begin = 0; begin < p.size(); begin += most) {
    const std::size_t end = std::min(p.size(), begin + most);
    std::vector<double> chunk(p.begin() + static_cast<std::ptrdiff_t>(begin),
                              p.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<double> of_chunk = send(chunk);
    sent.insert(sent.end(), of_chunk.begin(), of_chunk.end());
    std::copy(chunk.begin(), chunk.end(), p.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return sent;
}

std::vector<double> model_after(int workers, int steps, int freeze_step, Send send, bool has_owners = false,
                                const ListedGradients::Listed& gradients = listed) {
  const auto n = static_cast<std::size_t>(workers);
  std::vector<double> x(size), m(size), v(size);
  std::vector<std::vector<double>> p(n, std::vector<double>(size));
  std::vector<double> owned(size);
  for (int step = 0; step < steps; ++step) {
    std::vector<double> mean(size);
    for (std::size_t worker = 0; worker < n; ++worker) {
      const auto g = gradients({Rank{static_cast<int>(worker)}, Step{step}, 0});
      std::vector<double> of_worker(g.begin(), g.end());
      if (step >= freeze_step) {
        for (std::size_t i = 0; i < size; ++i) p[worker][i] += beta1 * m[i] + (1 - beta1) * of_worker[i];
        of_worker = has_owners ? in_chunks(p[worker], workers, send) : send(p[worker]);
      }
      for (std::size_t i = 0; i < size; ++i) mean[i] += of_worker[i] / workers;
    }
    if (has_owners && step >= freeze_step) {
      for (std::size_t i = 0; i < size; ++i) owned[i] += mean[i] * workers;
      mean = in_chunks(owned, workers, send);
      for (double& value : mean) value /= workers;
    }
    for (std::size_t i = 0; i < size; ++i) {
      m[i] = step >= freeze_step ? mean[i] : beta1 * m[i] + (1 - beta1) * mean[i];
      if (step >= freeze_step && v[i] == 0) m[i] = 0;
      if (step < freeze_step) v[i] = beta2 * v[i] + (1 - beta2) * mean[i] * mean[i];
      x[i] -= rate * (m[i] / (std::sqrt(v[i]) + epsilon) + decay * x[i]);
    }
  }
  return x;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << i;
}

TEST(OneBitAdam, WithoutAnEndOfTheFirstPhaseIsSynchronousAdam) {
  for (const int workers : {1, 3}) {
    const SimulatedRun setup = of_noise(workers, 12);
    EXPECT_EQ(setup.run(compressed(Step{12})).parameters, setup.run(SyncSgd()).parameters);
  }
}

// Before the freeze the method is Adam without bias correction, and after it momentum with a fixed preconditioner.
TEST(OneBitAdam, WithoutCompressionIsMomentumWithAFixedPreconditioner) {
  for (const int freeze_step : {3, 20}) {
    SCOPED_TRACE(freeze_step);
    expect_near(of_noise(3, 20).run(OneBitAdam(Step{freeze_step})).parameters, model_after(3, 20, freeze_step, whole),
                1e-5);
  }
}

TEST(OneBitAdam, OfSignsFollowsTheRecursion) {
  for (const int workers : {1, 2, 4})
    expect_near(of_noise(workers, 20).run(compressed(Step{5})).parameters, model_after(workers, 20, 5, scaled_signs),
                1e-3);
}

TEST(OneBitAdam, OfSignsInTwoPhasesFollowsTheRecursion) {
  CompressionOptions options = signs();
  options.pattern = CompressionOptions::Pattern::two_phase;
  for (const int workers : {1, 2, 3})
    expect_near(of_noise(workers, 20).run(compressed(Step{5}, options)).parameters,
                model_after(workers, 20, 5, scaled_signs, true), 1e-3);
}

// With top-k at ratio 1, whole moments are sent.
TEST(OneBitAdam, OfWholeMomentsIsDense) {
  const CompressionOptions options = of_moments("top-k", "ratio = 1");
  expect_near(of_noise(3, 20).run(compressed(Step{3}, options)).parameters, model_after(3, 20, 3, whole), 1e-5);
}

TEST(OneBitAdam, OfOneWorkerWithEqualMagnitudesIsExact) {
  SimulatedRun setup = of_noise(1, 15);
  const auto equal = [](const MicroBatch& at) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i)
      values[i] = ((at.step.value() / 5 + static_cast<int>(i)) % 2 == 0 ? 1 : -1) * 0.5f;
    return values;
  };
  setup.objective = std::make_shared<ListedGradients>(size, equal);
  const auto exact = setup.run(OneBitAdam(Step{2})).parameters, found = setup.run(compressed(Step{2})).parameters;
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found[i], exact[i], 2e-5) << i;
}

// Every fourth parameter has gradients of exactly 0, like a weight behind an input that is always 0. Without a mask,
// its step would be the other parameters' scale over epsilon.
TEST(OneBitAdam, WhatHasNoGradientsInTheFirstPhaseStaysWhereItWas) {
  const auto is_dead = [](std::size_t i) { return i % 4 == 1; };
  const auto with_dead = [is_dead](const MicroBatch& at) {
    std::vector<float> values = listed(at);
    for (std::size_t i = 0; i < size; ++i)
      if (is_dead(i)) values[i] = 0;
    return values;
  };
  for (const auto pattern : {CompressionOptions::Pattern::gather, CompressionOptions::Pattern::two_phase})
    for (const int workers : {1, 3}) {
      SimulatedRun setup = of_noise(workers, 20);
      setup.objective = std::make_shared<ListedGradients>(size, with_dead);
      CompressionOptions options = signs();
      options.pattern = pattern;
      const bool has_owners = pattern == CompressionOptions::Pattern::two_phase;
      const auto found = setup.run(compressed(Step{5}, options)).parameters;
      for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(found[i] == 0, is_dead(i)) << i;
      expect_near(found, model_after(workers, 20, 5, scaled_signs, has_owners, with_dead), 1e-3);
    }
}

// Some rows of a table have their first gradient after the second moment is frozen, so they have no scale for a step.
TEST(OneBitAdam, WhatHasItsFirstGradientInTheSecondPhaseStaysMasked) {
  SimulatedRun setup = of_noise(2, 20);
  setup.optimizer = make_adamw({.epsilon = epsilon, .corrects_bias = false, .weight_decay = {.rate = 0}});
  setup.objective = std::make_shared<ListedGradients>(size, [](const MicroBatch& at) {
    std::vector<float> values = listed(at);
    if (at.step < Step{8}) values[0] = 0;
    return values;
  });
  const auto begin = setup.objective->initial_parameters(0);
  const auto early = setup.run(OneBitAdam(Step{5})).parameters, late = setup.run(OneBitAdam(Step{12})).parameters;
  EXPECT_EQ(early[0], begin[0]);
  EXPECT_NE(late[0], begin[0]);
  EXPECT_NE(early[1], begin[1]);
}

TEST(OneBitAdam, OfMoreMicroBatchesTakesTheirMean) {
  SimulatedRun setup = of_noise(3, 12);
  const auto one = setup.run(compressed(Step{4})).parameters;
  setup.micro_batches = 2;  // with equal gradients in both
  const auto two = setup.run(compressed(Step{4})).parameters;
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(two[i], one[i], 1e-5) << i;
}

// Worker 1 loses its state in the frozen phase: it adopts the others' model and moments, without a residual.
TEST(OneBitAdam, ALostStateTakesItsResidualAlong) {
  SimulatedRun setup = of_noise(2, 12);
  const auto whole_run = setup.run(compressed(Step{4})).parameters;
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(10), from_seconds(1)},
                                     .loses_state = loses_state}});
    const auto found = setup.run(compressed(Step{4}));
    EXPECT_EQ(found.totals.kept, std::vector<std::int64_t>(2, 12));
    EXPECT_EQ(found.parameters == whole_run, !loses_state);
  }
}

// Worker 2's step takes 2 s. On a ring an all-reduce of 160 bytes takes 2 (N - 1) (L + P / (N B)), and an all-gather of
// packets, a word of scale and two words of signs, takes (N - 1) (L + p / B).
TEST(OneBitAdam, TakesWhatTheNetworkSays) {
  SimulatedRun setup = of_noise(3, 3);
  setup.network = make_ring_network(0.01, 100);
  setup.worker_factors = {1, 1, 2};
  const std::vector<std::string> log = {"step 1 at 4.173 s: kept 3, dropped 0", "step 2 at 8.347 s: kept 3, dropped 0",
                                        "step 3 at 10.607 s: kept 3, dropped 0"};
  const auto outcome = setup.run(compressed(Step{2}));
  EXPECT_EQ(outcome.log, log);
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 2 * 160 + 3 * 2 * 12});
  expect_exact_accounts(outcome);
}

TEST(OneBitAdam, DoesNotDependOnThreads) {
  SimulatedRun setup = of_noise(4, 12);
  setup.threads = 0;
  const auto alone = setup.run(compressed(Step{4})).parameters;
  setup.threads = 3;
  EXPECT_EQ(setup.run(compressed(Step{4})).parameters, alone);
}

TEST(OneBitAdam, TimesNeedNoModel) {
  SimulatedRun setup{.workers = 3, .network = make_ring_network(0.01, 100), .budget = {.steps = 9}};
  const auto trained = setup.run(compressed(Step{4}));
  setup.objective = nullptr;
  EXPECT_EQ(setup.run(compressed(Step{4})).log, trained.log);
  setup.in_lockstep = true;
  const auto in_lockstep = setup.run(compressed(Step{4}));
  EXPECT_EQ(in_lockstep.log, trained.log);
  EXPECT_EQ(in_lockstep.totals.bytes, trained.totals.bytes);
}

using testing::HasSubstr;

TEST(OneBitAdam, IsReadWithSignsUnlessOtherwiseSaid) {
  const std::string method = "algorithm = \"one-bit-adam\"\nfreeze_step = 7\n";
  const auto usual = read_method(method, {.workers = 4, .frozen_beta1 = 0.8});
  ASSERT_EQ(usual.faults, "");
  const CompressionOptions& options = *usual.algorithm->compression();
  EXPECT_EQ(options.kind, "sign");
  EXPECT_THAT(usual.resolved, HasSubstr("scale = \"l2\""));
  EXPECT_TRUE(options.of_moments() && options.error_feedback);
  EXPECT_EQ(options.pattern, CompressionOptions::Pattern::two_phase);
  EXPECT_EQ(options.beta1, 0.8);
  EXPECT_FALSE(read_method(method + "compression = { name = \"none\" }").algorithm->compression());
  for (const char* compression : {"{ name = \"sign\", scale = \"l1\" }", "{ name = \"top-k\", ratio = 0.1 }",
                                  "{ name = \"random-k\", ratio = 0.1 }", "{ name = \"qsgd\" }", "{ name = \"int8\" }",
                                  "{ name = \"fp4\" }", "{ scope = \"tensor\" }"})
    EXPECT_EQ(read_method(method + "compression = " + compression).faults, "") << compression;
}

TEST(OneBitAdam, IsRefusedWithItsPlace) {
  const std::string method = "algorithm = \"one-bit-adam\"\nfreeze_step = 7\n";
  EXPECT_THAT(read_method(method, {.workers = 4, .frozen_beta1 = std::nullopt}).faults,
              testing::AllOf(HasSubstr("test.toml:1:"), HasSubstr("bias_correction = false")));
  EXPECT_THAT(read_method(method, {.workers = 4, .clips_gradients = true}).faults, HasSubstr("clip_norm = 0"));
  EXPECT_THAT(read_method("algorithm = \"one-bit-adam\"").faults, HasSubstr("freeze_step"));
  EXPECT_THAT(read_method("algorithm = \"one-bit-adam\"\nfreeze_step = 0").faults, HasSubstr("freeze_step = 0"));
  EXPECT_THAT(read_method(method + "compression = { name = \"powersgd\" }").faults,
              HasSubstr("which only sums of gradients support"));
  EXPECT_THAT(read_method(method + "compression = { residual = \"step\" }").faults, HasSubstr("residual"));
}

TEST(OneBitAdam, OfAnOptimizerThatCannotBeFrozenThereIsNoBeta) {
  const WeightDecay none{.rate = 0}, coupled{.rate = 0.1, .scope = DecayScope::all, .form = DecayForm::coupled};
  EXPECT_EQ(make_adamw({.beta1 = 0.7, .corrects_bias = false})->beta1_of_frozen(), 0.7);
  EXPECT_FALSE(make_adamw({.weight_decay = none})->beta1_of_frozen());
  EXPECT_FALSE(make_adamw({.corrects_bias = false, .weight_decay = coupled})->beta1_of_frozen());
  EXPECT_FALSE(make_sgd({})->beta1_of_frozen());
}

// Bytes and times by formula, compared with a run whose micro-batches all take 1 s.
TEST(OneBitAdam, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 6;
  for (const std::int64_t freeze_step : {2, 6, 9}) {
    const auto reading = read_method("algorithm = \"one-bit-adam\"\nfreeze_step = " + std::to_string(freeze_step));
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    const auto exchanges = exchanges_of(reading.algorithm->compression(), {}, Bytes{16}, 4);
    const LearningRate constant(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{
        .workers = 4, .parameter_bytes = Bytes{16}, .steps = steps, .learning_rate = constant, .exchanges = exchanges};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{steps, outcome.totals.bytes}));
    const SampledTimes times;
    const PredictionInput prediction{.workers = 4,
                                     .times = times,
                                     .network = *network,
                                     .parameter_bytes = Bytes{16},
                                     .budget = {.steps = steps},
                                     .learning_rate = constant,
                                     .exchanges = exchanges};
    const auto dense = static_cast<double>(std::min(freeze_step, steps));
    const double exchanges_s =
        dense * prediction.dense_all_reduce_s() + (steps - dense) * prediction.exchanges_s(exchanges.back().exchanges);
    EXPECT_NEAR(steps + exchanges_s, to_seconds(outcome.totals.end), 1e-7);
  }
}

}  // namespace
}  // namespace syncopate
