// Comparisons of methods with one chosen method, from summaries made by hand.
#include "results/paired_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "results/build_info.hpp"
#include "results/statistics.hpp"
#include "workers/base/arrays.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

FoundRun run(const std::string& method, std::uint64_t seed, double accuracy,
             const std::map<std::string, std::string>& configuration = {}) {
  FoundRun found{
      .directory = {}, .summary = {}, .on_wall_clock = false, .configuration = configuration, .of_method = {}};
  found.summary.method = method;
  found.summary.method_index = method == "A" ? 0 : 1;
  found.summary.seed = seed;
  found.summary.final_test_accuracy = accuracy;
  found.summary.end_time_s = 100;
  found.summary.steps = 50;
  found.summary.kept_micro_batches = 1000;
  return found;
}

std::vector<const Measure*> named(const std::vector<std::string>& names) {
  std::vector<const Measure*> result;
  for (const std::string& name : names) result.push_back(measure_named(name));
  return result;
}

// Seeds differ by whole points, and methods only by a tenth of a point. If runs are paired by seed, the difference is
// nearly certain.
TEST(PairedTable, WhatSeedsHaveInCommonCancels) {
  std::vector<FoundRun> runs;
  const std::vector<double> levels = {0.80, 0.85, 0.90}, gains = {0.0010, 0.0011, 0.0009};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    runs.push_back(run("A", i, levels[i]));
    runs.push_back(run("B", i, levels[i] + gains[i]));
  }
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<PairedRow> paired = paired_rows(rows, "A", named({"final_test_accuracy"}));
  ASSERT_EQ(paired.size(), 1u);
  EXPECT_EQ(paired[0].row->label, "B");
  const PairedMeasure& accuracy = paired[0].measures.at(0);
  EXPECT_NEAR(accuracy.difference.mean, 0.001, 1e-12);
  // The half width is t(2) at 97.5 %, 4.3026527, times the standard error 0.0001 / sqrt(3).
  EXPECT_NEAR(accuracy.difference.interval->high, 0.001 + 4.302652729911275 * 0.0001 / std::sqrt(3.0), 1e-9);
  EXPECT_TRUE(accuracy.difference.is_significant());
  EXPECT_THAT(paired_table(paired).text(), HasSubstr("B       85.1  +0.100 [+0.075, +0.125]*  3\n"));
}

TEST(PairedTable, ShowsTinyLossesAndTheirDifferencesInScientificForm) {
  std::vector<FoundRun> runs = {run("A", 1, 0.8), run("A", 2, 0.8), run("B", 1, 0.8), run("B", 2, 0.8)};
  const double losses[] = {3e-7, 3e-7, 1.1e-7, 0.9e-7};
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].summary.final_test_loss = losses[i];
  const std::vector<ResultRow> rows = result_rows(runs);
  // The differences are -1.9e-7 and -2.1e-7. The half width is t(1) at 97.5 %, 12.7062, times their standard error of
  // 1e-8.
  EXPECT_THAT(paired_table(paired_rows(rows, "A", named({"final_test_loss"}))).text(),
              HasSubstr("1e-07  -2.0e-07 [-3.3e-07, -7e-08]*"));
}

TEST(PairedTable, TakesCommonSeedsAlone) {
  const std::vector<FoundRun> runs = {run("A", 1, 0.8), run("A", 2, 0.8), run("B", 2, 0.9), run("B", 3, 0.1)};
  const std::vector<ResultRow> rows = result_rows(runs);
  const PairedMeasure accuracy = paired_rows(rows, "A", named({"final_test_accuracy"})).at(0).measures.at(0);
  EXPECT_EQ(accuracy.difference.n, 1u);
  EXPECT_NEAR(accuracy.difference.mean, 0.1, 1e-12);
  const std::vector<FoundRun> apart = {run("A", 1, 0.8), run("B", 2, 0.9)};
  const std::vector<ResultRow> apart_rows = result_rows(apart);
  EXPECT_THAT([&] { paired_rows(apart_rows, "A", named({"final_test_accuracy"})); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("no run has a seed in common")));
  EXPECT_THAT([&] { paired_rows(rows, "AA", named({"final_test_accuracy"})); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("must be one of A, B")));
}

TEST(PairedTable, NamesRowsWithoutACommonSeed) {
  const std::vector<FoundRun> runs = {run("A", 1, 0.8), run("B", 1, 0.9), run("C", 2, 0.7)};
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<PairedRow> paired = paired_rows(rows, "A", named({"final_test_accuracy"}));
  ASSERT_EQ(paired.size(), 2u);
  EXPECT_TRUE(paired[1].measures.empty());
  EXPECT_THAT(paired_notes(paired, "A"), HasSubstr("No difference, because there is no common seed: C.\n"));
}

TEST(PairedTable, ComparesAtTheSamePoint) {
  std::vector<FoundRun> runs;
  for (const char* const workers : {"8", "16"})
    for (const char* const method : {"A", "B"}) {
      runs.push_back(run(method, 1, *workers == '8' ? 0.8 : 0.7, {{"cluster.workers", workers}}));
      runs.back().summary.sweep = {{"cluster.workers", workers}};
    }
  const std::vector<ResultRow> rows = result_rows(runs);
  std::vector<std::string> labels;
  for (const ResultRow& row : rows) labels.push_back(row.label);
  EXPECT_THAT(labels, ElementsAre("A, workers = 8", "A, workers = 16", "B, workers = 8", "B, workers = 16"));
  for (const PairedRow& paired : paired_rows(rows, "A", named({"final_test_accuracy"})))
    EXPECT_EQ(paired.measures.at(0).difference.mean, 0) << paired.row->label;
  // If `against` is the whole label of a row, all other rows are compared with this row.
  const auto against_8 = paired_rows(rows, "A, workers = 8", named({"final_test_accuracy"}));
  EXPECT_EQ(against_8.size(), 3u);
}

// One of the variants has a key that the other lacks.
TEST(PairedTable, AKeyThatIsMissingIsAnotherPoint) {
  std::vector<FoundRun> runs;
  for (const char* const method : {"A", "B"}) {
    runs.push_back(run(method, 1, 0.8, {{"delays.0.kind", "\"normal\""}}));
    runs.back().summary.sweep = {{"variant", "plain"}};
    runs.push_back(run(method, 1, 0.7, {{"delays.0.kind", "\"normal\""}, {"delays.0.scope", "\"step\""}}));
    runs.back().summary.sweep = {{"variant", "by steps"}};
  }
  const std::vector<ResultRow> rows = result_rows(runs);
  const auto paired = paired_rows(rows, "A", named({"final_test_accuracy"}));
  ASSERT_EQ(paired.size(), 2u);
  for (const PairedRow& each : paired) EXPECT_EQ(each.measures.at(0).difference.mean, 0) << each.row->label;
}

// If only one method overrides a key, the other method has no separate point for it.
TEST(PairedTable, AMethodThatDoesNotVaryIsComparedWithEveryPoint) {
  std::vector<FoundRun> runs = {run("A", 1, 0.8, {{"rate", "0.1"}})};
  for (const char* const rate : {"0.1", "0.2"}) {
    runs.push_back(run("B", 1, 0.9, {{"rate", rate}}));
    runs.back().summary.sweep = {{"rate", rate}};
  }
  EXPECT_EQ(paired_rows(result_rows(runs), "A", named({"final_test_accuracy"})).size(), 2u);
}

// Runs of two configurations have the same names, because the file was changed between them.
TEST(PairedTable, RowsThatWouldBeAlikeSayWhatDiffers) {
  const std::vector<FoundRun> runs = {run("A", 1, 0.8, {{"rate", "0.1"}}), run("A", 1, 0.7, {{"rate", "0.2"}})};
  std::vector<std::string> labels;
  for (const ResultRow& row : result_rows(runs)) labels.push_back(row.label);
  EXPECT_THAT(labels, ElementsAre("A, rate = 0.1", "A, rate = 0.2"));
}

TEST(PairedTable, TimesToATargetEndAtACommonHorizon) {
  std::vector<FoundRun> runs;
  const auto add = [&](const char* method, std::uint64_t seed, std::optional<double> reached_s, double end_s) {
    runs.push_back(run(method, seed, 0.8));
    runs.back().summary.time_to_target = TimeToTarget{0.8, {}, reached_s, {}, {}};
    runs.back().summary.end_time_s = end_s;
  };
  add("A", 1, 20, 100);
  add("A", 2, 90, 100);
  add("B", 1, 30, 100);
  add("B", 2, {}, 60);  // times beyond 60 s are therefore unknown
  const std::vector<ResultRow> rows = result_rows(runs);
  const PairedMeasure times = paired_rows(rows, "A", named({"time_to_target_s"})).at(0).measures.at(0);
  EXPECT_EQ(times.horizon_s, 60);
  EXPECT_EQ(times.reached, 1u);
  EXPECT_DOUBLE_EQ(times.own.mean, 45);
  EXPECT_DOUBLE_EQ(times.other.mean, 40);
  EXPECT_DOUBLE_EQ(times.difference.mean, 5);
}

class TargetTimes : public testing::Test {
 protected:
  void add(const char* method, std::uint64_t seed, std::optional<double> reached_s, double end_s) {
    runs_.push_back(run(method, seed, 0.8));
    runs_.back().summary.time_to_target = TimeToTarget{0.8, {}, reached_s, {}, {}};
    runs_.back().summary.end_time_s = end_s;
  }
  std::vector<PairedRow> paired() {
    rows_ = result_rows(runs_);
    return paired_rows(rows_, "A", named({"time_to_target_s"}));
  }
  std::vector<FoundRun> runs_;
  std::vector<ResultRow> rows_;
};

// B misses the target in one seed after 60 s, which is the horizon of all rows that reached the target. C and D do not
// affect it.
TEST_F(TargetTimes, HaveOneHorizonInAllRowsThatReachedIt) {
  add("A", 1, 20, 100);
  add("A", 2, 90, 100);
  add("B", 1, 30, 100);
  add("B", 2, {}, 60);
  add("C", 1, {}, 50);
  add("C", 2, {}, 70);
  add("D", 1, 40, 100);
  add("D", 2, 45, 100);
  const std::vector<PairedRow> rows = paired();
  ASSERT_EQ(rows.size(), 3u);
  for (const std::size_t reached_it : {0, 2}) EXPECT_EQ(rows[reached_it].measures.at(0).horizon_s, 60);
  EXPECT_DOUBLE_EQ(rows[2].measures.at(0).own.mean, 42.5);
  EXPECT_DOUBLE_EQ(rows[2].measures.at(0).other.mean, 40);  // mean of 20 s, and of 60 s in place of 90 s
  EXPECT_THAT(
      paired_notes(rows, "A"),
      HasSubstr("restricted means: a time that is later than the limit, or unknown, counts as the\nlimit (60 s)"));
}

// Each run of C ended without reaching the target, at least 78 s later than A's run with the same seed reached it. The
// exact difference is unknown.
TEST_F(TargetTimes, ThatNoSeedReachedAreBoundsWithoutAStar) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    add("A", seed, 19 + static_cast<double>(seed), 100);
    add("C", seed, {}, 100);
  }
  const std::vector<PairedRow> rows = paired();
  const PairedMeasure& times = rows.at(0).measures.at(0);
  EXPECT_TRUE(times.is_bound);
  EXPECT_FALSE(times.difference.is_significant());
  EXPECT_DOUBLE_EQ(times.difference.mean, (80 + 79 + 78) / 3.0);
  const std::string text = paired_table(rows).text();
  EXPECT_THAT(text, HasSubstr("> 100 (0/3)  > +79.00"));
  EXPECT_THAT(text, Not(HasSubstr("*")));
  EXPECT_THAT(paired_notes(rows, "A"),
              AllOf(HasSubstr("> T (0/n): no run reached the target"), Not(HasSubstr("restricted means"))));
}

TEST_F(TargetTimes, AreNotComparedWithThoseOfAMethodThatNeverReachedIt) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    add("A", seed, {}, 100);
    add("B", seed, 50, 100);
  }
  const std::vector<PairedRow> rows = paired();
  EXPECT_TRUE(rows.at(0).measures.empty());
  EXPECT_THAT(paired_notes(rows, "A"),
              HasSubstr("Times to the target are not compared, because no run of \"A\" reached it: B.\n"));
}

// Three runs are from outside the sweep. The first two are at one of its points.
TEST(PairedTable, ARunWithoutTheSweepIsWhereItsConfigurationPutsIt) {
  std::vector<FoundRun> runs;
  for (const char* const workers : {"8", "16"}) {
    runs.push_back(run("A", 1, 0.8, {{"cluster.workers", workers}, {"budget.steps", "60"}}));
    runs.back().summary.sweep = {{"cluster.workers", workers}};
  }
  runs.push_back(run("A", 2, 0.8, {{"cluster.workers", "16"}, {"budget.steps", "60"}}));
  runs.push_back(run("A", 3, 0.8, {{"cluster.workers", "16"}, {"budget.steps", "60"}}));
  runs.push_back(run("A", 1, 0.1, {{"cluster.workers", "2"}, {"budget.steps", "12"}}));
  std::vector<std::string> labels;
  std::vector<std::size_t> counts;
  for (const ResultRow& row : result_rows(runs)) {
    labels.push_back(row.label);
    counts.push_back(row.runs.size());
  }
  EXPECT_THAT(labels, ElementsAre("A, budget.steps = 12, cluster.workers = 2", "A, workers = 8", "A, workers = 16"));
  EXPECT_THAT(counts, ElementsAre(1, 1, 3));
}

TEST(PairedTable, SaysOfWhomNoTimeToTheTargetIsCompared) {
  std::vector<FoundRun> runs;
  for (const char* const method : {"A", "B", "C"})
    for (const std::uint64_t seed : {1, 2}) {
      runs.push_back(run(method, seed, 0.8));
      const bool is_reached = *method == 'C' && seed == 1;
      runs.back().summary.time_to_target =
          TimeToTarget{0.8, {}, is_reached ? std::optional(7.0) : std::nullopt, {}, {}};
    }
  const std::vector<ResultRow> rows = result_rows(runs);
  const char* const note = "Times to the target are not compared, because no run of either method reached it: B.\n";
  EXPECT_THAT(paired_notes(paired_rows(rows, "A", named({"time_to_target_s"})), "A"), HasSubstr(note));
  EXPECT_THAT(paired_notes(paired_rows(rows, "A", named({"final_test_accuracy"})), "A"), Not(HasSubstr("target")));
}

TEST(PairedTable, SpeedIsARatio) {
  std::vector<FoundRun> runs = {run("A", 1, 0.8), run("B", 1, 0.8)};
  runs[1].summary.end_time_s = 80;           // 1.25 times as fast as the other run
  runs[1].summary.kept_micro_batches = 900;  // nine tenths of the micro-batches are kept
  const std::vector<ResultRow> rows = result_rows(runs);
  const PairedRow paired = paired_rows(rows, "A", named({"step_time_s", "micro_batches_per_s"})).at(0);
  EXPECT_DOUBLE_EQ(1 + paired.measures[0].ratio->mean, 1.25);
  EXPECT_DOUBLE_EQ(1 + paired.measures[1].ratio->mean, 1.125);
  EXPECT_THAT(paired_table(std::vector{paired}).text(), HasSubstr("B                  1.2500  1.1250  1\n"));
}

// Figures use the same rule (plots/comparison.py), which is tested with tests/plots/comparison_cases.py.
TEST(PairedTable, RowsHaveLargeNumbersInShort) {
  const auto label = [](const std::string& value) {
    std::vector<FoundRun> runs = {run("A", 1, 0.8)};
    runs.front().summary.sweep = {{"training.parameters", value}};
    return result_rows(runs).front().label;
  };
  const std::map<std::string, std::string> expected = {
      {"1250000000.0", "1.25G"},    {"1.25e+08", "125M"},      {"10000", "10k"},
      {"9999.0", "9999.0"},         {"0.05", "0.05"},          {"-20000", "-20k"},
      {"1234567891", "1234567891"}, {"10 Gbit/s", "10 Gbit/s"}};
  for (const auto& [value, shown] : expected) EXPECT_EQ(label(value), "A, parameters = " + shown);
}

// Without randomness all seeds have the same difference. So there is no interval, and no star.
TEST(PairedTable, WhatIsTheSameForEverySeedIsExact) {
  std::vector<FoundRun> runs;
  for (const std::uint64_t seed : {1, 2, 3}) {
    runs.push_back(run("A", seed, 0.8));
    runs.push_back(run("B", seed, 0.8 + 1e-16));  // as if sums were added in another order
    runs.push_back(run("C", seed, 0.9));
    runs.back().summary.end_time_s = 80;
  }
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<PairedRow> paired = paired_rows(rows, "A", named({"final_test_accuracy", "micro_batches_per_s"}));
  EXPECT_TRUE(is_exact(paired.at(0).measures.at(0).difference));
  EXPECT_TRUE(is_exact(*paired.at(1).measures.at(1).ratio));
  const std::string text = paired_table(paired).text();
  EXPECT_THAT(text, HasSubstr("80  0 (exact)"));
  EXPECT_THAT(text, HasSubstr("90  +10.00 (exact)"));
  EXPECT_THAT(text, HasSubstr("1.250 (exact)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("*")));
  EXPECT_THAT(paired_notes(paired, "A"), HasSubstr("(exact): the difference is the same for every seed"));
}

TEST(TextTable, IsBrokenWhereItIsTooWide) {
  TextTable table;
  for (const char* const heading : {"method", "one", "two", "three"}) table.add_column(heading, Align::left);
  table.add_row({"A", "1", "2", "3"});
  EXPECT_EQ(table.text(), "method  one  two  three\n-----------------------\nA       1    2    3\n");
  EXPECT_EQ(table.text(16),
            "method  one  two\n----------------\nA       1    2\n\nmethod  three\n-------------\nA       3\n");
  EXPECT_EQ(table.text(3),
            "method  one\n-----------\nA       1\n\nmethod  two\n-----------\nA       2\n\n"
            "method  three\n-------------\nA       3\n");
  EXPECT_EQ(table.folded_text(16), table.text(16)) << "nothing is long";
}

TEST(TextTable, IsWrittenAsMarkdownAndLatex) {
  TextTable table;
  table.add_column("a|b", Align::left);
  table.add_column("accuracy\n%", Align::right);
  table.add_row({"x_1 & y", "88.1 +- 0.2"});
  EXPECT_EQ(table.markdown(), "| a\\|b | accuracy % |\n|---|---:|\n| x_1 & y | 88.1 +- 0.2 |\n");
  EXPECT_EQ(table.latex(),
            "\\begin{tabular}{lr}\n\\toprule\n & accuracy \\\\\na|b & \\% \\\\\n\\midrule\n"
            "x\\_1 \\& y & 88.1 $\\pm$ 0.2 \\\\\n\\bottomrule\n\\end{tabular}\n");
}

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Returns a run of 10 steps that ended at `end_s` and dropped `dropped` of 100 micro-batches.
RunSummary summary(const char* method, double end_s, int dropped) {
  RunSummary run;
  run.method = method;
  run.end_time_s = end_s;
  run.steps = 10;
  run.kept_micro_batches = 100 - dropped;
  run.dropped_micro_batches = dropped;
  return run;
}

ComparedRun compared(double simulated_s, double mpi_s, int simulated_dropped = 0, int mpi_dropped = 0) {
  return {.simulated = summary("method", simulated_s, simulated_dropped), .mpi = summary("method", mpi_s, mpi_dropped)};
}

TEST(Comparison, ErrorsAreThoseOfTheSimulation) {
  EXPECT_NEAR(step_time_error(compared(0.9, 1.0)), -0.1, 1e-12);
  EXPECT_NEAR(drop_rate_error(compared(1, 1, 12, 10)), 0.02, 1e-12);
  EXPECT_EQ(relative_error(0, 0), 0);
  EXPECT_EQ(relative_error(1, 0), std::numeric_limits<double>::infinity());

  const Tolerances bars;
  EXPECT_EQ(verdict(compared(1.029, 1.0, 10, 10), bars).text(), "within");
  EXPECT_EQ(verdict(compared(1.031, 1.0, 10, 10), bars).text(), "step time");
  EXPECT_EQ(verdict(compared(0.969, 1.0, 10, 10), bars).text(), "step time");
  EXPECT_EQ(verdict(compared(1.0, 1.0, 12, 10), bars).text(), "drop rate");
  EXPECT_EQ(verdict(compared(0.5, 1.0, 12, 10), bars).text(), "step time, drop rate");
  EXPECT_EQ(verdict(compared(1.0, 1.0, 12, 10), {.drop_rate = 0.03}).text(), "within");
  ComparedRun failed = compared(1, 1);
  failed.failure = "under MPI: a reason";
  EXPECT_EQ(verdict(failed, bars).text(), "failed");

  const std::vector<ComparedRun> runs{compared(1.02, 1.0), compared(1.0, 1.25), failed};
  EXPECT_FALSE(all_within(runs, bars));
  EXPECT_TRUE(all_within(std::vector{runs[0]}, bars));
  const std::string table = comparison_table(runs, bars);
  EXPECT_THAT(table, HasSubstr("-20.00 %"));
  EXPECT_THAT(table, HasSubstr("method: under MPI: a reason"));
  EXPECT_THAT(table, HasSubstr("1 of 3 within 3 % of the time per step and 1 percentage points of the drop rate; "
                               "largest errors 20.00 % and 0.00 points"));
  const auto json = nlohmann::json::parse(comparison_json("e", runs, bars, {}));
  EXPECT_DOUBLE_EQ(json["largest_errors"]["step_time"], 0.2);
  EXPECT_EQ(json["runs"][2]["failure"], "under MPI: a reason");
}

Account communicating(double seconds) {
  Account account;
  account[Activity::communicate] = from_seconds(seconds);
  return account;
}

// Returns two runs with a different value of each quantity, and a failed run, which has meaningless numbers.
std::vector<ComparedRun> three_runs() {
  ComparedRun first{.simulated = summary("a", 14, 56), .mpi = summary("of MPI", 8, 48)};
  first.simulated.sweep = {{"cluster.workers", "2"}};
  first.simulated.seed = 3;
  first.simulated.hash = "0123";
  first.simulated.steps = 16;
  first.mpi.steps = 8;
  first.simulated.kept_micro_batches = 128 - 56;
  first.mpi.kept_micro_batches = 128 - 48;
  first.simulated.staleness = {1, 1};
  first.mpi.staleness = {1, 3};
  first.simulated.time_to_target = TimeToTarget{{}, {}, 4.0, {}, {}};
  first.mpi.time_to_target = TimeToTarget{{}, {}, 5.0, {}, {}};
  first.simulated.final_test_loss = 0.75;
  first.mpi.final_test_loss = 0.5;
  first.simulated.emulated_micro_batches = 1000;
  first.mpi.emulated_micro_batches = 2000;
  first.simulated.overruns = 11;
  first.mpi.overruns = 12;
  first.simulated.commit = "c1";
  first.mpi.commit = "c2";
  first.simulated.accounts = {communicating(5)};
  first.mpi.accounts = {communicating(2), communicating(3.5)};
  first.parameter_error = 0.003;
  first.depends_on_clock = true;
  ComparedRun second = compared(8.25, 8);
  second.simulated.method = "b";
  second.simulated.seed = 4;
  second.parameter_error = 1e-6;
  second.replaced_micro_batch_s = 0.02;
  ComparedRun failed = compared(100, 1, 90, 1);
  failed.simulated.seed = 3;
  failed.failure = "under MPI: a reason";
  return {first, second, failed};
}

constexpr Tolerances sixteenths{.step_time = 0.0625, .drop_rate = 0.03125};
const ComparisonMachine machine{.processor = "P", .cores = 7, .load = 1.5};

TEST(Comparison, EveryValueOfTheFileStandsUnderItsOwnName) {
  auto json = nlohmann::json::parse(comparison_json("e", three_runs(), sixteenths, machine));
  EXPECT_EQ(json["commit"], build_info().commit);
  json.erase("commit");
  json.erase("time");
  EXPECT_EQ(json["runs"][0], nlohmann::json::parse(R"({
    "method": "a", "sweep": [["cluster.workers", "2"]], "seed": 3, "hash": "0123",
    "verdict": "step time, drop rate", "step_time_error": -0.125, "drop_rate_error": 0.0625, "parameter_error": 0.003,
    "depends_on_clock": true, "replaced_micro_batch_s": null,
    "simulated": {"step_time_s": 0.875, "drop_rate": 0.4375, "mean_staleness": 0.5, "time_to_target_s": 4.0,
                  "end_time_s": 14.0, "steps": 16, "final_test_loss": 0.75, "overruns": 11,
                  "emulated_micro_batches": 1000, "communication_s": 0.3125, "commit": "c1"},
    "mpi": {"step_time_s": 1.0, "drop_rate": 0.375, "mean_staleness": 0.75, "time_to_target_s": 5.0,
            "end_time_s": 8.0, "steps": 8, "final_test_loss": 0.5, "overruns": 12,
            "emulated_micro_batches": 2000, "communication_s": 0.34375, "commit": "c2"}})"));
  EXPECT_EQ(json["runs"][1]["replaced_micro_batch_s"], 0.02);
  EXPECT_EQ(json["runs"][1]["depends_on_clock"], false);
  EXPECT_EQ(json["runs"][1]["verdict"], "within");
  EXPECT_TRUE(json["runs"][1]["mpi"]["mean_staleness"].is_null());
  EXPECT_TRUE(json["runs"][1]["mpi"]["time_to_target_s"].is_null());
  EXPECT_EQ(json["runs"][2], nlohmann::json::parse(R"({"method": "method", "sweep": [], "seed": 3, "hash": "",
    "verdict": "failed", "failure": "under MPI: a reason"})"));
  json.erase("runs");
  EXPECT_EQ(json, nlohmann::json::parse(R"({
    "experiment": "e", "machine": {"processor": "P", "cores": 7, "load_before": 1.5},
    "tolerances": {"step_time": 0.0625, "drop_rate": 0.03125},
    "largest_errors": {"step_time": 0.125, "drop_rate": 0.0625}, "all_within": false, "pace_note": null,
    "network_note": null, "over_seeds": []})"));
  const std::vector<ComparedRun> within{three_runs()[1]};
  EXPECT_EQ(nlohmann::json::parse(comparison_json("e", within, sixteenths, machine))["all_within"], true);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Comparison, TablesHaveEveryValueInItsColumn) {
  using testing::ElementsAre;
  const auto runs = three_runs();
  const std::string table = comparison_table(runs, sixteenths);
  std::istringstream stream(table);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(stream, line);) rows.push_back(words_of(line));
  ASSERT_GE(rows.size(), 9u);  // a heading of two lines, a rule, and three lines per run
  EXPECT_THAT(rows[3], ElementsAre("a,", "workers", "=", "2,", "seed", "3", "simulated", "0.875000", "43.75", "0.500",
                                   "4.000", "14.000", "0.75"));
  EXPECT_THAT(rows[4], ElementsAre("MPI", "1.000000", "37.50", "0.750", "5.000", "8.000", "0.5"));
  EXPECT_THAT(rows[5], ElementsAre("error", "-12.50", "%", "+6.25", "-0.250", "-20.00", "%", "+75.00", "%", "+50.00",
                                   "%", "(3.0e-03)", "step", "time,", "drop", "rate"));
  EXPECT_THAT(rows[6], ElementsAre("b,", "seed", "4", "simulated", "0.825000", "0.00", "-", "-", "8.250", "-"));
  EXPECT_THAT(rows[8], ElementsAre("error", "+3.12", "%", "+0.00", "-", "-", "+3.12", "%", "-", "1.0e-06", "within"));
  EXPECT_THAT(table, HasSubstr("1 of 3 within 6.25 % of the time per step and 3.12 percentage points of the drop "
                               "rate; largest errors 12.50 % and 6.25 points\n"));
  EXPECT_THAT(table, HasSubstr("\nNot compared:\nmethod, seed 3: under MPI: a reason\n"));
  EXPECT_THAT(table, HasSubstr("Parameters in brackets"));

  const std::string markdown = comparison_markdown("e", "f.toml", runs, sixteenths, machine);
  EXPECT_THAT(markdown, HasSubstr("# e: simulated against MPI\n"));
  EXPECT_THAT(markdown, HasSubstr("./dev compare f.toml "));
  EXPECT_THAT(markdown, HasSubstr("; 7 cores, P, load 1.5 at the start."));
  EXPECT_THAT(markdown, HasSubstr("Tolerances: 6.25 % and 3.12 points."));
  EXPECT_THAT(markdown, HasSubstr("\n| a, workers = 2, seed 3 | 0.875000 | 1.000000 | -12.50 | 43.75 | 37.50 | +6.25 | "
                                  "0.500 | 0.750 | 0.75 | 0.5 | (3.0e-03) | step time, drop rate |\n"
                                  "| b, seed 4 | 0.825000 | 0.800000 | +3.12 | 0.00 | 0.00 | +0.00 | - | - | - | - | "
                                  "1.0e-06 | within |\n| method, seed 3 | - |"));
  // Seeds are shown if there are several. Brackets are explained if there are any.
  const std::vector<ComparedRun> one{runs[1]};
  EXPECT_THAT(comparison_table(one, sixteenths), testing::AllOf(HasSubstr("\nb "), Not(HasSubstr("in brackets"))));
}

TEST(Comparison, SaysThatNobodyReachedTheTarget) {
  std::vector<ComparedRun> runs{compared(1, 1), compared(1, 1)};
  EXPECT_THAT(comparison_table(runs, sixteenths), Not(HasSubstr("No run reached the target")));
  for (ComparedRun& run : runs)
    run.simulated.time_to_target = run.mpi.time_to_target = TimeToTarget{0.9, {}, {}, {}, {}};
  EXPECT_THAT(comparison_table(runs, sixteenths), HasSubstr("No run reached the target, neither simulated nor"));
  runs[0].mpi.time_to_target->time_s = 1.0;
  EXPECT_THAT(comparison_table(runs, sixteenths), Not(HasSubstr("No run reached the target")));
}

TEST(Comparison, AnErrorAsLargeAsItsToleranceIsWithin) {
  const auto runs = three_runs();  // these have errors of 1/8 and 1/16
  EXPECT_EQ(verdict(runs[0], {.step_time = 0.125, .drop_rate = 0.0625}).text(), "within");
  EXPECT_EQ(verdict(runs[0], {.step_time = 0.124, .drop_rate = 0.0625}).text(), "step time");
  EXPECT_EQ(verdict(runs[0], {.step_time = 0.125, .drop_rate = 0.062}).text(), "drop rate");
}

// Only runs on the wall clock can overrun, because simulated micro-batches take their drawn durations.
TEST(Comparison, OverrunsUnderMpiAreSaid) {
  std::vector<ComparedRun> runs{compared(1, 1)};
  runs[0].simulated.emulated_micro_batches = runs[0].mpi.emulated_micro_batches = 100;
  runs[0].simulated.overruns = 60;
  EXPECT_THAT(comparison_table(runs, {}), Not(HasSubstr("took longer than their drawn durations")));
  runs[0].mpi.overruns = 50;
  for (const std::string& text : {comparison_table(runs, {}), comparison_markdown("e", "f", runs, {}, machine)})
    EXPECT_THAT(text, HasSubstr("50.0 % of the micro-batches took longer than their drawn durations"));
  runs[0].failure = "under MPI: a reason";
  EXPECT_THAT(comparison_table(runs, {}), Not(HasSubstr("took longer than their drawn durations")));
}

ComparedRun injected(double simulated_s, double mpi_s) {
  ComparedRun run = compared(simulated_s, mpi_s);
  run.replaced_micro_batch_s = 0.01;
  return run;
}

TEST(Comparison, DeclaredTimesThatMpiReplacesByArithmeticAreNamedWithWhatToSet) {
  const Tolerances bars;
  const std::vector<ComparedRun> off{injected(2.2, 1.0)};
  const std::string note = pace_note(off, bars);
  for (const char* part : {"cluster.pace = \"inject\"", "the declared cluster.micro_batch_s = 0.01.",
                           "Set cluster.pace = \"emulate\"", "cluster.micro_batch_s = \"measured\""})
    EXPECT_THAT(note, HasSubstr(part));
  EXPECT_THAT(comparison_table(off, bars), HasSubstr(note));
  EXPECT_THAT(comparison_markdown("e", "e.toml", off, bars, {}), HasSubstr(note));
  const auto json = nlohmann::json::parse(comparison_json("e", off, bars, {}));
  EXPECT_EQ(json["pace_note"], note);
  EXPECT_EQ(json["runs"][0]["replaced_micro_batch_s"], 0.01);

  // There is no note if the two clusters agree, nothing was replaced, or no run was compared.
  ComparedRun emulated = injected(2.2, 1.0), failed = injected(2.2, 1.0);
  emulated.replaced_micro_batch_s.reset();
  failed.failure = "under MPI: a reason";
  const std::vector<ComparedRun> silent{injected(1.01, 1.0), emulated, failed};
  EXPECT_EQ(pace_note(silent, bars), "");
  EXPECT_TRUE(nlohmann::json::parse(comparison_json("e", silent, bars, {}))["pace_note"].is_null());
  // If there are several declared times, the note names none of them.
  std::vector<ComparedRun> several{injected(2.2, 1.0), injected(2.2, 1.0)};
  several[1].replaced_micro_batch_s = 0.02;
  EXPECT_THAT(pace_note(several, bars), HasSubstr("the declared cluster.micro_batch_s."));
}

// Returns a run with steps of 1 s under MPI, and of `simulated_s` in the simulation. The other two times are the
// communication in a step.
ComparedRun run_that_communicates(const char* method, double simulated_s, double simulated_communication_s,
                                  double mpi_communication_s) {
  ComparedRun run{.simulated = summary(method, 10 * simulated_s, 0), .mpi = summary(method, 10, 0)};
  // Times are totals over two workers and 10 steps.
  run.simulated.accounts = {{}, communicating(20 * simulated_communication_s)};
  run.mpi.accounts = {{}, communicating(20 * mpi_communication_s)};
  return run;
}

TEST(Comparison, ADeclaredNetworkThatMpiDoesNotHaveIsNamedWithWhatToSet) {
  const Tolerances bars;
  const std::vector<ComparedRun> off{run_that_communicates("a", 1.2, 0.21, 0.01),
                                     run_that_communicates("b", 1.57, 0.58, 0.01)};
  const std::string note = network_note(off, bars);
  for (const char* part : {"[network]", "b communicates for 0.58 s per step in the simulation, but 0.01 s under MPI",
                           "Set network.kind = \"free\"", "latency and bandwidth"})
    EXPECT_THAT(note, HasSubstr(part));
  EXPECT_THAT(comparison_table(off, bars), HasSubstr(note));
  EXPECT_THAT(comparison_markdown("e", "e.toml", off, bars, {}), HasSubstr(note));
  EXPECT_EQ(nlohmann::json::parse(comparison_json("e", off, bars, {}))["network_note"], note);

  // If ranks communicate under MPI, the network must not be declared as free.
  const std::vector<ComparedRun> slower{run_that_communicates("a", 0.8, 0, 0.2)};
  EXPECT_THAT(network_note(slower, bars),
              AllOf(HasSubstr("a communicates for 0 s per step in the simulation, but 0.2 s under MPI"),
                    HasSubstr("latency and bandwidth"), Not(HasSubstr("free"))));
}

TEST(Comparison, TheNetworkIsNotNamedWhereItIsNotWhatDiffers) {
  const Tolerances bars;
  ComparedRun failed = run_that_communicates("failed", 1.57, 0.58, 0.01),
              unknown = run_that_communicates("unknown", 1.57, 0.58, 0.01);
  failed.failure = "under MPI: a reason";
  unknown.mpi.accounts.clear();
  const std::vector<ComparedRun> silent{failed, unknown, run_that_communicates("agrees", 1.02, 0.58, 0.01),
                                        run_that_communicates("computes longer", 1.57, 0.03, 0.01)};
  EXPECT_EQ(network_note(silent, bars), "");
  EXPECT_TRUE(nlohmann::json::parse(comparison_json("e", silent, bars, {}))["network_note"].is_null());
}

// The errors +4 % and -2 % have a mean of 1 %. Their standard error of 3 %, times t(0.975, 1) = 12.706, is 38.12 %.
TEST(Comparison, SeveralSeedsOfARowAreJudgedByTheirMeanErrors) {
  std::vector<ComparedRun> runs{compared(1.04, 1.0, 3, 0), compared(0.98, 1.0, 0, 2)};
  runs[0].simulated.seed = 1;
  runs[1].simulated.seed = 2;
  const Tolerances bars;
  EXPECT_TRUE(all_within(runs, bars));
  const std::string table = comparison_table(runs, bars);
  EXPECT_THAT(table, HasSubstr("0 of 2 within"));
  EXPECT_THAT(table, HasSubstr("+1.00 % [-37.12, +39.12]"));
  EXPECT_THAT(comparison_markdown("e", "e.toml", runs, bars, {}),
              HasSubstr("| method | 2 | +1.00 % [-37.12, +39.12] | +0.50 [-31.27, +32.27] | within |"));
  const auto over_seeds = nlohmann::json::parse(comparison_json("e", runs, bars, {}))["over_seeds"];
  ASSERT_EQ(over_seeds.size(), 1u);
  EXPECT_EQ(over_seeds[0]["seeds"], 2);
  EXPECT_NEAR(over_seeds[0]["step_time_error"], 0.01, 1e-12);
  EXPECT_EQ(over_seeds[0]["verdict"], "within");

  runs[1].failure = "under MPI: a reason";
  EXPECT_FALSE(all_within(runs, bars));
  EXPECT_THAT(comparison_table(runs, bars), Not(HasSubstr("over seeds")));
  EXPECT_THAT(comparison_table(std::vector{runs[0]}, bars), Not(HasSubstr("over seeds")));
}

// The file has a header in NumPy's format 1.0: a magic word, the version, the length, a Python literal, blanks, and a
// line feed.
TEST(Comparison, ParametersAreInNumPysFormat) {
  const std::vector<float> values{1.0F, -2.5F, 3e-38F};
  const std::string bytes = npy({values});
  ASSERT_EQ(bytes.size(), 128u + 3 * 4);
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(bytes.substr(10, 57), "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }");
  EXPECT_EQ(bytes.substr(67, 61), std::string(60, ' ') + '\n');
  EXPECT_EQ(bytes.substr(128, 4), std::string("\x00\x00\x80\x3f", 4));
  EXPECT_EQ(floats_from_npy(bytes), values);
  EXPECT_THAT(npy({values, values}), HasSubstr("'shape': (2, 3), }"));
  EXPECT_EQ(floats_from_npy(npy({values, values})).size(), 6u);
  EXPECT_THROW(npy({values, {1.0F}}), std::invalid_argument);
  EXPECT_THROW(floats_from_npy("no array"), std::runtime_error);
  EXPECT_THROW(floats_from_npy(bytes.substr(0, bytes.size() - 1)), std::runtime_error);
}

// The expected numbers were computed with SciPy (ttest_1samp, t.interval, permutation_test).

constexpr std::array one_to_five = {1.0, 2.0, 3.0, 4.0, 5.0};
constexpr std::array mixed = {0.3, -0.2, 0.5, 0.4, 0.1, 0.6};
constexpr std::array about_zero = {0.1, -0.1, 0.2, -0.15, 0.05, 0.02};

TEST(PairedDifference, HasStudentsInterval) {
  const PairedDifference found = paired_difference(one_to_five);
  EXPECT_EQ(found.n, 5u);
  EXPECT_DOUBLE_EQ(found.mean, 3);
  ASSERT_TRUE(found.interval && found.t_p);
  EXPECT_NEAR(found.interval->low, 1.036756838522439, 1e-12);
  EXPECT_NEAR(found.interval->high, 4.9632431614775605, 1e-12);
  EXPECT_NEAR(*found.t_p, 0.013235599563682695, 1e-12);
  EXPECT_NEAR(*paired_difference(mixed).t_p, 0.06385795279249085, 1e-12);
  EXPECT_NEAR(*paired_difference(about_zero).t_p, 0.7193881931185475, 1e-12);
}

TEST(PairedDifference, CountsAllChoicesOfSigns) {
  EXPECT_DOUBLE_EQ(*paired_difference(one_to_five).sign_flip_p, 0.0625);  // 2 of 32 choices of signs
  EXPECT_DOUBLE_EQ(*paired_difference(mixed).sign_flip_p, 0.09375);
  EXPECT_DOUBLE_EQ(*paired_difference(about_zero).sign_flip_p, 0.75);
  EXPECT_DOUBLE_EQ(*paired_difference(std::array{0.0, 0.0}).sign_flip_p, 1);
  EXPECT_DOUBLE_EQ(*paired_difference(std::vector<double>(20, 0.1)).sign_flip_p, 2.0 / (1 << 20));
  EXPECT_FALSE(paired_difference(std::vector<double>(21, 0.1)).sign_flip_p);
}

// With five seeds p is at least 1/16, so only the interval decides.
TEST(PairedDifference, IsSignificantWhereTheIntervalExcludesZeroAndSignFlipsAgree) {
  EXPECT_TRUE(paired_difference(one_to_five).is_significant());
  EXPECT_FALSE(paired_difference(mixed).is_significant());
  EXPECT_TRUE(paired_difference(std::array{1.0, 1.1, 0.9, 1.2, 1.0, 0.8}).is_significant());
  // The interval of these six differences excludes 0 (p = 0.013), but 4 of the 64 choices of signs have a mean at least
  // as far from 0.
  const std::array close = {1.3, 1.8, 1.3, -0.3, 1.9, 1.4};
  ASSERT_NEAR(*paired_difference(close).t_p, 0.01257517085284277, 1e-12);
  ASSERT_DOUBLE_EQ(*paired_difference(close).sign_flip_p, 0.0625);
  EXPECT_FALSE(paired_difference(close).is_significant());
}

TEST(PairedDifference, SaysNothingOfASingleSeed) {
  const PairedDifference found = paired_difference(std::array{0.5});
  EXPECT_DOUBLE_EQ(found.mean, 0.5);
  EXPECT_FALSE(found.interval || found.t_p || found.sign_flip_p || found.is_significant());
  EXPECT_TRUE(std::isnan(paired_difference({}).mean));
}

// Virtual times without delays are equal in all seeds. So the difference is exact.
TEST(PairedDifference, IsCertainWhereNothingVaries) {
  const PairedDifference found = paired_difference(std::array{0.5, 0.5, 0.5});
  EXPECT_DOUBLE_EQ(found.interval->low, 0.5);
  EXPECT_DOUBLE_EQ(found.interval->high, 0.5);
  EXPECT_TRUE(found.is_significant());
  EXPECT_FALSE(paired_difference(std::array{0.0, 0.0, 0.0}).is_significant());
}

}  // namespace
}  // namespace syncopate
