// Evaluations of a model by the training engine: on which samples, and when it has diverged.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

// Losses of 2 and 3 per sample; each fourth one is told right. Of each sample it is told which split it is of.
class CountedSamples : public PullObjective {
 public:
  using PullObjective::PullObjective;
  std::int64_t evaluation_samples(Split split) const override { return split == Split::test ? 5000 : 9000; }
  EvaluationSums evaluate(const float*, const float*, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    const auto count = static_cast<double>(end - begin);
    const std::lock_guard lock(mutex_);
    std::int64_t correct = 0;
    for (auto sample = begin; sample < end; ++sample) {
      seen.insert({split, sample});
      correct += sample % 4 == 0;
    }
    return {.loss = (split == Split::test ? 2.0 : 3.0) * count, .correct = correct, .samples = end - begin};
  }
  bool has_accuracy() const override { return true; }
  mutable std::multiset<std::pair<Split, std::int64_t>> seen;

 private:
  mutable std::mutex mutex_;
};

TEST(Evaluation, AnEvaluationTakesTheWholeTestSetAndTheTrainingSamplesThatWereAskedFor) {
  const auto objective = std::make_shared<CountedSamples>(4, 4);
  Engine engine(objective, make_sgd({}), {.train_samples = 2500});
  Evaluation result;
  engine.training.evaluate({engine.training.initial_state()},
                           [&](const Evaluation& evaluation) { result = evaluation; });
  engine.executor.wait_all();
  EXPECT_EQ(result.test_loss, 2);
  EXPECT_EQ(result.train_loss, 3);
  EXPECT_EQ(result.test_accuracy, 0.25);
  EXPECT_TRUE(result.finite);
  std::multiset<std::pair<Split, std::int64_t>> expected;
  for (int sample = 0; sample < 5000; ++sample) expected.insert({Split::test, sample});
  for (int sample = 0; sample < 2500; ++sample) expected.insert({Split::train, sample});
  EXPECT_EQ(objective->seen, expected);
}

// 3000 samples, more than one task takes, of which a tenth is told right.
class HeldOut : public CountedSamples {
 public:
  using CountedSamples::CountedSamples;
  std::int64_t validation_samples() const override { return 3000; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    if (split != Split::validation) return CountedSamples::evaluate(parameters, buffers, split, begin, end);
    const auto samples = end - begin;
    return {.loss = 0.5 * static_cast<double>(samples), .correct = samples / 10, .samples = samples};
  }
};

TEST(Evaluation, AnEvaluationHasTheValidationSetWhereThereIsOne) {
  const auto evaluation_of = [](const std::shared_ptr<CountedSamples>& objective) {
    Engine engine(objective, make_sgd({}), {.train_samples = 2500});
    Evaluation result;
    engine.training.evaluate({engine.training.initial_state()},
                             [&](const Evaluation& evaluation) { result = evaluation; });
    engine.executor.wait_all();
    return result;
  };
  const Evaluation with = evaluation_of(std::make_shared<HeldOut>(4, 4));
  EXPECT_EQ(with.validation_loss, 0.5);
  EXPECT_EQ(with.validation_accuracy, 0.1);
  EXPECT_EQ(with.test_loss, 2);
  EXPECT_EQ(with.train_loss, 3);
  const Evaluation without = evaluation_of(std::make_shared<CountedSamples>(4, 4));
  EXPECT_TRUE(std::isnan(without.validation_loss) && std::isnan(without.validation_accuracy));
}

struct GivenLosses : PullObjective {
  GivenLosses(double test_loss, double train_loss) : test_loss(test_loss), train_loss(train_loss) {}
  EvaluationSums evaluate(const float*, const float*, Split split, std::int64_t, std::int64_t) const override {
    return {.loss = split == Split::test ? test_loss : train_loss, .correct = 0, .samples = 1};
  }
  double test_loss, train_loss;
};

TEST(Evaluation, AModelHasDivergedWhereEitherLossIsNoNumber) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const double test_loss : {1.0, inf, std::nan("")})
    for (const double train_loss : {1.0, inf, std::nan("")}) {
      Engine engine(std::make_shared<GivenLosses>(test_loss, train_loss), make_sgd({}));
      Evaluation result;
      engine.training.evaluate({engine.training.initial_state()},
                               [&](const Evaluation& evaluation) { result = evaluation; });
      engine.executor.wait_all();
      EXPECT_EQ(result.finite, test_loss == 1 && train_loss == 1) << test_loss << " " << train_loss;
    }
}

}  // namespace
}  // namespace syncopate
