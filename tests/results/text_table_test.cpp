// Text and tables that are folded to the width of a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "results/text_table.hpp"

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

}  // namespace
}  // namespace syncopate
