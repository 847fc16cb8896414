#include "workers/simulated/fiber.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncopate {
namespace {

// Deep enough to reach parts of the stack that no earlier call has touched.
int sum_below(int n) {
  volatile char frame[256] = {};
  frame[0] = static_cast<char>(n);
  return n == 0 ? frame[0] : sum_below(n - 1) + n;
}

TEST(Fiber, StopsInTheMiddleAndGoesOnWhereItStopped) {
  const StackPool pool(2);
  std::string log;
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (std::size_t number = 0; number < 2; ++number)
    fibers.push_back(std::make_unique<Fiber>(pool, number, [&, number] {
      for (const char letter : {'a', 'b', 'c'}) {
        log += static_cast<char>(letter + 3 * static_cast<int>(number));
        EXPECT_EQ(sum_below(50), 50 * 51 / 2);
        fibers[number]->suspend();
      }
    }));
  for (int turn = 0; turn < 4; ++turn)
    for (const auto& fiber : fibers) fiber->resume();
  EXPECT_EQ(log, "adbecf");
}

TEST(Fiber, AnExceptionIsCaughtWhereItWasThrown) {
  const StackPool pool(1);
  std::unique_ptr<Fiber> fiber;
  int caught = 0;
  fiber = std::make_unique<Fiber>(pool, 0, [&] {
    for (int i = 0; i < 3; ++i) try {
        fiber->suspend();
        throw std::runtime_error("inside");
      } catch (const std::runtime_error&) {
        ++caught;
      }
  });
  for (int turn = 0; turn < 4; ++turn) fiber->resume();
  EXPECT_EQ(caught, 3);
}

struct Counted {
  explicit Counted(int& alive) : alive(alive) { ++alive; }
  ~Counted() { --alive; }
  int& alive;
};

// Also while another exception is on its way outside, and many times over, so that what a switch leaves behind adds up.
TEST(Fiber, WhatIsDestroyedBeforeItsEndIsUnwound) {
  const StackPool pool(1);
  int alive = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    std::unique_ptr<Fiber> fiber;
    fiber = std::make_unique<Fiber>(pool, 0, [&] {
      const Counted counted(alive);
      fiber->suspend();
      ADD_FAILURE() << "resumed";
    });
    fiber->resume();
    EXPECT_EQ(alive, 1);
    fiber.reset();
    EXPECT_EQ(alive, 0);
  }
  EXPECT_EQ(sum_below(50), 50 * 51 / 2);
}

// The last stack of the next, larger pool lies where that of the one before lay, but begins a little lower, among the
// frames that the fiber has never returned from. A sanitizer must not take them for those of the next one.
TEST(Fiber, AStackIsCleanForTheNextOne) {
  for (std::size_t fibers = 1; fibers < 20; ++fibers) {
    const StackPool pool(fibers);
    Fiber fiber(pool, fibers - 1, [] { EXPECT_EQ(sum_below(100), 100 * 101 / 2); });
    fiber.resume();
  }
}

TEST(Fiber, WhatNeverBeganOnlyGivesItsBodyBack) {
  const StackPool pool(1);
  const auto held = std::make_shared<int>(1);
  for (int turn = 0; turn < 20'000; ++turn) {
    const Fiber fiber(pool, 0, [held] { ADD_FAILURE() << "begun"; });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(sum_below(50), 50 * 51 / 2);
}

TEST(Fiber, WhatHasEndedNeedsNoUnwinding) {
  const StackPool pool(1);
  int ended = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    Fiber fiber(pool, 0, [&] { ++ended; });
    fiber.resume();
  }
  EXPECT_EQ(ended, 20'000);
  EXPECT_EQ(sum_below(50), 50 * 51 / 2);
}

}  // namespace
}  // namespace syncopate
