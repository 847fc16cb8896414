#include "results/result_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>

#include "results/text_table.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

RunSummary finished(const std::string& method, std::uint64_t seed, double accuracy, std::optional<double> reached_s) {
  RunSummary run;
  run.method = method;
  run.seed = seed;
  run.final_test_accuracy = accuracy;
  run.final_test_loss = 0.5;
  run.end_time_s = 60;
  run.time_to_target = TimeToTarget{0.85, {}, reached_s, {}, {}};
  run.rounds = 9380;
  run.samples = 600'000;
  run.kept_micro_batches = 95;
  run.dropped_micro_batches = 5;
  run.communicated_bytes = 12'340'000'000;
  run.host_s = 4;
  return run;
}

TEST(OverrunWarnings, NameTheFinishedRunsWhoseTimesAreNotThoseDeclared) {
  std::vector<RunSummary> runs(3);
  runs[0].method = "A";
  runs[1].method = "B";
  runs[1].seed = 2;
  for (RunSummary& run : runs) run.emulated_micro_batches = 50;
  EXPECT_EQ(overrun_warnings(runs), "");
  runs[1].overruns = runs[2].overruns = 5;
  runs[2].status = RunStatus::failed;
  EXPECT_EQ(overrun_warnings(runs),
            "B, seed 2: times are not those declared: 10.0 % of the micro-batches took longer than drawn\n");
}

// Where all runs have such links their names say nothing.
TEST(ResultTable, SaysWhoseLinksAreNotShared) {
  std::vector<RunSummary> runs;
  for (const char* method : {"backup workers of a network without contention", "asynchronous SGD of the same network",
                             "synchronous SGD, whose collectives meet nobody"})
    runs.push_back(finished(method, 1, 0.9, 10.0));
  const auto note = [&] {
    const std::string table = result_table(runs, "virtual", 0);
    const auto begin = table.find("Links are not shared");
    return begin == std::string::npos ? "" : table.substr(begin);
  };
  EXPECT_EQ(note(), "");
  runs[0].has_unshared_links = runs[1].has_unshared_links = true;
  EXPECT_THAT(note(), StartsWith("Links are not shared by backup workers of a network without contention; asynchronous "
                                 "SGD of the same network: no message\n  waits for another one (network.contention = "
                                 "false).\n"));
  runs[2].has_unshared_links = true;
  EXPECT_THAT(note(),
              StartsWith("Links are not shared: no message waits for another one (network.contention = false)."));
}

RunSummary failed(const std::string& method, std::uint64_t seed, RunStatus status, const std::string& reason) {
  RunSummary run = finished(method, seed, 0.1, {});
  run.status = status;
  run.reason = reason;
  return run;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& line : lines_of(text)) longest = std::max(longest, line.size());
  return longest;
}

TEST(ResultTable, ShowsTwoDigitsOfTheDeviation) {
  EXPECT_EQ(mean_and_deviation({3, 88.1234, 0.1034}), "88.12 +- 0.10");
  EXPECT_EQ(mean_and_deviation({3, 88.1234, 2.34}), "88.1 +- 2.3");
  EXPECT_EQ(mean_and_deviation({3, 1234.5, 23.4}), "1234 +- 23");
  EXPECT_EQ(mean_and_deviation({3, 0.33123, 0.00123}), "0.3312 +- 0.0012");
}

TEST(ResultTable, ShowsFourDigitsWhereThereIsNoDeviation) {
  EXPECT_EQ(mean_and_deviation({1, 88.1234, 0}), "88.12");
  EXPECT_EQ(mean_and_deviation({1, 0.33123, 0}), "0.3312");
  EXPECT_EQ(mean_and_deviation({2, 0, 0}), "0");
  EXPECT_EQ(mean_and_deviation(statistics({})), "-");
}

TEST(ResultTable, ShowsVerySmallAndVeryLargeLossesInScientificForm) {
  EXPECT_EQ(mean_and_deviation({1, 1e-7, 0}), "1.000e-07");
  EXPECT_EQ(mean_and_deviation({3, 1.2345e-7, 3.21e-9}), "1.235e-07 +- 3.2e-09");
  EXPECT_EQ(mean_and_deviation({1, 8e29, 0}), "8.000e+29");
  RunSummary runs[] = {finished("A", 1, 0.9, 1.0), finished("B", 1, 0.9, 1.0)};
  runs[0].final_test_loss = 1e-7;
  runs[1].final_test_loss = 8e29;
  const std::string table = result_table(runs);
  EXPECT_THAT(table, HasSubstr(" 1.000e-07 "));
  EXPECT_THAT(table, HasSubstr(" 8.000e+29 "));
}

TEST(ResultTable, AveragesTimesToTargetThatAllSeedsReached) {
  const RunSummary seeds[] = {finished("A", 1, 0.9, 10.0), finished("A", 2, 0.9, 12.0)};
  EXPECT_EQ(time_to_target_text(seeds), "11.0 +- 1.4");  // deviation: 2 / sqrt(2)
}

TEST(ResultTable, CensorsTheTimeToTargetAsSoonAsOneSeedDidNotReachIt) {
  RunSummary seeds[] = {finished("A", 1, 0.9, 10.0), finished("A", 2, 0.8, {}), finished("A", 3, 0.8, {})};
  seeds[1].end_time_s = 61;
  seeds[2].end_time_s = 59.5;
  EXPECT_EQ(time_to_target_text(seeds), "> 59.50 (1/3)") << "nothing is known beyond the shortest of them";
}

TEST(ResultTable, SaysThatNobodyReachedTheTarget) {
  const RunSummary nobody[] = {finished("A", 1, 0.9, {}), finished("B", 1, 0.8, {})};
  EXPECT_THAT(result_table(nobody), HasSubstr("\nNo run reached the target: > T (0/n): "));
  const RunSummary one[] = {finished("A", 1, 0.9, 10.0), finished("B", 1, 0.8, {})};
  EXPECT_THAT(result_table(one), Not(HasSubstr("No run reached")));
}

TEST(ResultTable, HasNoTimeToTargetWithoutATarget) {
  RunSummary seeds[] = {finished("A", 1, 0.9, {})};
  seeds[0].time_to_target.reset();
  EXPECT_EQ(time_to_target_text(seeds), "-");
  EXPECT_THAT(result_table(seeds), Not(HasSubstr("to target")));
}

TEST(ResultTable, HasARowPerMethodAndSweepPointInTheOrderOfTheRuns) {
  RunSummary runs[] = {finished("sync", 1, 0.88, 20.0), finished("sync", 2, 0.90, 20.0), finished("drop", 1, 0.89, {}),
                       finished("drop", 1, 0.89, 30.0)};
  runs[2].sweep = {{"methods.drop.threshold_s", "0.07"}};
  runs[3].sweep = {{"methods.drop.threshold_s", "0.08"}};
  const auto lines = lines_of(result_table(runs));
  ASSERT_EQ(lines.size(), 8u) << "a header of two lines, a rule, three rows, what +- means and what > means";
  // 95 of 100 micro-batches kept; 600,000 samples in 60 s and in 4 s; deviation of the accuracy 2 / sqrt(2).
  EXPECT_THAT(words_of(lines[3]), ElementsAre("sync", "89.0", "+-", "1.4", "0.5000", "60.00", "20.00", "5.000", "12.3G",
                                              "9.38k", "10k", "150k", "2"));
  EXPECT_THAT(words_of(lines[4]), ElementsAre("drop,", "threshold_s", "=", "0.07", "89.00", "0.5000", "60.00", ">",
                                              "60.00", "(0/1)", "5.000", "12.3G", "9.38k", "10k", "150k", "1"));
  EXPECT_THAT(lines[5], HasSubstr("threshold_s = 0.08"));
  EXPECT_EQ(lines[6], "+-: standard deviation over n seeds.");
  EXPECT_THAT(lines[7], StartsWith("> T (k/n)"));
  EXPECT_EQ(lines[3].size(), lines[4].size());
  EXPECT_EQ(lines[2], std::string(lines[3].size(), '-'));
}

TEST(ResultTable, ShowsStalenessWhereAMethodHasSome) {
  RunSummary runs[] = {finished("A", 1, 0.9, 1.0), finished("B", 1, 0.9, 1.0), finished("B", 2, 0.9, 1.0),
                       finished("C", 1, 0.9, 1.0)};
  runs[3].staleness = {7};
  EXPECT_THAT(result_table(runs), Not(HasSubstr("staleness"))) << "nothing but 0";
  runs[1].staleness = {0, 1};
  runs[2].staleness = {0, 1, 2, 1};  // a mean of 2, so 1.5 over both and a deviation of 1 / sqrt(2)
  const auto lines = lines_of(result_table(runs));
  EXPECT_THAT(lines[0], HasSubstr("staleness"));
  EXPECT_EQ(words_of(lines[3])[6], "-");
  EXPECT_THAT(lines[4], HasSubstr("1.50 +- 0.71"));
  EXPECT_EQ(words_of(lines[5])[6], "0");
}

TEST(ResultTable, CountsTakeThreeDigitsAndAPrefix) {
  const auto sent = [](std::int64_t bytes) {
    RunSummary runs[] = {finished("A", 1, 0.9, 1.0)};
    runs[0].communicated_bytes = bytes;
    return words_of(lines_of(result_table(runs))[3])[6];
  };
  EXPECT_EQ(sent(999), "999");
  EXPECT_EQ(sent(999'400), "999k");
  EXPECT_EQ(sent(999'700), "1M") << "not 1e+03k";
  EXPECT_EQ(sent(1'230'000'000'000'000), "1.23P");
  EXPECT_EQ(sent(9'220'000'000'000'000'000), "9.22E");
}

TEST(ResultTable, NamesTheClock) {
  const RunSummary runs[] = {finished("A", 1, 0.9, 1.0)};
  EXPECT_THAT(result_table(runs), HasSubstr("virtual"));
  EXPECT_THAT(result_table(runs, "wall"), testing::AllOf(HasSubstr("wall"), Not(HasSubstr("virtual"))));
}

TEST(ResultTable, CountsOnlyFinishedRuns) {
  const RunSummary runs[] = {finished("A", 1, 0.9, 1.0), failed("A", 2, RunStatus::diverged, "not finite"),
                             failed("B", 1, RunStatus::failed, "deadlock")};
  const std::string table = result_table(runs);
  EXPECT_THAT(table, HasSubstr("90.00 "));
  EXPECT_THAT(table, Not(HasSubstr("B")));
  EXPECT_THAT(result_table(std::span(runs).subspan(1)), "");
}

TEST(ResultTable, FitsIn120ColumnsWithFourMethodsAndThreeSeeds) {
  std::vector<RunSummary> runs;
  for (const char* method : {"synchronous SGD", "DropCompute", "backup workers", "Local SGD (QSR)"}) {
    for (int seed = 1; seed <= 3; ++seed) {
      runs.push_back(finished(method, seed, 0.88 + 0.001 * seed, 10.0 + seed));
      runs.back().end_time_s = 123.4 + seed;
      runs.back().final_test_loss = 0.33 + 0.001 * seed;
      runs.back().dropped_micro_batches = 5 + seed;
    }
  }
  EXPECT_LE(longest_line(result_table(runs)), 120u);
}

TEST(RowLabel, NamesKeysByTheirLastPartThatSaysSomething) {
  RunSummary run;
  run.method = "A";
  run.sweep = {{"methods.drop.threshold_s", "1"}, {"delays.0", "pareto"}, {"seeds", "2"}, {"a.b.3", "4"}, {"5", "6"}};
  EXPECT_EQ(row_label(run), "A, threshold_s = 1, delays.0 = pareto, seeds = 2, b.3 = 4, 5 = 6");
}

TEST(RowLabel, OfARateSaysNoKey) {
  RunSummary run;
  run.method = "A";
  for (const auto& [value, label] :
       std::map<std::string, std::string>{{"10 Gbit/s", "A, 10 Gbit/s"},
                                          {"1250000000.0", "A, 10 Gbit/s"},
                                          {"12.5e6", "A, 100 Mbit/s"},
                                          {"1234567891", "A, bandwidth_bytes_per_s = 1234567891"},
                                          {"10 fast links", "A, bandwidth_bytes_per_s = 10 fast links"}}) {
    run.sweep = {{"network.bandwidth_bytes_per_s", value}};
    EXPECT_EQ(row_label(run), label);
  }
  run.sweep = {{"rate", "10 Gbit/s"}};
  EXPECT_EQ(row_label(run), "A, rate = 10 Gbit/s");
}

TEST(FailureTable, NamesMethodSeedAndReason) {
  const RunSummary runs[] = {finished("A", 1, 0.9, 1.0), failed("B", 2, RunStatus::diverged, "not finite after step 8"),
                             failed("C", 3, RunStatus::failed, "deadlock\nworker 0 waits\nworker 1 waits")};
  EXPECT_EQ(failure_table(runs), "method  seed  status    reason\n" + std::string(6 + 2 + 4 + 2 + 8 + 2 + 23, '-') +
                                     "\n"
                                     "B          2  diverged  not finite after step 8\n"
                                     "C          3  failed    deadlock\n");
}

TEST(FailureTable, IsEmptyWhenAllRunsFinished) {
  const RunSummary runs[] = {finished("A", 1, 0.9, 1.0)};
  EXPECT_EQ(failure_table(runs), "");
}

TEST(TextTable, AlignsCodePointsNotBytes) {
  TextTable table;
  table.add_column("a", Align::left);
  table.add_column("b", Align::right);
  table.add_row({"\xC3\xA9t\xC3\xA9", "1"});
  table.add_row({"hiver", "10"});
  EXPECT_EQ(table.text(), "a       b\n---------\n\xC3\xA9t\xC3\xA9     1\nhiver  10\n");
}

TEST(ResultTable, ShowsTheFormulasStepTimeInBracketsWhereAMethodHasOne) {
  std::vector<RunSummary> runs = {finished("A", 1, 0.9, 10.0), finished("A", 2, 0.9, 10.0),
                                  finished("B", 1, 0.9, 10.0)};
  for (RunSummary& run : runs) run.steps = 600;
  EXPECT_THAT(result_table(runs), Not(HasSubstr("formula")));
  runs[0].predicted = {{.prediction = {.formula = "coarse", .step_time_s = 0.99}, .total_time_s = {}},
                       {.prediction = {.formula = "f", .step_time_s = 0.12}, .total_time_s = {}}};
  runs[1].predicted = {{.prediction = {.formula = "f", .step_time_s = 0.14}, .total_time_s = {}}};
  const std::string table = result_table(runs);
  EXPECT_THAT(table, HasSubstr("(formula)"));
  EXPECT_THAT(table, HasSubstr("0.1000 (0.1300)"));
  EXPECT_THAT(table, HasSubstr("0.1000 (-)"));
}

// Which law a time in brackets is by is said, of methods with the same one together.
TEST(ResultTable, FormulasAreNamedBelowTheTable) {
  std::vector<RunSummary> runs{finished("A", 1, 0.9, 10.0), finished("A", 2, 0.9, 10.0), finished("B", 1, 0.9, 10.0),
                               finished("C", 1, 0.9, 10.0), finished("D", 1, 0.9, 10.0)};
  const FormulaTime first{.prediction = {.formula = "first", .step_time_s = 0.2}, .total_time_s = {}};
  const FormulaTime law_l{.prediction = {.formula = "law L", .step_time_s = 0.1}, .total_time_s = {}};
  const FormulaTime law_m{.prediction = {.formula = "law M", .step_time_s = 0.3}, .total_time_s = {}};
  for (RunSummary& run : runs) run.steps = 600;
  runs[0].predicted = runs[1].predicted = runs[3].predicted = {first, law_l};
  runs[2].predicted = {law_m};
  const std::string table = result_table(runs);
  EXPECT_THAT(table, HasSubstr("\n(formula) by law L: A, C\n(formula) by law M: B\n"));
  EXPECT_THAT(table, Not(HasSubstr("first")));
  // Where rows' labels stand for methods, as in `table`.
  EXPECT_THAT(result_columns(runs, "virtual", {{"A", "m"}, {"C", "m"}, {"B", "n"}}).notes,
              HasSubstr("(formula) by law L: m\n(formula) by law M: n\n"));
  EXPECT_THAT(result_columns(runs, "virtual", {{"A", "m"}, {"C", "m"}, {"B", "m"}}).notes,
              HasSubstr("(formula) by law L: A, C\n(formula) by law M: B\n"));
  // Of a method that has several, the rows are told apart.
  runs[3].method = "B";
  runs[3].sweep = {{"cluster.workers", "8"}};
  EXPECT_THAT(result_table(runs), HasSubstr("\n(formula) by law L: A; B, workers = 8\n(formula) by law M: B\n"));
  EXPECT_THAT(result_table(runs), Not(HasSubstr("sampled")));
  // A sample is one of the run's own delays: agreement in a short run shows nothing.
  runs[2].predicted[0].prediction.formula = "sampled law";
  EXPECT_THAT(result_table(runs), Not(HasSubstr("the run's own steps"))) << "by no name is a formula known";
  runs[2].predicted[0].prediction.is_sampled = true;
  EXPECT_THAT(result_table(runs), HasSubstr("\n(formula) by sampled law: B\n\"sampled\": by the delays of up to 512 of "
                                            "the run's own steps"));
  runs[2].predicted[0].prediction.formula = "sampled E[T]";
  EXPECT_THAT(result_table(runs),
              HasSubstr("\nE[T]: the expected time of the slowest worker's step, without drops.\n"));
  runs[2].predicted = {law_m};
  // No line gets longer than a wide terminal.
  std::vector<RunSummary> many;
  for (int i = 0; i < 30; ++i) {
    many.push_back(finished("a method of number " + std::to_string(i), 1, 0.9, 10.0));
    many.back().predicted = runs[2].predicted;
  }
  std::istringstream lines(result_table(many));
  int named = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(formula) by") == 0 || named > 0) ++named;
    if (named > 0) {
      EXPECT_LE(line.size(), 120u);
    }
  }
  EXPECT_GT(named, 4);
}

}  // namespace
}  // namespace syncopate
