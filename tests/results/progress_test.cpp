#include "results/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace syncopate {
namespace {

using testing::HasSubstr;

Budget budget(std::optional<Step> steps, std::optional<double> seconds = {}) {
  return {.steps = steps, .seconds = seconds, .samples = {}, .bytes = {}};
}

TEST(Progress, ShareDoneIsThatOfTheNearestLimit) {
  RunPosition position;
  position.computed.step = 25;
  position.computed.time = Time{std::chrono::seconds(6)};
  EXPECT_DOUBLE_EQ(share_done(budget(Step{100}), position), 0.25);
  EXPECT_DOUBLE_EQ(share_done(budget(Step{100}, 10), position), 0.6);
  EXPECT_DOUBLE_EQ(share_done(budget(Step{20}), position), 1);
}

TEST(Progress, ClockTextReadsLikeAClock) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(75), "1:15");
  EXPECT_EQ(clock_text(3700), "1:01:40");
}

// The share done is that of the computed arithmetic. The run's clock may be far ahead of it.
TEST(Progress, ShareDoneKnowsEveryLimit) {
  RunPosition position;
  position.reached = {.step = 90, .time = Time{std::chrono::seconds(90)}, .samples = 90, .bytes = 90};
  position.computed = {.step = 10, .time = Time{std::chrono::seconds(20)}, .samples = 30, .bytes = 40};
  const auto share = [&](const Budget& budget) { return share_done(budget, position); };
  EXPECT_DOUBLE_EQ(share({.steps = Step{100}, .seconds = {}, .samples = {}, .bytes = {}}), 0.1);
  EXPECT_DOUBLE_EQ(share({.steps = {}, .seconds = 100, .samples = {}, .bytes = {}}), 0.2);
  EXPECT_DOUBLE_EQ(share({.steps = {}, .seconds = {}, .samples = 100, .bytes = {}}), 0.3);
  EXPECT_DOUBLE_EQ(share({.steps = {}, .seconds = {}, .samples = {}, .bytes = Bytes{100}}), 0.4);
  EXPECT_DOUBLE_EQ(share({.steps = Step{100}, .seconds = 100, .samples = 50, .bytes = Bytes{100}}), 0.6);
  EXPECT_DOUBLE_EQ(share({.steps = {}, .seconds = {}, .samples = {}, .bytes = {}}), 0);
}

TEST(Progress, ClockTextTurnsAtFullMinutesAndHours) {
  EXPECT_EQ(clock_text(59.4), "0:59");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(3599), "59:59");
  EXPECT_EQ(clock_text(3600), "1:00:00");
  EXPECT_EQ(clock_text(2 * 3600 + 3 * 60 + 4), "2:03:04");
  EXPECT_EQ(clock_text(26 * 3600), "26:00:00");
  EXPECT_EQ(clock_text(-5), "0:00");
}

// The remaining time is unknown until some work is done. From then on it is estimated from this run and earlier runs.
TEST(Progress, WhatIsLeftIsKnownOnceSomethingIsDone) {
  syncopate::Run run;
  run.method = "A";
  run.budget = budget(Step{100});
  RunPosition nothing, something;
  something.computed.step = 50;
  const auto shown = [&](int runs_done, const RunPosition& position) {
    testing::internal::CaptureStderr();
    Progress progress(Progress::Style::terminal, 3, 3);
    for (int i = 0; i < runs_done; ++i) {
      progress.begin_run(static_cast<std::size_t>(i) + 1, run);
      progress.end_run({});
    }
    progress.begin_run(static_cast<std::size_t>(runs_done) + 1, run);
    progress.show(position);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(shown(0, nothing), HasSubstr("? left"));
  EXPECT_THAT(shown(0, something), testing::Not(HasSubstr("? left")));
  EXPECT_THAT(shown(1, nothing), testing::AllOf(HasSubstr("run 2/3"), testing::Not(HasSubstr("? left"))));
}

// The second run is expected to take nine times as long as the first, and nothing of it is done.
TEST(Progress, WhatIsLeftFollowsWhatWasExpected) {
  syncopate::Run small, large;
  small.budget = large.budget = budget(Step{100});
  small.hash = "small";
  large.hash = "large";
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::terminal, 2, 2);
  progress.expect({{"small", 590}, {"large", 5400}});
  progress.begin_run(1, small);
  progress.show({});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1:39:50 left"));
  testing::internal::CaptureStderr();
  progress.end_run({});
  progress.begin_run(2, large);
  progress.show({});
  // Work that was expected to take 590 s took no time. The plan counts like 10 s of observation: 10 s / 600 s x 5400 s
  // = 90 s.
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1:30 left"));
}

// A run that was expected to take 0.01 s of one second has taken 0.2 s. So about four seconds remain, and not one.
TEST(Progress, APlanThatIsFarTooShortDoesNotOutweighWhatIsSeen) {
  syncopate::Run small, large;
  small.budget = large.budget = budget(Step{100});
  small.hash = "small";
  large.hash = "large";
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::terminal, 2, 2);
  progress.expect({{"small", 0.01}, {"large", 0.99}});
  progress.begin_run(1, small);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  progress.end_run({});
  progress.begin_run(2, large);
  progress.show({});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::ContainsRegex("0:(0[3-9]|[1-5][0-9]) left"));
}

// The expected work is 10,000 s, and 6,000 s of it took no time. The plan counts like 10 s of observation. So the other
// 4,000 s are expected to take 10 / 6,010 of their time.
TEST(Progress, CommonPhasesOfOtherProcessesCountAsWork) {
  syncopate::Run phase, other, run;
  phase.method = other.method = "common phase";
  phase.hash = "phase", other.hash = "other", run.hash = "run";
  const Progress::Elsewhere half{.run = &other, .share = 0.5, .is_common_phase = true};
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::terminal, 1, 1);
  progress.show_every(std::chrono::milliseconds(0));
  progress.expect({{"phase", 4000}, {"other", 4000}, {"run", 2000}});
  progress.end_common_phase_elsewhere(phase);
  progress.show_elsewhere(0, {&half, 1});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("0 of 1 ended, 0:07 left, 1 under way: common phase, seed 0 50 %"));

  // If no times are expected, all runs count equally, and common phases do not count.
  testing::internal::CaptureStderr();
  Progress unknown(Progress::Style::terminal, 1, 1);
  unknown.end_common_phase_elsewhere(phase);
  unknown.show_elsewhere(0, {&half, 1});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("? left"));
}

TEST(Progress, TrialsShowWhatTheyAreJudgedBy) {
  syncopate::Run run;
  run.is_trial = true;
  RunSummary summary;
  summary.final_test_accuracy = 0.5;
  summary.final_test_loss = 1.0;
  summary.final_validation_accuracy = 0.625;
  summary.final_validation_loss = 2.0;
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::lines, 1, 1);
  progress.begin_run(1, run);
  progress.end_run(summary);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(", validation accuracy 62.50 %, loss 2\n"));
}

TEST(Progress, SaysWhichRunACommonPhaseIsFor) {
  syncopate::Run phase;
  phase.method = "common phase";
  phase.seed = 4;
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::lines, 12, 12);
  progress.begin_common_phase(3, phase);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "before run 3 of 12: common phase, seed 4: begins\n");
}

TEST(Progress, IsRewrittenAtMostTenTimesASecond) {
  Progress progress(Progress::Style::terminal, 1, 1);
  syncopate::Run run;
  progress.begin_run(1, run);
  // Each call is between two readings of the clock. The first call is due.
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds interval(100);
  std::optional<std::pair<Clock::time_point, Clock::time_point>> last;
  for (int shown = 0; shown < 4; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const auto before = Clock::now();
    const bool due = progress.due();
    const auto after = Clock::now();
    if (!due) {
      ASSERT_TRUE(last);
      EXPECT_LT(before, last->second + interval);
      continue;
    }
    if (last) {
      EXPECT_GE(after, last->first + interval);
    }
    last.emplace(before, after);
    ++shown;
  }
}

TEST(Progress, WithoutATerminalIsAPlainLineWhenARunBeginsAndEnds) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::lines, 12, 12);
    syncopate::Run run;
    run.method = "DropCompute";
    run.sweep = {{"variant", "slow server"}, {"methods.DropCompute.threshold_s", "0.05"}};
    run.seed = 3;
    progress.begin_run(5, run);
    EXPECT_FALSE(progress.due());
    RunSummary summary;
    summary.end_time_s = 12.5;
    summary.host_s = 2;
    summary.final_test_accuracy = 0.8812;
    summary.final_test_loss = 0.334;
    progress.end_run(summary);
  }
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "run 5 of 12: DropCompute, slow server, threshold_s = 0.05, seed 3: begins\n"
      "run 5 of 12: DropCompute, slow server, threshold_s = 0.05, seed 3: finished after 12.5 s virtual, 2 s host, "
      "accuracy 88.12 %, loss 0.334\n");
}

TEST(Progress, WithoutATerminalIsAPlainLineInEachInterval) {
  EXPECT_EQ(Progress::usual_interval(Progress::Style::lines), std::chrono::minutes(1));
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::lines, 2, 2);
    progress.show_every(std::chrono::milliseconds(20));
    syncopate::Run run;
    run.method = "A";
    run.budget = budget(Step{100});
    progress.begin_run(1, run);
    EXPECT_FALSE(progress.due());
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    EXPECT_TRUE(progress.due());
    EXPECT_FALSE(progress.due());
    RunPosition position;
    position.computed.step = 50;
    position.reached.time = Time{std::chrono::seconds(7)};
    progress.show(position);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("run 1 of 2: A, seed 0: begins\n"
                                    "run 1 of 2: A, seed 0: 50 %, 0:00 left, 7 s virtual, 0:00 host, 0 syncs\n"));
}

// The reason of a failure has the time of a worker, which may be far ahead of the others.
TEST(Progress, SaysUntilWhenAFailedRunWasRecordedNotWhenItFailed) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::lines, 1, 1);
    syncopate::Run run;
    run.method = "A";
    progress.begin_run(1, run);
    RunSummary summary;
    summary.status = RunStatus::failed;
    summary.end_time_s = 446.5;
    summary.host_s = 2;
    progress.end_run(summary);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "run 1 of 1: A, seed 0: begins\n"
            "run 1 of 1: A, seed 0: failed, recorded until 446.5 s virtual, 2 s host\n");
}

TEST(Progress, NamesTheClockAndNeverTheSignOfWhatIsNotANumber) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::lines, 1, 1, "wall");
    syncopate::Run run;
    run.method = "A";
    progress.begin_run(1, run);
    RunSummary summary;
    summary.final_test_loss = -std::numeric_limits<double>::quiet_NaN();
    progress.end_run(summary);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "run 1 of 1: A, seed 0: begins\n"
            "run 1 of 1: A, seed 0: finished after 0 s wall, 0 s host, loss nan\n");
}

TEST(Progress, OnATerminalShowsWhereTheRunIsAndClearsTheLine) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::terminal, 3, 3);
    syncopate::Run run;
    run.method = "A";
    run.seed = 1;
    run.budget = budget(Step{100});
    progress.begin_run(1, run);
    RunPosition position;
    position.computed.step = 50;
    position.reached.time = Time{std::chrono::seconds(7)};
    position.synchronisations = 49;
    progress.show(position);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::ContainsRegex("run 1/3: 50 %, 0:00 left: A, seed 1, 7 s virtual, 0:00 host"));
  EXPECT_THAT(text, testing::EndsWith("\r\x1b[K"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

// Standard error is a file here, so a width of 80 is assumed.
TEST(Progress, ALineThatIsTooLongEndsWithAWholePart) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::terminal, 3, 3);
    syncopate::Run run;
    run.method = "a method with a long name, threshold_s = 0.05";
    run.seed = 1;
    run.budget = budget(Step{100});
    progress.begin_run(1, run);
    RunPosition position;
    position.computed.step = 50;
    progress.show(position);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("run 1/3: 50 %, 0:00 left: a method with a long name, threshold_s = 0.05, seed 1\r"));
}

TEST(Progress, IsSilentWhenAskedToBe) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::silent, 1, 1);
    syncopate::Run run;
    progress.begin_run(1, run);
    EXPECT_FALSE(progress.due());
    progress.end_run({});
    progress.note("something");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace syncopate
