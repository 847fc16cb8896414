// Rankings of methods, from summaries that are made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "results/result_table.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Sweep = std::vector<std::pair<std::string, std::string>>;

FoundRun run(const std::string& method, const Sweep& sweep, std::uint64_t seed, double accuracy) {
  FoundRun found{.directory = {}, .summary = {}, .on_wall_clock = false, .configuration = {}, .of_method = {}};
  for (const auto& [key, value] : sweep) found.configuration[key] = value;
  found.summary.method = method;
  found.summary.method_index = static_cast<std::size_t>(method.front());
  found.summary.sweep = sweep;
  found.summary.seed = seed;
  found.summary.final_test_accuracy = accuracy;
  found.summary.end_time_s = 100;
  return found;
}

// Three seeds around the mean, which differ in common, and by `spread` between methods.
void add(std::vector<FoundRun>& runs, const std::string& method, const Sweep& sweep, double mean, double spread = 0) {
  const std::vector<double> common = {-0.02, 0.0, 0.02}, own = {1, -2, 1};
  for (std::size_t i = 0; i < 3; ++i) runs.push_back(run(method, sweep, i + 1, mean + common[i] + spread * own[i]));
}

std::vector<std::string> methods(const Ranking& ranking) {
  std::vector<std::string> names;
  for (const RankedRow& row : ranking.rows) names.push_back(row.row->method);
  return names;
}

const Measure& accuracy() { return *measure_named("final_test_accuracy"); }

TEST(Ranking, HasTheBestFirstAtEachPoint) {
  std::vector<FoundRun> runs;
  add(runs, "A", {{"variant", "calm"}}, 0.80);
  add(runs, "B", {{"variant", "calm"}}, 0.85);
  add(runs, "C", {{"variant", "calm"}}, 0.70);
  add(runs, "A", {{"variant", "rough"}}, 0.60);
  add(runs, "B", {{"variant", "rough"}}, 0.50);
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, accuracy());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].point, "calm");
  EXPECT_THAT(methods(found[0]), ElementsAre("B", "A", "C"));
  EXPECT_EQ(found[1].point, "rough");
  EXPECT_THAT(methods(found[1]), ElementsAre("A", "B"));
}

// Where less is better.
TEST(Ranking, FollowsTheMeasure) {
  std::vector<FoundRun> runs;
  add(runs, "A", {}, 0.8);
  add(runs, "B", {}, 0.7);
  for (FoundRun& found : runs) found.summary.final_test_loss = found.summary.final_test_accuracy;
  const std::vector<ResultRow> rows = result_rows(runs);
  EXPECT_THAT(methods(rankings(rows, *measure_named("final_test_loss")).at(0)), ElementsAre("B", "A"));
  EXPECT_THAT([&] { rankings(rows, *measure_named("drop_rate")); },
              testing::ThrowsMessage<std::invalid_argument>("of drop_rate neither more nor less is better"));
  EXPECT_THAT([&] { rankings(rows, *measure_named("final_validation_loss")); },
              testing::ThrowsMessage<std::invalid_argument>("no run has final_validation_loss"));
}

// B is a point behind at every seed; C as far on average, but not at every seed.
TEST(Ranking, TellsWhoIsBehindAndWhoMayNotBe) {
  std::vector<FoundRun> runs;
  add(runs, "A", {}, 0.80);
  add(runs, "B", {}, 0.79, 0.0001);
  add(runs, "C", {}, 0.79, 0.02);
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, accuracy());
  EXPECT_EQ(which_when_table(found).text(),
            "point  best  not told apart from it  behind\n"
            "-------------------------------------------\n"
            "       A     C                       B\n");
  EXPECT_THAT(ranking_table(found, accuracy()).text(), HasSubstr("-1.000 ["));
}

// Whether one is behind is then not known, which is no tie.
TEST(Ranking, SaysWhichHaveNoSeedInCommon) {
  const std::vector<FoundRun> runs = {run("A", {}, 1, 0.8), run("A", {}, 2, 0.8), run("B", {}, 3, 0.7),
                                      run("B", {}, 4, 0.7)};
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, accuracy());
  EXPECT_THAT(which_when_table(found).text(), HasSubstr("B (not compared: no common seed)  -\n"));
  EXPECT_THAT(ranking_table(found, accuracy()).text(), HasSubstr("no common seed"));
}

// A method that the swept key does not concern is made once, and stands at all of its values; what is swept for one
// method alone makes more of its rows there.
TEST(Ranking, PutsRowsWhereTheyBelong) {
  std::vector<FoundRun> runs;
  add(runs, "A", {{"training.peak", "8"}}, 0.80);
  add(runs, "A", {{"training.peak", "16"}}, 0.70);
  add(runs, "B", {}, 0.75);
  add(runs, "C", {{"training.peak", "8"}, {"methods.C.threshold_s", "1"}}, 0.60);
  add(runs, "C", {{"training.peak", "8"}, {"methods.C.threshold_s", "2"}}, 0.61);
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, accuracy());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].point, "peak = 8");
  EXPECT_THAT(methods(found[0]), ElementsAre("A", "B", "C", "C"));
  EXPECT_EQ(found[1].point, "peak = 16");
  EXPECT_THAT(methods(found[1]), ElementsAre("B", "A"));
  EXPECT_THAT(ranking_table(found, accuracy()).text(), HasSubstr("C, threshold_s = 2"));
}

// Of the first seed alone, at another number of workers: it is no row at the sweep's points.
TEST(Ranking, PutsRowsBesideTheSweepAtPointsOfTheirOwn) {
  std::vector<FoundRun> runs;
  for (const char* const workers : {"8", "16"}) {
    add(runs, "A", {{"cluster.workers", workers}}, 0.80);
    add(runs, "B", {{"cluster.workers", workers}}, 0.75);
  }
  for (const char* const method : {"A", "B"}) {
    runs.push_back(run(method, {}, 1, 0.99));
    runs.back().configuration = {{"cluster.workers", "2"}};
  }
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, accuracy());
  ASSERT_EQ(found.size(), 3u);
  for (const Ranking& ranking : found) EXPECT_THAT(methods(ranking), ElementsAre("A", "B")) << ranking.point;
  EXPECT_EQ(found[0].point, "workers = 8");
  EXPECT_EQ(found[1].point, "workers = 16");
  EXPECT_EQ(found[2].point, "workers = 2");
}

// A reached it at 20 s or a little later; C went on to 100 s without; D ended at 10 s, and says nothing.
TEST(Ranking, OfTimesToTheTargetPutsLastWhoNeverReachedIt) {
  std::vector<FoundRun> runs;
  for (const char* method : {"A", "C", "D"}) add(runs, method, {}, 0.8);
  for (FoundRun& found : runs) {
    found.summary.time_to_target.emplace();
    if (found.summary.method == "A")
      found.summary.time_to_target->time_s = 20 + static_cast<double>(found.summary.seed);
    if (found.summary.method == "D") found.summary.end_time_s = 10;
  }
  const Measure& measure = *measure_named("time_to_target_s");
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, measure);
  EXPECT_EQ(methods(found.at(0)).front(), "A");
  EXPECT_DOUBLE_EQ(found[0].rows[0].mean, 22);
  const std::string table = ranking_table(found, measure).text();
  EXPECT_THAT(table, testing::AllOf(HasSubstr("> 100 (0/3)"), HasSubstr("> 10 (0/3)"), HasSubstr("22 (3/3)"),
                                    testing::Not(HasSubstr("*"))));
  EXPECT_THAT(which_when_table(found).text(),
              testing::ContainsRegex("A +D \\(no run reached it\\) +C \\(no run reached it\\)"));
}

// B reached the target at every seed, A at one, by when all are known; C never did.
TEST(Ranking, RestrictsTimesToTheTarget) {
  std::vector<FoundRun> runs;
  for (const char* method : {"A", "B", "C"}) add(runs, method, {}, 0.8);
  for (FoundRun& found : runs) {
    found.summary.time_to_target.emplace();
    if (found.summary.method == "B" || (found.summary.method == "A" && found.summary.seed == 1))
      found.summary.time_to_target->time_s = 50;
  }
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, *measure_named("time_to_target_s"));
  EXPECT_THAT(methods(found.at(0)), ElementsAre("B", "A", "C"));
  EXPECT_DOUBLE_EQ(found[0].rows[0].mean, 50);
  EXPECT_NEAR(found[0].rows[1].mean, (50 + 100 + 100) / 3.0, 1e-9);
  EXPECT_DOUBLE_EQ(found[0].rows[2].mean, 100);
  EXPECT_THAT(ranking_table(found, *measure_named("time_to_target_s")).text(),
              testing::AllOf(HasSubstr("50 (3/3)"), HasSubstr("83.33 (1/3)"), HasSubstr("100 (0/3)")));
}

TEST(Ranking, HasNoBestWhereNobodyReachedTheTarget) {
  std::vector<FoundRun> runs;
  for (const char* variant : {"calm", "rough"}) add(runs, "A", {{"variant", variant}}, 0.8);
  for (FoundRun& found : runs) found.summary.time_to_target.emplace();
  const Measure& measure = *measure_named("time_to_target_s");
  EXPECT_THAT([&] { rankings(result_rows(runs), measure); },
              testing::ThrowsMessage<std::invalid_argument>("no run reached the target"));
  for (FoundRun& found : runs)
    if (found.summary.sweep[0].second == "calm") found.summary.time_to_target->time_s = 50;
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, measure);
  EXPECT_THAT(ranking_table(found, measure).text(), HasSubstr("nobody reached the target"));
  EXPECT_THAT(which_when_table(found).text(), testing::ContainsRegex("rough +nobody reached the target"));
}

}  // namespace
}  // namespace syncopate
