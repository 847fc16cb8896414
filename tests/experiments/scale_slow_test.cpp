// A hundred thousand workers and a million workers in one process, and the time of a prediction. Each has an upper
// bound.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using Scale = ProgramTest;

// Returns the largest resident memory of any program started so far, in GiB.
double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

// Returns processor time in seconds, which other programs do not affect. The program computes on one thread.
double processor_s() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST_F(Scale, AHundredThousandSynchronousWorkersTakeLessThanTwoGibAndHalfAMinute) {
  const double before_s = processor_s();
  const auto run =
      syncopate("run '" SYNCOPATE_SOURCE_DIR "/experiments/examples/hundred_thousand.toml' --quiet --results results");
  const double took_s = processor_s() - before_s;
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, testing::HasSubstr("synchronous SGD"));
  EXPECT_LT(took_s, 30);  // both methods together
  EXPECT_LT(peak_gib(), 2);
  RecordProperty("seconds", std::to_string(took_s));
  RecordProperty("peak_gib", std::to_string(peak_gib()));
}

// Methods run one after the other, so the largest counts: D-PSGD, in which each worker has two neighbours' models.
TEST_F(Scale, AMillionWorkersOnCoursesOfTheirOwnTakeLessThanFourGib) {
  const auto run =
      syncopate("run '" SYNCOPATE_SOURCE_DIR "/experiments/examples/million.toml' --quiet --results results");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, testing::HasSubstr("decentralised SGD"));
  EXPECT_LT(peak_gib(), 4);
  RecordProperty("peak_gib", std::to_string(peak_gib()));
}

TEST_F(Scale, TheQuickStartIsPredictedInLessThanASecond) {
  double best_s = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double before_s = processor_s();
    const auto run = syncopate("predict '" SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml'");
    best_s = std::min(best_s, processor_s() - before_s);
    ASSERT_EQ(run.status, 0) << run.err;
  }
  EXPECT_LT(best_s, 1);
  RecordProperty("seconds", std::to_string(best_s));
}

}  // namespace
}  // namespace syncopate
