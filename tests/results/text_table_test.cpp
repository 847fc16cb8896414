// Text and tables, folded to the width of a terminal.
#include "results/text_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>

#include "experiments/commands/commands.hpp"
#include "results/result_table.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

TEST(FoldedText, IsBrokenAtBlanks) {
  EXPECT_THAT(folded("one two three", 7, 1, LongWords::whole), ElementsAre("one two", " three"));
  EXPECT_THAT(folded("one two three", 13, 1, LongWords::whole), ElementsAre("one two three"));
  EXPECT_THAT(folded("  a  b c", 6, 4, LongWords::whole), ElementsAre("  a  b", "    c"));
  EXPECT_THAT(folded("", 6, 4, LongWords::whole), ElementsAre(""));
  EXPECT_THAT(folded("\xC3\xA9t\xC3\xA9 hiver", 9, 0, LongWords::whole), ElementsAre("\xC3\xA9t\xC3\xA9 hiver"));
}

TEST(FoldedText, KeepsLongWordsOrCutsThem) {
  EXPECT_THAT(folded("a results/runs/x b", 6, 2, LongWords::whole), ElementsAre("a", "  results/runs/x", "  b"));
  EXPECT_THAT(folded("abcdefghij k", 6, 2, LongWords::cut), ElementsAre("abcdef", "  ghij", "  k"));
  EXPECT_THAT(folded("\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9", 3, 1, LongWords::cut),
              ElementsAre("\xC3\xA9\xC3\xA9\xC3\xA9", " \xC3\xA9"));
}

TEST(FoldedText, HasTheLinesOfTheText) {
  EXPECT_EQ(fold_lines("one two\n\nthree four\n", 8), "one two\n\nthree\n  four\n");
  EXPECT_EQ(fold_lines("one two three", 8), "one two\n  three");
  EXPECT_EQ(fold_lines("one two three\n", 0), "one two three\n");
  EXPECT_EQ(fold_lines("", 8), "");
}

TEST(FoldedTable, FoldsTextThatLeavesTooLittleRoom) {
  TextTable table;
  table.add_column("point", Align::left);
  table.add_column("behind", Align::left);
  table.add_column("n", Align::right);
  table.add_row({"none", "one method, another method, and a third one", "3"});
  table.add_row({"bursts", "-", "12"});
  EXPECT_EQ(table.folded_text(60), table.text()) << "there is room";
  EXPECT_EQ(table.folded_text(30),
            "point   behind\n"
            "------------------------------\n"
            "none    one method, another\n"
            "          method, and a third\n"
            "          one\n"
            "bursts  -\n"
            "\n"
            "point    n\n"
            "----------\n"
            "none     3\n"
            "bursts  12\n");
}

TEST(FoldedTable, RepeatsItsLeadingColumns) {
  TextTable table;
  for (const char* const heading : {"method", "by"}) table.add_column(heading, Align::left);
  for (const char* const heading : {"seconds of a step", "bytes of all"}) table.add_column(heading, Align::right);
  table.add_row({"synchronous SGD with backups", "simulation", "0.5", "12"});
  table.add_row({"", "formula", "0.25", "-"});
  EXPECT_EQ(table.folded_text(60, 2),
            "method              by          seconds of a step\n"
            "-------------------------------------------------\n"
            "synchronous SGD     simulation                0.5\n"
            "  with backups\n"
            "                    formula                  0.25\n"
            "\n"
            "method              by          bytes of all\n"
            "--------------------------------------------\n"
            "synchronous SGD     simulation            12\n"
            "  with backups\n"
            "                    formula                -\n");
}

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
  std::string umlauts = "x";  // umlauts have two bytes, so the 60th byte is within a character
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
