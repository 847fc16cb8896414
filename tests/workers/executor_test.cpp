#include "workers/training/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

using Tasks = std::vector<std::shared_ptr<Task>>;

class OrderOfTasks : public testing::Test {
 protected:
  std::shared_ptr<Task> submit(int number, const Tasks& prerequisites = {}) {
    return executor_.submit([this, number] { order_.push_back(number); }, prerequisites);
  }
  std::vector<int> run() {
    blockade_.release();
    executor_.wait_all();
    return order_;
  }

 private:
  Executor executor_{1};
  Blockade blockade_{executor_};
  std::vector<int> order_;
};

TEST_F(OrderOfTasks, WhatATaskHasMadeReadyRunsNext) {
  const auto first = submit(1);
  const auto second = submit(2);
  submit(3, {first});
  submit(4, {second});
  submit(5);
  submit(6, {first, second});
  EXPECT_EQ(run(), (std::vector{1, 3, 2, 4, 5, 6}));
}

// Without this order, gradients of a thousand workers could be computed before one of them is used.
TEST_F(OrderOfTasks, WhatWasSubmittedLongBeforeRunsFirst) {
  const auto first = submit(0);
  for (int i = 1; i < 500; ++i) submit(i);
  submit(500, {first});
  const auto order = run();
  ASSERT_EQ(order.size(), 501);
  EXPECT_GT(std::find(order.begin(), order.end(), 500) - order.begin(), 300);
}

TEST(Executor, ManyMoreTasksThanMayBeOutstandingAllRun) {
  for (const int threads : {0, 1, 3}) {
    Executor executor(threads);
    std::atomic<int> done = 0;
    std::shared_ptr<Task> last;
    for (int i = 0; i < 20'000; ++i) last = executor.submit([&] { ++done; }, Tasks{i % 7 == 0 ? last : nullptr});
    executor.wait_all();
    EXPECT_EQ(done, 20'000) << threads << " threads";
  }
}

// Outstanding tasks hold memory, so a thread that submits faster than tasks run has to wait.
TEST(Executor, NoMoreThanSoMuchWorkIsEverOutstanding) {
  Executor executor(1);
  std::atomic<int> submitted = 0;
  int done = 0, most_outstanding = 0;
  for (int i = 0; i < 10'000; ++i) {
    ++submitted;
    executor.submit([&] {
      // All other tasks could be submitted during the first one.
      if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      most_outstanding = std::max(most_outstanding, submitted - done);
      ++done;
    });
  }
  executor.wait_all();
  EXPECT_EQ(done, 10'000);
  EXPECT_LE(most_outstanding, 4096);
}

TEST(Executor, WhatFollowsAFailedTaskIsNotRun) {
  Executor executor(1);
  bool ran = false;
  const auto first = executor.submit([] { throw std::bad_alloc(); });
  try {
    const std::shared_ptr<Task> prerequisites[] = {first};
    executor.submit([&] { ran = true; }, prerequisites);
    executor.wait_all();
    FAIL() << "the failure must be seen";
  } catch (const std::bad_alloc&) {
  }
  EXPECT_FALSE(ran);
}

TEST(Executor, AFailingTaskReachesTheOneWhoWaits) {
  Executor executor(2);
  executor.submit([] { throw std::runtime_error("boom"); });
  EXPECT_THROW(executor.wait_all(), std::runtime_error);
}

TEST(Executor, AfterAFailureNothingMoreIsTaken) {
  Executor executor(1);
  executor.submit([] { throw std::runtime_error("boom"); });
  EXPECT_THROW(executor.wait_all(), std::runtime_error);
  EXPECT_THROW(executor.submit([] {}), std::runtime_error);
  EXPECT_THROW(executor.wait_all(), std::runtime_error);
}

TEST(Executor, WaitingForATaskDoesNotWaitForThoseAfterIt) {
  Executor executor(1);
  bool done = false;
  const auto task = executor.submit([&] { done = true; });
  Blockade blockade(executor);
  executor.wait(task);
  EXPECT_TRUE(done);
  blockade.release();
}

// While a task is completed elsewhere, other tasks run. A dependent task waits for executor.end(task), which any thread
// may call, even before the task's function has returned.
TEST(Executor, ATaskThatEndsElsewhereIsWaitedFor) {
  Executor executor(1);
  std::promise<std::shared_ptr<Task>> begun;
  std::atomic<bool> has_ended = false, was_ended_before = false;
  const auto elsewhere = executor.submit_elsewhere([&](const std::shared_ptr<Task>& task) { begun.set_value(task); });
  const std::shared_ptr<Task> prerequisites[] = {elsewhere};
  const auto follows = executor.submit([&] { was_ended_before = has_ended.load(); }, prerequisites);
  executor.wait(executor.submit([] {}));
  std::thread other([&] {
    const auto task = begun.get_future().get();
    has_ended = true;
    executor.end(task);
  });
  executor.wait(follows);
  other.join();
  EXPECT_TRUE(was_ended_before);
  executor.wait(executor.submit_elsewhere([&](const std::shared_ptr<Task>& task) { executor.end(task); }));
  executor.wait_all();
}

TEST(Executor, AFailureFromElsewhereIsThatOfATask) {
  Executor executor(1);
  std::promise<void> begun;
  const auto never_ends = executor.submit_elsewhere([&](const std::shared_ptr<Task>&) { begun.set_value(); });
  const std::shared_ptr<Task> prerequisites[] = {never_ends};
  bool has_run = false;
  executor.submit([&] { has_run = true; }, prerequisites);
  begun.get_future().wait();
  std::thread([&] { executor.fail(std::make_exception_ptr(std::runtime_error("lost"))); }).join();
  EXPECT_THROW(executor.wait(never_ends), std::runtime_error);
  EXPECT_THROW(executor.submit([] {}), std::runtime_error);
  EXPECT_FALSE(has_run);
}

// The gradient of worker 0's micro-batch waits, for a limited time, until that of worker 1's micro-batch has begun.
class Meeting : public PullObjective {
 public:
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::unique_lock lock(mutex_);
    if (micro_batches.front().worker == Rank{1}) {
      has_begun_ = true;
      change_.notify_all();
    } else {
      have_met = change_.wait_for(lock, std::chrono::seconds(20), [&] { return has_begun_; });
    }
    return PullObjective::gradient(parameters, buffers, micro_batches);
  }

  mutable bool have_met = false;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable change_;
  mutable bool has_begun_ = false;
};

// As on a server: the second step starts from the first one's result, but its gradient is taken at the initial model.
TEST(Executor, AGradientDoesNotWaitForTheStepsBeforeItsOwn) {
  const auto objective = std::make_shared<Meeting>();
  Engine engine(objective, make_sgd({}));
  const auto state = engine.training.initial_state();
  auto model = engine.at_target(state, 0);
  model = engine.training.descend(std::move(model), engine.promise(state, 1), 0.5);
  const auto values = engine.training.values(model);
  EXPECT_TRUE(objective->have_met);
  // Worker 0's target i % 5, then half a step against worker 1's gradient at the initial model, 1 - (1 + i % 5).
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], 1.5f * static_cast<float>(i % 5));
}

}  // namespace
}  // namespace syncopate
