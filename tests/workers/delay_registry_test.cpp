#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "workers/config/settings.hpp"
#include "workers/time/delays.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

struct Read {
  std::shared_ptr<const DelayProcess> delay;
  std::string faults;
};

Read read_delay(const std::string& toml, double base_s = 0.010) {
  SettingsDocument document(parse_toml(toml, "delays.toml"));
  Settings settings = document.root();
  auto delay = make_delay(settings, base_s);
  return {std::move(delay), document.check().report()};
}

// Every family once, with its mean in its own unit.
struct Example {
  std::string kind;
  std::string keys;
  double mean;
};
const std::vector<Example> examples = {
    {"constant", "value = 3", 3},
    {"uniform", "low = 1\nhigh = 4", 2.5},
    {"normal", "mean = 2\nstandard_deviation = 0.1", 2},
    {"exponential", "mean = 0.7", 0.7},
    {"shifted-exponential", "shift = 0.2\nmean = 0.7", 0.9},
    {"weibull", "shape = 1\nscale = 0.5", 0.5},
    {"pareto", "shape = 3\nminimum = 2", 3},
    {"bernoulli", "probability = 0.25\nvalue = 2", 0.5},
    {"lognormal", "mu = -0.125\nsigma = 0.5", 1},
    {"lognormal", "mu = -0.125\nsigma = 0.5\nscale = 3", 3},
    {"drift", "per_step = 0.5\nmaximum = 4", 4},
    {"gamma", "shape = 4\nscale = 0.5", 2},
    {"bounded-lognormal", "", 0.5},
    {"bounded-lognormal", "form = \"table\"\nscale = 2", 2},
    {"bounded-lognormal", "form = \"formula\"", 0.495904},  // golden table, six digits
    {"bounded-lognormal", "form = \"formula\"\nmu = 4\nsigma = 1\nalpha = 180.03426260104363\nbeta = 5.5\nscale = 2",
     2 * 0.495904},
};

TEST(DelayRegistry, ExamplesCoverEveryRow) {
  std::set<std::string_view> rows, covered;
  for (const DelayRow& row : delays()) {
    EXPECT_TRUE(rows.insert(row.name).second) << row.name << " stands twice";
    EXPECT_FALSE(row.sentence.empty());
  }
  for (const Example& example : examples) covered.insert(example.kind);
  covered.insert({"histogram", "trace"});  // which have tests of their own: their unit is that of the file
  EXPECT_EQ(rows, covered);
}

TEST(DelayRegistry, FamiliesReadTheirKeysInSecondsOrMicroBatches) {
  for (const auto& [kind, keys, mean] : examples) {
    const std::string entry = "kind = \"" + kind + "\"\n" + keys + "\n";
    for (const auto& [unit, unit_s] :
         {std::pair{"", 1.0}, {"unit = \"seconds\"", 1.0}, {"unit = \"micro_batch\"", 0.02}}) {
      const Read read = read_delay(entry + unit, 0.02);
      EXPECT_EQ(read.faults, "") << entry;
      EXPECT_NEAR(read.delay->mean_s(), unit_s * mean, 1e-6 * unit_s * mean + 1e-15) << entry << unit;
    }
  }
}

TEST(DelayRegistry, BadParametersAreFaultsAtTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"kind = \"constant\"\nvalue = -1", "delays.toml:2:"},
      {"kind = \"constant\"\nvalue = inf", "value"},
      {"kind = \"constant\"\nvalue = nan", "value"},
      {"kind = \"constant\"", "value"},
      {"kind = \"uniform\"\nlow = 2\nhigh = 1", "must be at least low"},
      {"kind = \"uniform\"\nlow = -2\nhigh = 1", "low"},
      {"kind = \"normal\"\nmean = 1\nstandard_deviation = -0.5", "standard_deviation"},
      {"kind = \"exponential\"\nmean = -0.5", "mean"},
      {"kind = \"gamma\"\nshape = 0\nscale = 1", "shape"},
      {"kind = \"gamma\"\nshape = 1\nscale = -1", "scale"},
      {"kind = \"shifted-exponential\"\nmean = 1", "shift"},
      {"kind = \"weibull\"\nshape = 0\nscale = 1", "shape"},
      {"kind = \"pareto\"\nshape = 0.01\nminimum = 1", "shape"},
      {"kind = \"pareto\"\nshape = 2\nminimum = -1", "minimum"},
      {"kind = \"bernoulli\"\nprobability = 1.5\nvalue = 1", "probability"},
      {"kind = \"lognormal\"\nmu = 0\nsigma = 0", "sigma"},
      {"kind = \"lognormal\"\nsigma = 1", "mu"},
      {"kind = \"drift\"\nper_step = -1\nmaximum = 1", "per_step"},
      {"kind = \"drift\"\nper_step = 1", "maximum"},
      {"kind = \"drift\"\nper_step = 1\nmaximum = 2\nscope = \"worker\"", "changes from step to step"},
      {"kind = \"constant\"\nvalue = 1\nscope = \"server\"", "micro-batch"},
      {"kind = \"constant\"\nvalue = 1\ngroup_size = 0", "delays.toml:3:"},
      {"kind = \"constant\"\nvalue = 1\nworkers = []", "at least one worker"},
      {"kind = \"constant\"\nvalue = 1\nworkers = [1, 0, 1]", "must name each worker once; 1 stands there more often"},
      {"kind = \"constant\"\nvalue = 1\nworkers = [-1]", "workers"},
      {"kind = \"constant\"\nvalue = 1\nbursts = { mean_on_steps = 0.5, mean_off_steps = 2 }", "mean_on_steps"},
      {"kind = \"constant\"\nvalue = 1\nbursts = { mean_on_steps = 2 }", "mean_off_steps"},
      {"kind = \"constant\"\nvalue = 1\nbursts = 3", "bursts"},
      {"kind = \"bounded-lognormal\"\nform = \"formula\"\nsigma = 0", "sigma"},
      {"kind = \"bounded-lognormal\"\nform = \"formula\"\nalpha = 0", "alpha"},
      {"kind = \"bounded-lognormal\"\nform = \"formula\"\nbeta = -1", "beta"},
      {"kind = \"bounded-lognormal\"\nscale = -1", "scale"},
      {"kind = \"bounded-lognormal\"\nmu = 4", "mu"},  // a key of the other form
      {"kind = \"bounded-lognormal\"\nform = \"tabel\"", "table"},
      {"kind = \"exponental\"", "exponential"},
      {"mean = 1", "kind"},
      {"kind = \"constant\"\nvalue = 1\nunit = \"hours\"", "unit"},
      {"kind = \"constant\"\nvalue = 1\nvalu = 2", "valu"},
  };
  for (const auto& [entry, expected] : bad) {
    const Read read = read_delay(entry);
    EXPECT_THAT(read.faults, HasSubstr(expected)) << entry;
    EXPECT_NE(read.delay, nullptr) << entry;
  }
}

}  // namespace
}  // namespace syncopate
