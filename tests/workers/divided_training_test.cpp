// The training engine when several processes divide its work: which process has which values, and what they exchange.
// The processes are threads; each has an engine, and all get the same calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/threads_as_processes.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

using testing::Each;
using testing::ElementsAre;
using Asked = Training::AskedBy;

constexpr std::size_t size = 4;

// An engine that leaves its process group at the end, as a run's engine does.
struct DividedEngine : Engine {
  DividedEngine(ProcessGroup& group, int workers, double momentum = 0, int threads = 1, double clip_norm = 0)
      : Engine(std::make_shared<PullObjective>(size, size), make_sgd({.momentum = momentum}),
               {.clip_norm = clip_norm, .processes = &group, .workers = workers}, threads),
        group(group) {}
  ~DividedEngine() {
    training.leave_processes();
    group.close("");
  }
  ModelStatePtr own_step(const ModelStatePtr& from, int worker, int step = 0) {
    const Asked asked(training, Rank{worker});
    return training.descend(from, promise(from, worker, step), 0.5);
  }
  bool has(const CellPtr& cell) {
    executor.wait_all();
    return !std::as_const(cell->value).empty();
  }

  ProcessGroup& group;
};

std::string both(const std::vector<std::string>& said) { return said[0] + "|" + said[1]; }

TEST(DividedWork, DealsWorkersInBlocksOfEqualLength) {
  ThreadsAsProcesses three(3);
  for (const auto& [workers, expected] :
       {std::pair(6, std::vector{0, 0, 1, 1, 2, 2}), std::pair(7, std::vector{0, 0, 1, 1, 2, 2, 2}),
        std::pair(3, std::vector{0, 1, 2}), std::pair(2, std::vector{1, 2}), std::pair(1, std::vector{2})}) {
    Executor executor(1);
    DividedWork divided(three.member(0), executor, workers);
    std::vector<int> found;
    for (int worker = 0; worker < workers; ++worker) found.push_back(divided.process_of(Rank{worker}));
    EXPECT_EQ(found, expected) << workers;
    divided.leave();
  }
}

TEST(DividedTraining, AModelOfAWorkersOwnIsAtItsProcessAlone) {
  ThreadsAsProcesses two(2);
  std::vector<std::string> held(2);
  two.run([&](ProcessGroup& group) {
    DividedEngine engine(group, 8, 0.9);
    const ModelStatePtr initial = engine.training.initial_state();
    std::vector<ModelStatePtr> models;
    for (int worker = 0; worker < 8; ++worker) {
      ModelStatePtr model = initial;
      for (int step = 0; step < 3; ++step) model = engine.own_step(std::exchange(model, nullptr), worker, step);
      models.push_back(model);
    }
    for (const ModelStatePtr& model : models)
      held[static_cast<std::size_t>(group.self())] +=
          engine.has(model->parameters) && engine.has(model->moments[0].values) ? "1" : "0";
  });
  EXPECT_EQ(both(held), "11110000|00001111");
  EXPECT_EQ(two.moved_floats(), 0u) << "nothing is needed elsewhere";
}

// Every process sends the sum of its four models.
TEST(DividedTraining, AnAverageMovesOneVectorFromEachProcessToEachOther) {
  ThreadsAsProcesses two(2);
  std::vector<std::vector<float>> means(2);
  two.run([&](ProcessGroup& group) {
    DividedEngine engine(group, 8);
    const ModelStatePtr initial = engine.training.initial_state();
    std::vector<ModelStatePtr> models;
    for (int worker = 0; worker < 8; ++worker) models.push_back(engine.own_step(initial, worker));
    const auto mean = engine.training.average(models, {});
    EXPECT_TRUE(std::ranges::all_of(mean, [&](const auto& model) { return model == mean.front(); }));
    means[static_cast<std::size_t>(group.self())] = engine.training.values(mean.front());
  });
  EXPECT_EQ(two.moved_floats(), 2 * size);
  EXPECT_EQ(means[0], means[1]);
  Engine alone;
  const ModelStatePtr initial = alone.training.initial_state();
  std::vector<ModelStatePtr> models;
  for (int worker = 0; worker < 8; ++worker)
    models.push_back(alone.training.descend(initial, alone.promise(initial, worker), 0.5));
  const auto expected = alone.training.values(alone.training.average(models, {}).front());
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(means[0][i], expected[i], 1e-6);
}

// Each process sends the sum of its gradients at the common model as one vector, and takes the step itself.
TEST(DividedTraining, ASynchronousStepMovesOneVectorFromEachProcessToEachOther) {
  ThreadsAsProcesses two(2);
  std::vector<std::vector<float>> models(2);
  two.run([&](ProcessGroup& group) {
    DividedEngine engine(group, 4);
    const ModelStatePtr initial = engine.training.initial_state();
    Gradient sum;
    for (int worker = 0; worker < 4; ++worker) sum += engine.promise(initial, worker);
    sum = engine.training.share(sum);
    sum.mark_reduced();
    ModelStatePtr model;
    for (int worker = 0; worker < 4; ++worker) {
      const Asked asked(engine.training, Rank{worker});
      const ModelStatePtr mine = engine.training.descend(initial, sum / 4, 1.0);
      EXPECT_TRUE(!model || mine == model) << "all share one state";
      model = mine;
    }
    models[static_cast<std::size_t>(group.self())] = engine.training.values(model);
  });
  // So few samples are one chunk of gradients, which the first process computes.
  EXPECT_LE(two.moved_floats(), 2 * size);
  EXPECT_EQ(models[0], models[1]);
  Engine alone;
  const ModelStatePtr initial = alone.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 4; ++worker) sum += alone.promise(initial, worker);
  const auto expected = alone.training.values(alone.training.descend(initial, sum / 4, 1.0));
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(models[0][i], expected[i], 1e-6);
}

// Each gradient is clipped on its worker's process. The server, which is on all processes, steps along their sum.
TEST(DividedTraining, GradientsThatWorkersClipAreTheSameEverywhere) {
  constexpr double most = 3;
  ThreadsAsProcesses two(2);
  std::vector<std::vector<float>> models(2);
  two.run([&](ProcessGroup& group) {
    DividedEngine engine(group, 4, 0, 1, most);
    const ModelStatePtr initial = engine.training.initial_state();
    Gradient sum;
    for (int worker = 0; worker < 4; ++worker) {
      const Asked asked(engine.training, Rank{worker});
      sum += engine.training.clipped(engine.promise(initial, worker), 1);
    }
    const Asked asked(engine.training, ProcessSet::everywhere());
    const ModelStatePtr model = engine.training.descend(initial, sum / 4, 1.0, {.clipping = Clipping::none});
    models[static_cast<std::size_t>(group.self())] = engine.training.values(model);
  });
  EXPECT_EQ(models[0], models[1]);
  for (std::size_t i = 0; i < size; ++i) {
    double expected = 1;
    for (int worker = 0; worker < 4; ++worker) {
      double squares = 0;
      for (std::size_t j = 0; j < size; ++j)
        squares += std::pow(1.0 - PullObjective::target({Rank{worker}, 0, 0}, j), 2);
      expected -= (1.0 - PullObjective::target({Rank{worker}, 0, 0}, i)) * std::min(1.0, most / std::sqrt(squares)) / 4;
    }
    EXPECT_NEAR(models[0][i], expected, 1e-5);
  }
}

// A worker mixes its own model and two others. Models of another process arrive as one sum.
TEST(DividedTraining, AMixtureIsMadeWhereItIsAskedFor) {
  ThreadsAsProcesses two(2);
  std::vector<std::string> held(2);
  std::vector<std::vector<float>> mixtures(2);
  two.run([&](ProcessGroup& group) {
    DividedEngine engine(group, 4);
    const ModelStatePtr initial = engine.training.initial_state();
    std::vector<ModelStatePtr> models;
    for (int worker = 0; worker < 4; ++worker) models.push_back(engine.own_step(initial, worker));
    const std::size_t self = static_cast<std::size_t>(group.self());
    const Asked asked(engine.training, Rank{0});
    const ModelStatePtr mixture =
        engine.training.combine(std::vector<WeightedState>{{0.5, models[0]}, {0.25, models[2]}, {0.25, models[3]}});
    held[self] = engine.has(mixture->parameters) ? "1" : "0";
    EXPECT_EQ(engine.has(models[2]->parameters), self == 1) << "no model of another process's workers is kept";
    if (self == 0) mixtures[0] = engine.values(mixture->parameters);
  });
  EXPECT_EQ(both(held), "1|0");
  EXPECT_EQ(two.moved_floats(), size);
  Engine alone;
  const ModelStatePtr initial = alone.training.initial_state();
  std::vector<ModelStatePtr> models;
  for (int worker = 0; worker < 4; ++worker)
    models.push_back(alone.training.descend(initial, alone.promise(initial, worker), 0.5));
  const auto expected = alone.training.values(
      alone.training.combine(std::vector<WeightedState>{{0.5, models[0]}, {0.25, models[2]}, {0.25, models[3]}}));
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(mixtures[0][i], expected[i], 1e-6);
}

// Programs depend on returned numbers, so all processes get the same ones, wherever they are computed.
TEST(DividedTraining, NumbersAreToldToAll) {
  ThreadsAsProcesses two(2);
  std::vector<std::vector<double>> told(2);
  two.run([&](ProcessGroup& group) {
    DividedEngine engine(group, 2);
    const ModelStatePtr initial = engine.training.initial_state();
    const ModelStatePtr a = engine.own_step(initial, 0), b = engine.own_step(initial, 1);
    auto& numbers = told[static_cast<std::size_t>(group.self())];
    for (int worker = 0; worker < 2; ++worker) {
      const Asked asked(engine.training, Rank{worker});
      Gradient own = engine.training.share(engine.promise(initial, worker));
      numbers.insert(numbers.end(), {engine.training.distance(a, b), engine.training.norm(own),
                                     engine.training.loss(own), engine.training.distances(initial, b).front()});
    }
    numbers.push_back(engine.training.loss(engine.promise(initial, 0) += engine.promise(initial, 1)));
  });
  EXPECT_EQ(told[0], told[1]);
  Engine alone;
  const ModelStatePtr initial = alone.training.initial_state();
  const ModelStatePtr a = alone.training.descend(initial, alone.promise(initial, 0), 0.5),
                      b = alone.training.descend(initial, alone.promise(initial, 1), 0.5);
  ASSERT_EQ(told[0].size(), 9u);
  EXPECT_NEAR(told[0][0], alone.training.distance(a, b), 1e-6);
  EXPECT_NEAR(told[0][5], alone.training.norm(alone.promise(initial, 1)), 1e-6);
  EXPECT_NEAR(told[0][6], alone.training.loss(alone.promise(initial, 1)), 1e-6);
  EXPECT_NEAR(told[0][8], alone.training.loss(alone.promise(initial, 0) += alone.promise(initial, 1)), 1e-6);
}

// A process that waits for data of a failed process fails for the same reason, and does not wait for ever.
TEST(DividedTraining, WhatFailsOnOneProcessFailsOnAll) {
  ThreadsAsProcesses two(2);
  std::vector<std::string> ends(2);
  two.run([&](ProcessGroup& group) {
    std::string failure;
    {
      Engine engine(std::make_shared<PullObjective>(size, size), make_sgd({}), {.processes = &group, .workers = 2}, 1);
      try {
        const ModelStatePtr initial = engine.training.initial_state();
        std::vector<ModelStatePtr> models;
        for (int worker = 0; worker < 2; ++worker) {
          const Asked asked(engine.training, Rank{worker});
          models.push_back(engine.training.descend(initial, engine.promise(initial, worker), 0.5));
        }
        if (group.self() == 1) engine.executor.submit([] { throw std::runtime_error("no memory"); });
        engine.executor.wait_all();
        engine.training.values(engine.training.average(models, {}).front());
      } catch (const std::exception& problem) {
        failure = problem.what();
      }
      engine.training.leave_processes();
    }
    ends[static_cast<std::size_t>(group.self())] = group.close(failure);
  });
  EXPECT_THAT(ends, Each("no memory"));
}

}  // namespace
}  // namespace syncopate
