#include "workers/time/trace.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

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

// Worker n, step s, micro-batch m takes n + s / 10 + m / 100 + 1 s; in an odd order, with further columns. Worker 1
// has dropped micro-batches 1 and 2 of step 1.
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

// As R's write.csv and Python's csv.QUOTE_ALL write it.
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
  const StepLaw law = delay->step_law({.worker = Rank{0}}, 3);  // sums 3.03 and 3.33
  EXPECT_NEAR(law.mean_s, 2 * 3.18 - 1.5, 1e-12);
  EXPECT_NEAR(law.variance_s2, 4 * 0.15 * 0.15, 1e-12);
  EXPECT_NEAR(delay->step_law({.worker = Rank{1}}, 3).mean_s, 2 * 6.03 - 1.5, 1e-12);  // of the whole step alone
}

TEST(Trace, WhatWasDroppedIsAnErrorOnlyWhereItIsAskedFor) {
  const auto delay = trace_delay(trace(), {});
  EXPECT_THAT(failure(*delay, 1, 1, 3),
              AllOf(HasSubstr("worker 1, step 1, micro-batch 1"), HasSubstr("run.csv"), HasSubstr("dropped")));
  EXPECT_THAT(failure(*delay, 1, 1, 1, 2), HasSubstr("micro-batch 2"));
  EXPECT_THAT(failure(*delay, 0, 0, 4), AllOf(HasSubstr("micro-batch 3"), HasSubstr("at most 3")));
  EXPECT_THAT(failure(*delay, 2, 0, 1), HasSubstr("worker 2"));
  const ComputeTime time(1, delay, {}, {});
  EXPECT_EQ(time.known_ahead(Rank{0}, Step{0}, 0, 12), 3u);
  EXPECT_EQ(time.known_ahead(Rank{0}, Step{0}, 1, 1), 1u);
  EXPECT_EQ(time.known_ahead(Rank{1}, Step{1}, 0, 12), 1u);
  EXPECT_EQ(time.known_ahead(Rank{1}, Step{1}, 1, 12), 1u);  // to ask for it is the error
}

// Rows of a recorded run in which much was dropped, whole steps of a worker too, in any order.
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

// Of a run of so many workers and steps at least one row in 64 is there, or the numbers are wrong.
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
    EXPECT_THAT(fault.what(), HasSubstr("65 rows for 65 workers and 65 steps: most are missing"));
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
  // Where micro-batches are computed for real, the mean over all rows stands for the base.
  EXPECT_NEAR(to_seconds(time.base(Rank{2})), base->mean_s(), 1e-9);
  EXPECT_NEAR(to_seconds(time.base(Rank{1})), 3 * base->mean_s(), 1e-9);
  EXPECT_EQ(time.added(Rank{1}, 0, 0), from_seconds(0.5));
  EXPECT_NEAR(time.step_law(Rank{1}, 3).mean_s, 3 * 3.18 + 1.5, 1e-12);
  EXPECT_NEAR(time.step_law(Rank{1}, 3).variance_s2, 9 * 0.15 * 0.15, 1e-12);
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
    EXPECT_EQ(limits[0].steps, Step{2});
    EXPECT_EQ(limits[0].end, TraceEnd::stop);
    EXPECT_THAT(entry.resolved, HasSubstr("file_hash"));
  }
}

// Read again, also while somebody still holds what it held before.
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
              HasSubstr("bad.csv:4: worker 0, step 0 stands in line 2 already; several rows of a step need a column "
                        "micro_batch, which numbers them from 0"));
  EXPECT_THAT(faults(header), HasSubstr("bad.csv:1: there are no rows"));
  EXPECT_THAT(faults(header + "0,0,0,-1\n"), HasSubstr("bad.csv:2: duration_s = -1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n0,0,1,one\n"), HasSubstr("bad.csv:3: duration_s = one"));
  EXPECT_THAT(faults(header + "0,0,0,inf\n"), HasSubstr("bad.csv:2: duration_s = inf"));
  EXPECT_THAT(faults(header + "0,0,0,1000000001\n"), HasSubstr("bad.csv:2: duration_s = 1000000001; must be at most"));
  EXPECT_THAT(faults(header + "0.5,0,0,1\n"), HasSubstr("bad.csv:2: worker = 0.5"));
  EXPECT_THAT(faults(header + "0,0,-1,1\n"), HasSubstr("bad.csv:2: micro_batch = -1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n1,0,0,1\n0,0,0,2\n"),
              AllOf(HasSubstr("bad.csv:4"), HasSubstr("stands in line 2 already")));
  EXPECT_THAT(faults(header + "0,0,0,1\n2,0,0,1\n"), HasSubstr("bad.csv:3: worker = 2; there is no worker 1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n1,5,0,1\n"), HasSubstr("bad.csv:3: step = 5; there is no step 1"));
  EXPECT_THAT(faults(header + "0,0,0,1\n0.5,x,0,1\n1,-1,0,-2\n"),
              AllOf(HasSubstr("bad.csv:3: step = x"), HasSubstr("bad.csv:4: step = -1"),
                    HasSubstr("bad.csv:4: duration_s = -2")));
  EXPECT_THAT(
      faults(header + "0,0,0,1\n0,0,0,1\n0,0,0,1\n"),
      AllOf(HasSubstr("bad.csv:3: worker 0, step 0, micro-batch 0 stands in line 2"), HasSubstr("bad.csv:4: ")));
  EXPECT_THAT(faults(header + "0,0,0,1\n0,0,1,1\n"), "");
  EXPECT_THAT(read("kind = \"trace\"\nfile = \"bad.csv\"").faults, HasSubstr("end is missing"));
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nscope = \"worker\"").faults,
              HasSubstr("changes from step to step"));
  std::vector<TraceLimit> limits;
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 4, &limits}).faults,
              HasSubstr("no rows for worker 3: it has 1 workers"));
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 2, &limits}).faults,
              HasSubstr("no rows for worker 1: it has 1 workers"));
  EXPECT_EQ(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 1, &limits}).faults, "");
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"", {0.01, 1, &limits, 3}).faults,
              HasSubstr("have 2 micro-batches; cluster.micro_batches, 3, must be at most that"));
  EXPECT_EQ(
      read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nscope = \"step\"", {0.01, 1, &limits, 3}).faults, "");
  EXPECT_EQ(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\ngroup_size = 4", {0.01, 4, &limits}).faults,
            "");
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\ngroup_size = 4", {0.01, 5, &limits}).faults,
              HasSubstr("no rows for group 1: it has 1 workers"));
  EXPECT_EQ(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nworkers = [0]", {0.01, 4, &limits}).faults, "");
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"bad.csv\"\nworkers = [2, 0]", {0.01, 4, &limits}).faults,
              HasSubstr("no rows for worker 2"));
}

}  // namespace
}  // namespace syncopate
