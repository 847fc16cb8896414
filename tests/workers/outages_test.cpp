#include "workers/time/outages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

using std::chrono::seconds;

OutageEntry scheduled(std::int64_t at, std::int64_t duration, bool loses_state = false) {
  return {.workers = {Rank{0}}, .when = ScheduledOutage{Duration{at}, Duration{duration}}, .loses_state = loses_state};
}

std::int64_t ns(Time time) { return time.time_since_epoch().count(); }

// Random integers: below(end) is one of 0 .. end - 1.
class Numbers {
 public:
  explicit Numbers(int test) : stream_{.seed = 17, .purpose = Purpose::algorithm, .worker = {}, .step = Step{test}} {}
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(stream_.uniform(next_++) * static_cast<double>(end));
  }

 private:
  RandomStream stream_;
  std::uint32_t next_ = 0;
};

// The state of every nanosecond: 0 up, 1 down, 2 down in an outage that loses the worker's state.
std::vector<int> marked(const std::vector<OutageEntry>& entries, std::size_t end) {
  std::vector<int> marks(end, 0);
  for (const OutageEntry& entry : entries) {
    const auto& when = std::get<ScheduledOutage>(entry.when);
    for (auto t = when.at.count(); t < (when.at + when.duration).count(); ++t)
      marks.at(static_cast<std::size_t>(t)) = 1;
  }
  // Adjoining outages are one: if one of them loses the state, the whole outage does.
  for (const OutageEntry& entry : entries) {
    if (!entry.loses_state) continue;
    auto first = static_cast<std::size_t>(std::get<ScheduledOutage>(entry.when).at.count());
    while (first > 0 && marks[first - 1] > 0) --first;
    for (; first < end && marks[first] > 0; ++first) marks[first] = 2;
  }
  return marks;
}

std::vector<OutageEntry> some_entries(Numbers& numbers) {
  std::vector<OutageEntry> entries;
  for (std::int64_t i = numbers.below(6); i > 0; --i)
    entries.push_back(scheduled(numbers.below(60), 1 + numbers.below(12), numbers.below(5) == 0));
  return entries;
}

TEST(Outages, OfOneWorkerThatOverlapOrTouchAreOne) {
  constexpr std::size_t end = 200;
  for (int test = 0; test < 500; ++test) {
    SCOPED_TRACE(test);
    Numbers numbers(test);
    const auto entries = some_entries(numbers);
    const auto marks = marked(entries, end);
    WorkerOutages outages = OutagePlan(1, entries).of(Rank{0});
    for (std::size_t t = 0; t + 1 < end; ++t) {
      const Outage& outage = outages.next(Time{Duration{t}});
      const bool is_down = outage.begin <= Time{Duration{t}};
      ASSERT_EQ(is_down, marks[t] > 0) << t;
      if (is_down) {
        ASSERT_EQ(outage.loses_state, marks[t] == 2) << t;
      }
      if (is_down) {
        ASSERT_EQ(marks[static_cast<std::size_t>(ns(outage.end))], 0) << t;
      }
    }
    EXPECT_EQ(outages.next(Time{Duration{end}}).begin, never);
    EXPECT_EQ(OutagePlan(1, entries).of(Rank{1}).next(start_time).begin, never);
  }
}

// The result of pass(), computed nanosecond by nanosecond.
Passage step_by_step(const std::vector<int>& marks, std::int64_t start, std::int64_t duration, std::int64_t deadline) {
  Passage passage;
  for (std::int64_t t = start;;) {
    const auto mark = [&](std::int64_t at) { return marks.at(static_cast<std::size_t>(at)); };
    if (mark(t) > 0) {
      passage.lost_state = mark(t) == 2;
      while (mark(t) > 0) ++t;
      passage.end = Time{Duration{t}};
      if (passage.lost_state) return passage;
      continue;
    }
    if (t >= deadline) {
      passage.end = Time{Duration{t}};
      return passage;
    }
    ++t;
    ++passage.worked;
    if (passage.worked.count() < duration && t < deadline) continue;
    passage.kept = t < deadline;
    passage.end = Time{Duration{t}};
    return passage;
  }
}

TEST(Outages, PauseAMicroBatchOrEndIt) {
  int kept = 0, lost = 0, stopped = 0;
  for (int test = 0; test < 3000; ++test) {
    SCOPED_TRACE(test);
    Numbers numbers(test);
    const auto entries = some_entries(numbers);
    const std::int64_t start = numbers.below(50), duration = 1 + numbers.below(30);
    const std::int64_t deadline = test % 2 == 0 ? start + numbers.below(50) : 100'000;
    WorkerOutages outages = OutagePlan(1, entries).of(Rank{0});
    outages.next(Time{Duration{start}});
    const Passage found = pass(&outages, Time{Duration{start}}, Duration{duration}, Deadline(Time{Duration{deadline}}));
    const Passage expected = step_by_step(marked(entries, 400), start, duration, deadline);
    ASSERT_EQ(ns(found.end), ns(expected.end));
    ASSERT_EQ(found.kept, expected.kept);
    ASSERT_EQ(found.lost_state, expected.lost_state);
    ASSERT_EQ(found.worked, expected.worked);
    Duration up{};
    Time begin{Duration{start}};
    for (const auto& [end, down] : found.pieces) {
      ASSERT_LT(begin, end);
      if (!down) up += end - begin;
      begin = end;
    }
    ASSERT_EQ(begin, found.end);
    ASSERT_EQ(up, found.worked);
    ++(found.kept ? kept : found.lost_state ? lost : stopped);
  }
  EXPECT_GT(std::min({kept, lost, stopped}), 100);  // all three cases occur
}

// Like step_by_step(), but for a deadline that judges a forward pass. If the pass ends past the deadline, the
// micro-batch is discarded. The first `forward` nanoseconds of work are the forward pass, with or without outages.
Passage judged_step_by_step(const std::vector<int>& marks, std::int64_t start, std::int64_t duration,
                            std::int64_t forward, std::int64_t deadline) {
  Passage passage;
  std::int64_t t = start;
  const auto down = [&] { return marks.at(static_cast<std::size_t>(t)); };
  while (true) {
    if (down() > 0) {
      passage.lost_state = down() == 2;
      while (down() > 0) ++t;
      if (passage.lost_state) break;
    }
    const std::int64_t worked = passage.worked.count();
    passage.kept = worked == duration;
    // Past the deadline, a micro-batch stops if it has not begun, or at an outage's end if its forward pass has not
    // ended.
    const bool is_stopped =
        worked < forward && t > deadline && (t == start || marks.at(static_cast<std::size_t>(t) - 1));
    if (passage.kept || is_stopped) break;
    ++t;
    ++passage.worked;
    if (worked + 1 == forward && t > deadline) break;
    if (worked + 1 == duration) {
      passage.kept = true;
      break;
    }
  }
  passage.end = Time{Duration{t}};
  return passage;
}

TEST(Outages, ABackwardPassBeginsWhereItsForwardPassEndsWhateverIsBetween) {
  int kept = 0, lost = 0, stopped = 0, ties = 0;
  for (int test = 0; test < 20000; ++test) {
    SCOPED_TRACE(test);
    Numbers numbers(test);
    const auto entries = some_entries(numbers);
    const std::int64_t start = numbers.below(50), duration = 2 + numbers.below(30);
    const std::int64_t forward = 1 + numbers.below(duration - 1);
    const std::int64_t deadline = start + numbers.below(60);
    // With this share of the duration the forward pass takes `forward` nanoseconds, whether the product is truncated or
    // rounded to the nearest.
    const double share = (static_cast<double>(forward) + 0.25) / static_cast<double>(duration);
    WorkerOutages outages = OutagePlan(1, entries).of(Rank{0});
    outages.next(Time{Duration{start}});
    const Passage found = pass(&outages, Time{Duration{start}}, Duration{duration},
                               Deadline(Time{Duration{deadline}}, Preempt::backward, share));
    const Passage expected = judged_step_by_step(marked(entries, 400), start, duration, forward, deadline);
    ASSERT_EQ(ns(found.end), ns(expected.end));
    ASSERT_EQ(found.kept, expected.kept);
    ASSERT_EQ(found.lost_state, expected.lost_state);
    ASSERT_EQ(found.worked, expected.worked);
    ++(found.kept ? kept : found.lost_state ? lost : stopped);
    ties += !found.kept && ns(found.end) == deadline + 1;
  }
  EXPECT_GT(std::min({kept, lost, stopped, ties}), 100);  // all cases occur
}

TEST(Outages, DoNotStopWhatADeadlineLetsFinish) {
  const WorkerOutages outages = OutagePlan(1, {scheduled(40, 20)}).of(Rank{0});
  const auto end_of = [&](Preempt preempt, std::int64_t deadline) {
    return pass(&outages, start_time, Duration{90}, Deadline(Time{Duration{deadline}}, preempt));
  };
  // The work takes 40 ns before the outage and 50 ns after it. The forward pass is the first 30 ns.
  EXPECT_TRUE(end_of(Preempt::microbatch, 50).kept);
  EXPECT_EQ(ns(end_of(Preempt::microbatch, 50).end), 110);
  EXPECT_TRUE(end_of(Preempt::backward, 50).kept);
  EXPECT_EQ(ns(end_of(Preempt::backward, 50).end), 110);
  EXPECT_FALSE(end_of(Preempt::backward, 20).kept);
  EXPECT_EQ(ns(end_of(Preempt::backward, 20).end), 30);
  EXPECT_FALSE(end_of(Preempt::discard, 50).kept);
  EXPECT_EQ(ns(end_of(Preempt::discard, 50).end), 60);
  EXPECT_EQ(end_of(Preempt::discard, 50).worked, Duration{40});
  EXPECT_EQ(end_of(Preempt::discard, 50).backward, 0);
  // The backward pass takes 60 ns, 10 ns of them before the outage.
  EXPECT_FALSE(end_of(Preempt::layer, 50).kept);
  EXPECT_EQ(ns(end_of(Preempt::layer, 50).end), 60);
  EXPECT_EQ(end_of(Preempt::layer, 50).backward, 10.0 / 60);
  EXPECT_EQ(end_of(Preempt::layer, 20).backward, 0);
  EXPECT_EQ(end_of(Preempt::layer, 80).backward, 30.0 / 60);
  EXPECT_TRUE(end_of(Preempt::layer, 110).kept);
}

TEST(Outages, AMicroBatchThatNeverEndsMeetsThemOnlyUntilItsDeadline) {
  const OutagePlan plan(1, {{.workers = {}, .when = RandomOutages{1, 1}}});
  const WorkerOutages outages = plan.of(Rank{0});
  EXPECT_EQ(pass(&outages, start_time, longest_duration, {}).pieces.size(), 1u);
  const Passage stopped = pass(&outages, start_time, longest_duration, Deadline(Time{seconds(1000)}));
  EXPECT_FALSE(stopped.kept);
  EXPECT_GT(stopped.pieces.size(), 100u);
}

TEST(Outages, RandomOnesHaveTheirMeansAndAvailability) {
  constexpr int count = 20000;
  constexpr double up_s = 3, down_s = 1;
  const OutagePlan plan(5, {{.workers = {}, .when = RandomOutages{up_s, down_s}, .loses_state = true}});
  WorkerOutages outages = plan.of(Rank{2});
  double up = 0, down = 0;
  Time before{};
  for (int i = 0; i < count; ++i) {
    const Outage outage = outages.next(before);
    ASSERT_TRUE(outage.loses_state);
    up += to_seconds(outage.begin) - to_seconds(before);
    down += to_seconds(outage.end) - to_seconds(outage.begin);
    before = outage.end;
  }
  // Standard errors: mean / sqrt(n) for the mean of an exponential distribution. For the availability A, by the delta
  // method, A (1 - A) sqrt(2 / n) = 0.0019.
  const double n = count, availability = up_s / (up_s + down_s);
  EXPECT_NEAR(up / n, up_s, 4 * up_s / std::sqrt(n));
  EXPECT_NEAR(down / n, down_s, 4 * down_s / std::sqrt(n));
  EXPECT_NEAR(up / (up + down), availability, 4 * availability * (1 - availability) * std::sqrt(2 / n));
}

TEST(Outages, RandomOnesAreAFunctionOfSeedEntryWorkerAndNumber) {
  const OutageEntry random{.workers = {}, .when = RandomOutages{10, 1}};
  const auto first = [&](std::uint64_t seed, int worker, const std::vector<OutageEntry>& entries) {
    return OutagePlan(seed, entries).of(Rank{worker}).next(start_time);
  };
  const OutageEntry of_another{.workers = {Rank{9}}, .when = RandomOutages{10, 1}};
  EXPECT_EQ(first(1, 0, {random}).begin, first(1, 0, {random, of_another}).begin);
  EXPECT_NE(first(1, 0, {random}).begin, first(2, 0, {random}).begin);
  EXPECT_NE(first(1, 0, {random}).begin, first(1, 1, {random}).begin);
  EXPECT_NE(first(1, 0, {random}).begin, first(1, 0, {of_another, random}).begin);
  // An outage does not depend on the time of the first request, nor on the number of requests.
  const OutagePlan plan(1, {random});
  WorkerOutages slowly = plan.of(Rank{0}), at_once = plan.of(Rank{0});
  for (int t = 0; t < 1000; ++t) slowly.next(Time{seconds(t)});
  EXPECT_EQ(slowly.next(Time{seconds(1000)}).begin, at_once.next(Time{seconds(1000)}).begin);
}

TEST(Outages, LoseTheStateOfThoseTheyConcernAlone) {
  const OutageEntry kept{.workers = {}, .when = RandomOutages{10, 1}};
  const OutageEntry lost{.workers = {Rank{1}, Rank{3}}, .when = RandomOutages{10, 1}, .loses_state = true};
  const OutagePlan plan(1, {kept, lost});
  for (int worker = 0; worker < 5; ++worker) {
    EXPECT_EQ(plan.loses_state(Rank{worker}), worker == 1 || worker == 3);
    WorkerOutages outages = plan.of(Rank{worker});
    bool any = false;
    for (Time at{}; at < Time{seconds(1000)}; at = outages.next(at).end) any |= outages.next(at).loses_state;
    EXPECT_EQ(any, plan.loses_state(Rank{worker})) << worker;
  }
  EXPECT_TRUE(OutagePlan(1, {{.workers = {}, .when = RandomOutages{1, 1}, .loses_state = true}}).loses_state(Rank{7}));
  EXPECT_FALSE(OutagePlan(1, {}).loses_state(Rank{0}));
}

// The part of outages after a time, if a worker has had several outages since it last met other workers.
TEST(Outages, ThatRunBeyondATimeAreCutThere) {
  const auto at = [](std::int64_t time) { return Time{Duration{time}}; };
  OutageProgress progress;
  EXPECT_EQ(progress.down_beyond(start_time), Duration{0});
  progress.add(at(10), at(20), start_time);
  progress.add(at(30), at(45), start_time);
  for (const auto& [time, beyond] :
       {std::pair{0, 25}, {10, 25}, {15, 20}, {20, 15}, {25, 15}, {31, 14}, {45, 0}, {60, 0}})
    EXPECT_EQ(progress.down_beyond(at(time)), Duration{beyond}) << time;
  // The worker meets others at the end of the second outage, at 45. A third one follows.
  progress.add(at(50), at(57), at(45));
  EXPECT_EQ(progress.down_beyond(at(45)), Duration{7});
  EXPECT_EQ(progress.met.size(), 1u);
}

std::shared_ptr<const FaultRecording> recording(const std::string& rows) {
  return std::make_shared<FaultRecording>("faults.csv", "level,node,start_s,duration_s\n" + rows);
}

TEST(Outages, ARecordingWithoutRowsIsAFault) {
  EXPECT_THAT([] { recording(""); }, testing::ThrowsMessage<FileFault>(
                                         testing::HasSubstr("faults.csv:1: there are no rows after the header")));
  EXPECT_THAT([] { recording("x,1,two,3\n"); },
              testing::ThrowsMessage<FileFault>(testing::Not(testing::HasSubstr("no rows"))));
}

// Begin and end of each outage of a worker, in seconds.
std::vector<std::pair<double, double>> all_of(const OutagePlan& plan, int worker) {
  WorkerOutages outages = plan.of(Rank{worker});
  std::vector<std::pair<double, double>> found;
  for (Outage outage = outages.next(start_time); outage.begin != never; outage = outages.next(outage.end))
    found.emplace_back(std::round(1e6 * to_seconds(outage.begin)) / 1e6,
                       std::round(1e6 * to_seconds(outage.end)) / 1e6);
  return found;
}

// Rows are in any order. The faults of node 1 overlap. Node 0's fault takes no time, and node 2 has none.
TEST(Outages, RecordedOnesAreTheFaultsOfTheWorkersNodes) {
  const auto faults = recording("X,1,40,20\nX,0,5,0\n\"a, b\",1,10,4\nX,1,12,6\nX,3,100,1\n");
  EXPECT_EQ(faults->nodes(), 4);
  const OutagePlan plan(1, {{.when = RecordedOutages{.recording = faults, .time_scale = 0.5, .nodes = {1, 0, 1, 9}}}});
  using Times = std::vector<std::pair<double, double>>;
  EXPECT_EQ(all_of(plan, 0), (Times{{5, 9}, {20, 30}}));
  EXPECT_EQ(all_of(plan, 1), Times{});
  EXPECT_EQ(all_of(plan, 2), all_of(plan, 0));
  EXPECT_EQ(all_of(plan, 3), Times{}) << "a node beyond the recording had no fault";
  const OutagePlan of_two(
      1, {{.workers = {Rank{4}, Rank{2}}, .when = RecordedOutages{.recording = faults, .nodes = {0, 3}}}});
  EXPECT_EQ(all_of(of_two, 2), (Times{{100, 101}}));
  EXPECT_EQ(all_of(of_two, 4), Times{});
}

TEST(Outages, RecordedNodesAreDrawnWithoutRepetition) {
  std::string rows;
  for (int node = 0; node < 8; ++node)
    rows += "X," + std::to_string(node) + "," + std::to_string(10 * node + 1) + ",1\n";
  const auto faults = recording(rows);
  std::vector<std::vector<double>> orders;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const OutagePlan plan(seed, {{.when = RecordedOutages{.recording = faults, .node_count = 10}}});
    std::vector<double> begins;
    for (int worker = 0; worker < 10; ++worker)
      for (const auto& [begin, end] : all_of(plan, worker)) begins.push_back(begin);
    orders.push_back(begins);
    std::ranges::sort(begins);
    EXPECT_THAT(begins, testing::ElementsAre(1, 11, 21, 31, 41, 51, 61, 71)) << "each node's fault once";
  }
  EXPECT_FALSE(orders[0] == orders[1] && orders[1] == orders[2]);
}

// Node 0's fault takes no time, and node 2 has none.
TEST(Outages, NodesWithoutFaultsAreNoted) {
  const auto faults = recording("X,1,40,20\nX,0,5,0\nX,3,100,1\n");
  const auto listed = [&](std::vector<int> nodes) {
    return OutagePlan(1, {{.when = RecordedOutages{.recording = faults, .nodes = std::move(nodes)}}}).notes_on_nodes(4);
  };
  EXPECT_THAT(listed({1, 3, 3, 1}), testing::IsEmpty());
  EXPECT_THAT(listed({9, 2, 3, 9}),
              testing::ElementsAre("faults.csv: has no fault of 2 of the 3 listed nodes, first of node 2"));
  EXPECT_THAT(listed({0, 0, 0, 0}),
              testing::ElementsAre("faults.csv: has no fault of 1 of the 1 listed nodes, first of node 0"));
  const auto drawn = [](const std::shared_ptr<const FaultRecording>& recorded, std::vector<Rank> workers) {
    const OutageEntry of_drawn{.workers = std::move(workers),
                               .when = RecordedOutages{.recording = recorded, .node_count = 4}};
    return OutagePlan(7, {{.when = RandomOutages{1, 1}}, of_drawn}).notes_on_nodes(4);
  };
  EXPECT_THAT(drawn(faults, {}), testing::IsEmpty()) << "the four workers draw all nodes";
  EXPECT_THAT(drawn(faults, {Rank{3}, Rank{1}, Rank{0}}), testing::IsEmpty()) << "three draw node 1, node 3, or both";
  EXPECT_THAT(drawn(recording("X,1,40,0\n"), {Rank{2}}),
              testing::ElementsAre("faults.csv: has no fault of the nodes that the workers draw with seed 7"));
}

// A worker that draws its node alone gets a note with those seeds with which it has no outages.
TEST(Outages, ANoteOnDrawnNodesMeansThatTheWorkersHaveNoOutages) {
  const auto faults = recording("X,1,40,20\nX,3,100,1\n");
  int noted = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const OutagePlan plan(seed,
                          {{.workers = {Rank{2}}, .when = RecordedOutages{.recording = faults, .node_count = 4}}});
    EXPECT_EQ(plan.notes_on_nodes(4).empty(), !all_of(plan, 2).empty()) << seed;
    noted += plan.notes_on_nodes(4).empty() ? 0 : 1;
  }
  EXPECT_GT(noted, 0);
  EXPECT_LT(noted, 20);
}

TEST(Outages, FaultsOfRecordingsNameFileAndLine) {
  const auto fault = [](const std::string& rows) -> std::string {
    try {
      recording(rows);
    } catch (const FileFault& problem) {
      return problem.what();
    }
    return "";
  };
  EXPECT_EQ(fault("X,0,1,-2\nX,1,-3,2\n"),
            "faults.csv:2: duration_s = -2; must be at least 0\nfaults.csv:3: start_s = -3; must be at least 0");
  EXPECT_THAT(fault("X,0.5,1,2\n"), testing::HasSubstr("faults.csv:2: node = 0.5; must be an integer"));
  EXPECT_THAT(fault("X,0,,2\n"), testing::HasSubstr("faults.csv:2"));
  EXPECT_EQ(fault("X,gpu-17,1,2\nX,,1,2\nX,nan,1,2\n"),
            "faults.csv:2: node = gpu-17; must be an integer from 0 to 1000000\n"
            "faults.csv:3: node = nothing; must be an integer from 0 to 1000000\n"
            "faults.csv:4: node = nan; must be an integer from 0 to 1000000");
  EXPECT_EQ(fault("X,0,9,1\nX,0,1,20\n"), "") << "neither order nor overlaps matter";
}

// Counts are from workers/time/recordings/README.md.
TEST(Outages, TheRecordingOfTheProgramHasItsPublishedCounts) {
  const EmbeddedFile* const file = recording_named("gpu-cluster-faults");
  ASSERT_TRUE(file);
  const FaultRecording faults("", file->content);
  EXPECT_EQ(faults.nodes(), 231);
  std::size_t count = 0;
  double down_s = 0;
  for (int node = 0; node < faults.nodes(); ++node) {
    count += faults.of(node).size();
    for (const auto& one : faults.of(node)) down_s += one.duration_s;
  }
  EXPECT_EQ(count, 584u - 14u) << "14 faults take no time";
  constexpr double day_s = 86'400;
  EXPECT_NEAR(down_s / day_s / 400 / 348, 0.023, 0.0005);
}

// Faults of a job of three workers, and its down time nanosecond by nanosecond: a second implementation of JobOutages.
std::vector<bool> job_down(const std::vector<OutageEntry>& faults, const JobRestart& restart, std::int64_t end) {
  enum class Phase { runs, saves, restarts };
  std::vector<bool> down(static_cast<std::size_t>(end));
  Phase phase = Phase::runs;
  // Work since the checkpoint: `work` of this attempt, `most_work` of the attempt that has come furthest.
  std::int64_t left = 0, work = 0, most_work = 0;
  for (std::int64_t t = 0; t < end; ++t) {
    const auto is_down = [&](Rank worker, std::int64_t at) {
      return std::ranges::any_of(faults, [&](const OutageEntry& fault) {
        return fault.workers.front() == worker && std::get<ScheduledOutage>(fault.when).at.count() == at;
      });
    };
    // Outages of one worker that touch are one fault.
    const bool fails = std::ranges::any_of(std::array{Rank{0}, Rank{1}, Rank{2}},
                                           [&](Rank worker) { return is_down(worker, t) && !is_down(worker, t - 1); });
    if (fails) {
      left = restart.takes.count();
      phase = left > 0 ? Phase::restarts : Phase::runs;
      work = 0;
    }
    if (phase == Phase::runs) {
      down[static_cast<std::size_t>(t)] = ++work <= most_work;
      most_work = std::max(most_work, work);
      if (work < restart.checkpoint_every.count()) continue;
      left = restart.checkpoint_takes.count();
      phase = Phase::saves;
    } else {
      down[static_cast<std::size_t>(t)] = true;
      --left;
    }
    if (left > 0) continue;
    if (phase == Phase::saves) work = most_work = 0;
    phase = Phase::runs;
  }
  return down;
}

TEST(JobRestarts, RepeatTheWorkSinceTheLastCheckpoint) {
  constexpr std::int64_t end = 300;
  int of_both = 0;
  for (int test = 0; test < 2000; ++test) {
    SCOPED_TRACE(test);
    Numbers numbers(test);
    std::vector<OutageEntry> faults;
    for (std::int64_t i = numbers.below(8); i > 0; --i) {
      faults.push_back(scheduled(numbers.below(150), 1, true));
      faults.back().workers = {Rank{static_cast<int>(numbers.below(3))}};
    }
    const JobRestart restart{.takes = Duration{numbers.below(8)},
                             .checkpoint_every = Duration{1 + numbers.below(20)},
                             .checkpoint_takes = Duration{numbers.below(5)}};
    const std::vector<bool> expected = job_down(faults, restart, end);
    const OutagePlan plan(OutagePlan(1, faults), restart, 3);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_FALSE(plan.loses_state(Rank{worker}));
      WorkerOutages outages = plan.of(Rank{worker});
      for (std::int64_t t = 0; t < end; ++t) {
        const Outage& outage = outages.next(Time{Duration{t}});
        ASSERT_EQ(outage.begin <= Time{Duration{t}}, expected[static_cast<std::size_t>(t)]) << worker << " " << t;
        ASSERT_FALSE(outage.loses_state);
      }
    }
    of_both += faults.size() > 1 && restart.checkpoint_takes > Duration{} ? 1 : 0;
  }
  EXPECT_GT(of_both, 500);
}

// Daly 2006, Equation 20 ("A higher order estimate of the optimum checkpoint interval for restart dumps"): with
// exponential times between faults of mean M, a restart of R and a checkpoint of C after each tau of work, a work of
// tau takes M e^(R/M) (e^((tau + C)/M) - 1) on average. Faults of N workers come N times as often.
TEST(JobRestarts, TakeAsLongAsDalysFormulaSays) {
  constexpr int workers = 4;
  constexpr double mean_s = 400, restart_s = 15, every_s = 40, saves_s = 5;
  const OutageEntry entry{.when = RandomOutages{.mean_time_between_s = mean_s, .mean_duration_s = 1e-6}};
  const JobRestart restart{.takes = from_seconds(restart_s),
                           .checkpoint_every = from_seconds(every_s),
                           .checkpoint_takes = from_seconds(saves_s)};
  WorkerOutages outages = OutagePlan(OutagePlan(5, {entry}), restart, workers).of(Rank{2});
  const Time end = later(start_time, from_seconds(4e6));
  Duration down{};
  Time now = start_time;
  while (now < end) {
    const Outage outage = outages.next(now);
    down += outage.end - outage.begin;
    now = outage.end;
  }
  const double m = mean_s / workers;
  const double segment_s = m * std::exp(restart_s / m) * (std::exp((every_s + saves_s) / m) - 1);
  const double elapsed_s = to_seconds(now);
  EXPECT_NEAR((elapsed_s - to_seconds(down)) / elapsed_s, every_s / segment_s, 0.01 * every_s / segment_s);
}

TEST(JobRestarts, ThatNeverGetBeyondACheckpointFail) {
  const OutageEntry entry{.when = RandomOutages{.mean_time_between_s = 1e-3, .mean_duration_s = 1e-6}};
  const JobRestart restart{.takes = seconds(1), .checkpoint_every = seconds(1)};
  const OutagePlan plan(OutagePlan(5, {entry}), restart, 1);
  EXPECT_THROW((void)plan.of(Rank{0}), RunFailure);
}

}  // namespace
}  // namespace syncopate
