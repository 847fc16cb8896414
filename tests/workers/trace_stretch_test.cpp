#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/delay_files.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using TraceFiles = DelayFiles;

constexpr int recorded_workers = 4;
constexpr std::int64_t recorded_steps = 20;

// Worker n, step s, micro-batch m takes 100 n + s + m / 10 + 1 seconds, so that a duration says where it stood.
std::string recorded() {
  std::string text = "worker,step,micro_batch,duration_s\n";
  for (int n = 0; n < recorded_workers; ++n)
    for (int s = 0; s < recorded_steps; ++s)
      for (int m = 0; m < 2; ++m) text += fmt::format("{},{},{},{}\n", n, s, m, 100 * n + s + 0.1 * m + 1);
  return text;
}

std::shared_ptr<const DelayProcess> stretched(const TraceStretch& stretch) {
  return trace_delay(std::make_shared<const Trace>("run.csv", recorded()), {.stretch = stretch});
}

struct Place {
  int worker;
  std::int64_t step;
  bool operator==(const Place&) const = default;
};

Place place(const DelayProcess& process, int worker, std::int64_t step, std::uint64_t seed = 7) {
  std::vector<double> both(2, 0.0);
  process.add({.seed = seed, .worker = Rank{worker}, .step = step}, 0, both);
  EXPECT_NEAR(both[1] - both[0], 0.1, 1e-9);  // the step's micro-batches are those of one recorded step
  const auto first = static_cast<std::int64_t>(std::lround(both[0])) - 1;
  return {static_cast<int>(first / 100), first % 100};
}

TEST(TraceStretch, AWorkersBlocksStayWhole) {
  for (const bool redraw : {false, true})
    for (const std::int64_t length : {1, 3, 7, 20}) {
      const auto process = stretched({.block_steps = length, .redraw_worker = redraw});
      for (int worker = 0; worker < 40; worker += 13)
        for (std::int64_t step = 0; step < 5 * length; ++step) {
          if (step % length == 0) continue;
          const Place before = place(*process, worker, step - 1), now = place(*process, worker, step);
          EXPECT_EQ(now.worker, before.worker) << worker << " " << step;
          EXPECT_EQ(now.step, (before.step + 1) % recorded_steps) << worker << " " << step;
        }
    }
}

// Chi-squared with k - 1 degrees of freedom; the bounds are its 99.99 % points.
template <std::size_t k>
double chi_squared(const std::array<int, k>& counts, int draws) {
  double sum = 0;
  for (const int count : counts) sum += std::pow(count - static_cast<double>(draws) / k, 2) * k / draws;
  return sum;
}

TEST(TraceStretch, EveryRecordedWorkerAndStepIsAsLikely) {
  const auto process = stretched({.block_steps = 7, .redraw_worker = true});
  std::array<int, recorded_workers> of_worker{};
  std::array<int, recorded_steps> of_step{};
  constexpr int draws = 8000;
  for (int i = 0; i < draws; ++i) {
    const Place drawn = place(*process, i % 80, 7 * (i / 80) + i % 7);
    ++of_worker.at(static_cast<std::size_t>(drawn.worker));
    ++of_step.at(static_cast<std::size_t>(drawn.step));
  }
  EXPECT_LT(chi_squared(of_worker, draws), 21.1);
  EXPECT_LT(chi_squared(of_step, draws), 50.8);
}

TEST(TraceStretch, AWorkerFollowsOneRecordedWorkerUnlessItIsDrawnAnew) {
  const auto keeps = stretched({.block_steps = 3});
  std::array<int, recorded_workers> followed{};
  constexpr int workers = 2000;
  for (int worker = 0; worker < workers; ++worker) {
    const int first = place(*keeps, worker, 0).worker;
    ++followed.at(static_cast<std::size_t>(first));
    for (const std::int64_t step : {5, 1000, 123456}) EXPECT_EQ(place(*keeps, worker, step).worker, first);
  }
  EXPECT_LT(chi_squared(followed, workers), 21.1);
  const auto redraws = stretched({.block_steps = 3, .redraw_worker = true});
  std::set<int> of_worker_0;
  for (std::int64_t block = 0; block < 40; ++block) of_worker_0.insert(place(*redraws, 0, 3 * block).worker);
  EXPECT_EQ(of_worker_0.size(), 4u);  // (3/4)^40 = 1e-5 for each to be left out
}

TEST(TraceStretch, WorkersTakeTheSameStepsOnlyWhereTheyShareThem) {
  const auto alone = stretched({.block_steps = 4}), together = stretched({.block_steps = 4, .together = true});
  int equal = 0;
  std::set<int> followed;
  for (std::int64_t step = 0; step < 4000; step += 4) {
    equal += place(*alone, 0, step).step == place(*alone, 1, step).step;
    for (int worker = 1; worker < 6; ++worker)
      EXPECT_EQ(place(*together, worker, step).step, place(*together, 0, step).step);
  }
  EXPECT_NEAR(equal, 1000 / 20.0, 5 * std::sqrt(1000 / 20.0));  // independent draws of 20
  for (int worker = 0; worker < 40; ++worker) followed.insert(place(*together, worker, 0).worker);
  EXPECT_EQ(followed.size(), 4u);
}

TEST(TraceStretch, IsAFunctionOfTheSeedAlone) {
  const auto one = stretched({.block_steps = 5, .redraw_worker = true});
  const auto other = stretched({.block_steps = 5, .redraw_worker = true});
  int equal = 0;
  for (std::int64_t step = 500; step-- > 0;) {
    EXPECT_EQ(place(*one, 9, step), place(*other, 9, step));
    equal += place(*one, 9, step, 7) == place(*one, 9, step, 8);
  }
  EXPECT_LT(equal, 60);  // 500 / 80 on average, in blocks of 5
}

TEST(TraceStretch, LawsAreThoseOfWhomAWorkerFollows) {
  // Sums of a recorded step: 2 (100 n + s + 1) + 0.1; over s = 0 .. 19 their variance is 4 (20^2 - 1) / 12.
  const double of_steps_s2 = 4 * 399 / 12.0, mean_of_worker_0_s = 2 * 10.5 + 0.1;
  const auto keeps = stretched({.block_steps = 3}), redraws = stretched({.block_steps = 3, .redraw_worker = true});
  for (int worker = 0; worker < 5; ++worker) {
    const RandomStream stream{.seed = 7, .worker = Rank{worker}};
    EXPECT_NEAR(keeps->step_law(stream, 2).mean_s, mean_of_worker_0_s + 200 * place(*keeps, worker, 0).worker, 1e-9);
    EXPECT_NEAR(keeps->step_law(stream, 2).variance_s2, of_steps_s2, 1e-9);
    EXPECT_NEAR(redraws->step_law(stream, 2).mean_s, mean_of_worker_0_s + 300, 1e-9);
    EXPECT_NEAR(redraws->step_law(stream, 2).variance_s2, of_steps_s2 + 200 * 200 * 15 / 12.0, 1e-6);
  }
  EXPECT_EQ(keeps->shortest_s(Rank{3}), 1);
}

// Else the base of a worker would always be as far into the recording as its delay.
TEST(TraceStretch, BaseAndFirstDelayDrawApart) {
  const auto delay = stretched({.block_steps = 1}), base = stretched({.block_steps = 1, .is_base = true});
  int equal = 0;
  for (std::int64_t step = 0; step < 1000; ++step) equal += place(*delay, 0, step).step == place(*base, 0, step).step;
  EXPECT_NEAR(equal, 50, 36);  // binomial of 1/20, five deviations
}

TEST_F(TraceFiles, AStretchedTraceServesAnyNumberOfWorkers) {
  write("run.csv", recorded());
  std::vector<TraceLimit> limits;
  const std::string entry = "kind = \"trace\"\nfile = \"run.csv\"\n";
  const auto stretched = read(entry + "stretch = { block_steps = 5 }", {0.01, 1000, &limits});
  EXPECT_EQ(stretched.faults, "");
  EXPECT_THAT(stretched.resolved, AllOf(HasSubstr("redraw_worker = false"), HasSubstr("together = false")));
  added(*stretched.delay, 999, 1'000'000, 2);
  EXPECT_THAT(read(entry + "end = \"wrap\"\nstretch = { block_steps = 5 }").faults,
              AllOf(HasSubstr("end = \"wrap\""), HasSubstr("together with stretch")));
  EXPECT_THAT(read(entry + "stretch = { block_steps = 21 }").faults,
              AllOf(HasSubstr("stretch.block_steps = 21"), HasSubstr("from 1 to 20")));
  EXPECT_THAT(read(entry + "stretch = { block_steps = 0 }").faults, HasSubstr("from 1 to 20"));
  EXPECT_THAT(read(entry + "stretch = {}").faults, HasSubstr("stretch.block_steps is missing"));
  EXPECT_THAT(read(entry + "stretch = { block_step = 4 }").faults, HasSubstr("did you mean"));
}

}  // namespace
}  // namespace syncopate
