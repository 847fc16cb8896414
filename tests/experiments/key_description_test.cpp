// Readers that describe their keys where nothing is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "workers/config/settings.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

enum class Late { finish, cancel };

KeyDescription key_at(const std::vector<KeyDescription>& keys, const std::string& path) {
  for (const KeyDescription& key : keys)
    if (key.path == path) return key;
  ADD_FAILURE() << path << " is not described";
  return {};
}

std::vector<std::string> paths(const std::vector<KeyDescription>& keys) {
  std::vector<std::string> result;
  for (const KeyDescription& key : keys) result.push_back(key.path);
  return result;
}

// A question about a key that only some words lead to: the key is there with these words alone.
TEST(KeyDescription, IsWhereItsQuestionIsAsked) {
  const auto keys = describe([](Settings& root) {
    const Late late = root.choice({"late", "What becomes of it."}, {{"finish", Late::finish}, {"cancel", Late::cancel}},
                                  Late::finish);
    if (late == Late::finish && root.has({"after"})) root.integer({"after", "How many."}, 0, 9);
  });
  const KeyDescription after = key_at(keys, "after");
  EXPECT_FALSE(after.required);
  ASSERT_EQ(after.conditions.size(), 1u);
  EXPECT_THAT(after.conditions.front(), ElementsAre(Condition{"late", {"finish"}}));
}

TEST(KeyDescription, HasWhatTheReaderSaysOfEachKey) {
  const auto keys = describe([](Settings& root) {
    root.number({"threshold_s", "After what time.", "s"}, Range::positive());
    root.integer({"backups", "How many."}, 0, Stated(7, "workers - 1"), Stated(3, "as many as there are"));
    root.flag({"on", "Whether."}, true);
    root.choice({"late", "What becomes of it."}, {{"finish", Late::finish}, {"cancel", Late::cancel}}, Late::cancel);
    root.optional_number({"limit", "How far."}, Range::between(0, 1));
    root.numbers({"factors", "One each."}, Range::any(), std::vector<double>{1.0, 2.5});
  });
  EXPECT_THAT(
      keys,
      ElementsAre(
          KeyDescription{.path = "threshold_s",
                         .takes = "a number above 0",
                         .unit = "s",
                         .required = true,
                         .sentence = "After what time."},
          KeyDescription{.path = "backups",
                         .takes = "an integer from 0 to workers - 1",
                         .fallback = "as many as there are",
                         .sentence = "How many."},
          KeyDescription{.path = "on", .takes = "true or false", .fallback = "true", .sentence = "Whether."},
          KeyDescription{.path = "late",
                         .takes = "a word",
                         .fallback = "\"cancel\"",
                         .words = {{"finish", ""}, {"cancel", ""}},
                         .sentence = "What becomes of it."},
          KeyDescription{.path = "limit", .takes = "a number of at least 0 and at most 1", .sentence = "How far."},
          KeyDescription{.path = "factors",
                         .takes = "a list, each element a number",
                         .fallback = "[1.0, 2.5]",
                         .sentence = "One each."}));
}

struct Row {
  std::string_view name;
  std::string_view sentence;
  void (*read)(Settings& settings);
};
constexpr std::array rules = {
    Row{"constant", "the same",
        [](Settings& s) {
          s.integer({"steps", "How many."}, 1, 9);
        }},
    Row{"power", "grows",
        [](Settings& s) {
          s.number({"power", "Which."}, Range::positive(), 2.0);
          if (s.choice({"bound", "Whether."}, {{"no", false}, {"yes", true}}, false))
            s.integer({"maximum", "The most."}, 1, 9);
        }},
    Row{"swap", "once",
        [](Settings& s) {
          s.integer({"steps", "How many."}, 1, 9);
        }},
};

void read_rule(Settings& root) {
  Settings table = root.section({"period", "How often."});
  if (const Row* row = table.row({"rule", "Which rule."}, rules)) row->read(table);
}

TEST(KeyDescription, AWordOfAChoiceIsAConditionOfTheKeysThatExistWithItAlone) {
  const auto keys = describe(read_rule);
  EXPECT_THAT(paths(keys),
              ElementsAre("period", "period.rule", "period.steps", "period.power", "period.bound", "period.maximum"));
  EXPECT_THAT(key_at(keys, "period.rule").words,
              ElementsAre(std::pair("constant", "the same"), std::pair("power", "grows"), std::pair("swap", "once")));
  EXPECT_THAT(key_at(keys, "period.rule").conditions, testing::IsEmpty());
  EXPECT_THAT(key_at(keys, "period.steps").conditions,
              ElementsAre(ElementsAre(Condition{"period.rule", {"constant", "swap"}})));
  EXPECT_THAT(key_at(keys, "period.power").conditions, ElementsAre(ElementsAre(Condition{"period.rule", {"power"}})));
  EXPECT_THAT(key_at(keys, "period.maximum").conditions,
              ElementsAre(ElementsAre(Condition{"period.bound", {"yes"}}, Condition{"period.rule", {"power"}})));
}

TEST(KeyDescription, WhatIsFixedIsNoCondition) {
  const auto keys = describe(read_rule, {{"period.rule", "power"}});
  EXPECT_THAT(paths(keys), ElementsAre("period", "period.rule", "period.power", "period.bound", "period.maximum"));
  EXPECT_THAT(key_at(keys, "period.power").conditions, testing::IsEmpty());
}

TEST(KeyDescription, AKeyThatAnotherOneStandsForExistsWithoutIt) {
  const auto keys = describe([](Settings& root) {
    if (root.has("epochs"))
      root.number({"epochs", "In epochs."}, Range::positive());
    else
      root.integer({"steps", "In steps."}, 1, 9, 5);
  });
  EXPECT_FALSE(key_at(keys, "epochs").required);
  EXPECT_THAT(key_at(keys, "epochs").conditions, testing::IsEmpty());
  EXPECT_THAT(key_at(keys, "steps").conditions, ElementsAre(ElementsAre(Condition{"epochs?", {absent}})));
}

TEST(KeyDescription, AKeyThatIsReadInAnyCaseWithOneWordAndWhereItIsWrittenWithAnotherIsThereTwice) {
  const auto keys = describe([](Settings& root) {
    const bool needed = root.choice({"kind", "Which."}, {{"a", true}, {"b", false}}, true);
    if (needed || root.has("file")) root.file({"file", "Where."});
  });
  ASSERT_THAT(paths(keys), ElementsAre("kind", "file", "file"));
  EXPECT_TRUE(keys[1].required);
  EXPECT_THAT(keys[1].conditions, ElementsAre(ElementsAre(Condition{"kind", {"a"}})));
  EXPECT_FALSE(keys[2].required);
  EXPECT_THAT(keys[2].conditions, ElementsAre(ElementsAre(Condition{"kind", {"b"}})));
}

TEST(KeyDescription, AnArrayOfTablesHasTheKeysOfOneEntry) {
  const auto keys = describe([](Settings& root) {
    for (Settings& delay : root.sections({"delays", "What is added."}))
      delay.number({"mean", "How much."}, Range::any());
  });
  EXPECT_THAT(paths(keys), ElementsAre("delays", "delays.mean"));
  EXPECT_EQ(keys[0].kind, KeyDescription::Kind::array_of_tables);
}

TEST(KeyDescription, KeysWithOneMeaningUnderSeveralWordsOfTwoChoicesAreOne) {
  const auto keys = describe([](Settings& root) {
    const int method = root.choice({"method", "Which."}, {{"none", 0}, {"local", 1}, {"outer", 2}}, 0);
    if (method == 0) return;
    if (root.choice({"rule", "How."}, {{"constant", 0}, {"post", 1}, {"swap", 2}}, 0) > 0)
      root.integer({"switch_step", "When."}, 0, 9);
  });
  ASSERT_THAT(paths(keys), ElementsAre("method", "rule", "switch_step"));
  EXPECT_THAT(keys[2].conditions,
              ElementsAre(ElementsAre(Condition{"method", {"local", "outer"}}, Condition{"rule", {"post", "swap"}})));
}

}  // namespace
}  // namespace syncopate
