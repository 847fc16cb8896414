// EDiT: limit cases bit for bit, the whole penalty compared with a recursion in double precision, outliers, settings.
#include "algorithms/local_sgd/edit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/layered_pull_objective.hpp"
#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

constexpr double infinity = PenaltyOptions::infinity;

OuterOptimizer diloco(double rate = 0.7, double momentum = 0.8) { return make_diloco(rate, momentum); }

EditOptions by_steps(int period, const PenaltyOptions& penalty = {}) {
  EditOptions options{.penalty = penalty, .period = make_constant_period(period), .outer = diloco()};
  return options;
}

EditOptions by_time(double seconds, const PenaltyOptions& penalty = {}) {
  EditOptions options{.penalty = penalty, .timed = {.length = from_seconds(seconds)}, .outer = diloco()};
  return options;
}

// Steps take 1, 1.4 and 2 s; after 3.5 s of each round the workers finish their 4th, 3rd and 2nd step.
const SimulatedRun uneven{
    .rate = 0.1, .budget = {.steps = 8}, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.4, 1.0})}};

using testing::AllOf;
using testing::HasSubstr;
using Scope = EditOptions::Scope;

const PenaltyOptions no_penalty{.outlier_factor = infinity, .temperature = infinity};

TEST(Edit, WithoutAPenaltyEqualsLocalSgdAndDiLoCoBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 18}};
  for (const Scope scope : {Scope::tensor, Scope::model}) {
    EditOptions options = by_steps(4, no_penalty);
    options.scope = scope;
    EXPECT_EQ(setup.run(Edit(options)).parameters,
              setup.run(OuterLocalSgd(make_constant_period(4), diloco(), {})).parameters);
    options.outer = make_plain_outer(1);
    EXPECT_EQ(setup.run(Edit(options)).parameters, setup.run(LocalSgd(make_constant_period(4), {})).parameters);
    options.period = make_post_local_period(6, 4);
    EXPECT_EQ(setup.run(Edit(options)).parameters, setup.run(LocalSgd(make_post_local_period(6, 4), {})).parameters);
  }
}

// Each worker is moved by its own unit vector, so all norms are equal.
TEST(Edit, WithEqualNormsEqualsDiLoCoBitForBit) {
  const SimulatedRun setup{.workers = 5, .budget = {.steps = 2}};
  EditOptions options = by_steps(2);
  options.outer = make_plain_outer(1);
  EXPECT_EQ(run_kicked(setup, Edit(options)).outcome.parameters, std::vector(5, 1.0f / 5));
}

// EDiT in double precision, with four tensors of 2, 4, 1 and 1 elements, and three workers whose rounds have the given
// numbers of steps.
struct Recursion {
  static constexpr int workers = 3, rounds = 8, most = 4;
  static constexpr double rate = 0.1;
  const EditOptions& options;
  std::vector<int> steps = {most, most, most};
  int outliers = 0, rolled_back = 0, clipped = 0;

  struct Detector {
    double mean = 0, variance = 0;
    std::vector<double> z_scores{};
  };
  static constexpr int tensors = 4;
  static int tensor_of(std::size_t element) { return element < 2 ? 0 : element < 6 ? 1 : element == 6 ? 2 : 3; }

  bool is_outlier(Detector& at, double norm) const {
    const PenaltyOptions& penalty = options.penalty;
    const auto taken = std::ssize(at.z_scores), warmup = static_cast<std::ptrdiff_t>(penalty.outlier_warmup);
    if (taken >= warmup) {
      double mean = 0, squares = 0;
      for (auto i = taken - warmup; i < taken; ++i) mean += at.z_scores[static_cast<std::size_t>(i)] / warmup;
      for (auto i = taken - warmup; i < taken; ++i)
        squares += std::pow(at.z_scores[static_cast<std::size_t>(i)] - mean, 2) / (warmup - 1);
      const double z = (norm - at.mean) / std::sqrt(at.variance);
      const double threshold = penalty.outlier_factor * std::max(1.0, std::sqrt(squares));
      EXPECT_GT(std::abs(z - threshold), 1e-4) << "rounding could turn the decision";
      if (z > threshold) return true;
    }
    const double a = penalty.outlier_smoothing, old = at.mean;
    at.mean += a * (norm - old);
    at.variance = (1 - a) * (at.variance + a * (norm - old) * (norm - at.mean));
    at.z_scores.push_back(taken + 1 < warmup ? 0 : (norm - at.mean) / std::sqrt(at.variance));
    return false;
  }

  std::vector<double> run() {
    const PenaltyOptions& penalty = options.penalty;
    const bool is_whole = options.scope == Scope::model;
    std::vector<double> model(8, 1.0), velocity(8, 0.0);
    std::vector<std::vector<Detector>> detectors(workers, std::vector<Detector>(tensors));
    std::vector<int> turn(workers);  // each worker's position in its data
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::vector<double>> differences(workers, std::vector<double>(8));
      for (std::size_t k = 0; k < workers; ++k) {
        for (std::size_t i = 0; i < 8; ++i) {
          double theta = model[i];
          for (int s = 0; s < steps[k]; ++s)
            theta -= rate * (theta - PullObjective::target({Rank{static_cast<int>(k)}, turn[k] + s, 0}, i));
          differences[k][i] = model[i] - theta;
        }
        turn[k] += steps[k];
      }
      std::vector<double> sum(8);
      std::vector<bool> is_back(tensors);
      for (int module = 0; module < (is_whole ? 1 : tensors); ++module) {
        const auto has = [&](std::size_t i) { return is_whole || tensor_of(i) == module; };
        std::vector<double> weights;
        double all = 0, all_steps = 0;
        for (std::size_t k = 0; k < workers; ++k) {
          double squares = 0;
          for (std::size_t i = 0; i < 8; ++i) squares += has(i) ? std::pow(differences[k][i], 2) : 0;
          const double norm = std::sqrt(squares);
          const bool is_out = is_outlier(detectors[k][static_cast<std::size_t>(module)], norm);
          outliers += is_out ? 1 : 0;
          weights.push_back(is_out ? 0 : std::exp(-norm / penalty.temperature));
          all += weights.back();
          all_steps += steps[k];
        }
        if (all == 0) {
          for (int tensor = 0; tensor < tensors; ++tensor)
            if (is_whole || tensor == module) is_back[static_cast<std::size_t>(tensor)] = true;
          ++rolled_back;
          continue;
        }
        for (std::size_t k = 0; k < workers; ++k) {
          if (weights[k] == 0) continue;
          const double weight = (1 - penalty.step_share) * weights[k] / all + penalty.step_share * steps[k] / all_steps;
          for (std::size_t i = 0; i < 8; ++i) sum[i] += has(i) ? weight * differences[k][i] : 0;
        }
      }
      const std::vector<double> whole = sum;
      for (std::size_t i = 0; i < 8; ++i) {
        double squares = 0;
        for (std::size_t j = 0; j < 8; ++j)
          if (options.clip_scope == Scope::model || tensor_of(i) == tensor_of(j)) squares += whole[j] * whole[j];
        const double factor = std::min(1.0, penalty.clip_norm / (std::sqrt(squares) + 1e-6));
        clipped += factor < 1 ? 1 : 0;
        if (is_back[static_cast<std::size_t>(tensor_of(i))]) continue;
        velocity[i] = 0.8 * velocity[i] + factor * sum[i];
        model[i] -= 0.7 * (factor * sum[i] + 0.8 * velocity[i]);
      }
    }
    return model;
  }
};

void expect_recursion(const SimulatedRun& setup, const EditOptions& options, Recursion recursion) {
  const std::vector<double> expected = recursion.run();
  const auto outcome = setup.run(Edit(options));
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(outcome.parameters[i], expected[i], 2e-5 * std::abs(expected[i])) << i;
  expect_exact_accounts(outcome);
  if (options.penalty.outlier_factor < 3) {
    EXPECT_GT(recursion.outliers, 0);
  }
  if (options.penalty.clip_norm < infinity) {
    EXPECT_GT(recursion.clipped, 0);
  }
}

TEST(Edit, IsTheRecursionInDoublePrecision) {
  SimulatedRun setup{.rate = Recursion::rate, .budget = {.steps = Recursion::rounds * Recursion::most}};
  setup.objective = std::make_shared<LayeredPullObjective>();
  for (const Scope scope : {Scope::tensor, Scope::model})
    for (const Scope clip_scope : {Scope::tensor, Scope::model})
      for (const PenaltyOptions& penalty :
           {PenaltyOptions{.temperature = 4}, PenaltyOptions{.temperature = 10, .clip_norm = 6},
            PenaltyOptions{.outlier_factor = 0.5,
            .outlier_warmup = 3,
            .outlier_smoothing = 0.3,
            .temperature = 6,
            .clip_norm = 9}}) {
        SCOPED_TRACE(testing::Message() << "scopes " << static_cast<int>(scope) << static_cast<int>(clip_scope)
                                        << ", factor " << penalty.outlier_factor << ", clip " << penalty.clip_norm);
        EditOptions options = by_steps(Recursion::most, penalty);
        options.scope = scope;
        options.clip_scope = clip_scope;
        expect_recursion(setup, options, {.options = options});
      }
}

TEST(Edit, ByTimeIsTheRecursionWithEachWorkersOwnStepsAndData) {
  SimulatedRun setup = uneven;
  setup.rate = Recursion::rate;
  setup.objective = std::make_shared<LayeredPullObjective>();
  setup.budget = {.steps = Recursion::rounds * Recursion::most};
  for (const double step_share : {0.0, 0.4}) {
    const EditOptions options = by_time(3.5, {.temperature = 6, .step_share = step_share, .clip_norm = 12});
    expect_recursion(setup, options, {.options = options, .steps = {4, 3, 2}});
  }
}

// Norms above their running mean count as outliers. The mean begins at 0, so constant norms stay above it.
TEST(Edit, WhereAllAreOutliersNothingMoves) {
  SimulatedRun setup{.momentum = 0.5, .budget = {.steps = 8}};
  EditOptions options = by_steps(4, {.outlier_factor = 1e-9, .outlier_warmup = 2});
  const auto before = setup.run(Edit(options)).parameters;
  setup.budget = {.steps = 24};
  EXPECT_EQ(setup.run(Edit(options)).parameters, before);
  options.scope = Scope::model;
  EXPECT_EQ(setup.run(Edit(options)).parameters.size(), before.size());
  options.penalty.outlier_factor = infinity;
  EXPECT_NE(setup.run(Edit(options)).parameters, before);
}

// Worker 1's steps are far too long, so its model is left out. Its NaN values do not spread to other workers.
class WildWorker : public LayeredPullObjective {
 public:
  explicit WildWorker(float value) : value_(value) {}
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    PartialGradient result = LayeredPullObjective::gradient(parameters, buffers, micro_batches);
    const bool is_wild = std::ranges::any_of(
        micro_batches, [](const MicroBatch& m) { return m.worker == Rank{1} && m.step == Step{9}; });
    if (!is_wild) return result;
    auto values = std::make_shared<std::vector<float>>(parameters_count, value_);
    result.segments = {{.offset = 0, .size = parameters_count, .data = values->data(), .owner = values}};
    return result;
  }

 private:
  static constexpr std::size_t parameters_count = 8;
  float value_;
};

TEST(Edit, AWorkerThatGoesWildIsLeftOutOfThatRound) {
  SimulatedRun setup{.budget = {.steps = 12}};
  setup.objective = std::make_shared<WildWorker>(std::numeric_limits<float>::quiet_NaN());
  const PenaltyOptions penalty{.outlier_factor = 3, .outlier_warmup = 2, .temperature = infinity};
  for (const Scope scope : {Scope::tensor, Scope::model}) {
    EditOptions options = by_steps(4, penalty);
    options.scope = scope;
    const auto left_out = setup.run(Edit(options)).parameters;
    setup.objective = std::make_shared<WildWorker>(1e6f);
    EXPECT_EQ(setup.run(Edit(options)).parameters, left_out) << "far away or nowhere";
    for (const float value : left_out) EXPECT_TRUE(std::isfinite(value));
    options.penalty.outlier_factor = infinity;
    setup.objective = std::make_shared<WildWorker>(std::numeric_limits<float>::quiet_NaN());
    EXPECT_TRUE(std::isnan(setup.run(Edit(options)).parameters[0])) << "shows where nobody looks for outliers";
  }
}

TEST(Edit, WhatItMustBeGivenIsAsked) {
  const std::string algorithm = "algorithm = \"edit\"\n", outer = "outer = { name = \"plain\" }\n";
  const std::string period = "period = { rule = \"constant\", steps = 4 }\n", time = "sync_seconds = 3.5\n";
  const auto faults = [&](const std::string& keys) { return read_method(algorithm + keys).faults; };
  EXPECT_EQ(faults(period + outer), "");
  EXPECT_EQ(faults(time + outer + "minimum_steps = 4\nwarmup_steps = 3\ncounted_from = \"arrival\""), "");
  EXPECT_EQ(faults(period + outer + "outlier_factor = inf\ntemperature = inf\nclip_norm = inf"), "");
  EXPECT_THAT(faults(outer),
              AllOf(HasSubstr("test.toml:1:"), HasSubstr("needs a table `period` (EDiT), or sync_seconds")));
  EXPECT_THAT(faults(period + time + outer),
              AllOf(HasSubstr("test.toml:3:"), HasSubstr("must not be given together with `period`")));
  for (const std::string key : {"minimum_steps = 4", "warmup_steps = 3", "counted_from = \"end\""})
    EXPECT_THAT(faults(period + outer + key), HasSubstr("needs sync_seconds instead of `period`"));
  for (const std::string key : {"temperature = 0", "temperature = -1", "outlier_factor = 0", "outlier_warmup = 0",
                                "outlier_smoothing = 0", "outlier_smoothing = 1", "clip_norm = 0", "step_share = 1.1",
                                "step_share = -0.1", "scope = \"layer\"", "clip_scope = \"module\"", "temperatur = 1"})
    EXPECT_THAT(faults(period + outer + key), HasSubstr("test.toml:4:")) << key;
  for (const std::string key : {"sync_seconds = 0", "sync_seconds = -1", "sync_seconds = inf", "minimum_steps = 0"})
    EXPECT_NE(faults(outer + key), "") << key;
  EXPECT_THAT(faults(period + outer + "outlier_warmup = 5"), AllOf(HasSubstr("test.toml:4:"), HasSubstr("at least 6")));
  EXPECT_EQ(faults(period + outer + "outlier_warmup = 6"), "");
  // The resolved keys, with defaults, can be read again.
  for (const std::string& keys : {period, time}) {
    const MethodReading reading = read_method(algorithm + keys + outer);
    EXPECT_EQ(read_method(reading.resolved).faults, "") << reading.resolved;
  }
}

// EDiT whose rounds end by time (A-EDiT): their ends, the workers' numbers of steps, and their data.

using From = TimedRounds::CountedFrom;

// Micro-batches take 1 s, so 4 s have 4 steps. The last round has 2.
TEST(EditByTime, ByTimeAndWithEqualWorkersEqualsTheSameBySteps) {
  SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 18}};
  const PenaltyOptions penalty{.outlier_factor = 1, .outlier_warmup = 2, .temperature = 5, .clip_norm = 8};
  const auto timed = setup.run(Edit(by_time(4, penalty)));
  EXPECT_EQ(timed.parameters, setup.run(Edit(by_steps(4, penalty))).parameters);
  EXPECT_EQ(timed.log, setup.run(Edit(by_steps(4, penalty))).log);
  EditOptions warmed = by_time(4, penalty), counted = by_steps(4, penalty);
  warmed.timed.warmup_steps = 6;
  counted.period = make_post_local_period(6, 4);
  EXPECT_EQ(setup.run(Edit(warmed)).log, setup.run(Edit(counted)).log);
  EXPECT_EQ(setup.run(Edit(warmed)).parameters, setup.run(Edit(counted)).parameters);
  setup.network_s = 0;  // so workers arrive when a synchronisation ends
  EditOptions from_arrival = by_time(4, penalty);
  from_arrival.timed.counted_from = From::arrival;
  EXPECT_EQ(setup.run(Edit(from_arrival)).parameters, timed.parameters);
}

// A round has steps of up to 2 s, an all-gather and an average of 0.5 s each.
TEST(EditByTime, ByStepsWaitsForTheSlowest) {
  EXPECT_EQ(uneven.run(Edit(by_steps(4))).log, (std::vector<std::string>{"step 4 at 9.000 s: kept 12, dropped 0",
                                                                         "step 8 at 18.000 s: kept 12, dropped 0"}));
}

TEST(EditByTime, ByTimeEndsARoundWithTheStepThatIsThenUnderWay) {
  const auto outcome = uneven.run(Edit(by_time(3.5)));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 4 at 5.200 s: kept 9, dropped 3",
                                                   "step 8 at 10.400 s: kept 9, dropped 3"}));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::wait], from_seconds(2 * 0.2));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::wait], Duration{});
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{8, 6, 4}));
}

// Workers count the 3.5 s from their arrivals at 4, 4.2 and 4 s. The time is up at 7.5, 7.7 and 7.5 s, within steps
// that end at 8.2, 8.0 and 9.2 s. So fast workers fall behind: in round three they take 2, 1 and 2 steps, later 1, 1
// and 2.
TEST(EditByTime, TimeMayCountFromAWorkersOwnArrival) {
  EditOptions options = by_time(3.5);
  options.timed.counted_from = From::arrival;
  SimulatedRun setup = uneven;
  setup.budget.steps = Step{11};
  EXPECT_EQ(
      setup.run(Edit(options)).log,
      (std::vector<std::string>{"step 4 at 5.200 s: kept 9, dropped 3", "step 7 at 10.200 s: kept 7, dropped 2",
                                "step 9 at 15.200 s: kept 5, dropped 1", "step 11 at 20.200 s: kept 4, dropped 2"}));
}

// The workers have 9 steps by 4.2 s, which the all-gather shows at 4.7 s, and 9 more by 8.9 s.
TEST(EditByTime, ASynchronisationWithTooFewStepsIsPutOff) {
  EditOptions options = by_time(3.5);
  options.timed.minimum_steps = 9;
  EXPECT_EQ(uneven.run(Edit(options)).log, uneven.run(Edit(by_time(3.5))).log);
  options.timed.minimum_steps = 10;
  const auto outcome = uneven.run(Edit(options));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 8 at 9.900 s: kept 18, dropped 6"}));
  EXPECT_EQ(outcome.totals.collectives, 3);
}

// A worker's second round continues with its third sample; the step's number alone would lead to the fifth.
TEST(EditByTime, ByTimeAWorkerTakesItsDataInTurn) {
  SimulatedRun setup = uneven;
  const auto objective = std::make_shared<PullObjective>();
  setup.objective = objective;
  setup.run(Edit(by_time(3.5)));
  for (int step = 0; step < 8; ++step) EXPECT_EQ(objective->evaluated.contains({Rank{2}, Step{step}, 0}), step < 4);
}

// SlowMo divides by the learning rate. It must use the mean rate of all workers' steps, so that they keep one model.
TEST(EditByTime, ByTimeAllGoOnWithOneModel) {
  SimulatedRun setup = uneven;
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = 12});
  EditOptions options = by_time(3.5, {.temperature = 6});
  options.outer = make_slowmo(0.9, 0.5);
  const Edit method(options);
  const WithLastModels recorded(method, 3);
  setup.run(recorded);
  EXPECT_EQ(recorded.models[1], recorded.models[0]);
  EXPECT_EQ(recorded.models[2], recorded.models[0]);
}

// Ends of EDiT's rounds and runs if workers are down or lose their state, data are used up, or a budget is short.

using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<const OutagePlan> outage(double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// A round has 4 s of computing and 1 s of communication, so the second begins at 5 s. Worker 1 loses two steps of it
// with its state, and the rest of the round has its usual weight. The expected value is computed in double precision,
// for one parameter and two workers.
TEST(EditEnds, AWorkerThatLosesItsStateGoesOnFromTheRoundsBegin) {
  SimulatedRun setup{.workers = 2, .rate = 0.1, .budget = {.steps = 8}, .outages = outage(7.5, 0.25, true)};
  setup.objective = std::make_shared<PullObjective>(1, 1);
  EditOptions options = by_steps(4, {.temperature = 3});
  options.outer = make_plain_outer(1);
  double model = 1;
  for (int round = 0; round < 2; ++round) {
    double differences[2] = {}, weights[2] = {};
    for (int k = 0; k < 2; ++k) {
      double theta = model;
      for (int step = 4 * round; step < 4 * round + 4; ++step) {
        if (k == 1 && step == 6) theta = model;
        theta -= 0.1 * (theta - PullObjective::target({Rank{k}, step, 0}, 0));
      }
      differences[k] = theta - model;
      weights[k] = std::exp(-std::abs(differences[k]) / 3);
    }
    model += (weights[0] * differences[0] + weights[1] * differences[1]) / (weights[0] + weights[1]);
  }
  const auto outcome = setup.run(Edit(options));
  EXPECT_NEAR(outcome.parameters[0], model, 1e-5 * std::abs(model));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 2}));
  expect_exact_accounts(outcome);
}

TEST(EditEnds, OutagesHoldUpARoundAndNothingElse) {
  for (const bool loses_state : {false, true})
    for (const EditOptions& options : {by_steps(4), by_time(4)}) {
      SimulatedRun setup{.budget = {.steps = 12}, .outages = outage(6.5, 3, loses_state)};
      const auto outcome = setup.run(Edit(options));
      EXPECT_EQ(outcome.published, Step{12});
      EXPECT_EQ(sum(outcome.totals.kept) + sum(outcome.totals.dropped), 3 * 12);
      expect_exact_accounts(outcome);
    }
  // The worker is down for 3 s and then continues with its state. With rounds by steps, only the time changes.
  const SimulatedRun setup{.budget = {.steps = 12}};
  SimulatedRun down = setup;
  down.outages = outage(6.5, 3, false);
  EXPECT_EQ(down.run(Edit(by_steps(4))).parameters, setup.run(Edit(by_steps(4))).parameters);
  EXPECT_EQ(to_seconds(down.run(Edit(by_steps(4))).totals.end), 3 * (4 + 1) + 3);
  // With rounds by time, the other workers finish 4 steps, and wait for worker 1's second step, which ends 4.5 s after
  // the round began.
  EXPECT_EQ(down.run(Edit(by_time(4))).log[1], "step 8 at 11.000 s: kept 10, dropped 2");
}

TEST(EditEnds, AWorkerWhoseDataAreUsedUpEndsTheRunWithAReason) {
  for (const EditOptions& options : {by_steps(4), by_time(4)}) {
    SimulatedRun setup{.budget = {.steps = 12}, .data_of = {std::nullopt, Step{5}, std::nullopt}};
    try {
      setup.run(Edit(options));
      ADD_FAILURE() << "must end";
    } catch (const RunFailure& failure) {
      EXPECT_THAT(failure.what(), AllOf(HasSubstr("worker 1 left at"), HasSubstr("needs every worker")));
    }
    setup.data_of = {Step{5}, Step{5}, Step{5}};  // all leave together, after a last round of one step
    const auto outcome = setup.run(Edit(options));
    EXPECT_EQ(outcome.published, Step{5});
    EXPECT_EQ(sum(outcome.totals.kept), 3 * 5);
  }
}

// With any length and kind of budget, all workers take part in the last round, even if it was postponed.
TEST(EditEnds, EndsTogetherUnderEveryBudget) {
  std::vector<Budget> budgets;
  for (const double seconds : {0.5, 2.0, 5.2, 7.2, 20.0}) budgets.push_back({.seconds = seconds});
  for (const std::int64_t samples : {1, 5, 9, 10, 40}) budgets.push_back({.samples = samples});
  for (const std::int64_t bytes : {1, 200, 1000}) budgets.push_back({.bytes = Bytes{bytes}});
  budgets.push_back({.steps = 1});
  budgets.push_back({.steps = 7, .seconds = 6.0});
  for (const Budget& budget : budgets)
    for (const std::int64_t minimum_steps : {1, 30})
      for (EditOptions options : {by_steps(4), by_time(3.5)}) {
        options.timed.minimum_steps = minimum_steps;
        SimulatedRun setup = uneven;
        setup.budget = budget;
        const auto outcome = setup.run(Edit(options));
        expect_exact_accounts(outcome);
        EXPECT_GT(sum(outcome.totals.kept), 0);
        EXPECT_EQ(outcome.publications.back().time, outcome.totals.end);
        EXPECT_EQ(outcome.publications.back().samples, sum(outcome.totals.kept));
      }
}

// Values that EDiT's workers exchange at the end of a round, and the result that all workers then have.

TEST(EditRound, TheNormOfAWholeIsThatOfItsParts) {
  EXPECT_EQ(norm_of({3, 4, 12}), 13);
  EXPECT_EQ(norm_of({}), 0);
}

TEST(EditRound, AWorkerTellsANormOfEachModuleAndOfItsStepsFourNumbers) {
  EditOptions options{.period = make_constant_period(4)};
  EXPECT_EQ(options.numbers_sent(), std::nullopt) << "nobody knows how many tensors there are";
  options.tensors = 7;
  EXPECT_EQ(options.numbers_sent(), 7);
  options.penalty.step_share = 0.5;
  EXPECT_EQ(options.numbers_sent(), 7 + 4);
  options.scope = EditOptions::Scope::model;
  EXPECT_EQ(options.numbers_sent(), 1 + 4);
  options.tensors.reset();
  EXPECT_EQ(options.numbers_sent(), 1 + 4);
  EXPECT_EQ((EditOptions{.tensors = 7}.numbers_sent()), 7 + 4) << "rounds end by time";
}

// Three workers end a round after 2, 3 and 4 steps, at rates of 0.1, 0.2 and 0.4. Worker 1 has lost one of its steps.
class OneMeeting : public Algorithm {
 public:
  OneMeeting(EditOptions options, std::vector<RoundMeeting>& met) : options_(std::move(options)), met_(met) {}

  void run(Worker& worker) const override {
    constexpr double rates[] = {0.1, 0.2, 0.4};
    const int self = worker.rank().value;
    RoundWork work(worker);
    work.passed = Step{2 + self};
    *work.kept = Step{self == 1 ? 2 : 2 + self};
    work.rates = (2 + self) * rates[self];
    EXPECT_DOUBLE_EQ(work.mean_rate(), rates[self]);
    met_[static_cast<std::size_t>(self)] = *meet(worker, options_, worker.model(), work, nullptr);
  }

 private:
  EditOptions options_;
  std::vector<RoundMeeting>& met_;
};

std::vector<RoundMeeting> meetings_of(EditOptions options) {
  SimulatedRun setup;
  setup.objective = nullptr;
  std::vector<RoundMeeting> met(3);
  setup.run(OneMeeting(std::move(options), met));
  return met;
}

TEST(EditRound, AllLearnOfTheLongestRoundAndTheMeanRateOfAllSteps) {
  for (const RoundMeeting& met : meetings_of({})) {
    EXPECT_EQ(met.longest, Step{4});
    EXPECT_DOUBLE_EQ(met.inner_rate, (2 * 0.1 + 3 * 0.2 + 4 * 0.4) / 9);
    EXPECT_FALSE(met.is_put_off);
  }
}

TEST(EditRound, StepsThatAreToldOfNobodyAreNotKnown) {
  for (const RoundMeeting& met : meetings_of({.period = make_constant_period(4)})) {
    EXPECT_EQ(met.longest, Step{0});
    EXPECT_EQ(met.inner_rate, 0);
  }
}

// The workers took nine steps, of which eight are in some model.
TEST(EditRound, ARoundWithTooFewStepsOfAllIsPutOff) {
  for (const auto& [minimum, is_put_off] : {std::pair{8, false}, {9, true}}) {
    EditOptions options;
    options.timed.minimum_steps = minimum;
    for (const RoundMeeting& met : meetings_of(options)) EXPECT_EQ(met.is_put_off, is_put_off) << minimum;
  }
}

// EDiT's penalty for given norms: closed forms, and a second implementation that keeps everything.

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// After n norms of 1, with q = 1 - a, the mean is 1 - q^n and the variance q^(n + 1) (1 - q^n).
TEST(NormStatistics, OfConstantNormsAreAClosedForm) {
  for (const double a : {0.02, 0.3}) {
    const PenaltyOptions options{.outlier_warmup = 10, .outlier_smoothing = a};
    NormStatistics statistics;
    for (int n = 1; n <= 200; ++n) {
      statistics.add(5, options);
      const double left = std::pow(1 - a, n);
      EXPECT_NEAR(statistics.mean(), 5 * (1 - left), 1e-12);
      EXPECT_NEAR(statistics.variance(), 25 * (1 - a) * left * (1 - left), 1e-12) << n;
    }
  }
}

// Among the first W = 10 norms, z is 0 for nine and below 3 for the tenth, so the threshold is 3 deviations.
TEST(NormStatistics, ANormIsAnOutlierFromThreeDeviationsAboveTheMeanOn) {
  const PenaltyOptions options{.outlier_warmup = 10};
  NormStatistics statistics;
  for (int n = 0; n < 9; ++n) statistics.add(5, options);
  EXPECT_FALSE(statistics.is_outlier(1e9, options)) << "the warm-up has none";
  statistics.add(5, options);
  const double left = std::pow(0.98, 10), at = 5 * (1 - left + 3 * std::sqrt(0.98 * left * (1 - left)));
  EXPECT_FALSE(statistics.is_outlier(at * (1 - 1e-9), options));
  EXPECT_TRUE(statistics.is_outlier(at * (1 + 1e-9), options));
  EXPECT_FALSE(statistics.is_outlier(0, options)) << "short ones are welcome";
  EXPECT_FALSE(statistics.is_outlier(1e9, {.outlier_factor = infinity, .outlier_warmup = 10}));
}

// An independent implementation, which stores all norms that were added.
struct ListedNorms {
  std::vector<double> norms{};

  bool is_outlier(double norm, double factor, int warmup, double a) const {
    if (std::ssize(norms) < warmup) return false;
    double mean = 0, variance = 0;
    std::vector<double> z_scores;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double old = mean;
      mean = (1 - a) * mean + a * norms[i];
      variance = (1 - a) * variance + a * (norms[i] - mean) * (norms[i] - mean);
      EXPECT_NEAR((norms[i] - mean), (1 - a) * (norms[i] - old), 1e-12);
      z_scores.push_back(static_cast<int>(i) + 1 < warmup ? 0 : (norms[i] - mean) / std::sqrt(variance));
    }
    const std::vector<double> last(z_scores.end() - warmup, z_scores.end());
    const double z_mean = std::accumulate(last.begin(), last.end(), 0.0) / warmup;
    double squares = 0;
    for (const double z : last) squares += (z - z_mean) * (z - z_mean);
    return (norm - mean) / std::sqrt(variance) > factor * std::max(1.0, std::sqrt(squares / (warmup - 1)));
  }
};

TEST(NormStatistics, OfNormsWithLongOnesAmongThemAreThoseOfAList) {
  const PenaltyOptions options{.outlier_factor = 1.6, .outlier_warmup = 6, .outlier_smoothing = 0.2};
  NormStatistics statistics;
  ListedNorms listed;
  int outliers = 0;
  for (int n = 0; n < 300; ++n) {
    const RandomStream stream{.seed = 7, .purpose = Purpose::algorithm, .step = Step{n}};
    const double norm = 1 + stream.uniform(0) + (stream.uniform(1) < 0.3 ? 2 + stream.uniform(2) : 0);
    const bool is_outlier = statistics.is_outlier(norm, options);
    ASSERT_EQ(is_outlier, listed.is_outlier(norm, 1.6, 6, 0.2)) << n;
    outliers += is_outlier ? 1 : 0;
    if (is_outlier) continue;
    statistics.add(norm, options);
    listed.norms.push_back(norm);
  }
  EXPECT_GT(outliers, 20);
  EXPECT_LT(outliers, 250);
}

// The W-th of constant norms has z = sqrt(q^(W - 1) / (1 - q^W)). With a = 0.02 that is above 3 up to W = 5.
TEST(Penalty, AWarmUpMustBeSoLongThatConstantNormsAreNoOutliers) {
  EXPECT_EQ(shortest_warmup({}), 6);
  EXPECT_EQ(shortest_warmup({.outlier_factor = infinity}), 1);
  for (const double a : {0.02, 0.1, 0.5})
    for (const double factor : {0.5, 1.0, 3.0, 10.0}) {
      PenaltyOptions options{.outlier_factor = factor, .outlier_smoothing = a};
      options.outlier_warmup = shortest_warmup(options);
      Penalty penalty;
      for (int n = 0; n < options.outlier_warmup + 200; ++n) {
        penalty = penalise(penalty.statistics, std::vector{5.0}, {}, 1, options);
        ASSERT_EQ(penalty.factors[0], 1) << a << " " << factor << " " << n;
      }
    }
  // With half of the shortest warm-up, constant norms are outliers for ever.
  const PenaltyOptions options{.outlier_warmup = 3};
  Penalty penalty;
  for (int n = 0; n < 50; ++n) penalty = penalise(penalty.statistics, std::vector{5.0}, {}, 1, options);
  EXPECT_TRUE(penalty.rolled_back[0]);
}

// If an outlier's norm entered the statistics, a tenfold norm would go undetected for about a thousand rounds.
TEST(Penalty, AnOutlierLeavesTheStatisticsAsTheyWere) {
  const PenaltyOptions options{.outlier_warmup = 10};
  Penalty penalty;
  const auto next = [&](double norm) {
    penalty = penalise(penalty.statistics, std::vector{norm, 5.0}, {}, 1, options);
  };
  for (int n = 0; n < 50; ++n) next(5);
  const double mean = penalty.statistics[0].mean();
  for (const double norm : {1e6, infinity, not_a_number, 50.0}) {
    next(norm);
    EXPECT_EQ(penalty.factors, (std::vector{0.0, 2.0})) << norm;
    EXPECT_EQ(penalty.statistics[0].mean(), mean);
    EXPECT_FALSE(penalty.rolled_back[0]);
  }
  next(5);
  EXPECT_EQ(penalty.factors, (std::vector{1.0, 1.0}));
  EXPECT_GT(penalty.statistics[0].mean(), mean);
}

TEST(Penalty, AModuleIsRolledBackWhereAllAreOutliers) {
  const PenaltyOptions options{.outlier_warmup = 10};
  Penalty penalty;
  const std::vector<double> usual = {5, 1, 5, 1};  // two workers, two modules
  for (int n = 0; n < 20; ++n) penalty = penalise(penalty.statistics, usual, {}, 2, options);
  penalty = penalise(penalty.statistics, std::vector{500.0, 1.0, 500.0, 100.0}, {}, 2, options);
  EXPECT_EQ(penalty.rolled_back, (std::vector{true, false}));
  EXPECT_EQ(penalty.factors, (std::vector{0.0, 2.0, 0.0, 0.0}));
  EXPECT_EQ(penalty.factors_of(Rank{1})[0], 0);
}

// A module without a finite norm is not rolled back. Its round is worthless, but a run that rolled the module back for
// ever would seem to succeed.
TEST(Penalty, AModuleInWhichNoNormIsFiniteIsNotRolledBack) {
  for (const double norm : {infinity, not_a_number}) {
    const Penalty first = penalise({}, std::vector{norm, 1.0, infinity, norm}, {}, 2, {});
    EXPECT_EQ(first.rolled_back, (std::vector{false, false}));
    EXPECT_EQ(first.factors, (std::vector{1.0, 2.0, 1.0, 0.0})) << "the second module has one that is";
  }
}

TEST(Penalty, WorkersWeighByTheSoftmaxOfTheirNorms) {
  const std::vector<double> norms = {0.5, 2, 1.25, 3};
  for (const double temperature : {0.1, 1.0, 7.0}) {
    const Penalty penalty = penalise({}, norms, {}, 1, {.temperature = temperature});
    double sum = 0;
    for (const double norm : norms) sum += std::exp(-norm / temperature);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(penalty.factors[i], 4 * std::exp(-norms[i] / temperature) / sum, 1e-12);
  }
  // If norms differ by far more than the temperature, the shortest has all the weight, however long it is.
  EXPECT_EQ(penalise({}, std::vector{1e300, 2e300, 4e300, 2e300}, {}, 1, {}).factors,
            (std::vector{4.0, 0.0, 0.0, 0.0}));
}

TEST(Penalty, EqualNormsAndAnInfiniteTemperatureGiveExactlyTheMean) {
  for (int workers = 1; workers < 200; ++workers) {
    std::vector<double> norms(static_cast<std::size_t>(workers), 0.3);
    const std::vector ones(norms.size(), 1.0);
    EXPECT_EQ(penalise({}, norms, {}, 1, {}).factors, ones);
    std::iota(norms.begin(), norms.end(), 0.1);
    EXPECT_EQ(penalise({}, norms, {}, 1, {.temperature = infinity}).factors, ones);
  }
}

// With step_share r, a weight w becomes (1 - r) w + r steps / all steps.
TEST(Penalty, APartOfTheWeightsMayGoBySteps) {
  const std::vector<double> norms = {1, 1, 1}, steps = {4, 3, 1};
  const Penalty penalty = penalise({}, norms, steps, 1, {.step_share = 0.4});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(penalty.factors[i], 3 * (0.6 / 3 + 0.4 * steps[i] / 8), 1e-12);
  EXPECT_EQ(penalise({}, norms, std::vector{0.0, 0.0, 0.0}, 1, {.step_share = 0.4}).factors, std::vector(3, 1.0));
  // The weight of an outlier's steps is lost; the other workers do not get it.
  const std::vector<double> one_lost = {1, not_a_number, 1};
  const Penalty without = penalise({}, one_lost, steps, 1, {.step_share = 0.4});
  EXPECT_NEAR(without.factors[0], 3 * (0.6 / 2 + 0.4 * 4 / 8), 1e-12);
  EXPECT_EQ(without.factors[1], 0);
}

TEST(Penalty, WhereNobodyMayBeAnOutlierWhatIsNoNumberShows) {
  const PenaltyOptions options{.outlier_factor = infinity};
  for (const double norm : {infinity, not_a_number}) {
    EXPECT_EQ(penalise({}, std::vector{1.0, norm, 3.0}, {}, 1, options).factors, std::vector(3, 1.0));
    EXPECT_EQ(clip_factor(norm, 10), 1);
  }
}

TEST(Penalty, ASumIsClippedToItsLongestNorm) {
  EXPECT_EQ(clip_factor(3, 10), 1);
  EXPECT_EQ(clip_factor(0, 10), 1);
  EXPECT_DOUBLE_EQ(clip_factor(25, 10), 10 / (25 + 1e-6));
  EXPECT_EQ(clip_factor(1e300, infinity), 1);
}

}  // namespace
}  // namespace syncopate
