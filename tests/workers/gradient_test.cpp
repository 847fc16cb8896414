// Promised gradients, which are computed when they are needed: their sums, costs, losses and norms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/workers/apart_objective.hpp"
#include "tests/workers/engine.hpp"
#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/pull_objective.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

TEST(PromisedGradients, APromiseThatNobodyConsumesIsNeverComputed) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient kept = engine.promise(state, 0);
  const Gradient dropped = engine.promise(state, 1);
  engine.training.values(engine.training.descend(state, kept, 0.1));
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluated, (std::set<MicroBatch>{{Rank{0}, 0, 0}}));
  EXPECT_EQ(dropped.micro_batches(), 1);
}

TEST(PromisedGradients, APromiseOfSeveralMicroBatchesIsTheirSum) {
  Engine engine;
  const auto state = engine.training.initial_state();
  const Gradient several(state, {Rank{2}, 7, 3}, 3, Duration{15});
  Gradient sum;
  for (const int index : {3, 4, 5}) sum += engine.promise(state, 2, 7, index);
  EXPECT_EQ(several.micro_batches(), sum.micro_batches());
  EXPECT_EQ(several.compute_time(), sum.compute_time());
  ASSERT_EQ(several.terms().size(), 1u);
  EXPECT_EQ(several.terms()[0].micro_batches, sum.terms()[0].micro_batches);
  EXPECT_EQ(engine.training.values(several), engine.training.values(sum));
}

// Sums may contain gradients at several models, in any order and with any weights.
TEST(PromisedGradients, PromisesAtSeveralModelsAreEachTakenAtTheirOwn) {
  Engine engine;
  const auto start = engine.training.initial_state();  // 1, 1, 1, 1
  const auto later = engine.at_target(start, 10);      // 10, 11, 12, 13
  const std::vector<ModelStatePtr> at = {start, later, later, start, later, start, start, later};
  const std::vector<double> weights = {1, 1, 1, 2, 2, 2, 1, 0.5};
  for (std::size_t count = 1; count <= at.size(); ++count) {
    Gradient sum;
    std::vector<double> expected(4);
    for (std::size_t k = 0; k < count; ++k) {
      const int worker = static_cast<int>(k);
      sum += engine.promise(at[k], worker) * weights[k];
      for (std::size_t i = 0; i < 4; ++i) {
        const double parameter = at[k] == start ? 1.0 : 10.0 + static_cast<double>(i);
        expected[i] += weights[k] * (parameter - PullObjective::target({Rank{worker}, 0, 0}, i));
      }
    }
    const auto found = engine.training.values(sum);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(found[i], static_cast<float>(expected[i])) << count;
  }
}

// The cost of a shared sum is the cost of its parts.
TEST(PromisedGradients, ASharedSumCountsAndCostsWhatItsPartsDo) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 3; ++worker) sum += engine.promise(state, worker);
  Gradient shared = engine.training.share(sum) / 3;
  shared += engine.promise(state, 5);
  shared = engine.training.share(shared);
  EXPECT_EQ(shared.micro_batches(), 4);
  EXPECT_EQ(shared.compute_time(), Duration{4 * 5});
  EXPECT_FALSE(shared.wide());
}

TEST(PromisedGradients, MicroBatchesAtOneStateAreFusedIntoFewCalls) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 128; ++worker) sum += engine.promise(state, worker);
  engine.training.values(engine.training.descend(state, sum, 0.1));
  EXPECT_EQ(engine.objective->evaluations, 128);
  EXPECT_EQ(engine.objective->calls, 2);  // 128 samples in chunks of at most 64
}

TEST(PromisedGradients, TheOrderOfAdditionDoesNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const bool reversed : {false, true}) {
    Engine engine(2, 0.9, 100'000);
    auto state = engine.training.initial_state();
    for (int step = 0; step < 5; ++step) {
      Gradient sum;
      for (int i = 0; i < 40; ++i) sum += engine.promise(state, reversed ? 39 - i : i, step);
      state = engine.training.descend(state, sum / 40, 0.0317);
    }
    results.push_back(engine.training.values(state));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(PromisedGradients, LossAndNormOfAPromiseCanBeRead) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum = engine.promise(state, 0);  // 1 - (0, 1, 2, 3)
  sum += engine.promise(state, 5);          // 1 - (5, 6, 7, 8)
  const Gradient shared = engine.training.share(sum) / 2;
  EXPECT_DOUBLE_EQ(engine.training.loss(shared), ((1 + 0 + 1 + 4) / 2.0 + (16 + 25 + 36 + 49) / 2.0) / 2);
  EXPECT_NEAR(engine.training.norm(shared), std::sqrt(3 * 3 + 5 * 5 + 7 * 7 + 9 * 9) / 2, 1e-6);
  EXPECT_TRUE(std::isnan(engine.training.loss(Gradient())));
  engine.training.descend(state, shared, 0.1);
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluations, 2);  // a value that was read is not computed again
}

// In sums of sums, for example over groups of workers, each micro-batch counts once, whatever its weights are.
TEST(PromisedGradients, TheLossOfASumOfSumsIsTheMeanOverAllMicroBatches) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient pair = engine.promise(state, 0);
  pair += engine.promise(state, 5);
  Gradient all = engine.training.share(pair) / 2;
  all += engine.training.share(engine.promise(state, 3)) * 0.25;
  const auto loss_of = [](double worker) {  // half the squared distance between 1 and the target worker + i
    double loss = 0;
    for (int i = 0; i < 4; ++i) loss += (worker + i - 1) * (worker + i - 1) / 2;
    return loss;
  };
  EXPECT_DOUBLE_EQ(engine.training.loss(all), (loss_of(0) + loss_of(5) + loss_of(3)) / 3);
  all += engine.promise(state, 2);
  EXPECT_DOUBLE_EQ(engine.training.loss(engine.training.share(all)),
                   (loss_of(0) + loss_of(5) + loss_of(3) + loss_of(2)) / 4);
}

// ClippedGradients: a worker clips its gradient before it sends it. The clipped gradient is a promise, too, without the
// rounding of a copy.

// At the initial model, 1, the gradient of worker w is 1 - (w, w + 1, w + 2, w + 3).
TEST(ClippedGradients, HaveTheMostThatTheirMeanMayHave) {
  Engine engine(2, 0, 4, 2.0);
  const auto model = engine.training.initial_state();
  Gradient sum = engine.promise(model, 4);
  sum += engine.promise(model, 6);  // the sum is twice -(4, 5, 6, 7)
  const auto values = engine.training.values(engine.training.clipped(sum, 2));
  const double norm = std::sqrt(16.0 + 25 + 36 + 49);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], -2 * (4.0 + static_cast<double>(i)) * 2 / norm, 1e-5);
}

TEST(ClippedGradients, ThatAreShortEnoughStayAsTheyAreToTheBit) {
  Engine engine(2, 0, 4, 12.0);
  const auto model = engine.training.initial_state();
  Gradient sum = engine.promise(model, 4);
  sum += engine.promise(model, 6);
  sum *= 0.7;
  EXPECT_EQ(engine.training.values(engine.training.clipped(sum, 2)), engine.training.values(sum));
}

TEST(ClippedGradients, KeepTheirStatisticsAndWhatTheyCount) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}), {.clip_norm = 0.5});
  const auto model = engine.training.initial_state();
  Gradient sum = engine.promise(model, 4, 1);
  sum += engine.promise(model, 6, 2);
  const Gradient clipped = engine.training.clipped(sum, 2);
  EXPECT_EQ(clipped.micro_batches(), 2);
  EXPECT_EQ(clipped.compute_time(), sum.compute_time());
  const auto next = engine.training.descend(model, clipped / 2, 1.0, {.clipping = Clipping::none});
  EXPECT_THAT(engine.values(next->buffers), testing::ElementsAre((4 + 6) / 2.0f, (8 + 16) / 2.0f));
  double squares = 0;
  for (const float value : engine.training.values(next)) squares += (value - 1.0) * (value - 1.0);
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-5);
}

TEST(ClippedGradients, AreNotClippedAgainByAStepThatIsTold) {
  Engine engine(2, 0, 4, 2.0);
  const auto model = engine.training.initial_state();
  const Gradient clipped = engine.training.clipped(engine.promise(model, 5), 1) * 3;
  const auto norm_after = [&](const Training::StepRules& rules) {
    double squares = 0;
    for (const float value : engine.training.values(engine.training.descend(model, clipped, 1.0, rules)))
      squares += (value - 1.0) * (value - 1.0);
    return std::sqrt(squares);
  };
  EXPECT_NEAR(norm_after({.clipping = Clipping::none}), 6, 1e-5);
  EXPECT_NEAR(norm_after({.clipping = Clipping::of_step}), 2, 1e-5);
}

TEST(ClippedGradients, AreThemselvesWithoutALimitAndComputeNothing) {
  Engine engine;
  const auto model = engine.training.initial_state();
  const Gradient gradient = engine.training.clipped(engine.promise(model, 4), 1);
  EXPECT_EQ(gradient.terms().size(), 1u);
  EXPECT_EQ(gradient.terms().front().at, model);
  EXPECT_EQ(engine.objective->evaluations, 0);
}

TEST(ClippedGradients, TellWhichMicroBatchesAreKept) {
  std::vector<MicroBatch> kept;
  Engine engine(std::make_shared<PullObjective>(), make_sgd({}),
                {.clip_norm = 1, .on_kept = [&](const MicroBatch& micro_batch) { kept.push_back(micro_batch); }});
  const auto model = engine.training.initial_state();
  const Gradient clipped = engine.training.clipped(engine.promise(model, 4, 2, 1), 1);
  EXPECT_TRUE(kept.empty());
  engine.training.values(engine.training.descend(model, clipped, 1.0));
  EXPECT_THAT(kept, testing::ElementsAre(MicroBatch{Rank{4}, 2, 1}));
}

// Gradients that are held back and then evaluated together: which gradients share a pass, and the results.

using Lists = ApartObjective::Lists;

// A pass takes at most eight samples, which are micro-batches here. Up to two are one pass; more are an even number of
// passes.
struct Held {
  explicit Held(int threads = 2)
      : objective(std::make_shared<ApartObjective>(4, 4, 8)), engine(objective, make_sgd({}), {}, threads) {}

  // Keeps the gradient's values once it is evaluated.
  void hold(const Gradient& gradient, int name) {
    values[name];
    engine.training.hold(
        gradient, {},
        [&out = values[name]](const GradientSum& sum, double scale) {
          out.resize(4);
          write_block(sum, scale, 0, out);
        },
        [&, name](const std::shared_ptr<Task>& task) {
          EXPECT_TRUE(tasks.emplace(name, task).second);
          order.push_back(name);
        });
  }
  void begin() {
    engine.training.begin_held();
    engine.executor.wait_all();
  }
  Gradient of_worker(const ModelStatePtr& at, int worker, int micro_batches, int step = 0) const {
    return Gradient(at, {.worker = Rank{worker}, .step = step, .index = 0}, micro_batches, {});
  }

  std::shared_ptr<ApartObjective> objective;
  Engine engine;
  std::map<int, std::vector<float>> values;
  std::map<int, std::shared_ptr<Task>> tasks;
  std::vector<int> order;
};

// The sum of gradients at parameters that all equal `theta`, times `scale`.
std::vector<float> pull(float theta, int worker, int micro_batches, int step = 0, float scale = 1) {
  std::vector<float> sum(4);
  for (int m = 0; m < micro_batches; ++m)
    for (std::size_t i = 0; i < 4; ++i) sum[i] += scale * (theta - ApartObjective::target({Rank{worker}, step, m}, i));
  return sum;
}

Gradient sum_of(Gradient a, const Gradient& b) { return a += b; }

std::vector<MicroBatch> list_of(int worker, int micro_batches, int step = 0) {
  std::vector<MicroBatch> list;
  for (int m = 0; m < micro_batches; ++m) list.push_back({Rank{worker}, step, m});
  return list;
}

TEST(SumsApart, AtOneModelShareAPassAndKeepTheirValues) {
  for (const int threads : {0, 1, 4}) {
    Held held(threads);
    const auto state = held.engine.training.initial_state();
    const std::vector<int> micro_batches = {1, 2, 1, 2};  // in total six, three in each of two passes
    for (int worker = 0; worker < 4; ++worker)
      held.hold(held.of_worker(state, worker, micro_batches[static_cast<std::size_t>(worker)]) * 0.5, worker);
    EXPECT_TRUE(held.tasks.empty());
    held.begin();
    EXPECT_EQ(held.objective->passes,
              (std::multiset<Lists>{{list_of(0, 1), list_of(1, 2)}, {list_of(2, 1), list_of(3, 2)}}));
    for (int worker = 0; worker < 4; ++worker)
      EXPECT_EQ(held.values[worker], pull(1, worker, micro_batches[static_cast<std::size_t>(worker)], 0, 0.5f));
  }
}

// Worker 0 adds its gradient to existing values, worker 1 writes it, worker 2 writes it twice, and worker 3's must not
// be added directly. One pass evaluates workers 0 and 1, another one workers 2 and 3.
TEST(SumsApart, AreMadeOnceAndOnlyForWhoNeedsThem) {
  for (const int threads : {0, 1, 4}) {
    Held held(threads);
    const auto state = held.engine.training.initial_state();
    std::vector<float> there = {1, 2, 3, 4};
    std::atomic<int> added = 0;
    const auto add = [&](const GradientSum& sum, double scale) {
      if (!is_kept_of_pass(sum, scale)) return;
      add_kept_of_pass(sum, there.data());
      ++added;
    };
    held.engine.training.hold(held.of_worker(state, 0, 2), {}, add, [](const std::shared_ptr<Task>&) {});
    held.hold(held.of_worker(state, 1, 1), 1);
    const Gradient twice = held.engine.training.share(held.of_worker(state, 2, 1));
    held.hold(twice, 2);
    held.hold(twice, 3);
    held.engine.training.hold(held.of_worker(state, 3, 1) * 0.5, {}, add, [](const std::shared_ptr<Task>&) {});
    held.begin();
    EXPECT_EQ(held.objective->passes.size(), 2u);
    EXPECT_EQ(added, 1);
    EXPECT_EQ(held.objective->made, 2);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(there[i], static_cast<float>(i + 1) + pull(1, 0, 2)[i]);
    EXPECT_EQ(held.values[1], pull(1, 1, 1));
    for (const int name : {2, 3}) EXPECT_EQ(held.values[name], pull(1, 2, 1));
  }
}

// Passes depend on which gradients are held, not on their order of arrival. So sums have the same bits in any order.
TEST(SumsApart, PassesDoNotGoByTheOrderOfArrival) {
  std::vector<int> workers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::multiset<Lists> first;
  for (int round = 0; round < 3; ++round) {
    Held held;
    const auto state = held.engine.training.initial_state();
    for (const int worker : workers) held.hold(held.of_worker(state, worker, 1 + worker % 2), worker);
    held.begin();
    if (round == 0) first = held.objective->passes;
    EXPECT_EQ(held.objective->passes, first);
    std::ranges::rotate(workers, workers.begin() + 4);
  }
  EXPECT_EQ(first.size(), 2u);  // 16 micro-batches, at most 8 in a pass
}

TEST(SumsApart, OfDifferentModelsHaveTheirOwnPasses) {
  Held held;
  const auto a = held.engine.training.initial_state();
  const auto b = held.engine.at_target(a, 3);  // 3 + i
  for (int worker = 0; worker < 4; ++worker) held.hold(held.of_worker(worker % 2 == 0 ? a : b, worker, 1), worker);
  held.begin();
  EXPECT_EQ(held.objective->passes,
            (std::multiset<Lists>{{list_of(0, 1), list_of(2, 1)}, {list_of(1, 1), list_of(3, 1)}}));
  EXPECT_EQ(held.values[2], pull(1, 2, 1));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(held.values[1][i], 2);
}

// States that share their parameters are one model, even if their other parts differ.
TEST(SumsApart, OfAdoptedParametersShareAPass) {
  Held held;
  const auto a = held.engine.training.initial_state();
  const auto b = held.engine.training.adopt(held.engine.at_target(a, 3), a);
  held.hold(held.of_worker(a, 0, 1), 0);
  held.hold(held.of_worker(b, 1, 1), 1);
  held.begin();
  EXPECT_EQ(held.objective->passes, (std::multiset<Lists>{{list_of(0, 1), list_of(1, 1)}}));
}

// Sums over two models, shared sums, an empty sum, a single gradient at its model, and statistics alone.
TEST(SumsApart, WhatIsNoPlainSumIsEvaluatedByItself) {
  Held held;
  Training& training = held.engine.training;
  const auto a = training.initial_state();
  const auto b = held.engine.at_target(a, 3), c = held.engine.at_target(a, 4);
  const Gradient shared = training.share(held.of_worker(a, 0, 1));
  held.hold(shared, 0);
  held.hold(shared * 2, 1);
  held.hold(sum_of(held.of_worker(a, 2, 1), held.of_worker(b, 2, 1)), 2);
  held.hold(Gradient(), 3);
  held.hold(held.of_worker(c, 4, 1), 4);
  held.hold(sum_of(held.of_worker(a, 5, 1), shared), 5);
  Gradient statistics = held.of_worker(a, 6, 1);
  statistics.keep_statistics_alone();
  held.hold(statistics, 6);
  held.hold(held.of_worker(a, 7, 1), 7);
  held.begin();
  EXPECT_EQ(held.objective->passes, (std::multiset<Lists>{{list_of(0, 1), list_of(7, 1)}}));
  EXPECT_EQ(held.values[0], pull(1, 0, 1));
  EXPECT_EQ(held.values[1], pull(1, 0, 1, 0, 2));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(held.values[2][i], pull(1, 2, 1)[i] + 1);
  EXPECT_EQ(held.values[3], std::vector<float>(4));
  EXPECT_EQ(held.values[4], std::vector<float>(4));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(held.values[5][i], pull(1, 5, 1)[i] + pull(1, 0, 1)[i]);
  EXPECT_EQ(held.values[6], std::vector<float>(4));
  EXPECT_EQ(held.values[7], pull(1, 7, 1));
}

// After the pass a sum releases its model, so that a step can reuse the model's memory.
TEST(SumsApart, LetGoOfTheirModelOnceThePassIsOver) {
  Held held;
  auto state = held.engine.training.initial_state();
  const std::weak_ptr<Cell> parameters = state->parameters;
  for (int worker = 0; worker < 3; ++worker) held.hold(held.of_worker(state, worker, 1), worker);
  state = nullptr;
  EXPECT_FALSE(parameters.expired());
  held.begin();
  EXPECT_TRUE(parameters.expired());
}

TEST(SumsApart, WhereNothingIsGainedNothingIsHeld) {
  Engine engine;
  std::shared_ptr<Task> task;
  std::vector<float> values(4);
  engine.training.hold(
      engine.promise(engine.training.initial_state(), 2), {},
      [&](const GradientSum& sum, double scale) { write_block(sum, scale, 0, values); },
      [&](const std::shared_ptr<Task>& submitted) { task = submitted; });
  ASSERT_TRUE(task);
  engine.executor.wait(task);
  EXPECT_EQ(values, pull(1, 2, 1));
}

// Gradients of several lists of micro-batches from one pass, compared with a pass for each list, and with modules of
// torch::nn in double precision.

using namespace reference;

// Lists of different lengths, from several workers and steps, as in methods that drop micro-batches.
const std::vector<std::vector<MicroBatch>> lists = {
    {{.worker = Rank{0}, .step = 0, .index = 0}, {.worker = Rank{0}, .step = 0, .index = 2}},
    {{.worker = Rank{1}, .step = 0, .index = 1}},
    {{.worker = Rank{1}, .step = 8, .index = 0},
     {.worker = Rank{1}, .step = 8, .index = 1},
     {.worker = Rank{1}, .step = 8, .index = 2}},
    {{.worker = Rank{0}, .step = 8, .index = 1}}};

std::vector<std::span<const MicroBatch>> spans() { return {lists.begin(), lists.end()}; }

struct Trained {
  const char* name;
  Network network;
  double label_smoothing = 0;
  double mixup = 0;
};

Network of_each_kind() {
  Network network(shape);
  network.linear(9).tanh().linear(8, {.bias = false}).silu().dropout(0.25).linear(7).gelu().linear(6);
  return network.linear(classes).lay_out();
}

std::vector<Trained> all_trained() {
  const auto mlp = [](double dropout) { return mlp_network(shape, classes, {7, 6}, dropout); };
  return {{"softmax regression", linear_network(shape, classes)},
          {"mlp", mlp(0)},
          {"mlp with dropout", mlp(0.5)},
          {"each kind of layer", of_each_kind()},
          {"smoothed labels", mlp(0.5), 0.2},
          {"mixed samples", mlp(0), 0, 0.4},
          {"both", mlp(0.5), 0.2, 0.4}};
}

TEST(GradientsApart, AreThoseOfAPassForEachList) {
  for (const auto& [name, network, label_smoothing, mixup] : all_trained()) {
    SCOPED_TRACE(name);
    const TorchObjective objective(network, images(), sampling, 32, label_smoothing, mixup);
    ASSERT_TRUE(objective.has_batched_gradients());
    auto theta = some_parameters(objective);
    std::vector<PartialGradient> expected;
    for (const auto& list : lists) expected.push_back(objective.gradient(theta.data(), nullptr, list));
    const auto apart = objective.batched_gradients(theta.data(), nullptr, spans());
    // The pass keeps copies, so later calls and changed parameters do not matter.
    objective.gradient(theta.data(), nullptr, lists[2]);
    theta.assign(theta.size(), std::nanf(""));
    for (std::size_t list = lists.size(); list-- > 0;) {
      const PartialGradient one = apart->of(list);
      EXPECT_LT(relative_distance(flatten(one), flatten(expected[list])), 2e-6) << list;
      EXPECT_NEAR(one.loss_sum, expected[list].loss_sum, 1e-6 * expected[list].loss_sum) << list;
      EXPECT_EQ(apart->loss_sum(list), one.loss_sum) << list;
      EXPECT_TRUE(one.buffers_sum.empty());
      std::vector<float> added = some_parameters(objective), sum = added;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += flatten(expected[list])[i];
      apart->add_to(added.data(), list);
      EXPECT_LT(relative_distance(added, sum), 2e-6) << list;
    }
  }
}

TEST(GradientsApart, AgreeWithAModuleInDoublePrecision) {
  const TorchObjective objective(mlp_network(shape, classes, {7, 6}), images(), sampling, 32);
  const auto theta = some_parameters(objective);
  const auto apart = objective.batched_gradients(theta.data(), nullptr, spans());
  for (std::size_t list = 0; list < lists.size(); ++list) {
    auto module = torch_mlp();
    set_parameters(module, theta);
    double loss_sum = 0;
    for (const MicroBatch& micro_batch : lists[list]) {
      auto samples = samples_of(micro_batch);
      const auto loss =
          torch::nn::functional::cross_entropy(module->forward(input_tensor(samples)), label_tensor(samples));
      loss.backward();
      loss_sum += loss.item<double>();
    }
    std::vector<double> expected;
    for (const auto& parameter : flat_order(module)) {
      const auto values = parameter.grad().contiguous();
      expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
    }
    const PartialGradient one = apart->of(list);
    EXPECT_LT(relative_distance(flatten(one), expected), 2e-5);
    EXPECT_NEAR(one.loss_sum, loss_sum, 1e-5 * loss_sum);
  }
}

TEST(GradientsApart, AreOfNetworksOfLinearLayersAlone) {
  const std::vector<std::pair<std::string, Network>> others = {
      {"cnn", cnn_network(shape, classes, cnn_options)},
      {"batch norm", cnn_network(shape, classes, cnn_with_batch_norm)},
      {"layer norm", Network(shape).linear(6).layer_norm().linear(classes).lay_out()},
      {"tokens", Network(shape).patches(4).linear(6).mean_pool().linear(classes).lay_out()}};
  for (const auto& [name, network] : others) {
    const TorchObjective objective(network, images(), sampling, 32);
    EXPECT_FALSE(objective.has_batched_gradients()) << name;
  }
  EXPECT_THROW(PullObjective().batched_gradients(nullptr, nullptr, spans()), std::logic_error);
}

// Sums of gradients with large weights that cancel, like those that decode a gradient code.

// Micro-batches of workers 0 .. 3 in three sums with weights near 3e5. In the total, worker w has the weight
// remainder_of[w]. Near 3e5, neighbouring float32 numbers are 1/32 apart.
constexpr double remainder_of[] = {0.99, 0.99, 0, -0.25};

std::vector<Gradient> coded(Engine& engine, const ModelStatePtr& at) {
  std::vector<Gradient> sums(3);
  const double weights[3][4] = {{300'000.36, -299'999.37, 123'456.7, 0},
                                {-299'999.37, 300'000.36, -23'456.7, 300'000.11},
                                {0, 0, -100'000, -300'000.36}};
  for (std::size_t s = 0; s < 3; ++s)
    for (int worker = 0; worker < 4; ++worker)
      if (weights[s][worker] != 0) sums[s] += engine.promise(at, worker) * weights[s][worker];
  return sums;
}

// The total of the three sums at the model (1, ..., 1), from the remaining weights.
double expected(std::size_t i) {
  double sum = 0;
  for (int worker = 0; worker < 4; ++worker)
    sum += remainder_of[worker] * (1 - PullObjective::target({Rank{worker}, 0, 0}, i));
  return sum;
}

double largest_error(const std::vector<float>& values) {
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) error = std::max(error, std::abs(values[i] - expected(i)));
  return error;
}

Gradient double_sum_of(const std::vector<Gradient>& parts, bool wide) {
  Gradient sum;
  for (const auto& part : parts) sum += part;
  if (wide) sum.use_double_precision();
  return sum;
}

TEST(DoublePrecisionGradient, LargeWeightsCancelInDoublePrecision) {
  Engine engine(2, 0, 5000);
  const auto start = engine.training.initial_state();
  const auto parts = coded(engine, start);
  EXPECT_GT(largest_error(engine.training.values(double_sum_of(parts, false))), 1e-3);
  EXPECT_LT(largest_error(engine.training.values(double_sum_of(parts, true))), 1e-6);
}

TEST(DoublePrecisionGradient, EachMicroBatchIsEvaluatedOnceAndWhatCancelsNever) {
  Engine engine;
  const auto start = engine.training.initial_state();
  engine.training.values(double_sum_of(coded(engine, start), true));
  EXPECT_EQ(engine.objective->evaluations, 3);
  EXPECT_FALSE(engine.objective->evaluated.contains({Rank{2}, 0, 0}));
}

TEST(DoublePrecisionGradient, WeightsThatDifferByRoundingAreFused) {
  Engine engine;
  const auto start = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 32; ++worker) {
    // Each gradient's total weight is 1/3, but its last digits differ between workers.
    const double large = 1e5 * std::sqrt(worker + 2.0);
    sum += engine.promise(start, worker) * large;
    sum += engine.promise(start, worker) * (1.0 / 3 - large);
  }
  sum.use_double_precision();
  const auto values = engine.training.values(sum);
  EXPECT_EQ(engine.objective->evaluations, 32);
  EXPECT_EQ(engine.objective->calls, 2);  // 32 samples in chunks of at most 64: two halves
  // A third of the sum of 1 - (w + i) over workers w.
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], (32 - 31 * 16 - 32.0 * static_cast<double>(i)) / 3, 1e-5);
}

TEST(DoublePrecisionGradient, WeightsThatDifferByMoreStayApart) {
  Engine engine;
  const auto start = engine.training.initial_state();
  std::vector<Gradient::Term> terms;
  const double scales[] = {1, 1 + 0x1p-31, 1 + 0x1p-29, -1, -1 - 0x1p-31, 0x1p-60};
  for (int worker = 0; worker < 6; ++worker)
    terms.push_back({.at = start, .micro_batches = {{Rank{worker}, 0, 0}}, .sum = nullptr, .scale = scales[worker]});
  const auto merged = merge_weights(terms);
  ASSERT_EQ(merged.size(), 6u);
  EXPECT_EQ(merged[0].scale, merged[1].scale);
  EXPECT_NEAR(merged[0].scale, 1, 0x1p-30);
  EXPECT_EQ(merged[2].scale, 1 + 0x1p-29);
  EXPECT_EQ(merged[3].scale, merged[4].scale);
  EXPECT_NEAR(merged[3].scale, -1, 0x1p-30);
  EXPECT_EQ(merged[5].scale, 0x1p-60);  // small, but it results from no cancellation
}

TEST(DoublePrecisionGradient, WhatRoundingLeavesOfZeroIsZero) {
  Engine engine;
  const auto start = engine.training.initial_state();
  std::vector<Gradient::Term> terms;
  for (const double scale : {100'000.1, 200'000.2, -300'000.3})
    terms.push_back({.at = start, .micro_batches = {{Rank{0}, 0, 0}}, .sum = nullptr, .scale = scale});
  ASSERT_NE(-300'000.3 + 100'000.1 + 200'000.2, 0) << "in double precision something is left";
  EXPECT_TRUE(merge_weights(terms).empty());
}

TEST(DoublePrecisionGradient, TheSumOfWeightsDoesNotDependOnTheirOrder) {
  Engine engine;
  const auto start = engine.training.initial_state();
  std::vector<double> scales = {0.1, 0.2, 0.3};  // 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1
  std::set<double> sums;
  do {
    std::vector<Gradient::Term> terms;
    for (const double scale : scales)
      terms.push_back({.at = start, .micro_batches = {{Rank{0}, 0, 0}}, .sum = nullptr, .scale = scale});
    sums.insert(merge_weights(terms).at(0).scale);
  } while (std::next_permutation(scales.begin(), scales.end()));
  EXPECT_EQ(sums.size(), 1u);
  EXPECT_NEAR(*sums.begin(), 0.6, 1e-15);
}

TEST(DoublePrecisionGradient, EqualMicroBatchesAtDifferentModelsStayApart) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto other = engine.at_target(start, 10);  // (10, 11, 12, 13)
  engine.executor.wait_all();
  engine.objective->evaluations = 0;
  Gradient sum = engine.promise(start, 0) * 2;
  sum += engine.promise(other, 0) * 3;
  sum += engine.promise(engine.training.adopt(start, other), 0) * -1;  // a state with the same parameters
  sum.use_double_precision();
  EXPECT_THAT(engine.training.values(sum), testing::ElementsAre(2 * 1 + 2 * 10, 0 + 2 * 10, -2 + 2 * 10, -4 + 2 * 10));
  EXPECT_EQ(engine.objective->evaluations, 2);
}

TEST(DoublePrecisionGradient, TheOrderOfAdditionDoesNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
    Engine engine;
    const auto start = engine.training.initial_state();
    const auto parts = coded(engine, start);
    Gradient sum;
    for (const auto part : order) sum += parts[part];
    sum.use_double_precision();
    results.push_back(engine.training.values(engine.training.descend(start, sum / 3, 0.1)));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(DoublePrecisionGradient, AStepAlongItIsTheFormula) {
  for (const bool shared : {false, true}) {
    Engine engine(2, 0, 200'000);
    const auto start = engine.training.initial_state();
    Gradient sum = double_sum_of(coded(engine, start), true);
    if (shared) sum = engine.training.share(sum);
    EXPECT_TRUE(sum.wide());
    const auto next = engine.training.descend(start, sum / 4, 0.5);
    EXPECT_EQ(engine.training.descend(start, sum / 4, 0.5) == next, shared);
    const auto values = engine.training.values(next);
    for (std::size_t i = 0; i < values.size(); i += 997) ASSERT_NEAR(values[i], 1 - 0.5 * expected(i) / 4, 1e-6);
  }
}

// The gradient as a receiver gets it from the network.
Gradient received(Engine& engine, const Gradient& gradient) {
  FlatVector values(engine.training.gradient_size(gradient.wide()));
  engine.training.write_values(gradient, values.data());
  return engine.training.gradient_from(std::move(values), gradient.micro_batches(), gradient.compute_time(),
                                       gradient.wide());
}

TEST(DoublePrecisionGradient, TravelsWithTheDigitsThatFloatsLack) {
  Engine engine(2, 0, 5000);
  const auto start = engine.training.initial_state();
  EXPECT_EQ(engine.training.gradient_size(true), 10'000u);
  for (const bool wide : {false, true}) {
    std::vector<Gradient> arrived;
    for (auto& part : coded(engine, start)) {
      if (wide) part.use_double_precision();
      arrived.push_back(received(engine, part));
      EXPECT_EQ(arrived.back().wide(), wide);
      EXPECT_EQ(arrived.back().compute_time(), part.compute_time());
    }
    const double error = largest_error(engine.training.values(double_sum_of(arrived, wide)));
    if (wide)
      EXPECT_LT(error, 1e-6);
    else
      EXPECT_GT(error, 1e-3);
  }
}

// Large weights on sums that arrive as values, in single or in double precision, as in decoding.
TEST(DoublePrecisionGradient, NestedSumsAreWeightedInDoublePrecision) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const Gradient a = engine.training.share(engine.promise(start, 0) * (1.0 / 3));
  Gradient b = engine.promise(start, 0) * (1.0 / 3);
  b.use_double_precision();
  b = received(engine, b);
  for (const Gradient& part : {a, b}) {
    for (const bool wide : {false, true}) {
      Gradient sum = part * 300'000.36;
      sum += engine.promise(start, 1);
      sum += engine.training.share(engine.promise(start, 0) * (1.0 / 3)) * -299'999.37;
      if (part.wide() && !wide) continue;  // a sum with a wide part is wide
      if (wide) sum.use_double_precision();
      const auto values = engine.training.values(sum);
      double error = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto difference = static_cast<double>(i);  // gradients: 1 - i of worker 0, -i of worker 1
        error = std::max(error, std::abs(values[i] - (0.99 / 3 * (1 - difference) - difference)));
      }
      if (wide)
        EXPECT_LT(error, 1e-6);
      else
        EXPECT_GT(error, 1e-3);
    }
  }
  Gradient both = a;
  both += b;
  EXPECT_TRUE(both.wide());
}

TEST(DoublePrecisionGradient, ASharedNarrowSumCanBeWidened) {
  Engine engine;
  const auto start = engine.training.initial_state();
  Gradient shared = engine.training.share(engine.promise(start, 3)) / 3;
  shared.use_double_precision();
  std::vector<float> values(engine.training.gradient_size(true));
  engine.training.write_values(shared, values.data());
  for (std::size_t i = 0; i < 4; ++i) {
    const double third = (1 - 3.0 - static_cast<double>(i)) / 3;
    EXPECT_EQ(values[i], static_cast<float>(third));
    EXPECT_NEAR(values[4 + i], third - static_cast<float>(third), 1e-14);
  }
}

TEST(DoublePrecisionGradient, BuffersAreTheMeanOverWhatWasEvaluated) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}));
  const auto start = engine.training.initial_state();
  const auto sum = double_sum_of(coded(engine, start), true);  // the weight of worker 2 cancels
  const auto next = engine.training.descend(start, sum, 0.1);
  const auto buffers = engine.values(next->buffers);
  EXPECT_FLOAT_EQ(buffers[0], 4 / 3.0f);
  EXPECT_FLOAT_EQ(buffers[1], 0);

  // A sum that arrives as values has the statistics of all its workers: 0, 1, 2; then 0, 1, 2, 3; then 2, 3.
  Gradient arrived;
  for (auto& part : coded(engine, start)) {
    part.use_double_precision();
    arrived += received(engine, part);
  }
  EXPECT_FLOAT_EQ(engine.values(engine.training.descend(start, arrived, 0.1)->buffers)[0], (3 + 6 + 5) / 9.0f);
}

TEST(DoublePrecisionGradient, WithoutMicroBatchesItIsZero) {
  Engine engine;
  const auto start = engine.training.initial_state();
  Gradient sum = engine.promise(start, 0) * 0.1;
  sum += engine.promise(start, 0) * -0.1;
  sum.use_double_precision();
  EXPECT_THAT(engine.training.values(sum), testing::Each(0.0f));
  EXPECT_EQ(engine.training.values(engine.training.descend(start, sum, 0.1)), engine.training.values(start));
  EXPECT_EQ(engine.objective->evaluations, 0);
}

TEST(DoublePrecisionGradient, IsCountedAsSuchWithoutAModelToo) {
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  Gradient gradient(nullptr, MicroBatch{}, Duration{5});
  gradient.use_double_precision();
  EXPECT_TRUE(training.share(gradient).wide());
  EXPECT_TRUE(training.gradient_from(FlatVector(), 1, {}, true).wide());
  EXPECT_FALSE(training.gradient_from(FlatVector(), 1).wide());
}

}  // namespace
}  // namespace syncopate
