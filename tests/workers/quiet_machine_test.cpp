// A load must be seen, or tests that need a quiet machine would fail instead of being skipped.
#include "tests/workers/quiet_machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncopate {
namespace {

// Threads that want a core each as long as it lives.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        while (!stop_) continue;
      });
  }
  ~Load() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

TEST(QuietMachine, AThreadGetsItsShareOfTheCoresAtMost) {
  const Load load(3 * cores_here());
  EXPECT_LT(share_of_the_cores(std::chrono::milliseconds(200)), 0.6);  // four for each core: a quarter
}

TEST(QuietMachine, ALoadBeforeOrAfterIsADisturbance) {
  using testing::StartsWith;
  auto load = std::make_unique<Load>(4 * cores_here());
  QuietWatch before;
  load.reset();
  EXPECT_THAT(before.disturbance(), StartsWith("machine is not quiet: a thread gets"));
  QuietWatch after;
  load = std::make_unique<Load>(4 * cores_here());
  EXPECT_THAT(after.disturbance(), StartsWith("machine is not quiet: a thread gets"));
}

}  // namespace
}  // namespace syncopate
