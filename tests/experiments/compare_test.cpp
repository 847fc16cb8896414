// The built program compares its two clusters, and measures the time of a micro-batch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "results/run_directory.hpp"
#include "tests/experiments/emulated_cluster.hpp"
#include "tests/experiments/program.hpp"
#include "workers/base/arrays.hpp"

namespace syncopate {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two workers, 12 steps of 20 ms with almost no arithmetic.
const std::string two_methods = "name = \"two\"\n" + emulated_cluster(2, 0.020) + plain_sgd + R"([network]
kind = "fixed"
latency_s = 0.0002
[[delays]]
kind = "uniform"
low = 0.0
high = 0.020
[training]
model = "quadratic"
[budget]
steps = 12
[evaluation]
every_steps = 4
[[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "served"
algorithm = "backup-workers"
backups = 0
)";

class Compare : public ProgramTest {
 protected:
  std::vector<std::filesystem::path> files_named(const std::string& name) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
      if (entry.path().filename() == name) found.push_back(entry.path());
    return found;
  }
  json result() const { return json::parse(read("results/two/compare.json")); }
};

// The machine's load determines which worker is first, and thus the order of a sum of two terms, but nothing else. The
// tolerance of the step time is wide because the machine may be busy. The lower bound is the sum of the drawn times.
TEST_F(Compare, BothClustersAreRunOnceAndStandSideBySide) {
  const std::string file = write("e.toml", two_methods);
  const std::string command = "compare " + file + " --results results ";
  write("table.md", "old");
  std::filesystem::create_hard_link(directory / "table.md", directory / "old.md");
  const auto outcome = syncopate(command + "--markdown table.md --json table.json --step-time-tolerance 100");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("sync-sgd"), HasSubstr("served"), HasSubstr("within")));
  EXPECT_THAT(outcome.err, HasSubstr("under MPI, 2 of 2: served"));
  EXPECT_THAT(read("table.md"), HasSubstr("| sync-sgd | "));
  EXPECT_EQ(read("old.md"), "old");  // table.md was replaced by a new file, not overwritten
  EXPECT_EQ(read("table.json"), read("results/two/compare.json"));

  const json compared = result();
  ASSERT_EQ(compared["runs"].size(), 2u);
  for (const json& run : compared["runs"]) {
    SCOPED_TRACE(run["method"]);
    const double simulated = run["simulated"]["step_time_s"], mpi = run["mpi"]["step_time_s"];
    EXPECT_GT(mpi, 0.95 * simulated);
    EXPECT_DOUBLE_EQ(run["step_time_error"].get<double>(), (simulated - mpi) / mpi);
    EXPECT_EQ(run["drop_rate_error"], 0.0);
    EXPECT_LT(run["parameter_error"], 1e-5);
    EXPECT_EQ(run["depends_on_clock"], run["method"] == "served");
    EXPECT_EQ(run["simulated"]["mean_staleness"].is_null(), run["method"] == "sync-sgd");
  }
  const auto saved = files_named("parameters.npy");
  ASSERT_EQ(saved.size(), 4u);
  EXPECT_FALSE(floats_from_npy(read(saved[0])).empty());

  // All results exist. Nothing is started, so the missing launcher causes no error.
  const auto again = syncopate(command + "--mpiexec /nowhere/mpirun --step-time-tolerance 0 --check");
  EXPECT_EQ(again.status, 1) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("under MPI")));
  EXPECT_THAT(again.out, HasSubstr("0 of 2 within 0 % of the time per step"));
  EXPECT_EQ(result()["runs"][0]["mpi"], compared["runs"][0]["mpi"]);
  EXPECT_FALSE(result()["all_within"]);
}

// A micro-batch is declared to take 2 s. Its arithmetic takes microseconds, and less than 1 s even on a busy machine.
TEST_F(Compare, DeclaredTimesThatAreNotInjectedAreToldWithWhatToSet) {
  const std::string file = write("e.toml", two_methods);
  const std::string command = "compare " + file + " --results results --quiet cluster.pace=";
  const auto injected = syncopate(command + "inject cluster.micro_batch_s=2");
  ASSERT_EQ(injected.status, 0) << injected.err;
  EXPECT_THAT(injected.out, AllOf(HasSubstr("cluster.pace = \"inject\""), HasSubstr("cluster.micro_batch_s = 2."),
                                  HasSubstr("Set cluster.pace = \"emulate\"")));
  EXPECT_EQ(result()["runs"][0]["replaced_micro_batch_s"], 2);
  EXPECT_GT(result()["runs"][0]["step_time_error"], 1);
  // In this mode ranks sleep for the declared times. So no note appears, even if a busy machine is inaccurate.
  const auto emulated = syncopate(command + "emulate --step-time-tolerance 0");
  ASSERT_EQ(emulated.status, 0) << emulated.err;
  EXPECT_THAT(emulated.out, Not(HasSubstr("inject")));
  EXPECT_TRUE(result()["runs"][0]["replaced_micro_batch_s"].is_null());
}

// [network] declares two seconds of communication. Ranks on one machine need far less.
TEST_F(Compare, ADeclaredNetworkIsNamedWithWhatToSet) {
  const std::string file = write("e.toml", two_methods);
  for (const char* model : {"training.model=none training.parameters=10", "training.model=quadratic"}) {
    const auto outcome =
        syncopate("compare " + file + " --results results --quiet budget.steps=2 network.latency_s=2 " +
                  "network.kind=fixed " + model);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("[network]"), HasSubstr("Set network.kind = \"free\"")));
    const json compared = result();
    EXPECT_GT(compared["runs"][0]["step_time_error"], 0.5);
    EXPECT_EQ(compared["runs"][0]["simulated"]["communication_s"], 2);
    EXPECT_LT(compared["runs"][0]["mpi"]["communication_s"], 1);
    EXPECT_THAT(outcome.out, HasSubstr(compared["network_note"].get<std::string>()));
  }
}

// Scripts replace MPI's launcher. They copy the simulated results to the place of MPI's, as if both clusters agreed to
// the last bit. Each call adds a line with its arguments to asked.txt.
class CompareWithoutMpi : public Compare {
 protected:
  // Returns a launcher that fails for methods with this number of ranks.
  std::string launcher(int failing_ranks = 0) const {
    const std::string path = write("launcher" + std::to_string(failing_ranks), R"(#!/bin/sh
printf '%s ' "$@" >> asked.txt
echo >> asked.txt
[ "$2" = )" + std::to_string(failing_ranks) + R"( ] && exit 7
for word; do
  [ "$previous" = --only ] && hash=$word
  previous=$word
done
run=$(echo results/two/*/seed=*-$(printf %.8s "$hash"))
rm -rf "$run-mpi"
cp -r "$run" "$run-mpi"
)");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  ProgramOutcome compare(const std::string& options, int failing_ranks = 0) const {
    write("e.toml", two_methods);
    return syncopate("compare e.toml --results results --mpiexec " + launcher(failing_ranks) + " " + options);
  }
  std::vector<std::string> asked() {
    std::istringstream stream(read("asked.txt"));
    std::filesystem::remove(directory / "asked.txt");
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  // Publishes the same run with changed files.
  void change(const std::filesystem::path& run, FileContents changed) const {
    FileContents files;
    for (const auto& entry : std::filesystem::directory_iterator(run))
      if (entry.path().filename() != list_of_files) files[entry.path().filename()] = read(entry.path());
    changed.merge(files);
    changed[list_of_files] = listed(changed);
    write_directory(run, changed);
  }
};

TEST_F(CompareWithoutMpi, TheStatusSaysWhetherAllWasComparedAndWithinIfThatIsToBeChecked) {
  EXPECT_EQ(compare("", 3).status, 1) << "without --check too: one was not compared";
  EXPECT_EQ(compare("--check --step-time-tolerance 100", 3).status, 1);
  EXPECT_EQ(compare("").status, 0);
  EXPECT_EQ(compare("--check --step-time-tolerance 0 --drop-rate-tolerance 0").status, 0) << "no error at all";
  for (const auto& path : files_named("summary.json")) {
    if (path.parent_path().filename().string().ends_with("-mpi")) continue;
    json summary = json::parse(read(path));
    summary["end_time_s"] = 2 * summary["end_time_s"].get<double>();
    change(path.parent_path(), {{"summary.json", summary.dump()}});
    break;
  }
  EXPECT_EQ(compare("").status, 0);
  EXPECT_EQ(compare("--check").status, 1);
  EXPECT_EQ(compare("--check --step-time-tolerance 100").status, 0) << "twice as long is an error of 100 %";
}

TEST_F(CompareWithoutMpi, EachRunIsALaunchOfItsOwnOfWhatIsMissing) {
  ASSERT_EQ(compare("cluster.micro_batches=1").status, 0);
  auto lines = asked();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], AllOf(testing::StartsWith("-n 2 "), HasSubstr(" run e.toml "), HasSubstr(" --cluster mpi "),
                              HasSubstr(" cluster.micro_batches=1 "), HasSubstr(" recording.parameters=true "),
                              HasSubstr(" --results results"), Not(HasSubstr("--rerun"))));
  const json compared = result(), runs = compared["runs"];
  EXPECT_THAT(lines[0], HasSubstr(" --only " + runs[0]["hash"].get<std::string>() + " "));
  ASSERT_EQ(compare("cluster.micro_batches=1").status, 0);
  EXPECT_TRUE(asked().empty());
  ASSERT_EQ(compare("cluster.micro_batches=1 --rerun").status, 0);
  lines = asked();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines, testing::Each(HasSubstr(" --rerun")));
  EXPECT_THAT(lines[1],
              AllOf(testing::StartsWith("-n 3 "), HasSubstr(" --only " + runs[1]["hash"].get<std::string>())));
}

TEST_F(CompareWithoutMpi, TheFirstSeedOfTheFileStandsForAllUnlessAllAreWanted) {
  const auto seeds = [&] {
    std::vector<int> found;
    const json compared = result();
    for (const json& run : compared["runs"]) found.push_back(run["seed"]);
    return found;
  };
  ASSERT_EQ(compare("seeds=[7,3]").status, 0);
  EXPECT_THAT(seeds(), testing::ElementsAre(7, 7));
  ASSERT_EQ(compare("seeds=[7,3] --all-seeds").status, 0);
  EXPECT_THAT(seeds(), testing::ElementsAre(7, 3, 7, 3));
}

TEST_F(CompareWithoutMpi, ModelsAreComparedByTheNormOfThatUnderMpi) {
  ASSERT_EQ(compare("").status, 0);
  for (const auto& path : files_named("parameters.npy")) {
    const bool mpi = path.parent_path().filename().string().ends_with("-mpi");
    change(path.parent_path(), {{"parameters.npy", npy({mpi ? std::vector<float>{6, 8} : std::vector<float>{3, 4}})}});
  }
  ASSERT_EQ(compare("").status, 0);
  const json compared = result();
  ASSERT_EQ(compared["runs"].size(), 2u);
  for (const json& run : compared["runs"]) EXPECT_DOUBLE_EQ(run["parameter_error"], 0.5);
}

// With a budget in seconds, models of the two clusters have different numbers of steps. The declared time of a
// micro-batch excludes a slow worker's factor.
TEST_F(CompareWithoutMpi, WhatDependsOnTheClockOrReplacesDeclaredTimesIsMarked) {
  ASSERT_EQ(compare("budget='{seconds=0.3}' cluster.pace=inject cluster.worker_factors=[4,1]").status, 0);
  const json compared = result();
  ASSERT_EQ(compared["runs"].size(), 2u);
  for (const json& run : compared["runs"]) {
    EXPECT_EQ(run["depends_on_clock"], true);
    EXPECT_DOUBLE_EQ(run["replaced_micro_batch_s"], 0.02);
  }
  ASSERT_EQ(compare("cluster.micro_batch_s=measured cluster.pace=inject").status, 0);
  EXPECT_EQ(result()["runs"][0]["depends_on_clock"], false);
  EXPECT_TRUE(result()["runs"][0]["replaced_micro_batch_s"].is_null());
  const json measured = json::parse(read("results/two/measured.json"));
  EXPECT_THAT(asked().back(),
              AllOf(HasSubstr(fmt::format(" cluster.micro_batch_s={} ", measured[0]["micro_batch_s"].get<double>())),
                    HasSubstr(" cluster.micro_batch_measured=true ")));
}

TEST_F(Compare, FilesThatCannotBeWrittenAreRefusedBeforeAnythingIsRun) {
  write("e.toml", two_methods);
  std::filesystem::create_directory(directory / "folder");
  const std::pair<const char*, const char*> cases[] = {
      {"--json nowhere/x.json", "nowhere/x.json: cannot be written: nowhere: no such directory; nothing was run\n"},
      {"--markdown folder", "folder: cannot be written: is a directory; nothing was run\n"},
      {"--json e.toml/x", "e.toml/x: cannot be written: e.toml: is a file; nothing was run\n"},
      {"--markdown /proc/x.md", "/proc/x.md: cannot be written: No such file"}};
  for (const auto& [option, said] : cases) {
    const auto outcome = syncopate(std::string("compare e.toml --results results ") + option);
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.err, testing::StartsWith(said));
    EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  }
}

TEST_F(Compare, WhatCannotBeRunIsSaid) {
  const std::string file = write("e.toml", two_methods);
  const auto missing = syncopate("compare " + file + " --results results --mpiexec /nowhere/mpirun");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/mpirun: no such MPI launcher"));
  EXPECT_EQ(syncopate("compare " + file, 2).status, 2);  // started by mpirun
  EXPECT_EQ(syncopate("run " + file + " --only 0123456789").status, 2);

  const std::string launcher = write("launcher",
                                     "#!/bin/sh\nfor word; do if [ \"$word\" = 3 ]; then echo too many >&2; "
                                     "exit 7; fi; done\nexec " SYNCOPATE_MPIEXEC " --oversubscribe \"$@\"\n");
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  const auto outcome =
      syncopate("compare " + file + " --results results --step-time-tolerance 100 --mpiexec " + launcher);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("too many"));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("Not compared:\nserved: under MPI: the processes under MPI ended with status 7"),
                    HasSubstr("1 of 2 within")));
  EXPECT_EQ(result()["runs"][0]["verdict"], "within");
  EXPECT_EQ(result()["runs"][1]["verdict"], "failed");
}

// Ranks compare their runs before they begin, so different costs on two ranks would be a fault.
TEST_F(Compare, CostsThatAreMeasuredByLengthsAreTheSameOnAllRanks) {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += (i % 2 == 0 ? "a\tline" : "b\tline") + std::to_string(i);
    for (int j = 0; j < i * i % 19; ++j) lines += " word";
    lines += "\n";
  }
  write("lines.txt", lines);
  const std::string file = write("e.toml", two_methods);
  const std::string command = "run " + file +
                              " --quiet --results results cluster.micro_batch_s=measured training.model=linear "
                              "training.dataset=text-lines datasets.text-lines.file=lines.txt "
                              "datasets.text-lines.labelled=true training.micro_batch_size=4 methods.served.backups=1";
  ASSERT_EQ(syncopate(command, 3).status, 0) << read("err.txt");
  EXPECT_THAT(read("err.txt"), AllOf(HasSubstr("measured by lengths: "), HasSubstr("R^2 = ")));
  const json kept = json::parse(read("results/two/measured.json"));
  ASSERT_EQ(kept.size(), 1u);
  const json& fit = kept[0]["micro_batch_s"];
  EXPECT_GT(fit["base_s"].get<double>() + fit["per_token_s"].get<double>() + fit["per_padded_token_s"].get<double>(),
            0);
  EXPECT_EQ(fit["points"], 24);
  const auto metadata = files_named("metadata.json");
  ASSERT_EQ(metadata.size(), 2u);
  for (const auto& path : metadata) {
    EXPECT_EQ(json::parse(read(path))["processes"], 3);
    const std::string configuration = read(path.parent_path() / "config.toml");
    for (const char* cost : {"base_s", "per_token_s", "per_padded_token_s", "per_squared_length_s"}) {
      const std::string key = std::string("\n") + cost + " = ";
      const std::size_t found = configuration.find(key);
      ASSERT_NE(found, configuration.npos) << cost;
      // TOML and JSON may write the same number with different digits.
      EXPECT_EQ(std::stod(configuration.substr(found + key.size())), fit[cost].get<double>()) << cost;
    }
  }
  // Kept times are used again by MPI and by the simulated cluster.
  ASSERT_EQ(syncopate(command, 3).status, 0) << read("err.txt");
  ASSERT_EQ(syncopate(command).status, 0) << read("err.txt");
  EXPECT_THAT(read("err.txt"), testing::Not(HasSubstr("measured by lengths")));
  EXPECT_EQ(files_named("metadata.json").size(), 4u);
  EXPECT_EQ(json::parse(read("results/two/measured.json")), kept);
}

TEST_F(Compare, AMeasuredMicroBatchIsMeasuredOnceAndTheSameOnAllRanks) {
  const std::string file = write("e.toml", two_methods);
  const std::string options = " --quiet --results results cluster.micro_batch_s=measured methods.served.backups=1";
  const auto checked = syncopate("check " + file + " cluster.micro_batch_s=measured");
  EXPECT_THAT(checked.out, AllOf(HasSubstr("micro_batch_s = \"measured\""), HasSubstr("to be measured")));
  EXPECT_TRUE(files_named("measured.json").empty());

  ASSERT_EQ(syncopate("run " + file + options).status, 0) << read("err.txt");
  const json kept = json::parse(read("results/two/measured.json"));
  ASSERT_EQ(kept.size(), 1u);
  const double measured = kept[0]["micro_batch_s"];
  EXPECT_GT(measured, 0);
  EXPECT_LT(measured, 1);
  const auto metadata = files_named("metadata.json");
  ASSERT_EQ(metadata.size(), 2u);
  for (const auto& path : metadata) {
    EXPECT_EQ(json::parse(read(path))["measured_micro_batch_s"], measured);
    const std::string configuration = read(path.parent_path() / "config.toml");
    EXPECT_THAT(configuration, HasSubstr("micro_batch_measured = true"));
  }
  const auto again =
      syncopate("run " + file + " --results results cluster.micro_batch_s=measured methods.served.backups=1");
  EXPECT_THAT(again.err, HasSubstr("2 of 2 runs already exist"));
  ASSERT_EQ(syncopate("run " + file + options, 3).status, 0) << read("err.txt");
  EXPECT_EQ(files_named("metadata.json").size(), 4u);
  EXPECT_EQ(json::parse(read("results/two/measured.json")), kept);

  json elsewhere = kept;
  elsewhere[0]["host"] = "another-host";
  elsewhere[0]["micro_batch_s"] = 123.0;
  write("results/two/measured.json", elsewhere.dump());
  ASSERT_EQ(syncopate("run " + file + options).status, 0) << read("err.txt");
  const json both = json::parse(read("results/two/measured.json"));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0], elsewhere[0]);
  EXPECT_EQ(both[1]["host"], kept[0]["host"]);
  EXPECT_LT(both[1]["micro_batch_s"].get<double>(), 1);

  write("results/two/measured.json", "[1]");
  EXPECT_EQ(syncopate("run " + file + options).status, 2);
  EXPECT_THAT(read("err.txt"), HasSubstr("results/two/measured.json"));
  EXPECT_EQ(syncopate("run " + file + options + " --rerun").status, 2);
  std::filesystem::remove(directory / "results/two/measured.json");

  const auto nothing = syncopate("check " + file + " cluster.micro_batch_s=measured training.model=none");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("there is no model to measure"));
  const auto other = syncopate("check " + file + " cluster.micro_batch_s=mesured");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("must be a number above 0 and at most 1000000000, or \"measured\""));
}

}  // namespace
}  // namespace syncopate
