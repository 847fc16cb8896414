#include "workers/time/trace.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/workers/delay_files.hpp"
#include "workers/base/process.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using TraceFiles = DelayFiles;
using Seconds = std::vector<double>;

// Micro-batch m of step s on worker n takes n + s / 10 + m / 100 + 1 s. Rows are in an unusual order, with further
// columns. Worker 1 has dropped micro-batches 1 and 2 of step 1.
const std::string recorded = R"(step,worker,start_s,micro_batch,duration_s
# a comment
1,0,9.5,2,1.12
0,0,0,0,1.00
0,0,1,1,1.01
0,0,2,2,1.02
1,0,7.5,0,1.10
1,0,8.5,1,1.11
0,1,0,2,2.02
0,1,2,0,2.00

0,1,4,1,2.01
1,1,9,0,2.10
)";

std::shared_ptr<const Trace> trace() { return std::make_shared<const Trace>("run.csv", recorded); }
std::string failure(const DelayProcess& process, int worker, Step step, std::size_t n, std::uint32_t first = 0) {
  try {
    added(process, worker, step, n, first);
  } catch (const RunFailure& problem) {
    return problem.what();
  }
  return "";
}

TEST(Trace, ReadsDurationsWithTheLastColumnThatRunsHaveRecordedBefore) {
  const auto read = std::make_shared<const Trace>(
      "durations.csv", "worker,step,micro_batch,duration_s,added_s,kept\n0,0,0,1.500000000,0.500000000,1\n");
  EXPECT_EQ(added(*trace_delay(read, {}), 0, 0, 1), (Seconds{1.5}));
}

// R's write.csv and Python's csv.QUOTE_ALL write values between quotation marks.
TEST(Trace, ReadsQuotedColumnsAndValues) {
  std::string header_alone = recorded, all;
  header_alone.replace(0, header_alone.find('\n'), "\"step\",\"worker\",\"start_s\",\"micro_batch\",\"duration_s\"");
  std::istringstream lines(recorded);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    all += '"';
    for (const char letter : line) all += letter == ',' ? std::string("\",\"") : std::string{letter};
    all += "\"\r\n";
  }
  for (const std::string& text : {header_alone, all}) {
    const Trace read("run.csv", text);
    ASSERT_EQ(read.workers(), 2);
    ASSERT_EQ(read.steps(), Step{2});
    for (int worker = 0; worker < 2; ++worker)
      for (Step step = 0; step < read.steps(); ++step)
        EXPECT_THAT(read.durations_s(worker, step, 0, 9),
                    testing::ElementsAreArray(trace()->durations_s(worker, step, 0, 9)));
  }
}

TEST(Trace, OfOneRowPerStepHasOneMicroBatchInEach) {
  const auto read =
      std::make_shared<const Trace>("run.csv", "worker,step,duration_s\n0,0,1.5\n0,1,2.5\n1,1,4\n1,0,3\n");
  EXPECT_EQ(read->workers(), 2);
  EXPECT_EQ(read->steps(), Step{2});
  EXPECT_EQ(read->micro_batches(), 1);
  EXPECT_EQ(added(*trace_delay(read, {}), 0, 1, 1), (Seconds{2.5}));
  EXPECT_EQ(added(*trace_delay(read, {}), 1, 1, 1), (Seconds{4}));
  EXPECT_EQ(read->step_law(1, 1).mean_s, 3.5);
}

TEST(Trace, ReadsRowsInAnyOrder) {
  const auto read = trace();
  EXPECT_EQ(read->workers(), 2);
  EXPECT_EQ(read->steps(), Step{2});
  EXPECT_EQ(read->micro_batches(), 3);
  const auto delay = trace_delay(read, {});
  EXPECT_EQ(added(*delay, 0, 0, 3), (Seconds{1.00, 1.01, 1.02}));
  EXPECT_EQ(added(*delay, 0, 1, 3), (Seconds{1.10, 1.11, 1.12}));
  EXPECT_EQ(added(*delay, 1, 0, 2, 1), (Seconds{2.01, 2.02}));
  EXPECT_EQ(added(*delay, 1, 1, 1), (Seconds{2.10}));
  const auto scaled = trace_delay(read, {.scale = 2, .shift_s = -0.5});
  EXPECT_DOUBLE_EQ(added(*scaled, 1, 1, 1)[0], 3.7);
}

TEST(Trace, LawsAreThoseOfItsRows) {
  const auto delay = trace_delay(trace(), {.scale = 2, .shift_s = -0.5});
  EXPECT_NEAR(delay->mean_s(), 2 * (1 + 1.01 + 1.02 + 1.1 + 1.11 + 1.12 + 2 + 2.01 + 2.02 + 2.1) / 10 - 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(delay->minimum_s(), 1.5);
  EXPECT_DOUBLE_EQ(delay->shortest_s(Rank{1}), 3.5);
  const StepLaw law = delay->step_law({.worker = Rank{0}}, 3);  // step times of worker 0: 3.03 and 3.33 s
  EXPECT_NEAR(law.mean_s, 2 * 3.18 - 1.5, 1e-12);
  EXPECT_NEAR(law.variance_s2, 4 * 0.15 * 0.15, 1e-12);
  EXPECT_NEAR(delay->step_law({.worker = Rank{1}}, 3).mean_s, 2 * 6.03 - 1.5, 1e-12);  // its only whole step, 6.03 s
}

TEST(Trace, WhatWasDroppedIsAnErrorOnlyWhereItIsAskedFor) {
  const auto delay = trace_delay(trace(), {});
  EXPECT_THAT(failure(*delay, 1, 1, 3),
              AllOf(HasSubstr("worker 1, step 1, micro-batch 1"), HasSubstr("run.csv"), HasSubstr("dropped")));
  EXPECT_THAT(failure(*delay, 1, 1, 1, 2), HasSubstr("micro-batch 2"));
  EXPECT_THAT(failure(*delay, 0, 0, 4), AllOf(HasSubstr("micro-batch 3"), HasSubstr("at most 3")));
  EXPECT_THAT(failure(*delay, 2, 0, 1), HasSubstr("worker 2"));
}

// Rows of a recorded run from which many rows are missing, even whole steps of a worker. They are in any order.
TEST(Trace, GivesWhatIsThereWhateverIsMissing) {
  constexpr int workers = 4, steps = 5, micro_batches = 6;
  const RandomStream random{.seed = 3};
  for (std::uint32_t test = 0; test < 30; ++test) {
    SCOPED_TRACE(test);
    std::uint32_t number = 1000 * test;
    std::map<std::tuple<int, int, int>, double> expected;
    for (int worker = 0; worker < workers; ++worker)
      for (int step = 0; step < steps; ++step) {
        const bool is_there = worker == step % workers || random.uniform(number++) < 0.6;
        for (int m = 0; is_there && m < micro_batches; ++m)
          if (m == 3 || random.uniform(number++) < 0.6) expected[{worker, step, m}] = 100 * worker + 10 * step + m;
      }
    std::vector<std::string> rows;
    for (const auto& [place, duration_s] : expected) {
      const auto& [worker, step, m] = place;
      rows.push_back(fmt::format("{},{},{},{}\n", worker, step, m, duration_s));
    }
    for (std::size_t i = rows.size(); i-- > 1;)
      std::swap(rows[i], rows[static_cast<std::size_t>(random.uniform(number++) * static_cast<double>(i + 1))]);
    std::string text = "worker,step,micro_batch,duration_s\n";
    for (const std::string& row : rows) text += row;
    const Trace trace("run.csv", text);
    ASSERT_EQ(trace.workers(), workers);
    ASSERT_EQ(trace.steps(), Step{steps});
    for (int worker = 0; worker < workers; ++worker)
      for (int step = 0; step < steps; ++step)
        for (int first = 0; first < micro_batches + 2; ++first)
          for (const std::size_t most : {1, 3, 100}) {
            Seconds in_a_row;
            for (int m = first; in_a_row.size() < most && expected.contains({worker, step, m}); ++m)
              in_a_row.push_back(expected.at({worker, step, m}));
            const auto found = trace.durations_s(worker, step, static_cast<std::uint32_t>(first), most);
            ASSERT_EQ(Seconds(found.begin(), found.end()), in_a_row) << worker << " " << step << " " << first;
          }
  }
}

// There must be at least one row for 64 pairs of a worker and a step. With fewer rows, the numbers of workers or steps
// are probably wrong.
TEST(Trace, OfWhichNextToNothingIsThereIsAFault) {
  const auto diagonal = [](int length) {
    std::string text = "worker,step,micro_batch,duration_s\n";
    for (int i = 0; i < length; ++i) text += fmt::format("{},{},0,1\n", i, i);
    return Trace("run.csv", text).workers();
  };
  EXPECT_EQ(diagonal(64), 64);
  try {
    diagonal(65);
    FAIL();
  } catch (const FileFault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("65 rows for 65 workers and 65 steps; most rows are missing"));
  }
}

TEST(Trace, EndsInTheChosenWay) {
  for (const TraceEnd end : {TraceEnd::error, TraceEnd::stop})
    EXPECT_THAT(failure(*trace_delay(trace(), {.end = end}), 1, 2, 1),
                AllOf(HasSubstr("worker 1, step 2"), HasSubstr("ends after 2 steps"), HasSubstr("wrap")));
  const auto wraps = trace_delay(trace(), {.end = TraceEnd::wrap});
  EXPECT_EQ(added(*wraps, 0, 2, 3), added(*wraps, 0, 0, 3));
  EXPECT_EQ(added(*wraps, 0, 1001, 3), added(*wraps, 0, 1, 3));
}

TEST(Trace, WholeDurationsTakeFactorsAndFurtherDelays) {
  const auto base = trace_delay(trace(), {.rows_of = {0, 0, 1}});
  const ComputeTime time(1, base, {1, 3, 1}, {constant_delay(0.5)});
  const auto durations = [&](int worker, Step step, std::size_t n) {
    std::vector<Duration> out(n);
    time.durations(Rank{worker}, step, 0, out);
    Seconds seconds;
    for (const Duration duration : out) seconds.push_back(to_seconds(duration));
    return seconds;
  };
  const auto near = [](double x) { return testing::DoubleNear(x, 1e-9); };
  EXPECT_THAT(durations(0, 1, 3), ElementsAre(near(1.60), near(1.61), near(1.62)));
  EXPECT_THAT(durations(1, 1, 3), ElementsAre(near(3.80), near(3.83), near(3.86)));
  EXPECT_THAT(durations(2, 0, 2), ElementsAre(near(2.50), near(2.51)));
  EXPECT_NEAR(time.shortest(Rank{1}), 3.5, 1e-12);
  // Where micro-batches are really computed, the base time is the mean over all rows.
  EXPECT_NEAR(to_seconds(time.base(Rank{2})), base->mean_s(), 1e-9);
  EXPECT_NEAR(to_seconds(time.base(Rank{1})), 3 * base->mean_s(), 1e-9);
  EXPECT_EQ(time.added(Rank{1}, 0, 0), from_seconds(0.5));
  EXPECT_NEAR(time.step_law(Rank{1}, 3).mean_s, 3 * 3.18 + 1.5, 1e-12);
  EXPECT_NEAR(time.step_law(Rank{1}, 3).variance_s2, 9 * 0.15 * 0.15, 1e-12);
}

TEST(Trace, HolesAreNoted) {
  const std::string rows = "worker,step,micro_batch,duration_s\n0,0,0,1\n0,0,1,1\n0,1,0,1\n1,0,0,1\n1,1,0,1\n1,1,1,1\n";
  EXPECT_EQ(Trace("run.csv", rows).note_on_holes(1), "");
  EXPECT_EQ(
      Trace("run.csv", rows).note_on_holes(2),
      "run.csv: 2 of 4 steps of its workers lack a duration, first micro-batch 1 of step 1 of worker 0; a run that "
      "needs one of them fails");
}

TEST_F(TraceFiles, AreReadPlainAndCompressedAsADelay) {
  write("run.csv", recorded);
  write_compressed("run.csv.gz", recorded);
  for (const std::string name : {"run.csv", "run.csv.gz"}) {
    std::vector<TraceLimit> limits;
    const auto entry = read(
        "kind = \"trace\"\nend = \"stop\"\nscale = 10\nshift = -2\nunit = \"micro_batch\"\nfile = \"" + name + "\"",
        {0.010, 2, &limits});
    EXPECT_EQ(entry.faults, "");
    EXPECT_DOUBLE_EQ(added(*entry.delay, 1, 1, 1)[0], 21 - 0.02);
    ASSERT_EQ(limits.size(), 1u);
    EXPECT_EQ(limits[0].trace->steps(), Step{2});
    EXPECT_EQ(limits[0].end, TraceEnd::stop);
    EXPECT_THAT(entry.resolved, HasSubstr("file_hash"));
  }
}

// A changed file is read again, even while its earlier content is in use.
TEST_F(TraceFiles, AFileThatHasChangedIsAnotherTrace) {
  const std::string entry = "kind = \"trace\"\nend = \"wrap\"\nfile = \"run.csv\"";
  write("run.csv", "worker,step,micro_batch,duration_s\n0,0,0,3\n");
  const auto before = read(entry);
  write("run.csv", "worker,step,micro_batch,duration_s\n0,0,0,5\n");
  const auto after = read(entry);
  EXPECT_EQ(added(*before.delay, 0, 0, 1), (Seconds{3}));
  EXPECT_EQ(added(*after.delay, 0, 0, 1), (Seconds{5}));
}

TEST_F(TraceFiles, FaultsNameFileAndLine) {
  const auto faults = [&](const std::string& text) {
    write("bad.csv", text);
    return read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"").faults;
  };
  const std::string header = "worker,step,micro_batch,duration_s\n";
  EXPECT_THAT(faults("worker,step,micro_batch\n0,0,1\n"), HasSubstr("bad.csv:1: the column duration_s is missing"));
  EXPECT_THAT(faults("worker,step,duration_s\n0,0,1\n0,1,1\n0,0,2\n"),
              HasSubstr("bad.csv:4: worker 0, step 0 is already in line 2; several rows of one step need a column "
                        "micro_batch that numbers them from 0"));
  EXPECT_THAT(faults(header), HasSubstr("bad.csv:1: there are no rows"));
  EXPECT_THAT(faults(header + "0,0,0,-1\n"), HasSubstr("bad.csv:2: duration_s = -1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n0,0,1,one\n"), HasSubstr("bad.csv:3: duration_s = one"));
  EXPECT_THAT(faults(header + "0,0,0,inf\n"), HasSubstr("bad.csv:2: duration_s = inf"));
  EXPECT_THAT(faults(header + "0,0,0,1000000001\n"), HasSubstr("bad.csv:2: duration_s = 1000000001; must be at most"));
  EXPECT_THAT(faults(header + "0.5,0,0,1\n"), HasSubstr("bad.csv:2: worker = 0.5"));
  EXPECT_THAT(faults(header + "0,0,-1,1\n"), HasSubstr("bad.csv:2: micro_batch = -1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n1,0,0,1\n0,0,0,2\n"),
              AllOf(HasSubstr("bad.csv:4"), HasSubstr("is already in line 2")));
  EXPECT_THAT(faults(header + "0,0,0,1\n2,0,0,1\n"), HasSubstr("bad.csv:3: worker = 2; there is no worker 1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n1,5,0,1\n"), HasSubstr("bad.csv:3: step = 5; there is no step 1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n0.5,x,0,1\n1,-1,0,-2\n"),
              AllOf(HasSubstr("bad.csv:3: step = x"), HasSubstr("bad.csv:4: step = -1"),
                    HasSubstr("bad.csv:4: duration_s = -2")));
  EXPECT_THAT(
      faults(header + "0,0,0,1\n0,0,0,1\n0,0,0,1\n"),
      AllOf(HasSubstr("bad.csv:3: worker 0, step 0, micro-batch 0 is already in line 2"), HasSubstr("bad.csv:4: ")));
  EXPECT_THAT(faults(header + "0,0,0,1\n0,0,1,1\n"), "");
  EXPECT_THAT(read("kind = \"trace\"\nfile = \"bad.csv\"").faults, HasSubstr("end is missing"));
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nscope = \"worker\"").faults,
              HasSubstr("changes from step to step"));
  std::vector<TraceLimit> limits;
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 4, &limits}).faults,
              HasSubstr("no rows for worker 3; its number of workers is 1"));
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 2, &limits}).faults,
              HasSubstr("no rows for worker 1; its number of workers is 1"));
  EXPECT_EQ(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 1, &limits}).faults, "");
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 1, &limits, 3}).faults,
              HasSubstr("has 2 micro-batches per step, fewer than cluster.micro_batches = 3; lower that"));
  EXPECT_EQ(
      read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nscope = \"step\"", {0.01, 1, &limits, 3}).faults, "");
  EXPECT_EQ(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\ngroup_size = 4", {0.01, 4, &limits}).faults,
            "");
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\ngroup_size = 4", {0.01, 5, &limits}).faults,
              HasSubstr("no rows for group 1; its number of workers is 1"));
  EXPECT_EQ(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nworkers = [0]", {0.01, 4, &limits}).faults, "");
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nworkers = [2, 0]", {0.01, 4, &limits}).faults,
              HasSubstr("no rows for worker 2"));
}

using testing::AllOf;
using testing::HasSubstr;

constexpr int recorded_workers = 4;
constexpr std::int64_t recorded_steps = 20;

// Micro-batch m of step s on worker n takes 100 n + s + m / 10 + 1 seconds, so a duration shows its place.
std::string recorded_trace() {
  std::string text = "worker,step,micro_batch,duration_s\n";
  for (int n = 0; n < recorded_workers; ++n)
    for (int s = 0; s < recorded_steps; ++s)
      for (int m = 0; m < 2; ++m) text += fmt::format("{},{},{},{}\n", n, s, m, 100 * n + s + 0.1 * m + 1);
  return text;
}

std::shared_ptr<const DelayProcess> stretched(const TraceStretch& stretch) {
  return trace_delay(std::make_shared<const Trace>("run.csv", recorded_trace()), {.stretch = stretch});
}

struct Place {
  int worker;
  std::int64_t step;
  bool operator==(const Place&) const = default;
};

Place place(const DelayProcess& process, int worker, std::int64_t step, std::uint64_t seed = 7) {
  std::vector<double> both(2, 0.0);
  process.add({.seed = seed, .worker = Rank{worker}, .step = step}, 0, both);
  EXPECT_NEAR(both[1] - both[0], 0.1, 1e-9);  // both micro-batches come from one recorded step
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

// The chi-squared statistic of k counts, with k - 1 degrees of freedom. Tests compare it with its 99.99 % point.
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
  EXPECT_EQ(of_worker_0.size(), 4u);  // a recorded worker is missing with probability (3/4)^40 = 1e-5
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
  EXPECT_NEAR(equal, 1000 / 20.0, 5 * std::sqrt(1000 / 20.0));  // by chance in 1 of 20 draws
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
  EXPECT_LT(equal, 60);  // by chance 500 / 80, in blocks of 5
}

// A recorded step has two micro-batches, so micro-batch m has the time of micro-batch m mod 2, m / 2 steps later.
TEST(TraceStretch, MicroBatchesBeyondAStepContinueInTheNextOnes) {
  const auto process = stretched({.block_steps = 3, .continues = true});
  const auto strict = stretched({.block_steps = 3});
  for (std::int64_t step = 0; step < 60; ++step) {
    const RandomStream stream{.seed = 7, .worker = Rank{2}, .step = step};
    const Place begin = place(*strict, 2, step);
    std::vector<double> together(7, 0.0);
    process->add(stream, 1, together);  // micro-batches 1 to 7
    for (int m = 1; m <= 7; ++m) {
      const auto recorded = (begin.step + m / 2) % recorded_steps;
      const double expected_s = 100 * begin.worker + static_cast<double>(recorded) + 0.1 * (m % 2) + 1;
      EXPECT_NEAR(together[static_cast<std::size_t>(m - 1)], expected_s, 1e-9) << step << " " << m;
      std::vector<double> alone(1, 0.0);
      process->add(stream, static_cast<std::uint32_t>(m), alone);
      EXPECT_EQ(alone[0], together[static_cast<std::size_t>(m - 1)]);
    }
    std::vector<double> too_many(3, 0.0);
    EXPECT_THROW(strict->add(stream, 0, too_many), RunFailure);
  }
}

TEST(TraceStretch, AWorkerMayFollowTheRecordedWorkerOfItsNumber) {
  const auto process = stretched({.block_steps = 3, .own_worker = true});
  std::set<std::int64_t> begins;
  for (int worker = 0; worker < 4; ++worker)
    for (std::int64_t step = 0; step < 60; ++step) {
      const Place now = place(*process, worker, step);
      EXPECT_EQ(now.worker, worker);
      if (step % 3 == 0) begins.insert(now.step);
    }
  EXPECT_GT(begins.size(), 10u) << "blocks are drawn as before";
  EXPECT_NEAR(process->step_law({.seed = 7, .worker = Rank{2}}, 2).mean_s, 2 * 10.5 + 0.1 + 200 * 2, 1e-9);
}

TEST(TraceStretch, LawsAreThoseOfWhomAWorkerFollows) {
  // A recorded step s of worker n takes 2 (100 n + s + 1) + 0.1. Over s = 0 .. 19 the variance is 4 (20^2 - 1) / 12.
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

// A worker's base time and its first delay are drawn independently, so they come from different places of the
// recording.
TEST(TraceStretch, BaseAndFirstDelayDrawApart) {
  const auto delay = stretched({.block_steps = 1}), base = stretched({.block_steps = 1, .is_base = true});
  int equal = 0;
  for (std::int64_t step = 0; step < 1000; ++step) equal += place(*delay, 0, step).step == place(*base, 0, step).step;
  EXPECT_NEAR(equal, 50, 36);  // binomial with probability 1/20, five deviations
}

TEST_F(TraceFiles, AStretchedTraceServesAnyNumberOfWorkers) {
  write("run.csv", recorded_trace());
  std::vector<TraceLimit> limits;
  const std::string entry = "kind = \"trace\"\nfile = \"run.csv\"\n";
  const auto stretched = read(entry + "stretch = { block_steps = 5 }", {0.01, 1000, &limits});
  EXPECT_EQ(stretched.faults, "");
  EXPECT_THAT(stretched.resolved, AllOf(HasSubstr("redraw_worker = false"), HasSubstr("together = false")));
  added(*stretched.delay, 999, 1'000'000, 2);
  EXPECT_THAT(read(entry + "end = \"wrap\"\nstretch = { block_steps = 5 }").faults,
              AllOf(HasSubstr("end = \"wrap\""), HasSubstr("left out with stretch")));
  EXPECT_THAT(read(entry + "stretch = { block_steps = 5, worker = \"own\", redraw_worker = true }").faults,
              HasSubstr("must be \"drawn\" with redraw_worker = true"));
  EXPECT_THAT(read(entry + "stretch = { block_steps = 5, worker = \"own\" }", {0.01, 1000, &limits}).faults,
              HasSubstr("the trace has no rows for worker 999"));
  EXPECT_THAT(read(entry + "stretch = { block_steps = 21 }").faults,
              AllOf(HasSubstr("stretch.block_steps = 21"), HasSubstr("from 1 to 20")));
  EXPECT_THAT(read(entry + "stretch = { block_steps = 0 }").faults, HasSubstr("from 1 to 20"));
  EXPECT_THAT(read(entry + "stretch = {}").faults, HasSubstr("stretch.block_steps is missing"));
  EXPECT_THAT(read(entry + "stretch = { block_step = 4 }").faults, HasSubstr("did you mean"));
}

using testing::AllOf;
using testing::HasSubstr;

using HistogramFiles = DelayFiles;

const std::string header = "bin_left_s,bin_right_s,density\n";

// A mass of 1/4 is uniform on [1, 2), none is from 2 to 3, and 3/4 are uniform on [3, 6).
const std::string gap = header + "1,2,0.5\n2,2.5,0\n3,6,0.5\n";

TEST(Histogram, QuantilesAreThoseOfUniformBins) {
  const Histogram histogram("gap", gap);
  for (const auto& [u, x] : {std::pair{0.0625, 1.25}, {0.125, 1.5}, {0.25, 3.0}, {0.5, 4.0}, {0.75, 5.0}})
    EXPECT_DOUBLE_EQ(histogram.quantile(u), x) << u;
  EXPECT_NEAR(histogram.quantile(0x1p-53), 1, 1e-12);
  EXPECT_NEAR(histogram.quantile(1 - 0x1p-53), 6, 1e-12);
  // The mean is 1/4 x 1.5 + 3/4 x 4.5, and E[X^2] is 1/4 (1 + 2 + 4) / 3 + 3/4 (9 + 18 + 36) / 3.
  EXPECT_DOUBLE_EQ(histogram.mean_s(), 3.75);
  EXPECT_NEAR(histogram.variance_s2(), 7.0 / 12 + 63.0 / 4 - 3.75 * 3.75, 1e-12);
  EXPECT_EQ(histogram.minimum_s(), 1);
}

TEST(Histogram, FilesOfTheProjectHaveTheMomentsOfTheirSource) {
  // Compared up to the digits of the source. Its standard deviations are those of the bins' centres.
  for (const auto& [name, mean, digit, deviation, bin_s] : {std::tuple{"dropcompute-160", 34.37, 0.01, 1.679, 0.16197},
                                                            {"dropcompute-192", 8.142, 0.001, 0.424, 0.01877}}) {
    const auto& files = embedded_histograms();
    const auto file = std::ranges::find(files, name, &EmbeddedFile::name);
    ASSERT_NE(file, files.end());
    std::ifstream source(std::string(SYNCOPATE_SOURCE_DIR "/workers/time/data/") + name + ".csv");
    std::ostringstream text;
    text << source.rdbuf();
    EXPECT_EQ(file->content, text.str()) << "the program holds what stands in the source";
    const Histogram histogram(name, file->content);
    EXPECT_NEAR(histogram.mean_s(), mean, 0.51 * digit) << name;
    EXPECT_NEAR(std::sqrt(histogram.variance_s2() - bin_s * bin_s / 12), deviation, 0.00051) << name;
  }
}

// Mean and variance are within four standard errors. A Kolmogorov-Smirnov test at the level 0.001 compares with the
// distribution function of the file's rows, which is piecewise linear.
TEST(Histogram, DrawsFollowTheFile) {
  constexpr std::size_t n = 50'000;
  for (const EmbeddedFile& file : embedded_histograms()) {
    const auto histogram = std::make_shared<const Histogram>(std::string(file.name), file.content);
    std::vector<std::array<double, 3>> bins;
    double mass = 0;
    CsvRows rows("file", file.content, {"bin_left_s", "bin_right_s", "density"});
    while (rows.next()) {
      bins.push_back({rows.number(0), rows.number(1), rows.number(2)});
      mass += (bins.back()[1] - bins.back()[0]) * bins.back()[2];
    }
    std::vector<double> sample = added(*histogram_delay(histogram, 0.5, -3), 1, 2, n);
    double mean = 0, second = 0, fourth = 0, distance = 0, cumulative = 0;
    const double expected_mean = 0.5 * histogram->mean_s() - 3, expected_variance = histogram->variance_s2() / 4;
    for (const double x : sample) {
      const double square = (x - expected_mean) * (x - expected_mean);
      mean += x / n, second += square / n, fourth += square * square / n;
    }
    EXPECT_NEAR(mean, expected_mean, 4 * std::sqrt(expected_variance / n)) << file.name;
    EXPECT_NEAR(second, expected_variance, 4 * std::sqrt((fourth - second * second) / n)) << file.name;
    std::ranges::sort(sample);
    std::size_t bin = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double x = 2 * (sample[i] + 3);
      for (; bin + 1 < bins.size() && bins[bin][1] <= x; ++bin)
        cumulative += (bins[bin][1] - bins[bin][0]) * bins[bin][2] / mass;
      const double below = cumulative + (x - bins[bin][0]) * bins[bin][2] / mass;
      distance = std::max(distance, std::abs((static_cast<double>(i) + 0.5) / n - below));
    }
    EXPECT_LT(distance * std::sqrt(n), 1.9495) << file.name;
  }
}

TEST_F(HistogramFiles, AreFoundBesideTheExperimentScaledAndShifted) {
  write("gap.csv", gap);
  write_compressed("gap.csv.gz", gap);
  const auto plain = read("kind = \"histogram\"\nfile = \"gap.csv\"");
  EXPECT_EQ(plain.faults, "");
  EXPECT_DOUBLE_EQ(plain.delay->mean_s(), 3.75);
  EXPECT_EQ(added(*plain.delay, 1, 2, 50), added(*read("kind = \"histogram\"\nfile = \"gap.csv.gz\"").delay, 1, 2, 50));
  const auto absolute =
      read("kind = \"histogram\"\nscale = 2\nshift = -100\nunit = \"micro_batch\"\nfile = \"" + path("gap.csv") + "\"");
  EXPECT_EQ(absolute.faults, "");
  EXPECT_DOUBLE_EQ(absolute.delay->mean_s(), 2 * 3.75 - 100 * 0.010);
  EXPECT_DOUBLE_EQ(absolute.delay->variance_s2(), 4 * plain.delay->variance_s2());
  EXPECT_DOUBLE_EQ(absolute.delay->minimum_s(), 1);
  EXPECT_NEAR(read("kind = \"histogram\"\ndata = \"dropcompute-192\"").delay->mean_s(), 8.142, 0.006);
}

// Spreadsheets write such files: byte order mark, blanks, other line ends, further columns.
TEST_F(HistogramFiles, MayHaveAByteOrderMarkOtherLineEndsAndFurtherColumns) {
  write("marked.csv", "\xef\xbb\xbf bin_right_s , note, bin_left_s,density\r\n2,first,1,0.5\r\n\r\n4,,3,0.25\r\n");
  write("plain.csv", "bin_left_s,bin_right_s,density\n1,2,0.5\n3,4,0.25");
  const auto marked = read("kind = \"histogram\"\nfile = \"marked.csv\"");
  EXPECT_EQ(marked.faults, "");
  EXPECT_EQ(added(*marked.delay, 1, 2, 50), added(*read("kind = \"histogram\"\nfile = \"plain.csv\"").delay, 1, 2, 50));
}

// A file's content is part of the configuration, so a changed file makes another run.
TEST_F(HistogramFiles, ContentIsPartOfTheConfiguration) {
  write("gap.csv", gap);
  const std::string entry = "kind = \"histogram\"\nfile = \"gap.csv\"\n";
  const auto before = read(entry);
  EXPECT_THAT(before.resolved, HasSubstr("file_hash = \""));
  EXPECT_EQ(read(before.resolved).resolved, before.resolved);
  write("gap.csv", gap + "7,8,0.1\n");
  EXPECT_NE(read(entry).resolved, before.resolved);
  EXPECT_THAT(read(before.resolved).faults, HasSubstr("file_hash"));
}

TEST_F(HistogramFiles, FaultsNameFileAndLine) {
  const auto faults = [&](const std::string& rows) {
    write("bad.csv", rows);
    const Read bad = read("kind = \"histogram\"\nfile = \"bad.csv\"");
    EXPECT_NE(bad.delay, nullptr);
    EXPECT_THAT(bad.faults, HasSubstr("experiment.toml:2:"));
    return bad.faults;
  };
  EXPECT_THAT(faults(header + "1,2,0.5\n2,3,-0.1\n"), HasSubstr("bad.csv:3: density = -0.1"));
  EXPECT_THAT(faults(header + "2,3,0.5\n1,2,0.1\n"), HasSubstr("bad.csv:3: bin_left_s = 1"));
  EXPECT_THAT(faults(header + "1,2,0.5\n1.5,3,0.1\n"), HasSubstr("bad.csv:3: bin_left_s = 1.5"));
  EXPECT_THAT(faults(header + "1,2,0.5\n\n3,3,0.1\n"), HasSubstr("bad.csv:4: bin_right_s = 3"));
  EXPECT_THAT(faults(header + "1,2,0\n2,3,0\n"), AllOf(HasSubstr("bad.csv:3"), HasSubstr("empty")));
  EXPECT_THAT(faults(header), AllOf(HasSubstr("bad.csv:1"), HasSubstr("empty")));
  EXPECT_THAT(faults(header + "1,1000000001,0.5\n"), HasSubstr("bad.csv:2: bin_right_s = 1000000001; must be at most"));
  EXPECT_THAT(faults(header + "1,two,0.5\n"), HasSubstr("bad.csv:2: bin_right_s = two"));
  EXPECT_THAT(faults(header + "1,nan,0.5\n"), HasSubstr("bad.csv:2: bin_right_s = nan"));
  EXPECT_THAT(faults(header + "1,2\n"), HasSubstr("bad.csv:2: density = nothing"));
  EXPECT_THAT(faults("bin_left_s,density\n1,2\n"), HasSubstr("bad.csv:1: the column bin_right_s is missing"));
  EXPECT_THAT(faults(""), HasSubstr("bad.csv:1: the file is empty"));
  // All faults are reported together, but not in thousands of lines.
  EXPECT_THAT(faults(header + "1,2,-1\n2,x,nan\n3,3,1\n"),
              AllOf(HasSubstr("bad.csv:2: density = -1"), HasSubstr("bad.csv:3: bin_right_s = x"),
                    HasSubstr("bad.csv:3: density = nan"), HasSubstr("bad.csv:4: bin_right_s = 3")));
  EXPECT_THAT(
      faults("a;b\n1;2\n"),
      AllOf(HasSubstr("bin_left_s is missing; the header separates columns by semicolons"), HasSubstr("density is")));
  std::string many = header;
  for (int i = 0; i < 100; ++i) many += "1,2,-1\n";
  EXPECT_THAT(faults(many), AllOf(HasSubstr("bad.csv:2:"), HasSubstr("bad.csv: 179 more faults")));
  // With decimal commas, a row has more values than columns.
  EXPECT_THAT(faults(header + "1,5,2,5,0,5\n"), HasSubstr("bad.csv:2: there are 6 values for 3 columns"));
  EXPECT_THAT(faults("bin_left_s,bin_left_s,bin_right_s,density\n1,1,2,1\n"), HasSubstr("bin_left_s occurs twice"));
  write_compressed("whole.csv.gz", gap);
  std::filesystem::resize_file(folder_ / "whole.csv.gz", 30);
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"whole.csv.gz\"").faults, HasSubstr("the file is truncated"));
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"none.csv\"").faults, HasSubstr("there is no file"));
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"/dev/null\"").faults, HasSubstr("/dev/null is a device or a pipe"));
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"/\"").faults, HasSubstr("/ is a directory; must be a file"));
  EXPECT_THAT(read("kind = \"histogram\"").faults, HasSubstr("is required, unless data"));
  EXPECT_THAT(read("kind = \"histogram\"\ndata = \"dropcompute-161\"").faults, HasSubstr("dropcompute-160"));
  EXPECT_THAT(read("kind = \"histogram\"\ndata = \"dropcompute-160\"\nfile = \"bad.csv\"").faults,
              HasSubstr("together with file"));
}

}  // namespace
}  // namespace syncopate
