#include "workers/base/terminal_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "results/text_table.hpp"

namespace syncopate {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Shown {
  double value;
  const char* text;
};

// tests/plots/numbers_cases.py tests the same values: Python must show the same numbers.
TEST(ShownNumber, HasFourDigitsAndAllBeforeThePoint) {
  for (const auto& [value, text] : std::vector<Shown>{{0, "0"},
                                                      {0.5, "0.5"},
                                                      {88.1234, "88.12"},
                                                      {12345.6, "12346"},
                                                      {9999999, "9999999"},
                                                      {0.00012345, "0.0001234"},
                                                      {-3.14159, "-3.142"},
                                                      {infinity, "inf"},
                                                      {-std::nan(""), "nan"}})
    EXPECT_EQ(shown_number(value), text);
  EXPECT_EQ(shown_number(88.1234, 6), "88.1234");
}

TEST(ShownNumber, IsScientificAtTheExtremes) {
  for (const auto& [value, text] : std::vector<Shown>{
           {1e-7, "1e-07"}, {1.23456e-7, "1.235e-07"}, {8e29, "8e+29"}, {1e7, "1e+07"}, {-2.5e-5, "-2.5e-05"}})
    EXPECT_EQ(shown_number(value), text);
}

TEST(ShownNumber, WithDecimalsKeepsThemWhereTheyShowTwoDigits) {
  for (const auto& [value, text] :
       std::vector<Shown>{{0.5, "0.50"}, {0, "0.00"}, {0.1, "0.10"}, {1234567, "1234567.00"}})
    EXPECT_EQ(with_decimals(value, 2), text);
  for (const auto& [value, text] :
       std::vector<Shown>{{0.0012, "0.0012"}, {0.004, "0.004"}, {1.5e-7, "1.5e-07"}, {8e29, "8e+29"}, {3e8, "3e+08"}})
    EXPECT_EQ(with_decimals(value, 2), text);
  EXPECT_EQ(with_decimals(infinity, 2), "inf");
}

TEST(ShownNumber, AnErrorOfNothingIsZero) {
  EXPECT_EQ(error_text(1e-9), "+0.00");
  EXPECT_EQ(error_text(-3.456), "-3.46");
  EXPECT_EQ(error_text(8e29), "+8e+29");
}

TEST(SamePlace, IsThatOfTheUncertainty) {
  const auto both = [](double mean, double deviation) {
    const SamePlace text(mean, deviation);
    return text(mean) + " " + text(deviation);
  };
  EXPECT_EQ(both(88.1234, 0.1034), "88.12 0.10");
  EXPECT_EQ(both(1234.5, 23.4), "1234 23");
  EXPECT_EQ(both(1.2345e-7, 3.21e-9), "1.235e-07 3.2e-09");
  EXPECT_EQ(both(8.0123e29, 4.5e28), "8.01e+29 4.5e+28");
  EXPECT_EQ(both(1e-8, 3e-7), "1e-08 3.0e-07");
  EXPECT_EQ(both(0, 2e-7), "0 2.0e-07");
  EXPECT_EQ(both(0.5, 1.26e-9), "0.500000 1.3e-09") << "six decimals do not show it";
  EXPECT_EQ(both(0.001, 5.0), "0.0 5.0");
  EXPECT_EQ(both(3e7, 0.5), "3.000000e+07 0.50");
}

TEST(SamePlace, IsThatOfTheFourthDigitWithoutUncertainty) {
  const auto one = [](double value) { return SamePlace(value, 0)(value); };
  for (const auto& [value, text] : std::vector<Shown>{{1e-7, "1.000e-07"},
                                                      {8e29, "8.000e+29"},
                                                      {0.33123, "0.3312"},
                                                      {0.000123456, "0.000123"},
                                                      {0, "0"},
                                                      {9.999999999999998, "10.00"},
                                                      {infinity, "inf"},
                                                      {1234567, "1234567"}})
    EXPECT_EQ(one(value), text);
  EXPECT_EQ(SamePlace(0.25, 0.1)(0.25, true), "+0.25");
  EXPECT_EQ(SamePlace(-2.5e-7, 1e-8)(-2.5e-7, true), "-2.50e-07");
}

using namespace std::string_literals;

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m"), "\\u001B[31mred\\u001B[0m");
  EXPECT_EQ(printable("a\nb\tc\rd\a\x7f"), "a\\nb\\tc\\u000Dd\\u0007\\u007F");
  EXPECT_EQ(printable("\0"s), "\\u0000");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "\\u009B1m");  // a control sequence that begins with one character, U+009B
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "abc"),
            "\\u202Eabc");  // U+202E writes from right to left
}

// These characters take no room, so without escapes two different labels would look the same.
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
  EXPECT_EQ(printable("\xc3"), "\\xC3");                             // a character without its second byte
  EXPECT_EQ(printable("\xc0\x8a"), "\\xC0\\x8A");                    // a line feed in two bytes instead of one
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xED\\xA0\\x80");           // half of a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");  // beyond U+10FFFF, the last character
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
