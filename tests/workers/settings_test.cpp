#include "workers/config/settings.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <string>

#include "workers/config/key_path.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

struct Shape {
  std::string_view name;
  std::string_view sentence;
};
constexpr std::array shapes = {Shape{"constant", ""}, Shape{"linear", ""}, Shape{"cosine", ""}};

// A document whose faults are at places in "f.toml".
struct Read {
  explicit Read(std::string_view text) : document(parse_toml(text, "f.toml")), root(document.root()) {}
  std::string report() { return document.check().report(); }
  std::string resolved() const { return write_toml(document.resolved()); }
  SettingsDocument document;
  Settings root;
};

TEST(Settings, ReadsWhatIsWritten) {
  Read read("a = 1.5\nb = -3\nc = true\nd = \"x\"\ne = \"linear\"\nf = [1, 2.5]\ng = [4, 5]\n");
  EXPECT_EQ(read.root.number("a", Range::any()), 1.5);
  EXPECT_EQ(read.root.integer("b", -10, 10), -3);
  EXPECT_TRUE(read.root.flag("c"));
  EXPECT_EQ(read.root.text("d"), "x");
  EXPECT_EQ(read.root.row("e", shapes), &shapes[1]);
  EXPECT_THAT(read.root.numbers("f", Range::any()), testing::ElementsAre(1.0, 2.5));
  EXPECT_THAT(read.root.integers("g", 0, 9), testing::ElementsAre(4, 5));
  EXPECT_EQ(read.report(), "");
}

TEST(Settings, FillsInDefaultsWithoutAFault) {
  Read read("");
  EXPECT_EQ(read.root.number("a", Range::positive(), 0.25), 0.25);
  EXPECT_EQ(read.root.row("e", shapes, "cosine"), &shapes[2]);
  EXPECT_THAT(read.root.integers("seeds", 0, most, std::vector<std::int64_t>{1}), testing::ElementsAre(1));
  EXPECT_EQ(read.report(), "");
  EXPECT_EQ(read.resolved(), "a = 0.25\ne = \"cosine\"\nseeds = [1]\n");
}

TEST(Settings, AnIntegerServesAsANumberButNotTheReverse) {
  Read read("a = 2\nb = 2.0\n");
  EXPECT_EQ(read.root.number("a", Range::positive()), 2.0);
  read.root.integer("b", 0, most);
  EXPECT_EQ(read.report(), "f.toml:2:5: b = 2.0; must be an integer of at least 0");
}

TEST(Settings, InfinityIsANumberOnlyWhereTheRangeHasNoUpperBound) {
  Read read("a = inf\nb = inf\nc = inf\n");
  EXPECT_EQ(read.root.number("a", Range::positive()), inf);
  EXPECT_EQ(read.root.number("b", Range::between(0, 1)), 0);
  read.root.number("c", {.low = 0, .high_open = true});
  EXPECT_EQ(read.report(),
            "f.toml:2:5: b = inf; must be a number of at least 0 and at most 1\n"
            "f.toml:3:5: c = inf; must be a finite number of at least 0");
}

TEST(Settings, NotANumberIsNeverANumber) {
  Read read("a = nan\n");
  read.root.number("a", Range::any());
  EXPECT_EQ(read.report(), "f.toml:1:5: a = nan; must be a number");
}

TEST(Settings, OpenBoundsExcludeTheBoundItself) {
  Read read("a = 0\nb = 1.0\n");
  read.root.number("a", Range::positive());
  read.root.number("b", {.low = 0, .high = 1, .high_open = true});
  EXPECT_EQ(read.report(),
            "f.toml:1:5: a = 0; must be a number above 0\n"
            "f.toml:2:5: b = 1.0; must be a number of at least 0 and below 1");
}

TEST(Settings, AMissingKeyIsReportedAtItsTable) {
  Read read("\n[outer]\nx = 1\n[outer.inner]\n");
  Settings outer = read.root.section("outer");
  outer.integer("x", 0, 5);
  outer.section("inner").flag("on");
  outer.section("absent").text("name");
  read.root.section("nowhere").integer("n", 1, 2);
  EXPECT_EQ(read.report(),
            "f.toml: nowhere.n is missing; must be an integer from 1 to 2\n"
            "f.toml:2:1: outer.absent.name is missing; must be a string\n"
            "f.toml:4:1: outer.inner.on is missing; must be true or false");
}

TEST(Settings, AllFaultsOfADocumentAreReportedAtOnceInTheOrderOfItsLines) {
  Read read("d = 3\nb = \"x\"\nextra = 1\na = 7\n");
  read.root.integer("a", 0, 5);
  read.root.flag("b");
  read.root.text("c");
  read.root.text("d");
  EXPECT_EQ(read.report(),
            "f.toml: c is missing; must be a string\n"
            "f.toml:1:5: d = 3; must be a string\n"
            "f.toml:2:5: b = \"x\"; must be true or false\n"
            "f.toml:3:1: extra = 1; unknown key; must be one of a, b, c, d\n"
            "f.toml:4:5: a = 7; must be an integer from 0 to 5");
}

TEST(Settings, UnknownKeysAreFoundAtAnyDepthWithTheNearestKnownOne) {
  Read read("[trainng]\nlr = 1\n[a.b]\nmomentm = 0.9\n[[m]]\nlabl = \"x\"\n");
  read.root.section("training");
  read.root.section("a").section("b").number("momentum", Range::any(), 0.0);
  for (Settings& m : read.root.sections("m")) m.text("label", "");
  EXPECT_EQ(read.report(),
            "f.toml:1:2: trainng = a table; unknown key; did you mean \"training\"?\n"
            "f.toml:4:1: a.b.momentm = 0.9; unknown key; did you mean \"momentum\"?\n"
            "f.toml:6:1: m.0.labl = \"x\"; unknown key; did you mean \"label\"?");
}

TEST(Settings, AKeyThatWasAskedAboutIsKnown) {
  Read read("worker_factor = [1]\nslow = 1\n");
  EXPECT_FALSE(read.root.has("worker_factors"));
  EXPECT_TRUE(read.root.has("slow"));
  EXPECT_EQ(read.report(), "f.toml:1:1: worker_factor = [1]; unknown key; did you mean \"worker_factors\"?");
}

TEST(Settings, AnUnknownChoiceNamesTheNearestAndHidesTheKeysThatWouldBelongToIt) {
  Read read("rule = \"cosin\"\ncoefficient = 0.2\nrul = 3\n");
  EXPECT_EQ(read.root.row("rule", shapes), nullptr);
  EXPECT_EQ(
      read.report(),
      "f.toml:1:8: rule = \"cosin\"; must be one of \"constant\", \"linear\", \"cosine\"; did you mean \"cosine\"?\n"
      "f.toml:3:1: rul = 3; unknown key; did you mean \"rule\"?");
}

TEST(Settings, EachWrongElementOfAListIsReportedAtItsOwnPlace) {
  Read read("seeds = [1, -2, \"x\"]\nfactors = 3\n");
  EXPECT_THAT(read.root.integers("seeds", 0, most), testing::ElementsAre(1));
  read.root.numbers("factors", Range::positive());
  EXPECT_EQ(read.report(),
            "f.toml:1:13: seeds = -2; each element must be an integer of at least 0\n"
            "f.toml:1:17: seeds = \"x\"; each element must be an integer of at least 0\n"
            "f.toml:2:11: factors = 3; must be a list [...], each element a number above 0");
}

TEST(Settings, AValueWhereATableBelongsIsOneFault) {
  Read read("network = \"ring\"\n[delays]\nkind = \"x\"\n");
  read.root.section("network").text("kind");
  EXPECT_TRUE(read.root.sections("delays").empty());
  EXPECT_EQ(read.report(),
            "f.toml:1:11: network = \"ring\"; must be a table, [network]\n"
            "f.toml:2:1: delays = a table; must be an array of tables, [[delays]]");
}

TEST(Settings, AFaultOfSeveralKeysStandsAtTheKeyOrItsTable) {
  Read read("[a]\nx = 2\n");
  Settings a = read.root.section("a");
  a.integer("x", 0, 5);
  a.number("y", Range::any(), 0.5);
  a.fault("x", "must be below y");
  a.fault("y", "must be above x");
  a.fault("z", "must be given");
  a.fault("", "must hold less");
  EXPECT_EQ(read.report(),
            "f.toml:1:1: a.y = 0.5 (the default); must be above x\n"
            "f.toml:1:1: a.z; must be given\n"
            "f.toml:1:1: a; must hold less\n"
            "f.toml:2:5: a.x = 2; must be below y");
}

TEST(Settings, OverridesReplaceAndAddValuesAndAreReportedAsTheCommandLine) {
  TomlNode root = parse_toml("[training]\nmodel = \"mlp\"\n[[methods]]\nalgorithm = \"dropcompute\"\n", "f.toml");
  FaultList faults;
  const std::vector<std::string> overrides = {"training.model=cnn", "methods.dropcompute.threshold_s=-1",
                                              "seeds=[1,2]",        "budgt.steps=3",
                                              "methods.7.x=1",      "nonsense"};
  apply_command_line(root, overrides, faults);
  SettingsDocument document(root);
  Settings settings = document.root();
  EXPECT_EQ(settings.section("training").text("model"), "cnn");
  EXPECT_THAT(settings.integers("seeds", 0, 9), testing::ElementsAre(1, 2));
  settings.section("budget");
  Settings method = settings.sections("methods").at(0);
  method.text("algorithm");
  method.number("threshold_s", Range::positive());
  EXPECT_EQ(document.check().report(),
            "command line: methods.0.threshold_s = -1; must be a number above 0\n"
            "command line: budgt = a table; unknown key; did you mean \"budget\"?");
  EXPECT_EQ(faults.report(),
            "command line: methods.7.x=1; \"7\" must be one of dropcompute, or 0\n"
            "command line: nonsense; an override must be key=value");
}

// If such an override were read as text, the fault would only say "must be a table".
TEST(Settings, AnOverrideThatBeginsLikeATableAListOrATextInQuotesMustBeToml) {
  const auto found = [](const std::string& override) {
    TomlNode root;
    FaultList faults;
    apply_command_line(root, std::vector{override}, faults);
    return faults.report();
  };
  const auto is_at = [](int character) {
    return testing::AllOf(
        testing::StartsWith("command line: rate="),
        testing::HasSubstr(fmt::format("; its value is not valid TOML, at its character {}: ", character)));
  };
  EXPECT_THAT(found("rate={schedule='cosine' peak=0.1}"), is_at(20));
  EXPECT_THAT(found("rate={peak=.008}"), is_at(7));
  EXPECT_THAT(found("rate=[1 2]"), is_at(4));
  EXPECT_THAT(found("rate='abc"), testing::HasSubstr("its value is not valid TOML"));
  EXPECT_THAT(found("rate=[1"), testing::HasSubstr("its value is not valid TOML"));
  EXPECT_EQ(found("rate=abc"), "");
  EXPECT_EQ(found("rate={peak=0.008}"), "");
  EXPECT_EQ(found("rate='abc'"), "");
}

TEST(Faults, StandInTheOrderOfTheFileWithTheCommandLineLast) {
  FaultList faults;
  const auto at = [](std::uint32_t line, std::uint32_t column) { return SourcePlace{"f.toml", line, column}; };
  faults.add({std::string(command_line_source)}, "first said");
  faults.add(at(2, 1), "e");
  faults.add(at(1, 20), "d");
  faults.add(at(1, 3), "b");
  faults.add(at(1, 3), "c");
  faults.add(at(1, 3), "b");
  faults.add({std::string(command_line_source)}, "then said");
  EXPECT_EQ(faults.report(),
            "f.toml:1:3: b\nf.toml:1:3: c\nf.toml:1:20: d\nf.toml:2:1: e\ncommand line: first said\n"
            "command line: then said");
}

TEST(Settings, TheResolvedDocumentReadsBackToItself) {
  const auto read_all = [](std::string_view text) {
    Read read(text);
    read.root.text("name");
    Settings cluster = read.root.section("cluster");
    cluster.number("micro_batch_s", Range::positive());
    cluster.integer("workers", 1, 100, 8);
    for (Settings& method : read.root.sections("methods")) {
      method.text("label");
      method.section("period").number("power", Range::positive(), 2.0);
    }
    read.root.flag("last", false);
    EXPECT_EQ(read.report(), "");
    return read.resolved();
  };
  const std::string resolved = read_all(
      "name = \"a \\\"b\\\" \\\\\"\ncluster = { micro_batch_s = 1e-7 }\n[[methods]]\nlabel = \"x\"\n[[methods]]\nlabel "
      "= \"y\"\n");
  EXPECT_EQ(resolved,
            "name = \"a \\\"b\\\" \\\\\"\nlast = false\n\n[cluster]\nmicro_batch_s = 1e-07\nworkers = 8\n\n"
            "[[methods]]\nlabel = \"x\"\n\n[methods.period]\npower = 2.0\n\n"
            "[[methods]]\nlabel = \"y\"\n\n[methods.period]\npower = 2.0\n");
  EXPECT_EQ(read_all(resolved), resolved);
}

TEST(NearestName, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("warm-up", "Warm_up"), 0u);
}

// After a list of forty names, a suggestion would be overlooked.
TEST(NearestName, StandsBeforeALongListAndAfterAShortOne) {
  const std::vector<std::string> few = {"cosine", "linear"};
  EXPECT_EQ(must_be_one_of("cosin", few), "must be one of cosine, linear; did you mean \"cosine\"?");
  EXPECT_EQ(must_be_one_of("step", few, "\""), "must be one of \"cosine\", \"linear\"");
  std::vector<std::string> many;
  for (int i = 10; i < 50; ++i) many.push_back("algorithm" + std::to_string(i));
  EXPECT_EQ(must_be_one_of("algoritm23", many, "\""),
            "did you mean \"algorithm23\"? must be one of \"algorithm23\", \"algorithm13\", \"algorithm20\", "
            "\"algorithm21\", \"algorithm22\" and 35 more");
  EXPECT_EQ(must_be_one_of("x", many).find("algorithm10"), std::string("must be one of ").size()) << "none is near";
}

// If a typed text is part of several names, no name is suggested, but these names come first in the list.
TEST(NearestName, NamesThatThePieceIsOfStandFirst) {
  std::vector<std::string> many;
  for (int i = 10; i < 50; ++i) many.push_back("algorithm" + std::to_string(i));
  for (const char* one : {"streaming-diloco", "local-sgd", "decoupled-diloco"}) many.emplace_back(one);
  EXPECT_EQ(must_be_one_of("diloco", many).find("must be one of streaming-diloco, decoupled-diloco, "), 0u)
      << must_be_one_of("diloco", many);
  EXPECT_TRUE(must_be_one_of("diloco", many).ends_with(" and 38 more"));
}

TEST(NearestName, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(suggestion("test", std::vector<std::string>{"least", "file"}), "") << "another beginning";
  const std::vector<std::string> names = {"threshold_s", "label"};
  EXPECT_EQ(suggestion("treshold", names), "; did you mean \"threshold_s\"?");
  EXPECT_EQ(suggestion("bandwidth", names), "");
  EXPECT_EQ(suggestion("x", names), "");
  // The text is part of only one name.
  const std::vector<std::string> keys = {"micro_batch_size", "micro_batches", "target_accuracy", "directory"};
  EXPECT_EQ(suggestion("batch_size", keys), "; did you mean \"micro_batch_size\"?");
  EXPECT_EQ(suggestion("target_acc", keys), "; did you mean \"target_accuracy\"?");
  EXPECT_EQ(suggestion("dir", keys), "; did you mean \"directory\"?");
  EXPECT_EQ(suggestion("micro", keys), "");
  EXPECT_EQ(suggestion("throughput", std::vector<std::string>{"first_formula_over_throughput"}), "")
      << "a small part of a long name, and not its beginning";
}

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
  EXPECT_EQ(what([&] { element_index(m, "sgd"); }),
            "2 elements are named \"sgd\"; must be a label that only one element has, or an element's number, counted "
            "from 0");
  EXPECT_EQ(what([&] { element_index(m, "rnig"); }),
            "\"rnig\" must be one of one, sgd, ring, or a number from 0 to 2; did you mean \"ring\"?");
}

TEST(KeyPath, AssignsThroughTablesThatItMakesAndRefusesValues) {
  TomlNode root = parse_toml("x = 1\nlist = [1, 2]\n", "f");
  apply(root, {.path = split_key("a.b.c"), .value = TomlNode{std::int64_t{7}, {}}});
  apply(root, {.path = split_key("list.1"), .value = TomlNode{std::int64_t{9}, {}}});
  EXPECT_EQ(write_toml(root), "x = 1\nlist = [1, 9]\n\n[a.b]\nc = 7\n");
  EXPECT_EQ(what([&] { apply(root, {.path = split_key("x.y"), .value = TomlNode{}}); }),
            "\"y\" cannot be set, because the value before it is not a table");
}

TEST(KeyPath, AnOverridesValueIsTomlOrElseAString) {
  const auto value = [](const std::string& text) { return inline_toml(*parse_patch(text).value); };
  EXPECT_EQ(value("a=0.5"), "0.5");
  EXPECT_EQ(value("a = [1, 2]"), "[1, 2]");
  EXPECT_EQ(value("a=cnn"), "\"cnn\"");
  EXPECT_EQ(value("a=\"3\""), "\"3\"");
  EXPECT_EQ(value("a=x=y"), "\"x=y\"");
  EXPECT_EQ(value("a="), "\"\"");
  EXPECT_EQ(value("a=1\nb=2"), "\"1\\nb=2\"");
  EXPECT_EQ(value("a={ b = 1 }"), "{ b = 1 }");
  EXPECT_EQ(parse_patch("m.\"a=b\".c=1").key, "m.\"a=b\".c");
}

// Descriptions of keys, which readers give when they read an empty document.

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

// A key that is only read for some values of another key is described with these values only.
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
