#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>

#include "experiments/commands/commands.hpp"
#include "results/result_table.hpp"
#include "results/text_table.hpp"

namespace syncopate {
namespace {

const std::string sixty = "a reason that takes sixty columns, as this one does, is whole";
const std::string long_one =
    "worker 3 at 1697.9 s: micro-batch 0 of step 7 has been begun anew 100000 times; each time an outage took the "
    "worker's state before the end, and the outages must be rarer";

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, display_width(line));
  return widest;
}

TEST(ShortReason, IsTheFirstLineIfThatFits) {
  ASSERT_EQ(sixty.size() - 1, 60u);
  EXPECT_EQ(short_reason(sixty.substr(1)), sixty.substr(1));
  EXPECT_EQ(short_reason("deadlock\nworker 0 waits"), "deadlock");
  EXPECT_EQ(note_of_reason("A", "deadlock\nworker 0 waits"), "");
}

TEST(ShortReason, EndsWithAClauseOrAWordOrACharacter) {
  EXPECT_EQ(short_reason("all 16 workers wait for each other in a meeting: " + long_one),
            "all 16 workers wait for each other in a meeting ...");
  EXPECT_EQ(short_reason(long_one), "worker 3 at 1697.9 s: micro-batch 0 of step 7 has been begun ...");
  EXPECT_EQ(short_reason(std::string(100, 'x')), std::string(60, 'x') + " ...");
  std::string umlauts = "x";  // of two bytes each, so that the 60th byte is inside one
  for (int i = 0; i < 50; ++i) umlauts += "\xC3\xA4";
  EXPECT_EQ(short_reason(umlauts), umlauts.substr(0, 59) + " ...");
}

TEST(ShortReason, LeavesTheFailureTableNarrowAndTheWholeIsBelow) {
  RunSummary run;
  run.method = "sync";
  run.seed = 4;
  run.status = RunStatus::failed;
  run.reason = long_one + "\nmore";
  const std::string text = failure_table({&run, 1});
  const std::size_t end = text.find("\n\n");
  ASSERT_NE(end, std::string::npos) << text;
  EXPECT_LE(widest_line(text.substr(0, end)), 90u);
  EXPECT_EQ(text.substr(end + 2), "sync, seed 4: " + long_one + "\n");
}

TEST(ShortReason, LeavesThePredictionTableNarrowAndTheWholeIsBelow) {
  PredictedMethod method;
  method.method = "sync";
  method.not_simulated = long_one;
  method.failed = true;
  method.why_no_formula = "outages change who is waited for";
  const std::string text = prediction_table({&method, 1});
  const std::size_t end = text.find("\n\n");
  ASSERT_NE(end, std::string::npos) << text;
  EXPECT_LE(widest_line(text.substr(0, end)), 135u);
  EXPECT_EQ(text.substr(end + 2), "sync: " + long_one + "\n");
}

}  // namespace
}  // namespace syncopate
