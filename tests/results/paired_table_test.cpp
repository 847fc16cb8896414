// Methods against one of them, from summaries that are made by hand.
#include "results/paired_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

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

// Seeds differ by points, the methods by a tenth: paired, the difference is nearly certain.
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
  // Half width: t(2) at 97.5 %, 4.3026527, times 0.0001 / sqrt(3).
  EXPECT_NEAR(accuracy.difference.interval->high, 0.001 + 4.302652729911275 * 0.0001 / std::sqrt(3.0), 1e-9);
  EXPECT_TRUE(accuracy.difference.is_significant());
  EXPECT_THAT(paired_table(paired).text(), HasSubstr("B       85.1  +0.100 [+0.075, +0.125]*  3\n"));
}

TEST(PairedTable, ShowsTinyLossesAndTheirDifferencesInScientificForm) {
  std::vector<FoundRun> runs = {run("A", 1, 0.8), run("A", 2, 0.8), run("B", 1, 0.8), run("B", 2, 0.8)};
  const double losses[] = {3e-7, 3e-7, 1.1e-7, 0.9e-7};
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].summary.final_test_loss = losses[i];
  const std::vector<ResultRow> rows = result_rows(runs);
  // Differences -1.9e-7 and -2.1e-7: half width t(1) at 97.5 %, 12.7062, times 1e-8 (their deviation over sqrt(2)).
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
  EXPECT_THAT(paired_notes(paired, "A"), HasSubstr("Without a seed in common, and so without a difference: C.\n"));
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
  // Of a row that is named as a whole, all others are told.
  const auto against_8 = paired_rows(rows, "A, workers = 8", named({"final_test_accuracy"}));
  EXPECT_EQ(against_8.size(), 3u);
}

// Variants: one has a key that the other lacks.
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

// A key that one method alone has otherwise is no other point for the other.
TEST(PairedTable, AMethodThatDoesNotVaryIsComparedWithEveryPoint) {
  std::vector<FoundRun> runs = {run("A", 1, 0.8, {{"rate", "0.1"}})};
  for (const char* const rate : {"0.1", "0.2"}) {
    runs.push_back(run("B", 1, 0.9, {{"rate", rate}}));
    runs.back().summary.sweep = {{"rate", rate}};
  }
  EXPECT_EQ(paired_rows(result_rows(runs), "A", named({"final_test_accuracy"})).size(), 2u);
}

// Runs of two configurations that no sweep tells apart, as after a change of the file.
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
  add("B", 2, {}, 60);  // so that nothing is known beyond 60 s
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

// B missed it once, after 60 s; C and D do not decide how far the times of the others are known, nor B their own.
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
  EXPECT_DOUBLE_EQ(rows[2].measures.at(0).other.mean, 40);  // 20 s, and 60 s in place of 90 s
  EXPECT_THAT(paired_notes(rows, "A"), HasSubstr("restricted to 60 s, up to which"));
}

// Each of C's runs went on for at least 78 s longer than A's of its seed took: how much longer, nobody knows.
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
              AllOf(HasSubstr("> T (0/n): no run reached the target"), Not(HasSubstr("restricted to"))));
}

TEST_F(TargetTimes, AreNotComparedWithThoseOfAMethodThatNeverReachedIt) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    add("A", seed, {}, 100);
    add("B", seed, 50, 100);
  }
  const std::vector<PairedRow> rows = paired();
  EXPECT_TRUE(rows.at(0).measures.empty());
  EXPECT_THAT(paired_notes(rows, "A"),
              HasSubstr("No time to the target is compared, since no run of \"A\" reached it: B.\n"));
}

// Made without the sweep: the first two at one of its points, the third beside it.
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
  const char* const note = "No time to the target is compared, since no run of either side reached it: B.\n";
  EXPECT_THAT(paired_notes(paired_rows(rows, "A", named({"time_to_target_s"})), "A"), HasSubstr(note));
  EXPECT_THAT(paired_notes(paired_rows(rows, "A", named({"final_test_accuracy"})), "A"), Not(HasSubstr("target")));
}

TEST(PairedTable, SpeedIsARatio) {
  std::vector<FoundRun> runs = {run("A", 1, 0.8), run("B", 1, 0.8)};
  runs[1].summary.end_time_s = 80;           // 1.25 times as fast
  runs[1].summary.kept_micro_batches = 900;  // of which nine tenths count
  const std::vector<ResultRow> rows = result_rows(runs);
  const PairedRow paired = paired_rows(rows, "A", named({"step_time_s", "micro_batches_per_s"})).at(0);
  EXPECT_DOUBLE_EQ(1 + paired.measures[0].ratio->mean, 1.25);
  EXPECT_DOUBLE_EQ(1 + paired.measures[1].ratio->mean, 1.125);
  EXPECT_THAT(paired_table(std::vector{paired}).text(), HasSubstr("B                  1.2500  1.1250  1\n"));
}

// As figures have them (plots/variation.py): tests/plots/plots_test.py has the same.
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

// Without randomness no seed changes anything: there is no interval, and nothing for a star to say.
TEST(PairedTable, WhatIsTheSameForEverySeedIsExact) {
  std::vector<FoundRun> runs;
  for (const std::uint64_t seed : {1, 2, 3}) {
    runs.push_back(run("A", seed, 0.8));
    runs.push_back(run("B", seed, 0.8 + 1e-16));  // of sums in another order
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
  EXPECT_THAT(paired_notes(paired, "A"), HasSubstr("(exact): it is the same for every seed"));
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

}  // namespace
}  // namespace syncopate
