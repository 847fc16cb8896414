// A replay from a checkpoint does not compute anything before the checkpoint's position again. All values that exist at
// that position equal those of the original run.
#include "workers/training/checkpoint_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/workers/pull_objective.hpp"
#include "workers/training/training.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

constexpr std::int64_t steps = 10, kept_at = 6;

struct Trajectory {
  std::shared_ptr<PullObjective> objective = std::make_shared<PullObjective>();
  std::vector<double> norms{};
  std::vector<float> model{};
  std::int64_t evaluated_before = -1;  // micro-batches that a replay computes before the checkpoint's position
};

// Takes `steps` steps of SGD, and computes the gradient's norm before each. `others` additional values exist
// throughout. Keeps a checkpoint in `keep`, or replays from `resume_from`.
Trajectory take(int threads, StoredBytes* keep, StoredBytes* resume_from, int others = 1) {
  Trajectory trajectory;
  CheckpointLog log;
  const CheckpointLog::Scope here(&log);
  Executor executor(threads);
  Training training(trajectory.objective, make_sgd({.momentum = 0.9}), {}, executor);
  if (resume_from) log.replay(*resume_from);
  log.at_position = [&] {
    trajectory.evaluated_before = static_cast<std::int64_t>(trajectory.objective->evaluated.size());
    log.read_values(*resume_from);
  };
  log.between_steps = [&] {
    if (!keep || log.steps() != kept_at) return;
    executor.wait_all();
    log.write_log(*keep, log.last_number());
    log.write_values(*keep, log.last_number());
  };
  ModelStatePtr state = training.initial_state();
  std::vector<CellPtr> held;
  for (int i = 0; i < others; ++i) held.push_back(new_cell());
  for (std::int64_t step = 0; step < steps; ++step) {
    const Gradient gradient = training.share(Gradient(state, MicroBatch{.step = Step{step}}, {}));
    trajectory.norms.push_back(training.norm(gradient));
    state = training.descend(std::move(state), gradient, 0.1);
  }
  trajectory.model = training.values(state);
  return trajectory;
}

TEST(CheckpointLog, GoesOnWithWhatItHadAndComputesNothingBeforeThat) {
  const Trajectory plain = take(0, nullptr, nullptr);
  for (const int threads : {0, 1, 2}) {
    StoredBytes kept;
    EXPECT_EQ(take(threads, &kept, nullptr).model, plain.model);
    const Trajectory resumed = take(2 - threads, nullptr, &kept);
    EXPECT_EQ(resumed.model, plain.model);
    EXPECT_EQ(resumed.norms, plain.norms);
    EXPECT_EQ(resumed.evaluated_before, 0);
    EXPECT_EQ(static_cast<std::int64_t>(resumed.objective->evaluated.size()), steps - kept_at);
  }
}

TEST(CheckpointLog, IsNotTakenUpWhereOtherValuesAreAlive) {
  StoredBytes kept;
  take(1, &kept, nullptr, 1);
  try {
    take(1, nullptr, &kept, 2);
    FAIL();
  } catch (const ReplayMismatch& other) {
    EXPECT_THAT(other.what(), HasSubstr("has created"));
  }
}

TEST(CheckpointLog, TellsNumbersAgainAndNoFurtherOnes) {
  StoredBytes kept;
  CheckpointLog first;
  EXPECT_EQ(first.numbers_of(2, [] { return std::vector{1.5, 2.5}; }), (std::vector{1.5, 2.5}));
  first.before_step();
  first.write_log(kept, first.last_number());
  CheckpointLog second;
  second.replay(kept);
  ASSERT_TRUE(second.replays());
  const auto never_asked = []() -> std::vector<double> { throw std::logic_error("computed"); };
  EXPECT_EQ(second.numbers_of(1, never_asked), std::vector{1.5});
  EXPECT_EQ(second.numbers_of(1, never_asked), std::vector{2.5});
  EXPECT_THROW(second.numbers_of(1, never_asked), ReplayMismatch);
  second.before_step();
  EXPECT_FALSE(second.replays());
}

TEST(CheckpointLog, FailsWhereSomebodyReadsWhatIsNotComputed) {
  StoredBytes kept;
  CheckpointLog first;
  first.before_step();
  first.write_log(kept, first.last_number());
  CheckpointLog second;
  const CheckpointLog::Scope here(&second);
  second.replay(kept);
  Executor executor(1);
  bool has_run = false;
  const auto task = executor.submit([&] { has_run = true; });
  EXPECT_EQ(task, nullptr);
  EXPECT_THROW(executor.wait(task), ReplayMismatch);
  EXPECT_THROW(executor.wait_all(), ReplayMismatch);
  second.before_step();
  executor.submit([] {});
  executor.wait_all();
  EXPECT_FALSE(has_run);
}

// In the original run a memo's look-up found a value that only tasks held. In the replay there are no tasks, so the
// value is gone and the log provides it.
TEST(CheckpointLog, FindsWhatWasFound) {
  StoredBytes kept;
  CheckpointLog first;
  const CellPtr cell = first.new_cell();
  cell->value = FlatVector(3);
  std::fill_n(cell->value.data(), 3, 7.0f);
  EXPECT_EQ(first.found(cell), cell);
  EXPECT_EQ(first.found(nullptr), nullptr);
  first.before_step();
  first.write_log(kept, first.last_number());
  first.write_values(kept, first.last_number());

  CheckpointLog second;
  second.replay(kept);
  second.new_cell() = nullptr;  // nothing holds the value
  const CellPtr again = second.found(nullptr);
  ASSERT_TRUE(again);
  EXPECT_EQ(second.found(nullptr), nullptr);
  second.before_step();
  second.read_values(kept);
  ASSERT_EQ(again->value.size(), 3U);
  EXPECT_EQ(again->value.data()[2], 7.0f);
}

TEST(CheckpointLog, ForgetsValuesThatEndAlsoAfterItself) {
  CellPtr longer;
  {
    CheckpointLog log;
    longer = log.new_cell();
    { const CellPtr shorter = log.new_cell(); }
    StoredBytes alive;
    log.write_values(alive, log.last_number());
    std::uint64_t number = 0;
    alive.read(&number, sizeof(number));
    EXPECT_EQ(number, 1U);
  }
  longer = nullptr;
  EXPECT_EQ(CheckpointLog::here(), nullptr);
  EXPECT_TRUE(new_cell());  // without a log, nothing is recorded
}

}  // namespace
}  // namespace syncopate
