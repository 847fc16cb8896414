// What an experiment may ask for: bounds on runs, times, depth and size, each refused when the file is read.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "experiments/sections/variation.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/config/key_path.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Bounds = ExperimentFile;

std::string repeated(const std::string& text, int times, const std::string& between = "") {
  std::string result = text;
  for (int i = 1; i < times; ++i) result += between + text;
  return result;
}

// [1, 2, ..., count]
std::string list_to(int count) {
  std::string list = "1";
  for (int value = 2; value <= count; ++value) list += ", " + std::to_string(value);
  return "[" + list + "]";
}

TEST_F(Bounds, MoreRunsThanTheLimitAreRefusedBeforeAnythingIsExpanded) {
  // 1,000 x 1,000 points, 2 methods, 2 seeds: expanded, they would take minutes and tens of gigabytes.
  write(std::string(small) + "[sweep]\n\"budget.epochs\" = " + list_to(1000) +
        "\n\"training.micro_batch_size\" = " + list_to(1000) + "\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(faults({}), file.string() +
                            ":30:1: 1000000 points of a sweep x 2 methods x 2 seeds are 4000000 runs; must be at most "
                            "10000, or as many as --limit allows");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(Bounds, TheLimitCountsRunsAndCanBeMoved) {
  const auto loads = [&](std::int64_t limit) {
    try {
      return load_experiment(file, {"sweep.\"budget.epochs\"=[1,2,3]"}, {.most_runs = limit}).runs.size();
    } catch (const ConfigurationFault&) {
      return std::size_t{0};
    }
  };
  EXPECT_EQ(loads(12), 12u);  // 3 points x 2 methods x 2 seeds
  EXPECT_EQ(loads(11), 0u);
  const auto refusal = [&](const std::vector<std::string>& overrides) {
    try {
      load_experiment(file, overrides, {.most_runs = 1});
    } catch (const ConfigurationFault& fault) {
      return std::string(fault.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({"seeds=2", "sweep.\"budget.epochs\"=[1,2,3]"}),
              HasSubstr("3 points of a sweep x 2 methods x 2 seeds are 12 runs; must be at most 1"));
  EXPECT_THAT(refusal({"seeds=[1]"}), HasSubstr(": 2 methods x 1 seed are 2 runs; must be at most 1"));
  EXPECT_THAT(faults({"seeds=1000000000000"}), HasSubstr("1000000000000 seeds"));
}

TEST_F(Bounds, ANumberOfRunsBeyondAllIntegersIsAsLargeAsPossible) {
  SweepAxis thousand;
  thousand.entries.resize(1000);
  EXPECT_EQ(number_of_points({}), 1u);
  EXPECT_EQ(number_of_points({thousand, thousand}), 1'000'000u);
  EXPECT_EQ(number_of_points(std::vector(7, thousand)), std::numeric_limits<std::uint64_t>::max());
}

// Each would end as a clock that cannot go on, or as a micro-batch that never ends.
TEST_F(Bounds, TimesBeyondTheLimitOfDelaysAreRefusedWithIt) {
  const auto refused = [&](const std::string& override, const std::string& what) {
    EXPECT_THAT(faults({override}), HasSubstr(what)) << override;
  };
  refused("cluster.micro_batch_s=1e10",
          "cluster.micro_batch_s = 10000000000.0; must be a number above 0 and at most 1");
  refused("cluster.micro_batch_s=\"long\"", "must be a number above 0 and at most 1000000000, or \"measured\"");
  refused("cluster.slow_workers={count=1, factor=1e300}", "cluster.slow_workers.factor = 1e+300; must be a number");
  refused("cluster.worker_factors=[1, 1, 1, 1e300]", "each element must be a number above 0 and at most 1");
  // Products of what each is allowed.
  refused("cluster={workers=4, micro_batch_s=1e6, slow_workers={count=1, factor=1e6}}",
          "must keep the slowest worker's micro-batch within 1e+09 s; it takes 1e+12 s");
  refused("cluster={workers=2, micro_batch_s=1e6, worker_factors=[1, 1e6]}", "cluster.worker_factors = [1, 1");
  refused("delays=[{kind=\"gamma\", shape=1e6, scale=1e6}]",
          "delays.0.kind = \"gamma\"; must give delays a mean of at most 1e+09 s; found 1e+12 s");
  refused("delays=[{kind=\"constant\", value=1e9}, {kind=\"lognormal\", mu=50, sigma=1}]", "delays.1.kind");
  // A model of 650 floats over a link that is too slow for it.
  refused("network={kind=\"ring\", latency_s=0, bandwidth_bytes_per_s=1e-300}",
          "network.bandwidth_bytes_per_s = 1e-300; must let a model of ");
  refused("network={kind=\"parameter-server\", latency_s=0, bandwidth_bytes_per_s=1e-7}",
          "network.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  // Of the links the slowest is named.
  const std::string ring = "network={kind=\"ring\", latency_s=0, bandwidth_bytes_per_s=1e9, ";
  refused(ring + "server={bandwidth_bytes_per_s=1e-7}}",
          "network.server.bandwidth_bytes_per_s = 1e-07; must let a model");
  refused(ring + "links=[{workers=[1], latency_s=1}, {workers=[2], bandwidth_bytes_per_s=1e-7}]}",
          "network.links.1.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  refused(ring + "racks={group_size=2, latency_s=0, bandwidth_bytes_per_s=1e-7}}",
          "network.racks.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  refused(ring + "racks={group_size=2, latency_s=1e9, bandwidth_bytes_per_s=1e9}}",
          "network.racks.latency_s = 1000000000.0; must let a model of ");
  refused(
      "network={kind=\"two-level\", group_size=2, latency_s=0, bandwidth_bytes_per_s=1e9, "
      "inside={latency_s=0, bandwidth_bytes_per_s=1e-7}}",
      "network.inside.bandwidth_bytes_per_s = 1e-07; must let a model of ");
  const std::string no_threshold = "methods=[{algorithm=\"sync-sgd\"}]";
  EXPECT_EQ(faults({no_threshold, "cluster.micro_batch_s=1e9"}), "");
  EXPECT_EQ(faults({no_threshold, "cluster={workers=4, micro_batch_s=1e3, slow_workers={count=1, factor=1e6}}"}), "");
}

// The last value that is taken, and the first beyond it.
TEST_F(Bounds, OfNumbersAreTakenOrRefusedAsTheReferenceSays) {
  struct Border {
    std::string key;
    std::string taken;
    std::string refused;
  };
  const Border borders[] = {
      {"seeds", "[0]", "[-1]"},
      {"seeds", "[9223372036854775807]", "[1,2,1]"},
      {"name", "\"...\"", "\"..\""},
      {"name", "\".a\"", "\".\""},
      {"name", "\"a b\"", "\"a/b\""},
      {"name", "\" \"", "\"\""},
      {"cluster.workers", "1", "0"},
      {"cluster.micro_batches", "1", "0"},
      {"cluster.micro_batch_s", "1e-300", "0"},
      {"cluster.trailing_s", "0", "-1e-9"},
      {"cluster.trailing_s", "1e9", "1.1e9"},
      {"cluster.slow_workers", "{count=4, factor=3}", "{count=5, factor=3}"},
      {"cluster.slow_workers", "{count=0, factor=3}", "{count=-1, factor=3}"},
      {"cluster.slow_workers", "{count=1, factor=1e-9}", "{count=1, factor=0}"},
      {"cluster.leave", "[{workers=[3], after_steps=0}]", "[{workers=[4], after_steps=0}]"},
      {"cluster.leave", "[{workers=[3], after_steps=100000000000}]", "[{workers=[3], after_steps=100000000001}]"},
      {"training.clip_norm", "0", "-0.1"},
      {"training.label_smoothing", "0.99", "1"},
      {"training.label_smoothing", "0", "-0.1"},
      {"training.clip_norm", "1e300", "inf"},
      {"training.optimizer.momentum", "0", "-0.1"},
      {"training.optimizer.momentum", "0.9999", "1"},
      {"training.optimizer.weight_decay", "0", "-1"},
      {"training.optimizer.weight_decay", "1e300", "inf"},
      {"training.optimizer", "{name=\"adamw\", beta1=0}", "{name=\"adamw\", beta1=-0.1}"},
      {"training.optimizer", "{name=\"adamw\", beta1=0.9999}", "{name=\"adamw\", beta1=1}"},
      {"training.optimizer", "{name=\"adamw\", beta2=0}", "{name=\"adamw\", beta2=1}"},
      {"training.optimizer", "{name=\"adamw\", epsilon=1e-300}", "{name=\"adamw\", epsilon=0}"},
      {"training.optimizer", "{name=\"adamw\", epsilon=1}", "{name=\"adamw\", epsilon=inf}"},
      {"training.optimizer", "{name=\"rmsprop\", epsilon=1e-300}", "{name=\"rmsprop\", epsilon=0}"},
      {"training.optimizer", "{name=\"rmsprop\", rho=0}", "{name=\"rmsprop\", rho=1}"},
      {"training.optimizer", "{name=\"rmsprop\", mean_square_start=0}", "{name=\"rmsprop\", mean_square_start=-1}"},
      {"training.optimizer", "{name=\"lars\", epsilon=0}", "{name=\"lars\", epsilon=-1}"},
      {"training.optimizer", "{name=\"lars\", trust_coefficient=1e-300}", "{name=\"lars\", trust_coefficient=0}"},
      {"training.optimizer", "{name=\"lamb\", max_norm=0}", "{name=\"lamb\", max_norm=-1}"},
      {"training.optimizer", "{name=\"lamb\", ratio_min=10, ratio_max=10}",
       "{name=\"lamb\", ratio_min=10, ratio_max=9}"},
      {"training.optimizer", "{name=\"lans\", max_norm=1e300}", "{name=\"lans\", max_norm=inf}"},
      {"training.learning_rate.peak", "1e-300", "0"},
      {"training.learning_rate.peak", "1e300", "inf"},
      {"training.learning_rate.final", "0", "-1e-9"},
      {"training.learning_rate.warmup_steps", "59", "60"},  // of 60
      {"training.learning_rate.warmup_steps", "0", "-1"},
      {"training.learning_rate.total_steps", "1", "0"},
      {"training.learning_rate", "{schedule=\"step\", peak=1, decay_steps=[0,1]}",
       "{schedule=\"step\", peak=1, decay_steps=[1,1]}"},
      {"training.learning_rate", "{schedule=\"step\", peak=1, decay_steps=[0]}",
       "{schedule=\"step\", peak=1, decay_steps=[-1]}"},
      {"training.learning_rate", "{schedule=\"step\", peak=1, decay_steps=[5], factor=1e-9}",
       "{schedule=\"step\", peak=1, decay_steps=[5], factor=0}"},
      {"training.learning_rate", "{schedule=\"polynomial\", peak=1, power=1e-9}",
       "{schedule=\"polynomial\", peak=1, power=0}"},
      {"training.learning_rate", "{schedule=\"polynomial\", peak=1, warmup_steps=30, hold_steps=29}",  // of 60
       "{schedule=\"polynomial\", peak=1, warmup_steps=30, hold_steps=30}"},
      {"training.learning_rate", "{schedule=\"linear\", peak=1, warmup_share=0.5, hold_share=0.4}",
       "{schedule=\"linear\", peak=1, warmup_share=0.5, hold_share=0.5}"},
      {"training.learning_rate", "{schedule=\"linear\", peak=1, warmup_share=0}",
       "{schedule=\"linear\", peak=1, warmup_share=0, warmup_steps=1}"},
      {"training.learning_rate", "{schedule=\"exponential\", peak=1, decay_every_steps=1}",
       "{schedule=\"exponential\", peak=1, decay_every_steps=0}"},
      {"training.learning_rate", "{schedule=\"modified-cosine\", peak=1, warmup_steps=5, constant_from_step=5}",
       "{schedule=\"modified-cosine\", peak=1, warmup_steps=5, constant_from_step=4}"},
      {"training.learning_rate", "{schedule=\"cosine-step\", peak=1, base=1.1}",
       "{schedule=\"cosine-step\", peak=1, base=1}"},
      {"training.learning_rate.warmup_start", "0", "-1e-9"},
      {"budget.steps", "1", "0"},
      {"budget.steps", "9223372036854775807", "-1"},
      {"budget.epochs", "1e-9", "0"},
      {"budget.samples", "1", "0"},
      {"budget.seconds", "1e-9", "0"},
      {"budget.seconds", "1e300", "inf"},
      {"budget.bytes", "1", "0"},
      {"evaluation.every_steps", "1", "0"},
      {"evaluation.every_epochs", "1e-9", "0"},
      {"evaluation.train_samples", "1", "0"},
      {"evaluation.target_accuracy", "1e-9", "0"},
      {"evaluation.target_accuracy", "1", "1.0001"},
      {"evaluation.target_loss", "-1e300", "nan"},
      {"recording.trace_events", "1", "0"},
      {"recording.trace_seconds", "1e-9", "0"},
      {"recording.trace_seconds", "1e300", "inf"},
  };
  const std::string no_threshold = "methods=[{algorithm=\"sync-sgd\"}]";
  for (const auto& [key, taken, refused] : borders) {
    EXPECT_EQ(faults({no_threshold, key + "=" + taken}), "") << key << " = " << taken;
    EXPECT_THAT(faults({no_threshold, key + "=" + refused}), HasSubstr("command line: " + key.substr(0, key.find('.'))))
        << key << " = " << refused;
  }
}

TEST_F(Bounds, DelaysAndOutagesAreAtMost255) {
  const auto entries = [](const std::string& key, const std::string& entry, int count) {
    return Overrides{"methods=[{algorithm=\"sync-sgd\"}]", key + "=[" + repeated(entry, count, ",") + "]"};
  };
  const std::string delay = "{kind=\"constant\",value=0.1}", outage = "{workers=[1],at_s=1,duration_s=1}";
  EXPECT_EQ(faults(entries("delays", delay, 255)), "");
  EXPECT_THAT(faults(entries("delays", delay, 256)), HasSubstr("must be at most 255 entries"));
  EXPECT_EQ(faults(entries("outages", outage, 255)), "");
  EXPECT_THAT(faults(entries("outages", outage, 256)), HasSubstr("must be at most 255 entries"));
}

TEST_F(Bounds, DelaysInMicroBatchesAreBoundedInSeconds) {
  const auto with = [&](const std::string& value) {
    return faults({"methods=[{algorithm=\"sync-sgd\"}]", "cluster.micro_batch_s=1e3",
                   "delays=[{kind=\"constant\", unit=\"micro_batch\", value=" + value + "}]"});
  };
  EXPECT_EQ(with("1e6"), "");
  EXPECT_THAT(with("1.1e6"), HasSubstr("must give delays a mean of at most 1e+09 s; found 1.1e+09 s"));
}

TEST_F(Bounds, OutagesSoFrequentThatARunHardlyGoesOnAreRefused) {
  const auto with = [&](const std::string& between, const std::string& state) {
    return faults({"outages=[{mean_time_between_s=" + between + ", mean_duration_s=1, state=\"" + state + "\"}]"});
  };
  EXPECT_THAT(faults({"outages=[{mean_time_between_s=1e-9, mean_duration_s=1e-9}]"}),
              AllOf(HasSubstr("mean_time_between_s = 1e-09; must be a number of at least 1e-06"),
                    HasSubstr("mean_duration_s = 1e-09; must be a number of at least 1e-06")));
  // A micro-batch takes 0.01 s.
  EXPECT_EQ(with("1e-5", "kept"), "");
  EXPECT_THAT(with("9e-6", "kept"), HasSubstr("must be at least 1e-05 s, 1/1000 of a micro-batch's time"));
  EXPECT_EQ(with("1.25e-3", "lost"), "");
  EXPECT_THAT(with("1.24e-3", "lost"), HasSubstr("must be at least 0.00125 s, 1/8 of a micro-batch's time"));
  // Its mean delay is part of a micro-batch's time.
  EXPECT_THAT(faults({"delays=[{kind=\"constant\", value=0.99}]",
                      "outages=[{mean_time_between_s=0.12, mean_duration_s=1, state=\"lost\"}]"}),
              HasSubstr("must be at least 0.125 s, 1/8 of a micro-batch's time"));
  // The slowest worker's takes ten times as long.
  EXPECT_THAT(
      faults({"cluster.slow_workers={count=1, factor=10}", "outages=[{mean_time_between_s=2e-5, mean_duration_s=1}]"}),
      HasSubstr("must be at least 0.0001 s"));
  // Without a mean it takes the shortest one at least.
  EXPECT_THAT(faults({"delays=[{kind=\"pareto\", shape=0.5, minimum=0.99}]",
                      "outages=[{mean_time_between_s=0.12, mean_duration_s=1, state=\"lost\"}]"}),
              HasSubstr("must be at least 0.125 s, 1/8 of a micro-batch's time"));
}

// A step of 5 micro-batches takes 0.05 s. With a server it begins anew as a whole, however it is sent; without one each
// micro-batch does, and local steps do not.
TEST_F(Bounds, OutagesAreRareEnoughForWhatBeginsAnewAsAWhole) {
  const auto with = [&](const std::string& method, const std::string& between, const std::string& state) {
    return faults({"cluster.micro_batches=5", "methods=[{" + method + "}]",
                   "outages=[{workers=[0], at_s=1, duration_s=1, state=\"lost\"}, {mean_time_between_s=" + between +
                       ", mean_duration_s=1, state=\"" + state + "\"}]"});
  };
  const std::string async = "algorithm=\"async-sgd\"";
  EXPECT_EQ(with(async, "6.25e-3", "lost"), "");
  EXPECT_THAT(
      with(async, "6.24e-3", "lost"),
      HasSubstr("outages.1.mean_time_between_s = 0.00624; must be at least 0.00625 s, 1/8 of the time of a step "
                "of 5 micro-batches, which \"async-sgd\" begins anew as a whole"));
  EXPECT_EQ(with(async, "1e-5", "kept"), "");
  EXPECT_EQ(with("algorithm=\"sync-sgd\"", "1.25e-3", "lost"), "");
  EXPECT_EQ(with("algorithm=\"local-sgd\", period={rule=\"constant\", steps=4}", "1.25e-3", "lost"), "");
}

TEST(Nesting, UpTo64PartsOfAKeyAreRead) {
  const auto depth_of = [](const TomlNode* node) {
    int depth = 0;
    for (; node && node->is_table() && !node->table().empty(); node = &node->table().front().value) ++depth;
    return depth;
  };
  const TomlNode dotted = parse_toml(repeated("a", 64, ".") + " = 1\n", "f");
  EXPECT_EQ(depth_of(&dotted), 64);
  const TomlNode header = parse_toml("[" + repeated("a", 64, ".") + "]\n", "f");
  EXPECT_EQ(depth_of(&header), 64);
  EXPECT_EQ(split_key(repeated("a", 64, ".")).size(), 64u);
}

TEST(Nesting, DeeperDocumentsAreRefusedWithTheirPlace) {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      parse_toml(text, "f");
    } catch (const TomlSyntaxFault& problem) {
      return problem.what();
    }
    return "none";
  };
  const std::string expected = ": a key must have at most 64 parts, with the tables and arrays around it";
  EXPECT_EQ(fault("x = 1\n" + repeated("a", 65, ".") + " = 1\n"), "f:2:129" + expected);
  for (const std::string& deep : {
           repeated("a", 100'000, ".") + " = 1",
           repeated("'a b'", 100'000, " . ") + " = 1",
           "[" + repeated("\"a\\\"\"", 100'000, ".") + "]",
           "[[" + repeated("a", 100'000, ".") + "]]",
           "x = " + repeated("[", 100'000),
           "x = " + repeated("{ a = ", 100'000),
           "x = " + repeated("[{ a.a.a.a = ", 20),
           "x = [\n  # \"\n  ''']''', \"]\", " + repeated("[", 64),
       })
    EXPECT_THAT(fault(deep), testing::EndsWith(expected)) << deep.substr(0, 40);
}

TEST(Nesting, LongDocumentsThatAreNotDeepAreRead) {
  const std::string text = "s = \"" + repeated("a", 1000, ".") + "\"\nl = '" + repeated("[", 1000) + "'\n# " +
                           repeated("{", 1000) + "\nm = \"\"\"\n" + repeated("a.", 1000) + "\\\"\"\"\"\"\nx = " + "[" +
                           repeated("[1.5, { a = 2.5 }]", 1000, ", ") + "]\n" + repeated("[t]\n", 1) + "k = ''\n";
  EXPECT_EQ(parse_toml(text, "f").find("x")->array().size(), 1000u);
}

TEST_F(Bounds, KeysOfOverridesAndSweepsAreBoundedToo) {
  const std::string deep = repeated("a", 60'000, ".");
  EXPECT_THAT(faults({deep + "=1"}), AllOf(StartsWith("command line: a.a.a."), HasSubstr("must have at most 64 parts"),
                                           testing::SizeIs(testing::Lt(200u))));
  EXPECT_THAT(faults({"sweep.\"" + deep + "\"=[1]"}), HasSubstr("must have at most 64 parts"));
  EXPECT_THAT(faults({"x=" + repeated("[", 1000) + repeated("]", 1000)}),
              HasSubstr("at its character 64: a key must have at most 64 parts"));
}

TEST_F(Bounds, AnExperimentFileMustBeARegularFileOfModestSize) {
  const auto fault = [](const std::string& name) -> std::string {
    try {
      load_experiment(name, {});
    } catch (const ConfigurationFault& problem) {
      return problem.what();
    }
    return "none";
  };
  EXPECT_EQ(fault("/dev/zero"), "/dev/zero: is a device or a pipe; must be an experiment file");
  EXPECT_EQ(fault(""), "the name of the experiment file is empty");
  EXPECT_EQ(fault("/proc/self/mem"), "/proc/self/mem: cannot be read: Input/output error")
      << "a regular file, whose first bytes are no memory: an error of reading is not the end";
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(fault(file), file.string() + ": is a device or a pipe; must be an experiment file");
  std::filesystem::remove(file);
  write("");
  std::filesystem::resize_file(file, 65'000'000);  // with a hole, which takes no room
  EXPECT_EQ(fault(file), file.string() + ": has 65 MB; an experiment file must have at most 64");
}

TEST_F(Bounds, OfVeryManyFaultsTheFirstAreTold) {
  std::string text = small;
  for (int i = 0; i < 20'000; ++i) text = "unknown_" + std::to_string(i) + " = 1\n" + text;
  write(text);
  const std::string report = faults({});
  EXPECT_THAT(report, StartsWith(file.string() + ":1:1: unknown_19999 = 1; unknown key"));
  EXPECT_THAT(report, testing::EndsWith("\nand 19950 more faults"));
  EXPECT_EQ(std::ranges::count(report, '\n'), 50);
}

TEST_F(Bounds, OneSweepAxisMustNotHoldAnother) {
  const auto sweep = [&](const std::string& axes) { return faults({"sweep={" + axes + "}"}); };
  const std::string cluster = "\"cluster\" = [{workers = 4, micro_batch_s = 0.01, micro_batches = 2}]";
  EXPECT_THAT(
      sweep(cluster + ", \"cluster.workers\" = [2, 4]"),
      HasSubstr("sweep.\"cluster.workers\"; must not be swept together with sweep.\"cluster\", which holds it"));
  EXPECT_THAT(sweep("\"cluster.workers\" = [2, 4], " + cluster), HasSubstr("with sweep.\"cluster\", which holds it"));
  EXPECT_THAT(
      sweep("\"methods.drop.threshold_s\" = [1.5], \"methods.1.threshold_s\" = [2.5]"),
      HasSubstr("sweep.\"methods.1.threshold_s\"; must not be swept together with sweep.\"methods.drop.threshold_s\", "
                "which is the same"));
  EXPECT_EQ(sweep("\"cluster.workers\" = [2, 4], \"cluster.micro_batches\" = [1, 2]"), "");
}

TEST_F(Bounds, AValueMustNotBeSweptTwice) {
  const auto sweep = [&](const std::string& values) { return faults({"sweep.\"training.clip_norm\"=" + values}); };
  EXPECT_THAT(sweep("[0.5, 1, 0.5]"), HasSubstr("sweep.\"training.clip_norm\" = 0.5; must hold no value twice"));
  EXPECT_THAT(sweep("[1, 1.0]"), HasSubstr("= 1.0; must hold no value twice"));
  EXPECT_THAT(faults({"sweep.\"models.mlp.hidden\"=[[1, 2], [1, 2]]"}),
              HasSubstr("= [1, 2]; must hold no value twice"));
  EXPECT_EQ(sweep("[0.5, 1, 1.5]"), "");
}

TEST_F(Bounds, WhatNoConvolutionHasIsRefused) {
  const Overrides cnn = {"training.model=cnn", "training.dataset=fashion-mnist", "models.cnn.channels=[]"};
  const auto with = [&](const std::string& key) {
    Overrides all = cnn;
    all.push_back(key);
    return faults(all);
  };
  EXPECT_THAT(with("models.cnn.kernel=1000"),
              HasSubstr("models.cnn.kernel = 1000; must be left out: channels = [] leaves no convolution"));
  EXPECT_THAT(with("models.cnn.batch_norm=true"), HasSubstr("models.cnn.batch_norm = true; must be left out"));
  EXPECT_EQ(faults(cnn), "");
  // Its resolved configuration reads back.
  write(load(cnn).resolved_toml);
  EXPECT_EQ(faults({}), "");
}

}  // namespace
}  // namespace syncopate
