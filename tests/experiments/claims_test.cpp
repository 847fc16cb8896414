// What the program says of claims: at the end of `run`, and by `claims`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class ClaimsProgram : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file = write("e.toml", std::string(time_only) + R"([[methods]]
algorithm = "dropcompute"
threshold_s = 0.02
[[claim]]
sentence = "A step takes a micro-batch"
measure = "step_time_s"
method = "sync-sgd"
within = [0.0099, 0.0101]
)");
  }
  std::string file;
};

TEST_F(ClaimsProgram, JudgesAtTheEndOfARun) {
  const ProgramOutcome run = syncopate("run " + file + " seeds=2");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(
      run.out,
      HasSubstr("\ntime\nreproduced      A step takes a micro-batch\n                wanted: step_time_s, sync-sgd: a "
                "value from 0.0099 to 0.0101 s\n                ours:   0.01000 s"));
  EXPECT_THAT(run.out, HasSubstr("1 reproduced, 0 not reproduced, 0 inconclusive."));
  const ProgramOutcome claims = syncopate("claims");
  EXPECT_EQ(claims.status, 0) << claims.err;
  EXPECT_THAT(run.out,
              EndsWith(claims.out.substr(0, claims.out.find("\n\n")) + claims.out.substr(claims.out.find("\n\n") + 1)));
  EXPECT_THAT(
      syncopate("claims --markdown").out,
      testing::StartsWith(
          "| experiment | claim | wanted | paper | ours | verdict |\n|---|---|---|---|---|---|\n| time | A step"));
  EXPECT_EQ(syncopate("claims --format markdown").out, syncopate("claims --markdown").out);
  EXPECT_THAT(syncopate("claims --format csv").out,
              testing::StartsWith("experiment,claim,wanted,paper,ours,verdict\ntime,A step takes a micro-batch,"));
  EXPECT_THAT(syncopate("claims --format latex").out,
              AllOf(HasSubstr("tabular"), HasSubstr("\n% 1 reproduced, 0 not reproduced, 0 inconclusive.")));
  EXPECT_EQ(syncopate("claims --format html").status, 2);
}

TEST_F(ClaimsProgram, RunsNothingWhereAClaimIsAtFault) {
  const std::string both = "'claim.0.over=cluster.workers' claim.0.everywhere=true cluster.workers=2,4";
  const ProgramOutcome run = syncopate("run " + file + " " + both);
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr("everywhere"), HasSubstr("must be left out beside over")));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(ClaimsProgram, AcceptsWhatTheSameRunsHaveShown) {
  ASSERT_EQ(syncopate("run " + file + " seeds=2 --results kept").status, 0);
  const std::string accepting = "run " + file + " --results fresh --accept kept ";
  const ProgramOutcome same = syncopate(accepting + "seeds=2");
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("reproduced      A step takes a micro-batch"), HasSubstr("by the same runs")));
  EXPECT_FALSE(std::filesystem::exists(directory / "fresh"));
  for (const char* const other : {"seeds=3", "seeds=2 budget.steps=3", "seeds=2 'claim.0.within=[1,2]'"})
    EXPECT_THAT(syncopate(accepting + other).out, Not(HasSubstr("by the same runs"))) << other;
  EXPECT_TRUE(std::filesystem::exists(directory / "fresh"));
  EXPECT_EQ(syncopate(accepting + "seeds=2 --rerun").status, 2);
}

TEST_F(ClaimsProgram, AcceptsFromADirectoryAlone) {
  for (const std::string nowhere : {"nowhere", file.c_str()}) {
    const ProgramOutcome run = syncopate("run " + file + " --results fresh --accept " + nowhere);
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(run.err, HasSubstr(nowhere + ": no such directory"));
    EXPECT_FALSE(std::filesystem::exists(directory / "fresh"));
  }
}

TEST_F(ClaimsProgram, OfAnExperimentInSeveralDirectoriesTheFirstCounts) {
  syncopate("run " + file + " seeds=2 --results first");
  syncopate("run " + file + " seeds=2 'claim.0.within=[1,2]' --results second");
  EXPECT_THAT(syncopate("claims first second").out, HasSubstr("1 reproduced, 0 not reproduced"));
  EXPECT_THAT(syncopate("claims second first").out, HasSubstr("0 reproduced, 1 not reproduced"));
}

// Without another run: what is claimed is no part of one.
TEST_F(ClaimsProgram, JudgesAnewWhatIsClaimedAnew) {
  syncopate("run " + file + " seeds=2");
  const ProgramOutcome again = syncopate("run " + file + " seeds=2 'claim.0.within=[1,2]'");
  EXPECT_THAT(again.err, HasSubstr("4 of 4 runs are there already"));
  EXPECT_THAT(again.out, HasSubstr("not reproduced  A step takes a micro-batch"));
  EXPECT_THAT(syncopate("claims results").out, HasSubstr("not reproduced  A step"));
}

TEST_F(ClaimsProgram, TakesNoVerdictWhoseRunsAreGone) {
  syncopate("run " + file + " seeds=2");
  ASSERT_EQ(syncopate("claims").status, 0);
  const auto runs = directory / "results/runs/time/sync-sgd";
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(runs), std::filesystem::directory_iterator()), 2);
  std::filesystem::remove_all(std::filesystem::directory_iterator(runs)->path());
  const ProgramOutcome outcome = syncopate("claims");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("was judged by 4 runs, of which 3 are there"));
  std::filesystem::remove_all(directory / "results/runs/time/sync-sgd");
  for (const auto& entry : std::filesystem::directory_iterator(directory / "results/runs/time"))
    if (entry.is_directory()) std::filesystem::remove_all(entry.path());
  EXPECT_EQ(syncopate("claims").status, 2);
}

TEST_F(ClaimsProgram, SaysWhereNothingIsClaimed) {
  for (const char* const directory : {"nowhere", "."}) {
    const ProgramOutcome outcome = syncopate(std::string("claims ") + directory);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
  }
  write("claims.json", "{");
  EXPECT_THAT(syncopate("claims .").err, HasSubstr("claims.json: is no list of claims of schema version 2"));
}

}  // namespace
}  // namespace syncopate
