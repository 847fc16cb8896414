// Moments and BatchNorm statistics at synchronisations, compared with independent computations.
#include "algorithms/local_sgd/rounds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/edit.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/overlapped_recursions.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/training/objective.hpp"

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
  EXPECT_EQ(reading.policies.average, (AveragePolicy{.moments = {}, .buffers = StatePolicy::average}));
  EXPECT_EQ(reading.policies.recalibration_micro_batches, 0);
}

TEST(StatePolicies, EachMomentMayHaveItsOwn) {
  using Moments = std::array<StatePolicy, most_moments>;  // the third follows `moments`
  const auto moments = [](const std::string& toml) {
    const auto reading = read(toml);
    EXPECT_EQ(reading.faults, "");
    return reading.policies.average.moments;
  };
  EXPECT_EQ(moments("moments = \"reset\""), (Moments{StatePolicy::reset, StatePolicy::reset, StatePolicy::reset}));
  EXPECT_EQ(moments("first_moment = \"average\""), (Moments{StatePolicy::average, StatePolicy::keep}));
  EXPECT_EQ(moments("second_moment = \"average\""), (Moments{StatePolicy::keep, StatePolicy::average}));
  EXPECT_EQ(moments("moments = \"average\"\nfirst_moment = \"reset\""),
            (Moments{StatePolicy::reset, StatePolicy::average, StatePolicy::average}));
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

// AdamW with all nine pairs of policies, in double precision, for 3 workers with averages after steps 3, 6 and 9.
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
        int age_of_m = 0, age_of_v = 0;  // steps since m and v were 0
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
  EXPECT_EQ(distinct.size(), 9u);  // no two pairs give the same result
}

// An all-reduce of B bytes over 3 workers sends 2 x 2 x B bytes; parameters and each moment have 16 bytes.
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

// The network with batch normalisation from the tests of models, on two workers with three micro-batches.
SimulatedRun with_batch_norm() {
  using namespace reference;
  SimulatedRun setup{.workers = 2, .micro_batches = 3, .rate = 0.05, .budget = {.steps = 4}};
  setup.objective =
      std::make_shared<TorchObjective>(cnn_network(shape, classes, cnn_with_batch_norm), images(), sampling, 64);
  return setup;
}

// As in the reference recipe: batch normalisation with a cumulative average over the micro-batches.
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

// The expected values are each worker's running statistics of its own micro-batches, with momentum 0.1, as in torch.
// There is only one round, so a module per worker can follow the worker's parameters.
TEST(StatePolicies, StatisticsAreOfWorker0WhereKeptAndTheMeanWhereAveraged) {
  SimulatedRun setup = with_batch_norm();
  setup.budget.steps = 1;
  std::array<std::vector<float>, 2> own;
  for (int worker = 0; worker < 2; ++worker) {
    torch::nn::Sequential module = reference::torch_cnn_with_batch_norm();
    reference::set_parameters(module, setup.objective->initial_parameters(0));
    module->train();
    torch::NoGradGuard no_grad;
    // Each micro-batch updates the statistics of the step's start; the step's statistics are the mean of the results.
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

// Averages in which models are weighted by their workers' training samples, as in FedAvg.

using testing::HasSubstr;

// Each worker has a given number of samples, whose values are those of worker `like[worker]`.
class DividedPull : public PullObjective {
 public:
  DividedPull(std::vector<std::int64_t> samples, std::vector<int> like)
      : samples_(std::move(samples)), like_(std::move(like)) {}

  std::int64_t samples_of(Rank worker) const override { return samples_.at(static_cast<std::size_t>(worker.value)); }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<MicroBatch> own(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& one : own) one.worker = Rank{like_.at(static_cast<std::size_t>(one.worker.value))};
    return PullObjective::gradient(parameters, buffers, own);
  }

 private:
  std::vector<std::int64_t> samples_;
  std::vector<int> like_;
};

SimulatedRun with_data(int workers, std::shared_ptr<const Objective> objective) {
  SimulatedRun setup{.workers = workers, .momentum = 0.5, .rate = 0.05, .budget = {.steps = 12}};
  setup.objective = std::move(objective);
  return setup;
}

std::unique_ptr<Algorithm> algorithm_of(const std::string& keys, int workers) {
  MethodReading reading = read_method("algorithm = " + keys, {.workers = workers, .divides_data = true});
  EXPECT_EQ(reading.faults, "") << keys;
  return std::move(reading.algorithm);
}

const std::string every_3 = "\nperiod = { rule = \"constant\", steps = 3 }";
const std::string diloco = "\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }";
const std::vector<std::string> methods = {"\"local-sgd\"\nmoments = \"average\"" + every_3,
                                          "\"local-sgd\"\nperiod = { rule = \"swap\", switch_step = 0 }",
                                          "\"outer-local-sgd\"" + every_3 + diloco,
                                          "\"adacomm\"\ninitial_period = 3\nminimum = 3\nmaximum = 3",
                                          "\"des-loc\"\nperiod = 3",
                                          "\"palsgd\"\ndraws = \"shared\"\npull_probability = 0.3" + every_3 + diloco,
                                          "\"dropcompute-local-sgd\"\nthreshold_s = inf" + every_3,
                                          "\"branch-train-merge\"",
                                          "\"cocod-sgd\"" + every_3,
                                          "\"overlap-local-sgd\"\nmixing = 0.5\nmomentum = 0.5" + every_3,
                                          "\"co2\"" + every_3,
                                          "\"co2\"\nanchor = \"outer-model\"" + every_3,
                                          "\"co2\"\nrounds = \"blocking\"" + every_3,
                                          "\"overlapped-diloco\"\nupdate = \"delayed\"" + every_3 + diloco,
                                          "\"streaming-diloco\"\nfragments = 2\ndelay = 1" + every_3 + diloco};

// If worker 0 of two has twice as many samples as worker 1, they are equivalent to three workers of equal weight. Two
// of these three are copies of worker 0.
TEST(ModelWeights, OfTwiceTheSamplesAreThoseOfTwoWorkers) {
  const auto weighted = std::make_shared<DividedPull>(std::vector<std::int64_t>{40, 20}, std::vector{0, 1});
  const auto repeated = std::make_shared<DividedPull>(std::vector<std::int64_t>{1, 1, 1}, std::vector{0, 0, 1});
  std::vector<std::pair<std::string, std::string>> cases;  // keys for two workers, and for three
  for (const std::string& keys : methods) cases.emplace_back(keys, keys);
  const std::string in_groups = "\"hierarchical-sgd\"\ngroup_period = 1" + every_3 + "\ngroup_size = ";
  cases.emplace_back(in_groups + "2", in_groups + "3");
  for (const auto& [two, three] : cases) {
    const auto found = with_data(2, weighted).run(*algorithm_of(two + "\nweights = \"samples\"", 2)).parameters;
    const auto expected = with_data(3, repeated).run(*algorithm_of(three, 3)).parameters;
    const auto alike = with_data(2, weighted).run(*algorithm_of(two, 2)).parameters;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-5 * std::abs(expected[i])) << two;
      EXPECT_GT(std::abs(alike[i] - expected[i]), 1e-3 * std::abs(expected[i])) << two;
    }
  }
}

// Rounds have two plain steps, in double precision. With n_i samples and models y_i the next model is (sum of
// n_i y_i) / (sum of n_i).
TEST(ModelWeights, OfLocalSgdAreTheSharesOfTheSamples) {
  const std::vector<double> samples = {1, 2, 5};
  const auto objective = std::make_shared<DividedPull>(std::vector<std::int64_t>{1, 2, 5}, std::vector{0, 1, 2});
  Pulled run;
  SimulatedRun setup{.budget = {.steps = run.rounds * Pulled::period}};
  setup.objective = objective;
  const auto method =
      algorithm_of("\"local-sgd\"\nweights = \"samples\"\nperiod = { rule = \"constant\", steps = 2 }", 3);
  const auto outcome = setup.run(*method);
  for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate) {
    double model = 1;
    for (int r = 0; r < run.rounds; ++r) {
      const Pulled::Models y = run.trained(Pulled::Models(3, model), r);
      model = std::inner_product(y.begin(), y.end(), samples.begin(), 0.0) / 8;
    }
    EXPECT_NEAR(outcome.parameters[run.coordinate], model, 1e-5 * std::abs(model));
  }
}

TEST(ModelWeights, CostNothing) {
  const auto objective = std::make_shared<DividedPull>(std::vector<std::int64_t>{4, 1}, std::vector{0, 1});
  for (const std::string& keys : methods) {
    const auto weighted = with_data(2, objective).run(*algorithm_of(keys + "\nweights = \"samples\"", 2));
    const auto alike = with_data(2, objective).run(*algorithm_of(keys, 2));
    EXPECT_EQ(weighted.log, alike.log) << keys;
    EXPECT_EQ(weighted.totals.bytes, alike.totals.bytes) << keys;
    EXPECT_EQ(weighted.totals.collectives, alike.totals.collectives) << keys;
  }
}

TEST(ModelWeights, OfSamplesWithoutAModelAreAlike) {
  SimulatedRun setup = with_data(2, nullptr);
  const std::string keys = "\"local-sgd\"" + every_3;
  EXPECT_EQ(setup.run(*algorithm_of(keys + "\nweights = \"samples\"", 2)).log, setup.run(*algorithm_of(keys, 2)).log);
}

TEST(ModelWeights, BySamplesAreRefusedWhereTheyMeanNothing) {
  const auto faults = [](const std::string& keys, bool divides_data) {
    return read_method("algorithm = " + keys + "\nweights = \"samples\"", {.workers = 2, .divides_data = divides_data})
        .faults;
  };
  for (const std::string& keys : methods) {
    EXPECT_THAT(faults(keys, false), HasSubstr("weights = \"samples\"; must be \"equal\" unless training.partition"));
    EXPECT_EQ(faults(keys, true), "") << keys;
  }
  EXPECT_THAT(faults("\"overlapped-diloco\"" + every_3 + diloco, true),
              HasSubstr("must be \"equal\" with update = \"eager\""));
  EXPECT_THAT(faults("\"local-sgd\"\ncompression = { name = \"sign\" }" + every_3, true),
              HasSubstr("must be \"equal\" with a table `compression`"));
  EXPECT_THAT(faults("\"branch-train-merge\"\nmerge = \"ensemble\"", true), HasSubstr("weights"));
  EXPECT_THAT(faults("\"sync-sgd\"", true), HasSubstr("weights"));
}

TEST(Fragments, CoverTheModelOnce) {
  for (const int count : {1, 3, 7}) {
    const Fragments fragments(count);
    std::int64_t next = 0;
    for (int p = 0; p < count; ++p) {
      EXPECT_EQ(fragments.slice(p).begin(7), next);
      next = fragments.slice(p).end(7);
      EXPECT_GT(next, fragments.slice(p).begin(7));
    }
    EXPECT_EQ(next, 7);
  }
}

TEST(Fragments, TakeTurnsThroughARound) {
  const auto offsets = [](int count, Step round) {
    std::vector<std::int64_t> result;
    for (int p = 0; p < count; ++p) result.push_back(Fragments(count).offset(p, round).value());
    return result;
  };
  EXPECT_EQ(offsets(4, 12), (std::vector<std::int64_t>{3, 6, 9, 12}));
  EXPECT_EQ(offsets(4, 10), (std::vector<std::int64_t>{3, 5, 8, 10}));  // from 2.5, 5, 7.5, 10
  EXPECT_EQ(offsets(1, 7), (std::vector<std::int64_t>{7}));
  EXPECT_EQ(offsets(5, 2), (std::vector<std::int64_t>{1, 1, 2, 2, 2}));  // from 0.4, 0.8, 1.2, 1.6, 2
  constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_EQ(Fragments(1'000'000).offset(999'999, Step{endless}), Step{endless});
}

class Checked : public Algorithm {
 public:
  explicit Checked(Fragments fragments) : fragments_(std::move(fragments)) {}
  void run(Worker& worker) const override { fragments_.check(worker); }

 private:
  Fragments fragments_;
};

// SimulatedRun's model has four parameters.
TEST(Fragments, MoreThanParametersAreAFaultAtTheirPlace) {
  SettingsDocument document(parse_toml("fragments = 5", "test.toml"));
  Settings settings = document.root();
  const Fragments five = read_fragments(settings, 1);
  EXPECT_EQ(document.check().report(), "");
  for (const bool has_model : {true, false}) {
    SimulatedRun setup;
    if (!has_model) setup.objective = nullptr;
    setup.run(Checked(Fragments(4)));
    try {
      setup.run(Checked(five));
      ADD_FAILURE() << "has no fault";
    } catch (const std::exception& fault) {
      EXPECT_THAT(fault.what(), testing::HasSubstr("test.toml:1:13: fragments = 5; the model has 4 parameters"));
    }
  }
}

// The fault is reported as soon as the number of parameters is known, before the model is built.
TEST(Fragments, MoreThanParametersAreRefusedWithTheirPlace) {
  const auto report = [](std::int64_t parameters) {
    SettingsDocument document(parse_toml("fragments = 5", "test.toml"));
    Settings settings = document.root();
    read_fragments(settings, 1, parameters);
    return document.check().report();
  };
  EXPECT_THAT(report(4), testing::HasSubstr("test.toml:1:13: fragments = 5; must be at most 4"));
  EXPECT_EQ(report(5), "");
}

TEST(Fragments, AreAtLeastOne) {
  SettingsDocument document(parse_toml("fragments = 0", "test.toml"));
  Settings settings = document.root();
  read_fragments(settings, 1);
  EXPECT_THAT(document.check().report(), testing::HasSubstr("test.toml:1:13: fragments = 0; must be"));
}

Edit timed(const TimedRounds& rounds) {
  return Edit({.scope = EditOptions::Scope::model, .timed = rounds, .outer = make_diloco(0.7, 0.8), .tensors = 1});
}

// Steps take 2, 2.8 and 4 s. After 7 s the workers finish their 4th, 3rd and 2nd step, the last of them at 8.4 s. A
// meeting and an average take 0.5 s each.
TEST(TimedRounds, OfConstantStepsTakeTheTimeAndTheLongestRest) {
  const PredictedRun setting{.workers = 3, .micro_batches = 2, .factors = {1, 1.4, 2}, .delays = {}};
  const auto simulated = setting.simulate(timed({.length = from_seconds(7)}));
  const double step_s = (8.4 + 2 * 0.5) / 4, share = 0.002;
  EXPECT_NEAR(simulated.step_s, step_s, share * step_s);
  EXPECT_NEAR(simulated.communication_s, 2 * 0.5 / 4, share);
  EXPECT_NEAR(simulated.kept, (4 + 3 + 2) / 12.0, share);
  EXPECT_NEAR(simulated.drop_rate, 3 / 12.0, share);
  // With a minimum of 10 steps the first meeting, of 0.5 s, finds 9 steps, and the second 18.
  const double put_off_s = (2 * 8.4 + 3 * 0.5) / 8;
  EXPECT_NEAR(setting.simulate(timed({.length = from_seconds(7), .minimum_steps = 10})).step_s, put_off_s,
              share * put_off_s);
  // 250 of 2,000 steps are synchronous steps of the warm-up.
  const auto warmed = setting.simulate(timed({.length = from_seconds(7), .warmup_steps = 250}));
  EXPECT_NEAR(warmed.step_s, 0.125 * 4.5 + 0.875 * step_s, share * step_s);
  EXPECT_NEAR(warmed.kept, 0.125 + 0.875 * (4 + 3 + 2) / 12.0, share);
}

// The duration, 10 s, is that of five steps, as in a round of EDiT by steps.
TEST(TimedRounds, OfEqualWorkersAreThoseOfSoManySteps) {
  const PredictedRun setting{.workers = 4, .micro_batches = 2, .delays = {}};
  const auto simulated = setting.simulate(timed({.length = from_seconds(10)}));
  EXPECT_NEAR(simulated.step_s, (10 + 1) / 5.0, 0.005);
  EXPECT_EQ(simulated.kept, 1);
}

// EDiT by steps is like DiLoCo, with an all-gather of 8 bytes per worker before the average. The largest of 16 sums of
// 64 steps, of 6 +- 0.4 s each, lies 1.765991393 deviations above the mean.
TEST(TimedRounds, OfEditByStepsWaitForTheSlowestSumAndAnAllGather) {
  PredictedRun setting{.workers = 16, .steps = 64 * 64};
  setting.network = make_ring_network(0.1, 1e3);
  const Edit method(
      {.scope = EditOptions::Scope::model, .period = make_constant_period(64), .outer = make_diloco(0.7, 0.8)});
  const auto simulated = setting.simulate(method);
  // On a ring an average takes 2 (N - 1) (L + P / (N B)), an all-gather of p bytes per worker (N - 1) (L + p / B).
  const double exchanges_s = 2 * 15 * (0.1 + 16 / (16 * 1e3)) + 15 * (0.1 + 8 / 1e3);
  const double step_s = 6 + (0.4 * 8 * 1.765991393 + exchanges_s) / 64;
  EXPECT_NEAR(simulated.step_s, step_s, 0.01 * step_s);
  EXPECT_NEAR(simulated.communication_s, exchanges_s / 64, 1e-6);
}

}  // namespace
}  // namespace syncopate
