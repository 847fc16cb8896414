// `syncopate thresholds`: from a CSV file and from a recorded run, it gives the golden numbers of
// tests/golden/dropcompute_search.json. Also unreadable input.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "experiments/commands/commands.hpp"
#include "tests/algorithms/golden_search.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using Thresholds = ProgramTest;

const nlohmann::json& golden() { return golden_searches(SYNCOPATE_SOURCE_DIR); }
Recorded search_case() { return recorded_search_case(golden()); }

// Returns the recorded times as CSV, converted from milliseconds to seconds.
std::string csv_of(const Recorded& recorded) {
  std::string text = "worker,step,micro_batch,duration_s\n";
  const double* time_ms = recorded.view.times.data();
  for (int n = 0; n < recorded.view.workers; ++n)
    for (int i = 0; i < recorded.view.steps; ++i)
      for (int m = 0; m < recorded.view.micro_batches; ++m)
        text += fmt::format("{},{},{},{}\n", n, i, m, *time_ms++ / 1000);
  return text;
}

// The golden file has milliseconds, and is compared to nine digits after the point.
void expect_effect(const Json& found, const Json& threshold_ms, double drop_rate, double speedup) {
  EXPECT_NEAR(found["threshold_s"].get<double>(), threshold_ms.get<double>() / 1000, 1e-9);
  EXPECT_NEAR(found["drop_rate"].get<double>(), drop_rate, 1e-9);
  EXPECT_NEAR(found["effective_speedup"].get<double>(), speedup, 1e-9);
}

TEST_F(Thresholds, OfTheGoldenTimesAreTheGoldenOnes) {
  const auto& recipe = golden().at("search_case");
  write("run.csv", csv_of(search_case()));
  const ProgramOutcome outcome = syncopate("thresholds run.csv --serial-s 0.8 --json out.json --csv out.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json report = Json::parse(read("out.json"));
  EXPECT_EQ(report["workers"], 16);
  EXPECT_EQ(report["steps"], 44);
  EXPECT_EQ(report["micro_batches"], 12);
  const Json& reference = recipe["reference"];
  expect_effect(report["by"]["reference"]["best"], reference["threshold"], reference["drop_rate"],
                1 + reference["speedup_minus_1"].get<double>());
  EXPECT_NEAR(report["by"]["reference"]["best"]["time_saved"], reference["time_saved"], 1e-9);
  const Json& six = recipe["equation_6"];
  expect_effect(report["by"]["s-eff"]["best"], six["threshold"], 1 - six["kept"].get<double>() / 12, six["speedup"]);
  ASSERT_EQ(report["by"]["s-eff"]["thresholds"].size(), 200u);
  EXPECT_EQ(report["by"]["s-eff"]["thresholds"][six["index"].get<std::size_t>()], report["by"]["s-eff"]["best"]);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("16 workers, 44 steps of 12 micro-batches"), HasSubstr("T^c = 0.8 s\n"),
                                 HasSubstr("best by Eq. 6: 5.90403 s drops 10.46 %, S_eff 1.1364")));
}

TEST_F(Thresholds, TheTableHasWhatTheJsonHas) {
  write("run.csv", csv_of(search_case()));
  ASSERT_EQ(syncopate("thresholds run.csv --serial-s 0.8 --json out.json --csv out.csv").status, 0);
  const Json report = Json::parse(read("out.json"));
  std::istringstream lines(read("out.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "threshold_s,drop_rate,step_speedup,effective_speedup_throughput,effective_speedup_s_eff,"
            "effective_speedup_reference,largest_worker_share");
  for (std::size_t k = 0; k < 200; ++k) {
    std::vector<double> cells;
    std::getline(lines, line);
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(std::stod(cell));
    ASSERT_EQ(cells.size(), 7u);
    const Json& by = report["by"];
    const Json& first = by["throughput"]["thresholds"][k];
    EXPECT_EQ(cells[0], first["threshold_s"]);
    EXPECT_EQ(cells[1], first["drop_rate"]);
    EXPECT_DOUBLE_EQ(cells[2], 1 / (1 - first["time_saved"].get<double>()));
    EXPECT_EQ(cells[3], first["effective_speedup"]);
    EXPECT_EQ(cells[4], by["s-eff"]["thresholds"][k]["effective_speedup"]);
    EXPECT_EQ(cells[5], by["reference"]["thresholds"][k]["effective_speedup"]);
    EXPECT_EQ(cells[6], first["largest_worker_share"]);
    // The kept share times the speed-up of a step is the speed-up in micro-batches per time.
    EXPECT_NEAR(cells[3], (1 - cells[1]) * cells[2], 1e-12);
  }
  EXPECT_FALSE(std::getline(lines, line));
}

// The slowest worker takes 3 s in a step, and the network 0.5 s, which is T^c. A threshold just above 1 s would keep
// four of six micro-batches in 1.5 s instead of 3.5 s. A threshold just above 1.5 s would keep five of them in 2 s.
TEST_F(Thresholds, OfARunHaveItsOwnSerialTime) {
  write("times.csv",
        "worker,step,micro_batch,duration_s\n0,0,0,0.5\n0,0,1,0.5\n1,0,0,1\n1,0,1,2\n2,0,0,0.5\n2,0,1,1\n");
  write("e.toml", R"(name = "recorded"
[cluster]
workers = 3
micro_batches = 2
trace = { file = "times.csv", end = "wrap" }
[network]
kind = "fixed"
latency_s = 0.5
[training]
model = "none"
parameters = 10
[budget]
steps = 4
[recording]
durations = true
[[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "rounds"
algorithm = "local-sgd"
period = { rule = "constant", steps = 2 }
[[methods]]
label = "drops"
algorithm = "dropcompute"
threshold_s = 1.75
)");
  ASSERT_EQ(syncopate("run e.toml --results results --quiet").status, 0);
  const ProgramOutcome outcome = syncopate("thresholds results/recorded/sync-sgd/seed=* --json out.json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("the slowest 3 s; T^c = 0.5 s\n"));
  const Json report = Json::parse(read("out.json"));
  EXPECT_NEAR(report["serial_s"], 0.5, 1e-9);
  EXPECT_EQ(report["serial_is_recorded"], true);
  EXPECT_EQ(report["steps"], 4);
  EXPECT_NEAR(report["mean_worker_s"], (1 + 3 + 1.5) / 3, 1e-12);
  const Json& best = report["by"]["throughput"]["best"];
  EXPECT_NEAR(best["effective_speedup"], 4.0 / 6 * 3.5 / 1.5, 0.01);
  EXPECT_NEAR(best["threshold_s"], 1, 0.01);

  const ProgramOutcome rounds = syncopate("thresholds results/recorded/rounds/seed=*");
  EXPECT_EQ(rounds.status, 0) << rounds.err;
  EXPECT_THAT(rounds.out,
              HasSubstr("T^c = 0 s: unknown, because the run's rounds have several steps; --serial-s sets it"));
  const ProgramOutcome drops = syncopate("thresholds results/recorded/drops/seed=*");
  EXPECT_EQ(drops.status, 2);
  EXPECT_THAT(drops.err, AllOf(HasSubstr("durations.csv.gz: none of its 4 steps"), HasSubstr("drops nothing")));
}

TEST_F(Thresholds, StepsThatLackMicroBatchesAreLeftOut) {
  write("run.csv", "worker,step,micro_batch,duration_s\n0,0,0,1\n0,0,1,1\n0,1,0,9\n0,2,0,2\n0,2,1,2\n");
  const ProgramOutcome outcome = syncopate("thresholds run.csv");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("1 worker, 2 steps of 2 micro-batches (without 1 incomplete step"),
                                 HasSubstr("the slowest 3 s; T^c = 0 s: a trace does not contain it")));
}

TEST_F(Thresholds, ADropRateCapsTheBestOnes) {
  write("run.csv", csv_of(search_case()));
  ASSERT_EQ(syncopate("thresholds run.csv --serial-s 0.8 --maximum-drop-rate 0.05 --json out.json").status, 0);
  const Json report = Json::parse(read("out.json"));
  for (const char* way : {"throughput", "s-eff", "reference"}) {
    const Json& best = report["by"][way]["best"];
    EXPECT_LE(best["drop_rate"], 0.05);
    for (const Json& other : report["by"][way]["thresholds"]) {
      if (other["drop_rate"] > 0.05) continue;
      EXPECT_LE(other["effective_speedup"], best["effective_speedup"]) << way;
    }
  }
}

TEST_F(Thresholds, EqualTimesGainNothing) {
  write("run.csv", "worker,step,micro_batch,duration_s\n0,0,0,1\n1,0,0,1\n");
  const ProgramOutcome outcome = syncopate("thresholds run.csv --json out.json");
  EXPECT_THAT(outcome.out, HasSubstr("2 workers, 1 step of 1 micro-batch"));
  EXPECT_THAT(outcome.out, HasSubstr("\n\nAll micro-batches take equally long, so no threshold helps.\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("S_eff"))) << "a table of equal rows";
  EXPECT_TRUE(Json::parse(read("out.json"))["by"]["s-eff"]["best"].is_null());
}

// Worker 0's micro-batches end at 1 and 2 s, and in its second step at 1 and 3 s. Worker 1's end at 2 and 5 s, and
// worker 2's at 1 and 1.5 s. A threshold between 2 and 3 s drops three micro-batches, two of them worker 1's. From 3 s
// on, all dropped ones are worker 1's.
TEST_F(Thresholds, SayHowMuchOfTheDropsFallsOnOneWorker) {
  write("run.csv",
        "worker,step,micro_batch,duration_s\n0,0,0,1\n0,0,1,1\n0,1,0,1\n0,1,1,2\n1,0,0,2\n1,0,1,3\n1,1,0,2\n1,1,1,3\n"
        "2,0,0,1\n2,0,1,0.5\n2,1,0,1\n2,1,1,0.5\n");
  const ProgramOutcome outcome = syncopate("thresholds run.csv --json out.json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("one worker's"));
  const Json report = Json::parse(read("out.json"));
  for (const Json& effect : report["by"]["throughput"]["thresholds"]) {
    const double threshold = effect["threshold_s"];
    const double share = effect["largest_worker_share"];
    if (threshold > 2 && threshold < 3) {
      EXPECT_DOUBLE_EQ(share, 2.0 / 3) << threshold;
    }
    if (threshold > 3 && threshold < 5) {
      EXPECT_DOUBLE_EQ(share, 1) << threshold;
    }
    if (threshold > 1.5 && threshold < 2) {
      EXPECT_DOUBLE_EQ(share, 4.0 / 6) << "worker 0 drops 2 and worker 1 all 4";
    }
    if (threshold > 2 && threshold < 5) {
      EXPECT_EQ(effect["largest_worker"], 1);
    }
  }
  const Json& best = report["by"]["throughput"]["best"];
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("; {:.0f} % of drops on worker 1\n",
                                                 100 * best["largest_worker_share"].get<double>())));
}

// In this recorded run some micro-batches last 0 s. The threshold shown as the best is as good as the best in the
// list.
TEST_F(Thresholds, OfARecordWithoutSomeTimesAreNumbersAndTheBestOnesTheBest) {
  const std::string file =
      std::string(SYNCOPATE_SOURCE_DIR) + "/experiments/examples/data/dropcompute_run_noise.csv.gz";
  for (const char* serial : {"--serial-s 0.2", "--serial-s 0"}) {
    const ProgramOutcome outcome = syncopate("thresholds " + file + " " + serial + " --json out.json");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, Not(AnyOf(HasSubstr("nan"), HasSubstr("inf")))) << serial;
    const Json report = Json::parse(read("out.json"));
    for (const char* way : {"throughput", "s-eff", "reference"}) {
      const double best = report["by"][way]["best"]["effective_speedup"].get<double>();
      EXPECT_GT(best, 1);
      for (const Json& effect : report["by"][way]["thresholds"]) {
        for (const char* name : {"threshold_s", "drop_rate", "time_saved", "effective_speedup"})
          ASSERT_TRUE(effect[name].is_number()) << way << ' ' << effect;
        EXPECT_LE(effect["effective_speedup"].get<double>(), best * 1.001) << way << ' ' << serial;
      }
    }
  }
}

// A step of almost no time becomes almost infinitely faster, and the line must still be readable.
TEST_F(Thresholds, OfTimesNextToNothingAreShort) {
  for (const char* tiny : {"1e-300", "1e-12"}) {
    write("run.csv",
          fmt::format("worker,step,micro_batch,duration_s\n0,0,0,{0}\n0,0,1,{0}\n1,0,0,{0}\n1,0,1,1\n", tiny));
    const ProgramOutcome outcome = syncopate("thresholds run.csv");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 120u) << line;
  }
}

TEST_F(Thresholds, WhatCannotBeReadIsOneMessage) {
  const auto expect_fault = [&](const std::string& arguments, const auto& matches) {
    const ProgramOutcome outcome = syncopate("thresholds " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, matches);
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  };
  write("bad.csv", "worker,step,micro_batch,duration_s\n0,0,0,-1\n");
  write("other.csv", "worker,step,micro_batch\n0,0,1\n");
  write("good.csv", "worker,step,micro_batch,duration_s\n0,0,0,1\n1,0,0,2\n");
  expect_fault("nowhere.csv", AllOf(HasSubstr("nowhere.csv: no such file"), HasSubstr("duration_s")));
  expect_fault("/dev/zero", AllOf(HasSubstr("/dev/zero: is a device"), HasSubstr("duration_s")));
  expect_fault(".", AllOf(HasSubstr("no durations.csv.gz"), HasSubstr("durations = true")));
  expect_fault("bad.csv", HasSubstr("bad.csv:2: duration_s = -1"));
  expect_fault("other.csv", HasSubstr("other.csv:1: the column duration_s is missing"));
  expect_fault("good.csv --json nowhere/out.json",
               AllOf(HasSubstr("nowhere/out.json"), HasSubstr("cannot be written")));
  for (const char* wrong :
       {"", "good.csv --serial-s -1", "good.csv --serial-s many", "good.csv --maximum-drop-rate 2"}) {
    const ProgramOutcome outcome = syncopate(std::string("thresholds ") + wrong);
    EXPECT_EQ(outcome.status, 2) << wrong;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err, "");
  }
}

}  // namespace
}  // namespace syncopate
