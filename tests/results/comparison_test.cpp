#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "results/build_info.hpp"
#include "results/paired_table.hpp"
#include "workers/base/arrays.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// 10 steps in `end_s`; `dropped` of 100 micro-batches.
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

// Two runs of which no two quantities have one value, and one that failed, whose numbers mean nothing.
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
  ASSERT_GE(rows.size(), 9u);  // a heading of two lines, a rule, three rows of each run
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
  EXPECT_THAT(markdown, HasSubstr("; 7 cores, P, load 1.5 when it began."));
  EXPECT_THAT(markdown, HasSubstr("Bars: 6.25 % and 3.12 points."));
  EXPECT_THAT(markdown, HasSubstr("\n| a, workers = 2, seed 3 | 0.875000 | 1.000000 | -12.50 | 43.75 | 37.50 | +6.25 | "
                                  "0.500 | 0.750 | 0.75 | 0.5 | (3.0e-03) | step time, drop rate |\n"
                                  "| b, seed 4 | 0.825000 | 0.800000 | +3.12 | 0.00 | 0.00 | +0.00 | - | - | - | - | "
                                  "1.0e-06 | within |\n| method, seed 3 | - |"));
  // The seed is said where there are several, the brackets are explained where there are some.
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
  const auto runs = three_runs();  // errors of 1/8 and 1/16
  EXPECT_EQ(verdict(runs[0], {.step_time = 0.125, .drop_rate = 0.0625}).text(), "within");
  EXPECT_EQ(verdict(runs[0], {.step_time = 0.124, .drop_rate = 0.0625}).text(), "step time");
  EXPECT_EQ(verdict(runs[0], {.step_time = 0.125, .drop_rate = 0.062}).text(), "drop rate");
}

// Of the wall clock alone: the simulated one takes what was drawn.
TEST(Comparison, OverrunsUnderMpiAreSaid) {
  std::vector<ComparedRun> runs{compared(1, 1)};
  runs[0].simulated.emulated_micro_batches = runs[0].mpi.emulated_micro_batches = 100;
  runs[0].simulated.overruns = 60;
  EXPECT_THAT(comparison_table(runs, {}), Not(HasSubstr("times are not those declared")));
  runs[0].mpi.overruns = 50;
  for (const std::string& text : {comparison_table(runs, {}), comparison_markdown("e", "f", runs, {}, machine)})
    EXPECT_THAT(text, HasSubstr("50.0 % of the micro-batches took longer than drawn"));
  runs[0].failure = "under MPI: a reason";
  EXPECT_THAT(comparison_table(runs, {}), Not(HasSubstr("times are not those declared")));
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

  // Nothing is said where the two agree all the same, where nothing was replaced, and of what was not compared.
  ComparedRun emulated = injected(2.2, 1.0), failed = injected(2.2, 1.0);
  emulated.replaced_micro_batch_s.reset();
  failed.failure = "under MPI: a reason";
  const std::vector<ComparedRun> silent{injected(1.01, 1.0), emulated, failed};
  EXPECT_EQ(pace_note(silent, bars), "");
  EXPECT_TRUE(nlohmann::json::parse(comparison_json("e", silent, bars, {}))["pace_note"].is_null());
  // Of several declared times none is named.
  std::vector<ComparedRun> several{injected(2.2, 1.0), injected(2.2, 1.0)};
  several[1].replaced_micro_batch_s = 0.02;
  EXPECT_THAT(pace_note(several, bars), HasSubstr("the declared cluster.micro_batch_s."));
}

// A step takes MPI 1 s; of it, and of the simulated one, so much is communication.
ComparedRun run_that_communicates(const char* method, double simulated_s, double simulated_communication_s,
                                  double mpi_communication_s) {
  ComparedRun run{.simulated = summary(method, 10 * simulated_s, 0), .mpi = summary(method, 10, 0)};
  // Of two workers, over 10 steps.
  run.simulated.accounts = {{}, communicating(20 * simulated_communication_s)};
  run.mpi.accounts = {{}, communicating(20 * mpi_communication_s)};
  return run;
}

TEST(Comparison, ADeclaredNetworkThatMpiDoesNotHaveIsNamedWithWhatToSet) {
  const Tolerances bars;
  const std::vector<ComparedRun> off{run_that_communicates("a", 1.2, 0.21, 0.01),
                                     run_that_communicates("b", 1.57, 0.58, 0.01)};
  const std::string note = network_note(off, bars);
  for (const char* part : {"[network]", "b communicates for 0.58 s per step simulated, for 0.01 s under MPI",
                           "Set network.kind = \"free\"", "latency and bandwidth"})
    EXPECT_THAT(note, HasSubstr(part));
  EXPECT_THAT(comparison_table(off, bars), HasSubstr(note));
  EXPECT_THAT(comparison_markdown("e", "e.toml", off, bars, {}), HasSubstr(note));
  EXPECT_EQ(nlohmann::json::parse(comparison_json("e", off, bars, {}))["network_note"], note);

  // Communication that was declared as free, and is not, cannot be declared as free.
  const std::vector<ComparedRun> slower{run_that_communicates("a", 0.8, 0, 0.2)};
  EXPECT_THAT(network_note(slower, bars),
              AllOf(HasSubstr("a communicates for 0 s per step simulated, for 0.2 s under MPI"),
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

// Errors of +4 and -2 % are 1 % on average; t(0.975, 1) = 12.706 times their standard error of 3 % is 38.12.
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

// The header is spelled out in NumPy's format 1.0: magic, version, length, a Python literal, blanks, a line feed.
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

}  // namespace
}  // namespace syncopate
