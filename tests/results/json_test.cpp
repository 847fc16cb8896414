// Whole numbers in result files are what they are, or are refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "results/summary.hpp"

namespace syncopate {
namespace {

template <typename Value>
Value read(const std::string& text) {
  return Json::parse(text).get<Value>();
}

TEST(Json, ReadsWholeNumbersOfTheirWholeRange) {
  EXPECT_EQ(read<std::int64_t>("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read<std::uint64_t>("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read<int>("-2147483648"), std::numeric_limits<int>::min());
  EXPECT_EQ(read<std::size_t>("0"), 0u);
  EXPECT_EQ(read<std::vector<std::int64_t>>("[1, -2]"), (std::vector<std::int64_t>{1, -2}));
}

TEST(Json, RefusesWhatIsNoWholeNumberOfTheType) {
  for (const char* text : {"1.5", "1e300", "-1e300", "2.0", "9223372036854775808", "\"1\"", "null", "true", "[1]"})
    EXPECT_THROW(read<std::int64_t>(text), Json::type_error) << text;
  EXPECT_THROW(read<std::size_t>("-1"), Json::type_error);
  EXPECT_THROW(read<int>("2147483648"), Json::type_error);
  EXPECT_THROW(read<std::vector<std::int64_t>>("[1, 1e300]"), Json::type_error);
  EXPECT_THROW(Json::parse(R"({"steps": 1e300})").value("steps", std::int64_t{0}), Json::type_error);
}

TEST(Json, ReadsOtherValuesAsTheLibraryDoes) {
  EXPECT_EQ(read<double>("3"), 3.0);
  EXPECT_EQ(read<double>("1e300"), 1e300);
  EXPECT_TRUE(read<bool>("true"));
  EXPECT_EQ(read<std::string>("\"a\""), "a");
}

TEST(Json, KeepsTheOrderInWhichKeysAreWritten) {
  Json json;
  json["b"] = 1;
  json["a"] = std::int64_t{-2};
  EXPECT_EQ(json.dump(), R"({"b":1,"a":-2})");
}

}  // namespace
}  // namespace syncopate
