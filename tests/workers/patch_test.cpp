// Patches of documents: changes by a table of keys and by the command line, their source lines, and the inverse.
#include "workers/config/patch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TomlNode document(const std::string& text) { return parse_toml(text, "f.toml"); }

std::string applied(const std::string& text, const std::string& keys, FaultList& faults) {
  TomlNode root = document(text);
  apply(root, patches_of(root, parse_toml(keys, "f.toml"), "variants.0", "variant \"a\"", faults), faults);
  return inline_toml(root);
}

std::string applied(const std::string& text, const std::string& keys) {
  FaultList faults;
  std::string result = applied(text, keys, faults);
  EXPECT_TRUE(faults.empty()) << faults.report();
  return result;
}

}  // namespace

TEST(Patches, OfATableReplaceKeysOneByOneExceptWhereAnotherKindStandsByItself) {
  const std::string file = "a = 1\n[o]\nname = \"sgd\"\nrate = 1\nmomentum = 2\n";
  EXPECT_EQ(applied(file, "\"o.rate\" = 3\n"), "{ a = 1, o = { name = \"sgd\", rate = 3, momentum = 2 } }");
  EXPECT_EQ(applied(file, "[o]\nname = \"sgd\"\nrate = 3\n"),
            "{ a = 1, o = { name = \"sgd\", rate = 3, momentum = 2 } }");
  EXPECT_EQ(applied(file, "[o]\nname = \"adam\"\nrate = 3\n"), "{ a = 1, o = { name = \"adam\", rate = 3 } }");
  EXPECT_EQ(applied(file, "b.c = 4\nremove = [\"o.rate\", \"a\"]\n"),
            "{ o = { name = \"sgd\", momentum = 2 }, b = { c = 4 } }");
}

TEST(Patches, OfALengthReplaceTheOneInOtherUnits) {
  const std::string file = "[rate]\nwarmup_steps = 10\nhold_steps = 5\n";
  for (const char* const unit : {"epochs", "seconds", "s", "share"})
    EXPECT_EQ(applied(file, std::string("rate.warmup_") + unit + " = 2\n"),
              std::string("{ rate = { hold_steps = 5, warmup_") + unit + " = 2 } }");
  EXPECT_EQ(applied("a = { at_step = 3 }\n", "a.at_epoch = 2\n"), "{ a = { at_epoch = 2 } }");
  EXPECT_EQ(applied("a = { share = 3 }\n", "a.rounds = 2\n"), "{ a = { rounds = 2 } }");
}

// The patch both replaces and removes the key. It is removed once, because a second removal would be a fault.
TEST(Patches, ThatReplaceALengthMayAlsoRemoveItOrGiveTwoOthers) {
  const std::string file = "[rate]\nwarmup_steps = 10\n";
  EXPECT_EQ(applied(file, "rate.warmup_epochs = 2\nremove = [\"rate.warmup_steps\"]\n"),
            "{ rate = { warmup_epochs = 2 } }");
  EXPECT_EQ(applied(file, "rate.warmup_epochs = 2\nrate.warmup_share = 0.1\n"),
            "{ rate = { warmup_epochs = 2, warmup_share = 0.1 } }")
      << "which of the two is meant, the reader of the keys asks";
}

TEST(Patches, ThatNameAnotherAlgorithmLeaveTheOtherKeysOfALabelledMethod) {
  EXPECT_EQ(applied("[[methods]]\nlabel = \"A\"\nalgorithm = \"x\"\nk = 1\n", "methods.A.algorithm = \"y\"\n"),
            "{ methods = [{ label = \"A\", algorithm = \"y\", k = 1 }] }");
}

TEST(Patches, ReachElementsOfListsByNameAndByNumber) {
  const std::string file = "[[methods]]\nlabel = \"A\"\nx = 1\n[[methods]]\nlabel = \"B\"\nx = 2\n";
  const std::string changed = "{ methods = [{ label = \"A\", x = 1 }, { label = \"B\", x = 7 }] }";
  EXPECT_EQ(applied(file, "methods.B.x = 7\n"), changed);
  EXPECT_EQ(applied(file, "methods.1.x = 7\n"), changed);
  FaultList faults;
  applied(file, "methods.C.x = 7\n", faults);
  EXPECT_THAT(faults.report(), HasSubstr("f.toml:1:9: variants.0.methods.C; \"C\" must be one of A, B"));
}

TEST(Patches, NameTheirOriginInFaultsOfTheirValues) {
  TomlNode root = document("[a]\nx = 1\ny = 2\n");
  FaultList none;
  apply(root, patches_of(root, document("a.x = -1\na.z.u = [-2, 3]\n"), "variants.0", "variant \"a\"", none), none);
  EXPECT_TRUE(none.empty());
  SettingsDocument read(std::move(root));
  Settings top = read.root(), a = top.section("a");
  a.integer("x", 0, 9);
  a.integer("y", 5, 9);
  Settings z = a.section("z");
  z.integers("u", 0, 9);
  EXPECT_EQ(read.check().report(),
            "f.toml:1:7: variant \"a\": a.x = -1; must be an integer from 0 to 9\n"
            "f.toml:2:10: variant \"a\": a.z.u = -2; each element must be an integer from 0 to 9\n"
            "f.toml:3:5: a.y = 2; must be an integer from 5 to 9");
}

TEST(Patches, OfTheCommandLineSetSweepAndRemove) {
  const auto path = [](const char* change) { return parse_patch(change).path; };
  const auto value = [](const char* change) { return inline_toml(*parse_patch(change).value); };
  EXPECT_THAT(path("a.b=1"), ElementsAre("a", "b"));
  EXPECT_EQ(value("a.b=1"), "1");
  EXPECT_EQ(value("a.b=word"), "\"word\"");
  EXPECT_THAT(path("a.b=1,2"), ElementsAre("sweep", "a.b"));
  EXPECT_EQ(value("a.b=1,2"), "[1, 2]");
  EXPECT_EQ(value("a.b='1,2'"), "\"1,2\"");
  EXPECT_THAT(path("a.b={from=1, to=3, step=1}"), ElementsAre("sweep", "a.b"));
  EXPECT_THAT(path("seeds=1,2"), ElementsAre("seeds"));
  EXPECT_THAT(path("sweep.zip=a,b"), ElementsAre("sweep", "zip"));
  EXPECT_THAT(path("~a.b"), ElementsAre("a", "b"));
  EXPECT_FALSE(parse_patch("~a.b").value);
  EXPECT_THROW(parse_patch("a.b=1,,2"), KeyPathFault);
  EXPECT_THROW(parse_patch("a.b=1,[2"), KeyPathFault);
}

TEST(Patches, WithTheLastKeyOfASweepTheSweepIsRemovedButAnEmptyOneOfTheFileStays) {
  const auto after = [](const char* text, const std::string& change) {
    TomlNode root = document(text);
    FaultList faults;
    apply_command_line(root, std::vector{change}, faults);
    EXPECT_TRUE(faults.empty()) << faults.report();
    return inline_toml(root);
  };
  EXPECT_EQ(after("[sweep]\na.b = [1, 2]\n", "~sweep.a.b"), "{}");
  EXPECT_EQ(after("[sweep]\na.b = [1]\na.c = [1]\n", "~sweep.a.b"), "{ sweep = { a = { c = [1] } } }");
  EXPECT_EQ(after("x = 1\n[sweep]\n", "~x"), "{ sweep = {} }");
}

TEST(Patches, ADifferenceOfTablesIsTheInverseOfPuttingItIn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a = 1\nb = 2", "a = 1\nb = 3"},
      {"[o]\nname = \"x\"\nr = 1\ns = 2", "[o]\nname = \"x\"\nr = 1\ns = 3"},
      {"[o]\nname = \"x\"\nr = 1\ns = 2", "[o]\nname = \"y\"\nt = 1"},
      {"[l]\nwarmup_steps = 5", "[l]\nwarmup_epochs = 1"},
      {"[l]\nschedule = \"step\"\ndecay_steps = [1]", "[l]\nschedule = \"step\"\ndecay_epochs = [1]"},
      {"[c]\nsteps = 1\n[c.method]\nalgorithm = \"x\"\nk = 1", "[c]\nsteps = 1\n[c.method]\nalgorithm = \"y\"\nm = 1"}};
  for (const auto& [from, to] : cases) {
    FaultList faults;
    const TomlNode keys = difference(document(from), document(to));
    EXPECT_EQ(inline_toml(with_keys_of(document(from), keys, "own", faults)), inline_toml(document(to))) << from;
    EXPECT_TRUE(faults.empty()) << faults.report();
  }
  EXPECT_EQ(inline_toml(difference(document("a = 1"), document("a = 1"))), "{}");
}

// In a table of names, such as [models."a.b"], a key with a dot is one key, not a path.
TEST(Patches, KeysOfAnOwnTableAreNames) {
  FaultList faults;
  EXPECT_EQ(inline_toml(with_keys_of(document("[\"a.b\"]\nx = 1\ny = 2"), document("[\"a.b\"]\nx = 3"), "own", faults)),
            "{ \"a.b\" = { x = 3, y = 2 } }");
  EXPECT_EQ(inline_toml(with_keys_of(document("a = 1"), document("remove = [\"a\"]"), "own", faults)),
            "{ a = 1, remove = [\"a\"] }");  // kept: the reader will report `remove` as an unknown key
}

}  // namespace syncopate
