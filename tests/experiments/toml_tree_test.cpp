#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "workers/config/key_path.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

std::string what(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return "nothing was thrown";
}

TEST(TomlTree, KeepsTheOrderAndThePlacesOfTheDocument) {
  const TomlNode root = parse_toml("z = 1\n\n[b]\n  a = [1, 2]\n", "f.toml");
  ASSERT_EQ(root.table().size(), 2u);
  EXPECT_EQ(root.table()[0].key, "z");
  const TomlNode* a = root.find("b")->find("a");
  EXPECT_EQ(a->place.text(), "f.toml:4:7");
  EXPECT_EQ(a->array()[1].place.text(), "f.toml:4:11");
  EXPECT_EQ(root.find("b")->place.text(), "f.toml:3:1");
  EXPECT_EQ(root.place.text(), "f.toml");
}

TEST(TomlTree, SyntaxFaultsHaveAPlace) {
  EXPECT_THAT(what([] { parse_toml("a = 1\nb = [1\n", "f.toml"); }), testing::StartsWith("f.toml:"));
  EXPECT_THAT(what([] { parse_toml("a = 1\na = 2\n", "f.toml"); }), testing::StartsWith("f.toml:2:"));
}

TEST(TomlTree, WritesEveryKindOfValueSoThatItReadsBack) {
  const std::string text =
      "a = true\nb = -5\nc = 5e-05\nd = 1250000000.0\ne = -inf\nf = \"tab\\t \\u0001 é \\\"q\\\"\"\n"
      "g = [1, [2.5, \"x\"]]\nh = [{ k = 1 }, 2]\n\"odd key.\" = 2024-01-02\nempty = []\n\n[t]\n\n"
      "[t.\"u v\"]\nx = 1\n\n[[list]]\nx = 1\n\n[[list.inner]]\ny = 2\n\n[[list]]\nx = 2\n";
  EXPECT_EQ(write_toml(parse_toml(text, "f")),
            "a = true\nb = -5\nc = 5e-05\nd = 1250000000.0\ne = -inf\n"
            "f = \"tab\\t \\u0001 é \\\"q\\\"\"\ng = [1, [2.5, \"x\"]]\nh = [{ k = 1 }, 2]\n\"odd key.\" = 2024-01-02\n"
            "empty = []\n\n[t.\"u v\"]\nx = 1\n\n[[list]]\nx = 1\n\n[[list.inner]]\ny = 2\n\n[[list]]\nx = 2\n");
}

TEST(KeyPath, SplitsAtDotsOutsideQuotes) {
  EXPECT_THAT(split_key("a.b.0.c"), testing::ElementsAre("a", "b", "0", "c"));
  EXPECT_THAT(split_key("methods.\"Local SGD (1.5)\".'x.y'"),
              testing::ElementsAre("methods", "Local SGD (1.5)", "x.y"));
  EXPECT_EQ(what([] { split_key("a..b"); }), "a part of the key is empty");
  EXPECT_EQ(what([] { split_key("a.\"b"); }), "a quote in the key is not closed");
}

TEST(KeyPath, AddressesElementsByNumberLabelAndName) {
  TomlNode root = parse_toml(
      "[[m]]\nalgorithm = \"sgd\"\nlabel = \"one\"\n[[m]]\nalgorithm = \"sgd\"\n[[m]]\nkind = \"ring\"\n", "f");
  const TomlNode& m = *root.find("m");
  EXPECT_EQ(element_index(m, "1"), 1u);
  EXPECT_EQ(element_index(m, "one"), 0u);
  EXPECT_EQ(element_index(m, "ring"), 2u);
  EXPECT_EQ(what([&] { element_index(m, "3"); }), "\"3\" must be one of one, sgd, ring, or a number from 0 to 2");
  EXPECT_EQ(what([&] { element_index(m, "sgd"); }), "\"sgd\" names 2 elements; must be a label, or a number from 0");
  EXPECT_EQ(what([&] { element_index(m, "rnig"); }),
            "\"rnig\" must be one of one, sgd, ring, or a number from 0 to 2; did you mean \"ring\"?");
}

TEST(KeyPath, AssignsThroughTablesThatItMakesAndRefusesValues) {
  TomlNode root = parse_toml("x = 1\nlist = [1, 2]\n", "f");
  assign(root, split_key("a.b.c"), {}, {std::int64_t{7}, {}});
  assign(root, split_key("list.1"), {}, {std::int64_t{9}, {}});
  EXPECT_EQ(write_toml(root), "x = 1\nlist = [1, 9]\n\n[a.b]\nc = 7\n");
  EXPECT_EQ(what([&] { assign(root, split_key("x.y"), {}, {}); }), "\"y\" is looked for in a value that is no table");
}

TEST(KeyPath, AnOverridesValueIsTomlOrElseAString) {
  const auto value = [](std::string_view text) { return inline_toml(parse_override(text).value); };
  EXPECT_EQ(value("a=0.5"), "0.5");
  EXPECT_EQ(value("a = [1, 2]"), "[1, 2]");
  EXPECT_EQ(value("a=cnn"), "\"cnn\"");
  EXPECT_EQ(value("a=\"3\""), "\"3\"");
  EXPECT_EQ(value("a=x=y"), "\"x=y\"");
  EXPECT_EQ(value("a="), "\"\"");
  EXPECT_EQ(value("a=1\nb=2"), "\"1\\nb=2\"");
  EXPECT_EQ(value("a={ b = 1 }"), "{ b = 1 }");
  EXPECT_EQ(parse_override("m.\"a=b\".c=1").key, "m.\"a=b\".c");
}

}  // namespace
}  // namespace syncopate
