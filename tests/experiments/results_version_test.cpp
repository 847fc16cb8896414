// What a set of small runs computes, against what tests/golden/results_by_version.json says it has computed since which
// results_version. The one place where results are compared with those of an earlier program: not whether they are
// right is asked here, but whether they are still the same, because finished runs are taken for this program's own as
// long as the version stays.
//
// Times come from the counter-based streams and are the same to the nanosecond on every machine. Losses on the
// quadratic are rounded to six digits, since C libraries differ in the last bits of logarithms; those of networks,
// which go through BLAS, are compared by a tolerance instead.
#define XXH_INLINE_ALL
#include "experiments/results_version.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "experiments/execution.hpp"
#include "experiments/experiment.hpp"
#include "experiments/toml_tree.hpp"

namespace syncopate {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* table_name = "tests/golden/results_by_version.json";
constexpr double tolerance = 1e-4;  // of a loss that BLAS has computed: kernels differ in the seventh digit

constexpr const char* head = R"(name = "results"
[budget]
steps = 30
[evaluation]
every_steps = 10
train_samples = 100
[cluster]
workers = 4
micro_batch_s = 0.010
micro_batches = 2
slow_workers = { count = 1, factor = 1.5 }
)";
constexpr const char* ring = R"([network]
kind = "ring"
latency_s = 50e-6
bandwidth_bytes_per_s = 1e6
jitter = 0.1
)";
constexpr const char* stragglers = R"([[delays]]
kind = "bounded-lognormal"
form = "table"
scale = 0.5
unit = "micro_batch"
)";
constexpr const char* time_alone = "[training]\nmodel = \"none\"\nparameters = 1000\n";
constexpr const char* quadratic = R"([training]
model = "quadratic"
[models.quadratic]
dimension = 20
[training.learning_rate]
schedule = "cosine"
peak = 0.2
warmup_steps = 5
[training.optimizer]
name = "sgd"
momentum = 0.9
)";

constexpr const char* methods = R"([[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "dropcompute, fixed"
algorithm = "dropcompute"
threshold_s = 0.030
[[methods]]
label = "dropcompute, automatic"
algorithm = "dropcompute"
threshold = { rule = "automatic", warmup_steps = 2, calibration_steps = 10 }
[[methods]]
algorithm = "random-drop"
drop_rate = 0.2
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
label = "backup-workers, cancelled"
algorithm = "backup-workers"
backups = 1
late = "cancel"
[[methods]]
algorithm = "backup-tokens"
backups = 1
[[methods]]
algorithm = "backup-all-reduce"
backups = 1
[[methods]]
label = "eager-sgd, majority"
algorithm = "eager-sgd"
activation = "majority"
[[methods]]
label = "eager-sgd, solo"
algorithm = "eager-sgd"
activation = "solo"
late = "drop"
synchronous_every = 16
[[methods]]
algorithm = "async-sgd"
[[methods]]
algorithm = "softsync"
splitting = 2
[[methods]]
algorithm = "stale-synchronous"
slack = 2
[[methods]]
algorithm = "bounded-delay"
maximum_delay = 2
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
[[methods]]
algorithm = "outer-local-sgd"
period = { rule = "constant", steps = 4 }
outer = { name = "slowmo", rate = 1.0, momentum = 0.5 }
[[methods]]
algorithm = "hierarchical-sgd"
group_size = 2
group_period = 2
period = { rule = "constant", steps = 8 }
[[methods]]
algorithm = "branch-train-merge"
seed_steps = 10
[[methods]]
algorithm = "dropcompute-local-sgd"
period = { rule = "constant", steps = 4 }
threshold_s = 0.120
[[methods]]
label = "elastic-averaging, synchronous"
algorithm = "elastic-averaging"
beta = 0.8
period = 4
[[methods]]
label = "elastic-averaging, asynchronous"
algorithm = "elastic-averaging"
exchange = "asynchronous"
beta = 0.8
period = 4
[[methods]]
algorithm = "gradient-coding"
code = "cyclic"
stragglers = 1
[[methods]]
algorithm = "decentralized-sgd"
[[methods]]
algorithm = "stochastic-gradient-push"
)";
constexpr const char* methods_that_need_models = R"([[methods]]
algorithm = "dynamic-averaging"
threshold = 0.5
check_every = 2
)";
constexpr const char* three_families = R"([[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
)";
constexpr const char* one_method = "[[methods]]\nalgorithm = \"sync-sgd\"\n";

struct Group {
  std::string name;
  std::string toml;
};

// What stands between the first quotation marks.
std::string_view kind_of(std::string_view toml) {
  toml.remove_prefix(toml.find('"') + 1);
  return toml.substr(0, toml.find('"'));
}

const std::vector<Group>& exact_groups() {
  static const std::vector<Group> groups = [] {
    const std::string begin = head;
    std::vector<Group> all = {
        {"time alone", begin + ring + stragglers + time_alone + methods},
        {"quadratic", begin + ring + stragglers + quadratic + methods + methods_that_need_models},
        {"outages", begin + ring + stragglers + time_alone + three_families +
                        "[[outages]]\nworkers = [3]\nat_s = 0.1\nduration_s = 0.05\n"
                        "[[outages]]\nmean_time_between_s = 0.2\nmean_duration_s = 0.02\nstate = \"lost\"\n"},
        {"adamw", begin + ring + quadratic + one_method}};
    const std::string sgd = "name = \"sgd\"\nmomentum = 0.9";
    all.back().toml.replace(all.back().toml.find(sgd), sgd.size(), "name = \"adamw\"\nweight_decay = 0.1");
    for (const char* network : {"kind = \"free\"", "kind = \"fixed\"\nlatency_s = 1e-3",
                                "kind = \"tree\"\nlatency_s = 50e-6\nbandwidth_bytes_per_s = 1e6",
                                "kind = \"two-level\"\nlatency_s = 50e-6\nbandwidth_bytes_per_s = 1e6\ngroup_size = 2\n"
                                "inside = { latency_s = 1e-6, bandwidth_bytes_per_s = 1e7 }\nbetween = \"tree\"",
                                "kind = \"parameter-server\"\nlatency_s = 50e-6\nbandwidth_bytes_per_s = 1e6"}) {
      all.push_back({fmt::format("network {}", kind_of(network)),
                     begin + "[network]\n" + network + "\n" + stragglers + time_alone + three_families});
    }
    for (const char* delay :
         {"kind = \"constant\"\nvalue = 1", "kind = \"uniform\"\nlow = 0\nhigh = 1",
          "kind = \"normal\"\nmean = 1\nstandard_deviation = 0.2", "kind = \"exponential\"\nmean = 1",
          "kind = \"shifted-exponential\"\nshift = 0.1\nmean = 1", "kind = \"gamma\"\nshape = 0.5\nscale = 1",
          "kind = \"weibull\"\nshape = 0.5\nscale = 1", "kind = \"pareto\"\nshape = 1.5\nminimum = 0.1",
          "kind = \"bernoulli\"\nprobability = 0.1\nvalue = 3", "kind = \"lognormal\"\nmu = 0\nsigma = 1\nscale = 0.5",
          "kind = \"bounded-lognormal\"\nform = \"formula\"\nscale = 0.5",
          "kind = \"histogram\"\ndata = \"dropcompute-160\"", "kind = \"drift\"\nper_step = 0.01\nmaximum = 0.2"}) {
      all.push_back({fmt::format("delays {}", kind_of(delay)),
                     begin + ring + "[[delays]]\n" + delay + "\nunit = \"micro_batch\"\n" + time_alone + one_method});
    }
    all.push_back({"delays in bursts, per step and group",
                   begin + ring + "[[delays]]\nkind = \"constant\"\nvalue = 0.02\nscope = \"step\"\ngroup_size = 2\n" +
                       "bursts = { mean_on_steps = 3, mean_off_steps = 5 }\n" + time_alone + one_method});
    return all;
  }();
  return groups;
}

const std::vector<Group>& rounded_groups() {
  static const std::vector<Group> groups = [] {
    std::vector<Group> all;
    for (const char* model : {"linear", "mlp"})
      all.push_back({model, fmt::format("{}{}[training]\nmodel = \"{}\"\ndataset = \"gaussian-mixture\"\n"
                                        "micro_batch_size = 8\n[models.mlp]\nhidden = [16]\n"
                                        "[training.learning_rate]\nschedule = \"constant\"\npeak = 0.05\n"
                                        "[training.optimizer]\nname = \"sgd\"\n[datasets.gaussian-mixture]\n"
                                        "train = 640\ntest = 100\n{}",
                                        head, ring, model, three_families)});
    return all;
  }();
  return groups;
}

std::vector<Run> runs_of(const Group& group) {
  const auto file = std::filesystem::path(testing::TempDir()) / fmt::format("syncopate-version-{}.toml", getpid());
  std::ofstream(file) << group.toml;
  std::vector<Run> runs = load_experiment(file.string(), {}).runs;
  std::filesystem::remove(file);
  return runs;
}

Outcome outcome_of(const Run& run) {
  Progress silent(Progress::Style::silent, 1, 1);
  silent.begin_run(1, run);
  Outcome outcome = execute(run, {}, silent, [](const Outcome&) {});
  EXPECT_EQ(outcome.failure, "") << run.method;
  return outcome;
}

// Numbers of metrics.csv and steps.csv, and the accounts.
std::string digest_of(const Outcome& outcome) {
  std::string text;
  const auto add = [&text](const auto&... numbers) { (fmt::format_to(std::back_inserter(text), "{} ", numbers), ...); };
  const auto add_rounded = [&text](double number) { fmt::format_to(std::back_inserter(text), "{:.5e} ", number); };
  for (const MetricsRow& row : outcome.recording.metrics) {
    add(row.step.value(), row.samples, row.time.time_since_epoch().count(), row.bytes.value());
    add_rounded(row.learning_rate);
    if (row.evaluation) add_rounded(row.evaluation->test_loss);
  }
  for (const Round& round : outcome.recording.rounds)
    add(round.step.value(), round.end.time_since_epoch().count(), round.duration.count(), round.kept, round.dropped,
        round.period.value(), round.bytes.value());
  const RunTotals totals = outcome.totals.value_or(RunTotals{});
  for (const Account& account : totals.accounts)
    for (const Duration time : account.time) add(time.count());
  for (const auto* counts : {&totals.kept, &totals.dropped, &totals.staleness})
    for (const std::int64_t count : *counts) add(count);
  add(totals.end.time_since_epoch().count(), totals.bytes.value(), totals.collectives, totals.messages);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// Of the newest version that says something of this run; the number of that version, 0 without any.
struct Expected {
  int version = 0;
  Json result;
};

Expected expected_of(const std::string& name) {
  static const Json table =
      Json::parse(std::ifstream(fmt::format("{}/{}", SYNCOPATE_SOURCE_DIR, table_name)), nullptr, false);
  Expected newest;
  if (!table.is_object() || !table.contains(name)) return newest;
  for (const auto& [version, result] : table.at(name).items())
    if (std::stoi(version) > newest.version) newest = {std::stoi(version), result};
  return newest;
}

// What a failure says: the line as it would be right, and what else is to be done.
std::string what_to_do(const std::string& name, const Expected& expected, const Json& found) {
  const bool is_new = expected.version == 0;
  const int version = is_new || expected.version < results_version ? results_version : results_version + 1;
  std::string text = is_new ? fmt::format("{} says nothing of this run.\n", table_name)
                            : fmt::format(
                                  "The results of this run are others than since version {}. If that is not "
                                  "meant, it is a fault of the change.\nIf it is meant:\n",
                                  expected.version);
  if (version > results_version)
    text += fmt::format(
        "- set results_version = {} in experiments/results_version.hpp, once for the whole change, so "
        "that nobody's finished runs are taken for what this program computes;\n",
        version);
  return text +
         fmt::format("- add to {}, leaving the entries of former versions as they are:\n  \"{}\": {{\"{}\": {}}}",
                     table_name, name, version, found.dump());
}

TEST(ResultsVersion, IsRaisedByWhateverChangesResults) {
  for (const Group& group : exact_groups())
    for (const auto& run : runs_of(group)) {
      const std::string name = fmt::format("{}: {}", group.name, run.method);
      const Expected expected = expected_of(name);
      const Json found = digest_of(outcome_of(run));
      EXPECT_LE(expected.version, results_version) << name << ": of a version that is to come; raise results_version";
      EXPECT_EQ(found, expected.result) << what_to_do(name, expected, found);
    }
}

TEST(ResultsVersion, IsRaisedByWhateverChangesTheLossesOfNetworks) {
  for (const Group& group : rounded_groups())
    for (const auto& run : runs_of(group)) {
      const std::string name = fmt::format("{}: {}", group.name, run.method);
      const Expected expected = expected_of(name);
      Json found = Json::array();
      for (const MetricsRow& row : outcome_of(run).recording.metrics)
        found.push_back(std::stod(fmt::format("{:.7g}", row.evaluation->test_loss)));
      bool is_same = expected.result.is_array() && expected.result.size() == found.size();
      for (std::size_t i = 0; is_same && i < found.size(); ++i) {
        const double before = expected.result[i];
        is_same = std::abs(found[i].get<double>() - before) <= tolerance * before;
      }
      EXPECT_TRUE(is_same) << what_to_do(name, expected, found);
      EXPECT_LE(expected.version, results_version) << name << ": of a version that is to come; raise results_version";
    }
}

TEST(ResultsVersion, IsWatchedByRunsOfEveryAlgorithm) {
  std::set<std::string> seen;
  for (const Group& group : exact_groups())
    for (const auto& run : runs_of(group)) {
      const TomlNode resolved = parse_toml(run.resolved_toml, "resolved");
      seen.insert(std::get<std::string>(resolved.find("methods")->array()[0].find("algorithm")->value));
    }
  for (const AlgorithmRow& row : algorithms())
    EXPECT_TRUE(seen.contains(std::string(row.name))) << row.name << ": add a method to the runs of this test";
}

TEST(ResultsVersion, IsPartOfEveryRunsHash) {
  const syncopate::Run run = runs_of(exact_groups().front()).front();
  TomlNode configuration = parse_toml(run.resolved_toml, "resolved");
  configuration.erase("description");
  configuration.erase("recording");
  const auto hash_with = [&](int version) {
    const std::string text = fmt::format("{}\nresults_version = {}\n", write_toml(configuration), version);
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  };
  EXPECT_EQ(run.hash, hash_with(results_version));
  EXPECT_NE(run.hash, hash_with(results_version + 1));
}

}  // namespace
}  // namespace syncopate
