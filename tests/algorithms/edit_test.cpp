// EDiT's penalty: limit cases bit for bit, all of it against a recursion in double precision, outliers, settings.
#include "algorithms/local_sgd/edit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "tests/algorithms/edit_options.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/layered_pull_objective.hpp"

namespace syncopate {
namespace {

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

// Each worker is moved by a unit vector of its own.
TEST(Edit, WithEqualNormsEqualsDiLoCoBitForBit) {
  const SimulatedRun setup{.workers = 5, .budget = {.steps = 2}};
  EditOptions options = by_steps(2);
  options.outer = make_plain_outer(1);
  EXPECT_EQ(run_kicked(setup, Edit(options)).outcome.parameters, std::vector(5, 1.0f / 5));
}

// The same in double precision: four tensors of 2, 4, 1 and 1 elements, three workers whose rounds have so many steps
// each.
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
    std::vector<int> turn(workers);  // of its data
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

// Norms above their mean are outliers' at once, and the mean, which begins at 0, stays below constant ones.
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

// Steps of worker 1 that are far too long: it is left out, and what is not a number is not spread.
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
  EXPECT_THAT(faults(period + time + outer), AllOf(HasSubstr("test.toml:3:"), HasSubstr("must not stand beside")));
  for (const std::string key : {"minimum_steps = 4", "warmup_steps = 3", "counted_from = \"end\""})
    EXPECT_THAT(faults(period + outer + key), HasSubstr("must not stand where rounds end by steps"));
  for (const std::string key : {"temperature = 0", "temperature = -1", "outlier_factor = 0", "outlier_warmup = 0",
                                "outlier_smoothing = 0", "outlier_smoothing = 1", "clip_norm = 0", "step_share = 1.1",
                                "step_share = -0.1", "scope = \"layer\"", "clip_scope = \"module\"", "temperatur = 1"})
    EXPECT_THAT(faults(period + outer + key), HasSubstr("test.toml:4:")) << key;
  for (const std::string key : {"sync_seconds = 0", "sync_seconds = -1", "sync_seconds = inf", "minimum_steps = 0"})
    EXPECT_NE(faults(outer + key), "") << key;
  EXPECT_THAT(faults(period + outer + "outlier_warmup = 5"), AllOf(HasSubstr("test.toml:4:"), HasSubstr("at least 6")));
  EXPECT_EQ(faults(period + outer + "outlier_warmup = 6"), "");
  // What was read, with its defaults, can be read again.
  for (const std::string& keys : {period, time}) {
    const MethodReading reading = read_method(algorithm + keys + outer);
    EXPECT_EQ(read_method(reading.resolved).faults, "") << reading.resolved;
  }
}

}  // namespace
}  // namespace syncopate
