// When a finished run is believed, and what is needed to read it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "results/found_runs.hpp"
#include "results/run_directory.hpp"
#include "tests/experiments/runner_case.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

class FinishedRuns : public RunnerTest {
 protected:
  void SetUp() override {
    RunnerTest::SetUp();
    algorithm_ = std::make_shared<Synchronous>();
    add("A", 1, algorithm_);
    add("A", 2, algorithm_);
    ASSERT_EQ(start(), 0);
    algorithm_->runs = 0;
  }

  // Runs that a new start makes.
  int repeated() {
    algorithm_->runs = 0;
    EXPECT_EQ(start(), 0) << err_;
    return algorithm_->runs / 2;  // workers
  }

  // Everything below the results directory with the time of its last change.
  std::map<fs::path, fs::file_time_type> state() const {
    std::map<fs::path, fs::file_time_type> times;
    for (const auto& entry : fs::recursive_directory_iterator(options_.results_directory))
      times[entry.path()] = entry.last_write_time();
    times[options_.results_directory] = fs::last_write_time(options_.results_directory);
    return times;
  }

  std::shared_ptr<Synchronous> algorithm_;
};

TEST_F(FinishedRuns, AreNotRepeated) { EXPECT_EQ(repeated(), 0); }

TEST_F(FinishedRuns, AreRepeatedWhereAFileIsDamagedWhichIsNamed) {
  for (const char* name : {"metrics.csv", "steps.csv", "summary.json", "config.toml", "metadata.json", "files.json"}) {
    std::ofstream(directory(1) / name) << "";
    EXPECT_EQ(repeated(), 1) << name;
    EXPECT_THAT(err_, HasSubstr((directory(1) / name).string() + ": ")) << name;
    EXPECT_THAT(err_, HasSubstr("the run is repeated\n"));
    EXPECT_THAT(err_, Not(HasSubstr(directory(0).string())));
    EXPECT_THAT(err_, HasSubstr("1 of 2 runs are there already"));
    EXPECT_EQ(damage_of(directory(1)), "") << name;
    EXPECT_EQ(repeated(), 0) << name;
  }
}

TEST_F(FinishedRuns, AreRepeatedWhereAFileIsGone) {
  fs::remove(directory(0) / "steps.csv");
  options_.quiet = true;
  EXPECT_EQ(repeated(), 1);
  EXPECT_EQ(err_, (directory(0) / "steps.csv").string() + ": is not there; the run is repeated\n") << "also if quiet";
}

TEST_F(FinishedRuns, AreRepeatedWhereTheSummaryIsADirectory) {
  fs::remove(directory(0) / "summary.json");
  fs::create_directory(directory(0) / "summary.json");
  EXPECT_EQ(repeated(), 1);
  EXPECT_THAT(err_, HasSubstr((directory(0) / "summary.json").string() + ": "));
  EXPECT_THAT(err_, HasSubstr("is a directory"));
  EXPECT_TRUE(fs::is_regular_file(directory(0) / "summary.json"));
}

TEST_F(FinishedRuns, AreTabulatedWithoutAnythingBeingWritten) {
  const std::string table = out_;
  const auto before = state();
  EXPECT_EQ(repeated(), 0);
  EXPECT_EQ(out_, table);
  EXPECT_EQ(state(), before);
}

TEST_F(FinishedRuns, NeedNoDataToBeTabulated) {
  for (auto& run : experiment_.runs)
    run.training.make_objective = []() -> std::shared_ptr<const Objective> {
      throw std::runtime_error("data were loaded");
    };
  EXPECT_EQ(repeated(), 0);
}

// Directories are named by half of the hash.
TEST_F(FinishedRuns, OfAnotherConfigurationAreNotBelieved) {
  experiment_.runs[0].hash.back() = 'f';
  EXPECT_EQ(repeated(), 1);
  EXPECT_THAT(err_, HasSubstr("1 of 2 runs are there already"));
  EXPECT_EQ(repeated(), 0);
}

TEST_F(FinishedRuns, AreRepeatedWhereTheyLackWhatIsToBeRecorded) {
  RecordingPlan& plan = experiment_.runs[0].recording;
  plan.parameters = true;
  EXPECT_EQ(repeated(), 1);
  EXPECT_TRUE(fs::exists(directory(0) / "parameters.npy"));
  EXPECT_EQ(repeated(), 0);
  plan.trace = true;
  plan.trace_seconds = 2;
  EXPECT_EQ(repeated(), 1);
  EXPECT_EQ(repeated(), 0);
  EXPECT_EQ(summary(0)["recorded"]["trace"]["seconds"], 2);
  for (const std::optional<double> seconds : {std::optional(3.0), std::optional(1.0), std::optional<double>()}) {
    plan.trace_seconds = seconds;
    EXPECT_EQ(repeated(), 1) << "the trace went up to another time";
    EXPECT_EQ(repeated(), 0);
  }
}

// It decides the order of figures; the file may have got another method since.
TEST_F(FinishedRuns, HaveTheirMethodsPresentPlace) {
  experiment_.runs[0].method_index = 7;
  const auto found = finished_before(directory(0), experiment_.runs[0]);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->method_index, 7u);
}

// A process that was killed between taking a run's name away and giving it to the new files.
TEST_F(FinishedRuns, AreFoundUnderTheNameThatAKilledProcessLeft) {
  ProcessIdentity killed = this_process();
  killed.number = 999'999'999;
  fs::rename(directory(0), hidden_sibling(directory(0), replaced_kind, killed));
  fs::remove_all(directory(1));
  EXPECT_EQ(repeated(), 1);
  EXPECT_THAT(err_, HasSubstr("1 of 2 runs are there already"));
}

TEST_F(FinishedRuns, CannotBeBehindALinkThatLeadsNowhere) {
  const fs::path results = options_.results_directory;
  fs::remove_all(results);
  fs::create_directory_symlink("/nowhere/at/all", results);
  EXPECT_EQ(start(), 2);
  EXPECT_EQ(err_, fmt::format("{0}: is a link to /nowhere/at/all, which is not there; the results directory {0}/test "
                              "cannot be created\n",
                              results.string()));
  fs::remove(results);
  fs::create_directory_symlink(results, results);
  EXPECT_EQ(start(), 2);
  EXPECT_THAT(err_, HasSubstr(results.string() + ": is reached by links that lead back to themselves"));
  fs::remove(results);
}

TEST_F(FinishedRuns, CannotBeWhereAFileIs) {
  fs::remove_all(directory(0).parent_path());
  std::ofstream(directory(0).parent_path()) << "a file";
  EXPECT_EQ(start(), 2);
  EXPECT_EQ(err_, directory(0).parent_path().string() + ": is a file; results belong there\n");
}

}  // namespace
}  // namespace syncopate
