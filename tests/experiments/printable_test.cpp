#include <gtest/gtest.h>

#include "results/text_table.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {
namespace {

using namespace std::string_literals;

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m"), "\\u001B[31mred\\u001B[0m");
  EXPECT_EQ(printable("a\nb\tc\rd\a\x7f"), "a\\nb\\tc\\u000Dd\\u0007\\u007F");
  EXPECT_EQ(printable("\0"s), "\\u0000");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "\\u009B1m");  // a control sequence in one character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "abc"),
            "\\u202Eabc");  // from right to left from here on
}

// Else two labels would look alike.
TEST(Printable, EscapesWhatTakesNoRoom) {
  EXPECT_EQ(printable("a\u200bb"), "a\\u200Bb");
  for (const auto& [text, escape] :
       {std::pair("\u00ad", "\\u00AD"), std::pair("\u034f", "\\u034F"), std::pair("\u200c", "\\u200C"),
        std::pair("\u200d", "\\u200D"), std::pair("\u2028", "\\u2028"), std::pair("\u2060", "\\u2060"),
        std::pair("\u2064", "\\u2064"), std::pair("\u3164", "\\u3164"), std::pair("\ufe0f", "\\uFE0F"),
        std::pair("\ufeff", "\\uFEFF"), std::pair("\U000e0041", "\\U000E0041"), std::pair("\U000e0100", "\\U000E0100")})
    EXPECT_EQ(printable(text), escape);
}

TEST(Printable, LeavesAllOtherTextAsItIs) {
  for (const char* text : {"", "plain", "Größe", "学习率", "emoji 🙂", "a \"quote\" and \\", "\xc2\xa0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsBytesThatAreNoText) {
  EXPECT_EQ(printable("\xff"), "\\xFF");
  EXPECT_EQ(printable("\xc3"), "\\xC3");                             // cut short
  EXPECT_EQ(printable("\xc0\x8a"), "\\xC0\\x8A");                    // a line feed, too long
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xED\\xA0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");  // beyond the last character
}

TEST(Printable, LinesEndWhereTheyDid) { EXPECT_EQ(printable_lines("one\ntwo\x1b\n"), "one\ntwo\\u001B\n"); }

TEST(Printable, ShortTextIsNotCutWithinACharacter) {
  EXPECT_EQ(shortened(std::string(60, 'a')), std::string(60, 'a'));
  EXPECT_EQ(shortened(std::string(61, 'a')), std::string(60, 'a') + " ...");
  EXPECT_EQ(shortened(std::string(59, 'a') + "éé"), std::string(59, 'a') + " ...");
}

TEST(Printable, CellsOfTablesAreAndKeepTheirColumns) {
  TextTable table;
  table.add_column("a\nname", Align::left);
  table.add_column("x", Align::right);
  table.add_row({"\x1b[2J", "1"});
  table.add_row({"plain", "2"});
  EXPECT_EQ(table.text(), "a\nname       x\n------------\n\\u001B[2J  1\nplain      2\n");
}

}  // namespace
}  // namespace syncopate
