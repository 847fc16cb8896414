// What a measurement of a micro-batch times, and what it holds in memory meanwhile: by a clock that gradients and their
// release move, and by gradients that are counted.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/execution/micro_batch_timer.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {
namespace {

constexpr double gradient_s = 1e-3, release_s = 5e-3;

class CountedGradients : public PullObjective {
 public:
  explicit CountedGradients(std::size_t floats = 4) : floats_(floats) {}

  std::size_t parameters() const override { return floats_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return {}; }

  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch>) const override {
    now_s = now_s + gradient_s;
    most_held = std::max<int>(most_held, ++held);
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = 0, .data = nullptr, .owner = released_later()});
    return result;
  }

  mutable std::atomic<int> held = 0, most_held = 0;
  mutable std::atomic<double> now_s = 100;

 private:
  std::shared_ptr<const void> released_later() const {
    return {this, [](const CountedGradients* self) {
              --self->held;
              self->now_s = self->now_s + release_s;
            }};
  }
  std::size_t floats_;
};

class OneLength : public BatchLengths {
 public:
  void append(const MicroBatch&, std::vector<std::int32_t>& lengths) const override { lengths.assign(4, 7); }
  int workers() const override { return 2; }
  int micro_batches() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 10; }
  bool differs_by_worker() const override { return false; }
  std::int64_t fewest_samples() const override { return 4; }
  std::int32_t shortest() const override { return 7; }
};

MicroBatchWork work_of(int micro_batches) {
  return {.experiment = "e",
          .key = "k",
          .load = {},
          .micro_batches = micro_batches,
          .lengths = std::make_shared<OneLength>()};
}

TEST(MicroBatchMeter, TimesTheGradientAndNoReleaseOfMemory) {
  for (const int micro_batches : {1, 4, 24}) {
    const CountedGradients objective;
    const auto now_s = [&] { return objective.now_s.load(); };
    EXPECT_NEAR(measure_micro_batch_s(objective, work_of(micro_batches), 1, now_s), gradient_s, 1e-9);
    EXPECT_NEAR(measure_by_lengths(objective, work_of(micro_batches), 1, now_s).cost.base_s, gradient_s, 1e-9);
  }
}

TEST(MicroBatchMeter, HoldsTheGradientsOfAStepButOfLargeOnesNoMoreThanCachesAre) {
  constexpr std::size_t mebibytes = 1 << 20, floats_of_mebibyte = mebibytes / sizeof(float);
  struct Case {
    std::size_t mebibytes_of_gradient;
    int micro_batches, held;
  };
  for (const auto& [size, micro_batches, held] :
       {Case{1, 5, 5}, {1, 60, 60}, {64, 3, 3}, {64, 60, 4}, {256, 60, 1}, {4000, 60, 1}}) {
    SCOPED_TRACE(size);
    const CountedGradients objective(size * floats_of_mebibyte);
    measure_micro_batch_s(objective, work_of(micro_batches), 1, [&] { return objective.now_s.load(); });
    EXPECT_EQ(objective.most_held, held);
    EXPECT_EQ(objective.held, 0);
    const CountedGradients beside(size * floats_of_mebibyte);
    measure_by_lengths(beside, work_of(micro_batches), 3, [&] { return beside.now_s.load(); });
    EXPECT_LE(beside.most_held, 3 * held);
  }
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Of 32 threads a few find room for their stacks.
int measure_without_room() {
  constexpr std::size_t gibibyte = std::size_t{1} << 30;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, gibibyte);
  pthread_setattr_default_np(&attributes);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min<rlim_t>(address_space() + 7 * gibibyte / 2, limit.rlim_max);
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
  try {
    measure_micro_batch_s(CountedGradients(), work_of(1), 32);
  } catch (const std::runtime_error& problem) {
    const std::string message = problem.what();
    return message.starts_with("of 31 threads that compute beside the one that is timed only ") ? 0 : 2;
  }
  return 1;
}

TEST(MicroBatchMeter, ThreadsThatCannotBeStartedAreAnError) {
  const pid_t measurer = fork();
  if (measurer == 0) _exit(measure_without_room());
  int status = 0;
  waitpid(measurer, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace syncopate
