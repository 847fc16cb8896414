#include "workers/simulated/fiber.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncopate {
namespace {

// Recurses deep enough to reach parts of the stack that no earlier call has used.
int sum_below(int n) {
  volatile char frame[256] = {};
  frame[0] = static_cast<char>(n);
  return n == 0 ? frame[0] : sum_below(n - 1) + n;
}

// The parameter is the number of fibers that may have their own stacks.
class Fibers : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(OnOwnStacks, Fibers, testing::Values(1000));
INSTANTIATE_TEST_SUITE_P(OnOneStack, Fibers, testing::Values(0));

TEST_P(Fibers, StopsInTheMiddleAndGoesOnWhereItStopped) {
  const StackPool pool(2, GetParam());
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

// Suspends the fiber at a depth of n calls; returns after it has been resumed.
int suspended_below(Fiber& fiber, int n) {
  const volatile int depth = n;
  if (depth == 0) fiber.suspend();
  return depth == 0 ? 0 : suspended_below(fiber, depth - 1) + 1;
}

// Together the fibers have more nested calls than one thread may have: ThreadSanitizer records at most 65,536.
TEST_P(Fibers, ManyAreDeepInCallsAtOnce) {
  constexpr std::size_t count = 100;
  const StackPool pool(count, GetParam());
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<int> depths(count);
  for (std::size_t number = 0; number < count; ++number)
    fibers.push_back(std::make_unique<Fiber>(pool, number,
                                             [&, number] { depths[number] = suspended_below(*fibers[number], 1000); }));
  for (int turn = 0; turn < 2; ++turn)
    for (const auto& fiber : fibers) fiber->resume();
  EXPECT_EQ(depths, std::vector<int>(count, 1000));
}

TEST_P(Fibers, AnExceptionIsCaughtWhereItWasThrown) {
  const StackPool pool(1, GetParam());
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

// Throws an exception through stack frames whose bounds a sanitizer has marked. The next call uses the same stack
// memory.
int caught_from_below(int n) {
  struct Frames {
    static int throw_below(int n) {
      volatile char frame[100] = {};
      if (n == 0) throw std::runtime_error("below");
      return throw_below(n - 1) + frame[0];
    }
    static int wide() {
      volatile char frame[10'000] = {};
      int sum = 0;
      for (volatile char& byte : frame) byte = 1, sum += byte;
      return sum;
    }
  };
  try {
    return Frames::throw_below(n);
  } catch (const std::runtime_error&) {
    return Frames::wide();
  }
}

TEST_P(Fibers, ExceptionsPassManyFramesOnEitherStack) {
  const StackPool pool(1, GetParam());
  std::unique_ptr<Fiber> fiber;
  const auto expect_caught = [] { EXPECT_EQ(caught_from_below(40), 10'000); };
  for (int turns = 0; turns < 3; ++turns) {
    fiber = std::make_unique<Fiber>(pool, 0, [&] {
      expect_caught();
      fiber->suspend();
      expect_caught();
    });
    expect_caught();
    for (int turn = 0; turn < turns; ++turn) {
      fiber->resume();
      expect_caught();
    }
    fiber.reset();
    expect_caught();
  }
}

struct Counted {
  explicit Counted(int& alive) : alive(alive) { ++alive; }
  ~Counted() { --alive; }
  int& alive;
};

// Fibers are also destroyed while an exception is in flight outside them. If a switch of stacks left anything behind,
// it would accumulate over the many turns.
TEST_P(Fibers, WhatIsDestroyedBeforeItsEndIsUnwound) {
  const StackPool pool(1, GetParam());
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

// A pool's last stack is at the place of the previous, smaller pool's last stack, but begins a little lower. Its memory
// still has frames from which the previous fiber never returned. A sanitizer must not take them for frames of the new
// fiber.
TEST_P(Fibers, AStackIsCleanForTheNextOne) {
  for (std::size_t fibers = 1; fibers < 20; ++fibers) {
    const StackPool pool(fibers, GetParam());
    Fiber fiber(pool, fibers - 1, [] { EXPECT_EQ(sum_below(100), 100 * 101 / 2); });
    fiber.resume();
  }
}

TEST_P(Fibers, WhatNeverBeganOnlyGivesItsBodyBack) {
  const StackPool pool(1, GetParam());
  const auto held = std::make_shared<int>(1);
  for (int turn = 0; turn < 20'000; ++turn) {
    const Fiber fiber(pool, 0, [held] { ADD_FAILURE() << "begun"; });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(sum_below(50), 50 * 51 / 2);
}

TEST_P(Fibers, WhatHasEndedNeedsNoUnwinding) {
  const StackPool pool(1, GetParam());
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
