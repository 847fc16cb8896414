// Gradients that are held back and then evaluated together: what shares a pass, and what comes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/workers/apart_objective.hpp"
#include "tests/workers/engine.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

using Lists = ApartObjective::Lists;

// Eight samples, here micro-batches, are evaluated together, and up to two without being cut.
struct Held {
  explicit Held(int threads = 2)
      : objective(std::make_shared<ApartObjective>(4, 4, 8)), engine(objective, make_sgd({}), {}, threads) {}

  // Keeps the gradient's values, once it is evaluated.
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

// At parameters of `theta`: the sum of theta - target.
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
    const std::vector<int> micro_batches = {1, 2, 1, 2};  // six: half of them in each pass
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

// Worker 0 adds its own to what is there already, worker 1 has it written, worker 2 written twice, and worker 3's is not
// to be added as it is. Passes: of workers 0 and 1, and of 2 and 3.
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

// Equal sets have equal passes, whoever came first: what is added up differs in no bit then.
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
  EXPECT_EQ(first.size(), 2u);  // of 16
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

// Adopted parameters are one model, whatever else workers have of their own.
TEST(SumsApart, OfAdoptedParametersShareAPass) {
  Held held;
  const auto a = held.engine.training.initial_state();
  const auto b = held.engine.training.adopt(held.engine.at_target(a, 3), a);
  held.hold(held.of_worker(a, 0, 1), 0);
  held.hold(held.of_worker(b, 1, 1), 1);
  held.begin();
  EXPECT_EQ(held.objective->passes, (std::multiset<Lists>{{list_of(0, 1), list_of(1, 1)}}));
}

// Sums of two models, shared ones, nothing at all, and one alone at its model.
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

// So that a step may go on in the memory of the model that they were taken at.
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

}  // namespace
}  // namespace syncopate
