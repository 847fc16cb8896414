#include "results/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "results/npy.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

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
  EXPECT_EQ(verdict(compared(1.029, 1.0, 10, 10), bars), "within");
  EXPECT_EQ(verdict(compared(1.031, 1.0, 10, 10), bars), "step time");
  EXPECT_EQ(verdict(compared(0.969, 1.0, 10, 10), bars), "step time");
  EXPECT_EQ(verdict(compared(1.0, 1.0, 12, 10), bars), "drop rate");
  EXPECT_EQ(verdict(compared(0.5, 1.0, 12, 10), bars), "step time, drop rate");
  EXPECT_EQ(verdict(compared(1.0, 1.0, 12, 10), {.drop_rate = 0.03}), "within");
  ComparedRun failed = compared(1, 1);
  failed.failure = "under MPI: a reason";
  EXPECT_EQ(verdict(failed, bars), "failed");

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
