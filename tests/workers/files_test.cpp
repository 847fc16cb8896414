#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/workers/delay_files.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using CsvFiles = DelayFiles;

// The text comes in pieces of some 250,000 bytes. Comments of all lengths before the rows move where a piece ends: into
// a number, between values, between the two characters that end a line.
TEST(CsvRows, RowsAreTheSameWhereverAPieceOfTheTextEnds) {
  constexpr int rows = 40'000;
  std::string table;
  for (int i = 0; i < rows; ++i) table += fmt::format("{},{}.25\r\n", i, 7 * i % 1001);
  ASSERT_GT(table.size(), 500'000u);
  for (std::size_t length = 0; length < 20; ++length)
    for (const bool compressed : {false, true}) {
      const std::string text = "\xef\xbb\xbf#" + std::string(length, '-') + "\nrow,value\n" + table + "40000,5";
      const std::string content = compressed ? gzip(text) : text;
      CsvRows csv("t.csv", content, {"value", "row"});
      int wrong = 0;
      for (int i = 0; i < rows; ++i) {
        ASSERT_TRUE(csv.next());
        wrong += csv.number(0) != 7 * i % 1001 + 0.25 || csv.number(1) != i || csv.line() != i + 3;
      }
      EXPECT_EQ(wrong, 0);
      ASSERT_TRUE(csv.next());
      EXPECT_EQ(csv.number(0), 5);  // without the end of a line
      EXPECT_FALSE(csv.next());
      csv.check();
    }
}

TEST(CsvRows, ALineOfManyPiecesIsOne) {
  const std::string text = "a,b\n1," + std::string(1'000'000, ' ') + "2\n3,4\n";
  CsvRows csv("t.csv", text, {"b"});
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.number(0), 2);
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.line(), 3);
  EXPECT_FALSE(csv.next());
}

// What nobody asks for may be left out at the end of a row; more values than there are columns may not.
TEST(CsvRows, RowsMayEndBehindTheLastColumnThatIsAskedFor) {
  const std::string text = "a,b,c\n1,2,3\n4,5\n6,7,\n";
  CsvRows csv("t.csv", text, {"b"});
  for (const double expected : {2.0, 5.0, 7.0}) {
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.number(0), expected);
  }
  EXPECT_FALSE(csv.next());
  EXPECT_NO_THROW(csv.check());
}

TEST(CsvRows, RowsThatAreFaultsArePassedOver) {
  const std::string text = "a,b\n1,2\n3,x\ninf,4\n5,6,7\n8,9\n";
  CsvRows csv("t.csv", text, {"a", "b"});
  for (const double expected : {1.0, 8.0}) {
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.number(0), expected);
  }
  EXPECT_FALSE(csv.next());
  const std::string faults = message_of<FileFault>([&] { csv.check(); });
  EXPECT_THAT(faults, HasSubstr("t.csv:3: b = x"));
  EXPECT_THAT(faults, HasSubstr("t.csv:4: a = inf"));
  EXPECT_THAT(faults, HasSubstr("t.csv:5: there are 3 values for 2 columns"));
}

TEST(CsvRows, WhatOnlyBeginsAsANumberIsNone) {
  for (const std::string cell : {"0.5x", "0.1s", "1;2", "1 2", "0x10", "1e", "-"}) {
    const std::string text = "a,b\n1," + cell + "\n";
    CsvRows csv("t.csv", text, {"b"});
    EXPECT_FALSE(csv.next());
    EXPECT_EQ(message_of<FileFault>([&] { csv.check(); }).substr(0, 13 + cell.size()), "t.csv:2: b = " + cell);
  }
}

TEST(CsvRows, DamageBehindTheFirstRowsIsAFault) {
  std::string table = "a\n";
  for (int i = 0; i < 500'000; ++i) table += fmt::format("{}\n", i * 37 % 100'003);
  const std::string content = gzip(table);
  CsvRows csv("t.csv.gz", std::string_view(content).substr(0, content.size() / 2), {"a"});
  EXPECT_TRUE(csv.next());
  EXPECT_EQ(message_of<FileFault>([&] {
              while (csv.next()) continue;
            }),
            "t.csv.gz: ends in the middle of its compressed data; the file is truncated");
}

// A regular file whose first bytes cannot be read, because no memory lies there.
TEST_F(CsvFiles, ATableThatCannotBeReadToItsEndIsNoShorterOne) {
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"/proc/self/mem\"").faults,
              HasSubstr("/proc/self/mem: cannot be read: Input/output error"));
}

// RFC 4180: any value may stand between quotation marks, which then may have commas, and marks that are doubled.
TEST(CsvRows, ValuesMayStandBetweenQuotationMarks) {
  const std::string text =
      "\"name\",\"a\" , b,\"a \"\"third\"\"\"\r\n"
      "\"Smith, J.\",\"1\",2,3\n"
      "\"said \"\"a, b\"\"\", \"-4.5e1\" ,\"5\",\"\"\n"
      "\"\",\" 6 \",7\n"
      "plain,8,9,\"\"\"\"\n";
  CsvRows csv("t.csv", text, {"b", "a"});
  for (const auto& [b, a] : {std::pair{2.0, 1.0}, {5.0, -45.0}, {7.0, 6.0}, {9.0, 8.0}}) {
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.number(0), b);
    EXPECT_EQ(csv.number(1), a);
  }
  EXPECT_FALSE(csv.next());
  csv.check();
}

TEST(CsvRows, AMarkThatIsLeftOpenIsAFaultOfItsLineAlone) {
  const std::string text = "a,b,size\n\"1,2\n3,4,5\" disk\n\"5\"\"\",6\n";
  CsvRows csv("t.csv", text, {"a"});
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.number(0), 3);
  EXPECT_FALSE(csv.next());
  const std::string faults = message_of<FileFault>([&] { csv.check(); });
  EXPECT_THAT(faults, HasSubstr("t.csv:2: a quotation mark is left open; must be closed in the same line"));
  EXPECT_THAT(faults, HasSubstr("t.csv:4: a = 5\"\"; must be a finite number"));
}

TEST(CsvRows, AColumnMayBeMissingThatHasAValueThen) {
  const std::string without = "a\n1\n2\n", with = "b,a\n7,1\n8,2\n", twice = "b,a,b\n7,1,1\n";
  CsvRows missing("t.csv", without, {"a", {"b", 5}}), there("t.csv", with, {"a", {"b", 5}});
  for (const double a : {1.0, 2.0}) {
    ASSERT_TRUE(missing.next() && there.next());
    EXPECT_EQ(missing.number(0), a);
    EXPECT_EQ(missing.number(1), 5);
    EXPECT_EQ(there.number(0), a);
    EXPECT_EQ(there.number(1), a + 6);
  }
  EXPECT_THAT(message_of<FileFault>([&] {
                CsvRows("t.csv", twice, {"a", {"b", 5}});
              }),
              HasSubstr("the column b stands twice"));
}

// What spreadsheets of other countries write, and files that are no such text.
TEST(CsvRows, OtherFormsOfTablesAreNamed) {
  const auto fault = [](const std::string& text) {
    return message_of<FileFault>([&] {
      CsvRows csv("t.csv", text, {"a", "b"});
      while (csv.next()) continue;
      csv.check();
    });
  };
  EXPECT_THAT(fault("a;b\n1,5;2\n"),
              HasSubstr("t.csv:1: the column a is missing; its header has semicolons between the "
                        "columns; must have commas, and numbers decimal points"));
  EXPECT_THAT(fault("\"a\";\"b\"\n1;2\n"), HasSubstr("its header has semicolons between the columns"));
  EXPECT_THAT(fault("a\tb\n1\t2\n"), HasSubstr("its header has tabs between the columns"));
  EXPECT_THAT(fault("a,c\n1,2\n"), HasSubstr("the column b is missing; there are a,c"));
  EXPECT_THAT(fault("a,b\n\"1,5\",2\n"), HasSubstr("t.csv:2: a = 1,5; must be a finite number, with a decimal point"));
  EXPECT_THAT(fault("a,b\n1,5,2\n"),
              HasSubstr("t.csv:2: there are 3 values for 2 columns; a number must have no comma"));
  const std::string plain = "a,b\n1,2\n3,4\n";
  std::string wide;
  for (const char letter : plain) wide += std::string{letter, '\0'};
  for (const std::string& mark : {std::string(), std::string("\xff\xfe")})
    EXPECT_THAT(fault(mark + wide), HasSubstr("t.csv:1: the file is UTF-16 (little-endian), which iconv -f UTF-16LE -t "
                                              "UTF-8 converts; must be a table of comma-separated values in UTF-8"));
  EXPECT_THAT(fault("PK\x03\x04 and more"), HasSubstr("the file is a zip archive, as spreadsheets (.xlsx, .ods)"));
}

}  // namespace
}  // namespace syncopate
