#include "results/result_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

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
            "B, seed 2: 10.0 % of the micro-batches took longer than their drawn durations, so times are too long\n");
}

// If all runs have unshared links, the note does not list names.
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
  EXPECT_EQ(time_to_target_text(seeds), "11.0 +- 1.4");  // the deviation is 2 / sqrt(2)
}

TEST(ResultTable, CensorsTheTimeToTargetAsSoonAsOneSeedDidNotReachIt) {
  RunSummary seeds[] = {finished("A", 1, 0.9, 10.0), finished("A", 2, 0.8, {}), finished("A", 3, 0.8, {})};
  seeds[1].end_time_s = 61;
  seeds[2].end_time_s = 59.5;
  EXPECT_EQ(time_to_target_text(seeds), "> 59.50 (1/3)") << "nothing is known beyond the shortest of them";
}

TEST(ResultTable, SaysThatNobodyReachedTheTarget) {
  const RunSummary nobody[] = {finished("A", 1, 0.9, {}), finished("B", 1, 0.8, {})};
  EXPECT_THAT(result_table(nobody), HasSubstr("\nNo run reached the target. > T (0/n): "));
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
  // 95 of 100 micro-batches are kept. Runs process 600,000 samples in 60 s and in 4 s. The accuracy's deviation is 2 /
  // sqrt(2).
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
  runs[2].staleness = {0, 1, 2, 1};  // their means 1 and 2 have the mean 1.5 and the deviation 1 / sqrt(2)
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
  EXPECT_EQ(run_label(run), "A, threshold_s = 1, delays.0 = pareto, seeds = 2, b.3 = 4, 5 = 6");
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
    EXPECT_EQ(run_label(run), label);
  }
  run.sweep = {{"rate", "10 Gbit/s"}};
  EXPECT_EQ(run_label(run), "A, rate = 10 Gbit/s");
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

// Notes name the formula of each time in brackets. Methods with the same formula share a note.
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
  // Row labels may stand for methods, as in `table`.
  EXPECT_THAT(result_columns(runs, "virtual", {{"A", "m"}, {"C", "m"}, {"B", "n"}}).notes,
              HasSubstr("(formula) by law L: m\n(formula) by law M: n\n"));
  EXPECT_THAT(result_columns(runs, "virtual", {{"A", "m"}, {"C", "m"}, {"B", "m"}}).notes,
              HasSubstr("(formula) by law L: A, C\n(formula) by law M: B\n"));
  // If a method's rows have several formulas, they are listed separately.
  runs[3].method = "B";
  runs[3].sweep = {{"cluster.workers", "8"}};
  EXPECT_THAT(result_table(runs), HasSubstr("\n(formula) by law L: A; B, workers = 8\n(formula) by law M: B\n"));
  EXPECT_THAT(result_table(runs), Not(HasSubstr("sampled")));
  // A sample consists of the run's own delays. So if a sampled formula agrees with a short run, this shows little.
  runs[2].predicted[0].prediction.formula = "sampled law";
  EXPECT_THAT(result_table(runs), Not(HasSubstr("the run's own steps"))) << "by no name is a formula known";
  runs[2].predicted[0].prediction.is_sampled = true;
  EXPECT_THAT(result_table(runs),
              HasSubstr("\n(formula) by sampled law: B\n\"sampled\": the formula uses the delays of up to 512 of "
                        "the run's own steps"));
  runs[2].predicted[0].prediction.formula = "sampled E[T]";
  EXPECT_THAT(result_table(runs),
              HasSubstr("\nE[T]: the expected time of the slowest worker's step, without drops.\n"));
  runs[2].predicted = {law_m};
  // No line is wider than a wide terminal.
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

// Adds three runs around the mean. All methods have the same deviations by seed, and further ones of size `spread`.
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

// The second measure is better if it is smaller.
TEST(Ranking, FollowsTheMeasure) {
  std::vector<FoundRun> runs;
  add(runs, "A", {}, 0.8);
  add(runs, "B", {}, 0.7);
  for (FoundRun& found : runs) found.summary.final_test_loss = found.summary.final_test_accuracy;
  const std::vector<ResultRow> rows = result_rows(runs);
  EXPECT_THAT(methods(rankings(rows, *measure_named("final_test_loss")).at(0)), ElementsAre("B", "A"));
  EXPECT_THAT([&] { rankings(rows, *measure_named("drop_rate")); },
              testing::ThrowsMessage<std::invalid_argument>(
                  "cannot rank by drop_rate: neither larger nor smaller values are better"));
  EXPECT_THAT([&] { rankings(rows, *measure_named("final_validation_loss")); },
              testing::ThrowsMessage<std::invalid_argument>("no run has final_validation_loss"));
}

// B is a point behind A in each seed. C is as far behind on average, but not in each seed.
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

// If a row has no seeds in common with the best one, it is unknown whether it is behind. This is not a tie.
TEST(Ranking, SaysWhichHaveNoSeedInCommon) {
  const std::vector<FoundRun> runs = {run("A", {}, 1, 0.8), run("A", {}, 2, 0.8), run("B", {}, 3, 0.7),
                                      run("B", {}, 4, 0.7)};
  const std::vector<ResultRow> rows = result_rows(runs);
  const std::vector<Ranking> found = rankings(rows, accuracy());
  EXPECT_THAT(which_when_table(found).text(), HasSubstr("B (not compared: no common seed)  -\n"));
  EXPECT_THAT(ranking_table(found, accuracy()).text(), HasSubstr("no common seed"));
}

// If the swept key does not apply to a method, its only run is ranked at all of the key's values. If a key is swept for
// one method, this method has several rows at each point.
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

// One run of the first seed has a number of workers that is at no point of the sweep.
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

// A reached the target at 20 s or a little later. C missed it until its end at 100 s. D ended at 10 s, which says
// nothing.
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

// B reached the target in each seed, A in one seed before the horizon, and C never.
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

using testing::ElementsAre;
using testing::HasSubstr;

class Tidy : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  FoundRun run(const std::string& method, std::uint64_t seed, const std::string& metrics) const {
    FoundRun found;
    found.directory = directory_ / (method + std::to_string(seed));
    std::filesystem::create_directories(found.directory);
    std::ofstream(found.directory / "metrics.csv") << metrics;
    found.summary.experiment = "e";
    found.summary.method = method;
    found.summary.seed = seed;
    found.summary.hash = "h";
    found.summary.end_time_s = 2.5;
    found.summary.steps = 5;
    return found;
  }

  std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("syncopate_tidy" + std::to_string(getpid()));
};

TEST_F(Tidy, HasARowForEachRunAndEachEvaluation) {
  const std::vector<FoundRun> runs = {run("A, B", 1, "# schema\nstep,loss\n0,2\n5,1\n"),
                                      run("C", 2, "step,loss\n0,3\n")};
  const TidyTables tables = tidy_tables(runs);
  EXPECT_THAT(lines_of(tables.evaluations_csv),
              ElementsAre("experiment,method,seed,clock,hash,step,loss", "e,\"A, B\",1,virtual,h,0,2",
                          "e,\"A, B\",1,virtual,h,5,1", "e,C,2,virtual,h,0,3"));
  const auto of_runs = lines_of(tables.runs_csv);
  ASSERT_EQ(of_runs.size(), 3u);
  EXPECT_THAT(of_runs[0], testing::StartsWith("experiment,method,seed,clock,hash,status,final_test_accuracy,"));
  EXPECT_THAT(of_runs[1], testing::StartsWith("e,\"A, B\",1,virtual,h,finished,,"));
  EXPECT_THAT(of_runs[1], HasSubstr(",2.5,0.5,"));  // columns end_time_s and step_time_s
}

// Keys that differ only between methods belong to the methods. Keys that differ within a method have columns.
TEST_F(Tidy, HasAColumnForWhatVaries) {
  std::vector<FoundRun> runs = {run("A", 1, "step\n"), run("A", 2, "step\n"), run("B", 3, "step\n")};
  runs[0].configuration = {{"cluster.workers", "8"}, {"training.model", "\"mlp\""}};
  runs[1].configuration = {{"cluster.workers", "16"}, {"training.model", "\"a, b\""}};
  runs[2].configuration = {{"cluster.workers", "8"}, {"training.model", "\"mlp\""}};
  runs[0].of_method = {{"threshold_s", "0.1"}, {"algorithm", "\"x\""}};
  runs[1].of_method = {{"threshold_s", "0.2"}, {"algorithm", "\"x\""}};
  runs[2].of_method = {{"algorithm", "\"y\""}};
  runs[0].summary.sweep = {{"methods.A.threshold_s", "a tenth"}, {"variant", "slow"}};
  runs[1].summary.sweep = {{"methods.A.threshold_s", "a fifth"}, {"variant", "fast"}};
  EXPECT_THAT(lines_of(tidy_tables(runs).evaluations_csv).front(),
              testing::StartsWith(
                  "experiment,method,seed,clock,hash,cluster.workers,method.threshold_s,training.model,variant,"));
  const auto rows = lines_of(tidy_tables(runs).runs_csv);
  EXPECT_THAT(rows[1], HasSubstr(",h,8,a tenth,mlp,slow,finished,"));
  EXPECT_THAT(rows[2], HasSubstr(",h,16,a fifth,\"a, b\",fast,finished,"));
  EXPECT_THAT(rows[3], HasSubstr(",h,8,,mlp,,finished,"));
}

TEST_F(Tidy, NeedsAllEvaluations) {
  std::vector<FoundRun> runs = {run("A", 1, "step\n")};
  std::filesystem::remove(runs[0].directory / "metrics.csv");
  EXPECT_THROW(tidy_tables(runs), std::runtime_error);
  runs = {run("A", 1, "step\n"), run("A", 2, "steps\n")};
  EXPECT_THROW(tidy_tables(runs), std::runtime_error);
}

}  // namespace
}  // namespace syncopate
