// Moments and BatchNorm statistics at synchronisations, against computations that are written out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LocalSgd every(int steps, const StatePolicies& policies) { return LocalSgd(make_constant_period(steps), policies); }

struct Reading {
  StatePolicies policies;
  std::string faults;
};

Reading read(const std::string& toml) {
  SettingsDocument document(parse_toml(toml, "test.toml"));
  Settings settings = document.root();
  Reading reading{.policies = read_state_policies(settings), .faults = {}};
  reading.faults = document.check().report();
  return reading;
}

TEST(StatePolicies, UnlessToldMomentsAreKeptAndBuffersAveraged) {
  const auto reading = read("");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.policies.average,
            (AveragePolicy{.moments = {StatePolicy::keep, StatePolicy::keep}, .buffers = StatePolicy::average}));
  EXPECT_EQ(reading.policies.recalibration_micro_batches, 0);
}

TEST(StatePolicies, EachMomentMayHaveItsOwn) {
  using Moments = std::array<StatePolicy, 2>;
  const auto moments = [](const std::string& toml) {
    const auto reading = read(toml);
    EXPECT_EQ(reading.faults, "");
    return reading.policies.average.moments;
  };
  EXPECT_EQ(moments("moments = \"reset\""), (Moments{StatePolicy::reset, StatePolicy::reset}));
  EXPECT_EQ(moments("first_moment = \"average\""), (Moments{StatePolicy::average, StatePolicy::keep}));
  EXPECT_EQ(moments("second_moment = \"average\""), (Moments{StatePolicy::keep, StatePolicy::average}));
  EXPECT_EQ(moments("moments = \"average\"\nfirst_moment = \"reset\""),
            (Moments{StatePolicy::reset, StatePolicy::average}));
}

TEST(StatePolicies, RecalibratedBuffersAreKeptUntilThen) {
  const auto recipe = read("buffers = \"recalibrate\"");
  EXPECT_EQ(recipe.policies.average.buffers, StatePolicy::keep);
  EXPECT_EQ(recipe.policies.recalibration_micro_batches, 128);
  EXPECT_EQ(read("buffers = \"recalibrate\"\nrecalibration_micro_batches = 6").policies.recalibration_micro_batches, 6);
}

TEST(StatePolicies, FaultsNameTheKeyAndTheChoices) {
  EXPECT_THAT(read("moments = \"mean\"").faults, AllOf(HasSubstr("moments"), HasSubstr("average"), HasSubstr("reset")));
  EXPECT_THAT(read("second_moment = \"kepp\"").faults, AllOf(HasSubstr("second_moment"), HasSubstr("keep")));
  EXPECT_THAT(read("buffers = \"estimate\"").faults, AllOf(HasSubstr("buffers"), HasSubstr("recalibrate")));
  EXPECT_THAT(read("buffers = \"recalibrate\"\nrecalibration_micro_batches = 0").faults,
              HasSubstr("recalibration_micro_batches = 0"));
  EXPECT_THAT(read("recalibration_micro_batches = 8").faults, HasSubstr("recalibration_micro_batches"));
}

// AdamW with all nine pairs of policies, in double precision: 3 workers, averages after steps 3, 6 and 9.
TEST(StatePolicies, LocalAdamWFollowsTheRecursionForEachPairOfMomentPolicies) {
  constexpr int workers = 3, period = 3, steps = 9;
  constexpr double rate = 0.05, beta1 = 0.8, beta2 = 0.9, epsilon = 1e-8, decay = 0.1;
  SimulatedRun setup{.workers = workers, .rate = rate, .budget = {.steps = steps}};
  setup.optimizer =
      make_adamw({.beta1 = beta1,
                  .beta2 = beta2,
                  .epsilon = epsilon,
                  .weight_decay = {.rate = decay, .scope = DecayScope::all, .form = DecayForm::decoupled}});
  constexpr std::array all = {StatePolicy::keep, StatePolicy::average, StatePolicy::reset};
  std::set<std::vector<float>> distinct;
  for (const StatePolicy first : all) {
    for (const StatePolicy second : all) {
      const auto outcome = setup.run(every(period, {.average = {.moments = {first, second}}}));
      distinct.insert(outcome.parameters);
      for (std::size_t i = 0; i < 4; ++i) {
        std::array<double, workers> theta{1, 1, 1}, m{}, v{};
        int age_of_m = 0, age_of_v = 0;  // steps since each was 0
        for (int step = 0; step < steps; ++step) {
          ++age_of_m;
          ++age_of_v;
          for (int k = 0; k < workers; ++k) {
            const double gradient = theta[k] - PullObjective::target({Rank{k}, step, 0}, i);
            theta[k] *= 1 - rate * decay;
            m[k] = beta1 * m[k] + (1 - beta1) * gradient;
            v[k] = beta2 * v[k] + (1 - beta2) * gradient * gradient;
            const double m_hat = m[k] / (1 - std::pow(beta1, age_of_m));
            const double v_hat = v[k] / (1 - std::pow(beta2, age_of_v));
            theta[k] -= rate * m_hat / (std::sqrt(v_hat) + epsilon);
          }
          if ((step + 1) % period != 0) continue;
          const auto synchronise = [](std::array<double, workers>& values, StatePolicy policy) {
            if (policy == StatePolicy::average) values.fill((values[0] + values[1] + values[2]) / 3);
            if (policy == StatePolicy::reset) values.fill(0);
          };
          synchronise(theta, StatePolicy::average);
          synchronise(m, first);
          synchronise(v, second);
          if (first == StatePolicy::reset) age_of_m = 0;
          if (second == StatePolicy::reset) age_of_v = 0;
        }
        EXPECT_NEAR(outcome.parameters[i], theta[0], 1e-5 * std::abs(theta[0]));
      }
    }
  }
  EXPECT_EQ(distinct.size(), 9u);  // no two pairs are the same thing
}

// An all-reduce of B bytes over 3 workers sends 2 x 2 x B; parameters are 16 bytes.
TEST(StatePolicies, EachMomentThatIsAveragedIsSentToo) {
  SimulatedRun setup{.budget = {.steps = 4}};
  setup.optimizer = make_adamw({});
  const auto bytes = [&](StatePolicy first, StatePolicy second) {
    return setup.run(every(2, {.average = {.moments = {first, second}}})).totals.bytes;
  };
  EXPECT_EQ(bytes(StatePolicy::keep, StatePolicy::reset), Bytes{2 * 2 * 2 * 16});
  EXPECT_EQ(bytes(StatePolicy::average, StatePolicy::keep), Bytes{2 * 2 * 2 * 32});
  EXPECT_EQ(bytes(StatePolicy::keep, StatePolicy::average), Bytes{2 * 2 * 2 * 32});
  EXPECT_EQ(bytes(StatePolicy::average, StatePolicy::average), Bytes{2 * 2 * 2 * 48});
}

TEST(StatePolicies, RecalibrationTakesEveryWorkersMicroBatchesToComeInTurn) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 5}};
  const auto outcome = setup.run(every(4, {.recalibration_micro_batches = 8}));
  ASSERT_EQ(outcome.publications.size(), 2u);
  const std::vector<MicroBatch> expected = {{Rank{0}, 4, 0}, {Rank{1}, 4, 0}, {Rank{2}, 4, 0}, {Rank{0}, 4, 1},
                                            {Rank{1}, 4, 1}, {Rank{2}, 4, 1}, {Rank{0}, 5, 0}, {Rank{1}, 5, 0}};
  EXPECT_EQ(outcome.publications[0].recalibration, expected);
  EXPECT_EQ(outcome.publications[1].recalibration.front(), (MicroBatch{Rank{0}, 5, 0}));
  EXPECT_TRUE(setup.run(every(4, {})).publications[0].recalibration.empty());
}

// The network with normalisation of the models' tests, on two workers with three micro-batches.
SimulatedRun with_batch_norm() {
  using namespace reference;
  SimulatedRun setup{.workers = 2, .micro_batches = 3, .rate = 0.05, .budget = {.steps = 4}};
  setup.objective =
      std::make_shared<TorchObjective>(cnn_network(shape, classes, cnn_with_batch_norm), images(), sampling, 64);
  return setup;
}

// What the reference recipe does: batch normalisation with a cumulative average over the micro-batches.
TEST(StatePolicies, RecalibratedStatisticsAreTorchsCumulativeAverage) {
  const auto outcome =
      with_batch_norm().run(every(2, {.average = {.buffers = StatePolicy::keep}, .recalibration_micro_batches = 16}));
  torch::nn::Sequential module = reference::torch_cnn_with_batch_norm();
  reference::set_parameters(module, outcome.parameters);
  for (const auto& layer : *module)
    if (auto* norm = layer.ptr()->as<torch::nn::BatchNorm2d>()) norm->options.momentum(c10::nullopt);
  module->train();
  torch::NoGradGuard no_grad;
  for (const MicroBatch& micro_batch : outcome.publications.back().recalibration) {
    auto samples = reference::samples_of(micro_batch);
    module->forward(reference::input_tensor(samples));
  }
  const auto expected = reference::buffers_of(module);
  ASSERT_EQ(outcome.buffers.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(outcome.buffers[i], expected[i], 1e-4 * (1 + std::abs(expected[i])));
}

// Running statistics with momentum 0.1, as torch keeps them, of each worker's own micro-batches; one round, so that
// the two workers' parameters are followed by a module each.
TEST(StatePolicies, StatisticsAreOfWorker0WhereKeptAndTheMeanWhereAveraged) {
  SimulatedRun setup = with_batch_norm();
  setup.budget.steps = 1;
  std::array<std::vector<float>, 2> own;
  for (int worker = 0; worker < 2; ++worker) {
    torch::nn::Sequential module = reference::torch_cnn_with_batch_norm();
    reference::set_parameters(module, setup.objective->initial_parameters(0));
    module->train();
    torch::NoGradGuard no_grad;
    // Each micro-batch updates the statistics that the step began with; a step's are their mean.
    std::vector<float> sum;
    const auto start = reference::buffers_of(module);
    for (int index = 0; index < 3; ++index) {
      torch::nn::Sequential fresh = reference::torch_cnn_with_batch_norm();
      reference::set_parameters(fresh, setup.objective->initial_parameters(0));
      fresh->train();
      auto samples = reference::samples_of({Rank{worker}, 0, index});
      fresh->forward(reference::input_tensor(samples));
      const auto after = reference::buffers_of(fresh);
      sum.resize(after.size());
      for (std::size_t i = 0; i < after.size(); ++i) sum[i] += after[i] / 3;
    }
    own[static_cast<std::size_t>(worker)] = sum;
  }
  const auto kept = setup.run(every(1, {.average = {.buffers = StatePolicy::keep}})).buffers;
  const auto averaged = setup.run(every(1, {.average = {.buffers = StatePolicy::average}})).buffers;
  const auto reset = setup.run(every(1, {.average = {.buffers = StatePolicy::reset}})).buffers;
  ASSERT_EQ(kept.size(), own[0].size());
  EXPECT_NE(own[0], own[1]);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_NEAR(kept[i], own[0][i], 1e-5);
    EXPECT_NEAR(averaged[i], (own[0][i] + own[1][i]) / 2, 1e-5);
  }
  EXPECT_EQ(reset, setup.objective->initial_buffers());
}

}  // namespace
}  // namespace syncopate
