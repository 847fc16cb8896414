#include <gmock/gmock.h>

#include <set>

#include "experiments/sections/variation.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels_of(const std::string& list) {
  return swept_labels(parse_toml("a = " + list, "f").find("a")->array());
}

TEST(SweptLabel, IsTheValueWhereItIsShort) {
  EXPECT_THAT(labels_of("[1, 2.5]"), ElementsAre("1", "2.5"));
  EXPECT_THAT(labels_of("[\"adamw\", \"sgd\"]"), ElementsAre("adamw", "sgd"));
  EXPECT_THAT(labels_of("[[1, 2], [3]]"), ElementsAre("[1, 2]", "[3]"));
}

TEST(SweptLabel, OfTablesIsTheirKindWhereTheseDiffer) {
  EXPECT_THAT(labels_of("[{kind=\"free\"}, {kind=\"fixed\", latency_s=0.5}]"), ElementsAre("free", "fixed"));
}

TEST(SweptLabel, OfTablesIsTheNameOrRuleThatChoosesTheirKeys) {
  EXPECT_THAT(labels_of("[{rule=\"constant\", steps=4}, {rule=\"constant\", steps=8}, {rule=\"power\", power=2}]"),
              ElementsAre("constant; steps = 4", "constant; steps = 8", "power"));
  EXPECT_THAT(labels_of("[{momentum=0.9, name=\"sgd\"}, {name=\"adam\", beta1=0.9}]"), ElementsAre("sgd", "adam"));
  EXPECT_THAT(labels_of("[{schedule=\"step\", peak=1}, {schedule=\"step\", peak=2}]"),
              ElementsAre("step; peak = 1", "step; peak = 2"));
}

// The four of experiments/examples/stragglers.toml.
TEST(SweptLabel, OfOneDelayAloneIsItsKindAndOfNoneIsNone) {
  EXPECT_THAT(labels_of("[[{kind=\"exponential\", mean=0.005}], []]"), ElementsAre("exponential", "none"));
  EXPECT_THAT(labels_of("[[{kind=\"exponential\", mean=1}], [{kind=\"exponential\", mean=2}]]"),
              ElementsAre("exponential; mean = 1", "exponential; mean = 2"));
}

TEST(SweptLabel, OfTablesOfOneKindIsWhatTheyDifferBy) {
  const std::string bursts = "bursts = { mean_on_steps = 5, mean_off_steps = 35 }";
  EXPECT_THAT(
      labels_of("[{kind=\"constant\", value=4, workers=[56, 57]}, {kind=\"constant\", value=4, " + bursts +
                "}, {kind=\"constant\", value=4, " + bursts +
                ", group_size=8}, {kind=\"pareto\", shape=1.5, minimum=0.1666667}]"),
      ElementsAre("constant; workers = [56, 57]", "constant; bursts", "constant; bursts; group_size = 8", "pareto"));
}

TEST(SweptLabel, OfTablesWithinTablesIsWhatTheseDifferBy) {
  EXPECT_THAT(labels_of("[{kind=\"a\", b={x=1, y=2}}, {kind=\"a\", b={x=1, y=3}}, {kind=\"a\"}]"),
              ElementsAre("a; b.y = 2", "a; b.y = 3", "a"));
}

TEST(SweptLabel, OfTablesWithoutKindIsWhatTheyDifferBy) {
  EXPECT_THAT(labels_of("[{peak=0.1, final=0}, {peak=0.2, final=0}, {peak=0.2, final=0.1}]"),
              ElementsAre("peak = 0.1; final = 0", "peak = 0.2; final = 0", "peak = 0.2; final = 0.1"));
  EXPECT_THAT(labels_of("[[{value=1, x=0}], [{value=2, x=0}]]"), ElementsAre("value = 1", "value = 2"));
  EXPECT_THAT(labels_of("[[{value=1}, {value=3}], [{value=2}, {value=3}]]"), ElementsAre("0.value = 1", "0.value = 2"));
  EXPECT_THAT(labels_of("[{peak=0.1}]"), ElementsAre("peak = 0.1"));
}

TEST(SweptLabel, OfTablesHasLongNumbersInShort) {
  EXPECT_THAT(
      labels_of("[{kind=\"ring\", rate=1.25e9}, {kind=\"ring\", rate=1.25e8}, {kind=\"ring\", rate=1234567891.0}]"),
      ElementsAre("ring; rate = 1.25e+09", "ring; rate = 1.25e+08", "ring; rate = 1234567891.0"));
  EXPECT_THAT(labels_of("[{value=100.0}, {value=20000}]"), ElementsAre("value = 100.0", "value = 20000"));
  EXPECT_THAT(labels_of("[1.25e9, 12500.0]"), ElementsAre("1250000000.0", "12500.0")) << "they name folders of runs";
}

TEST(SweptLabel, IsShortAndNobodyElses) {
  std::string numbers = "1";
  for (int i = 2; i < 100; ++i) numbers += ", " + std::to_string(i);
  const std::string lists =
      "[[" + numbers + ", 1], [" + numbers + ", 2], {}, {x=1}, [{}], \"" + std::string(99, 'x') + "\", 1, \"1\"]";
  const auto labels = labels_of(lists);
  EXPECT_EQ(std::set(labels.begin(), labels.end()).size(), 8u) << testing::PrintToString(labels);
  for (const std::string& label : labels) EXPECT_LE(label.size(), 70u);
}

}  // namespace
}  // namespace syncopate
