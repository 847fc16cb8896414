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
    file = write("e.toml", with_claim("[0.0099, 0.0101]"));
  }
  static std::string with_claim(const std::string& within) {
    return std::string("seeds = 2\n") + time_only + R"([[methods]]
algorithm = "dropcompute"
threshold_s = 0.02
[[claim]]
sentence = "A step takes a micro-batch"
measure = "step_time_s"
method = "sync-sgd"
within = )" +
           within + "\n";
  }
  std::string file;
};

TEST_F(ClaimsProgram, JudgesAtTheEndOfARun) {
  const ProgramOutcome run = syncopate("run " + file);
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
  ASSERT_EQ(syncopate("run " + file + " --results kept").status, 0);
  const std::string accepting = "run " + file + " --results fresh --accept kept ";
  const ProgramOutcome same = syncopate(accepting);
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("reproduced      A step takes a micro-batch"), HasSubstr("by the same runs")));
  EXPECT_FALSE(std::filesystem::exists(directory / "fresh"));
  for (const char* const other : {"seeds=3", "budget.steps=3", "'claim.0.within=[1,2]'"})
    EXPECT_THAT(syncopate(accepting + other).out, Not(HasSubstr("by the same runs"))) << other;
  EXPECT_TRUE(std::filesystem::exists(directory / "fresh"));
  EXPECT_EQ(syncopate(accepting + "--rerun").status, 2);
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
  syncopate("run " + file + " --results first");
  syncopate("run " + write("other.toml", with_claim("[1, 2]")) + " --results second");
  EXPECT_THAT(syncopate("claims first second").out, HasSubstr("1 reproduced, 0 not reproduced"));
  EXPECT_THAT(syncopate("claims second first").out, HasSubstr("0 reproduced, 1 not reproduced"));
}

// Without another run: what is claimed is no part of one.
TEST_F(ClaimsProgram, JudgesAnewWhatIsClaimedAnew) {
  syncopate("run " + file);
  write("e.toml", with_claim("[1, 2]"));
  const ProgramOutcome again = syncopate("run " + file);
  EXPECT_THAT(again.err, HasSubstr("4 of 4 runs are there already"));
  EXPECT_THAT(again.out, HasSubstr("not reproduced  A step takes a micro-batch"));
  EXPECT_THAT(syncopate("claims results").out, HasSubstr("not reproduced  A step"));
}

// Neither by other runs nor by another claim; what changes neither is kept.
TEST_F(ClaimsProgram, AnOverrideReplacesNoVerdictOfTheFile) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  const std::string judged = read("results/runs/time/claims.json");
  for (const char* const other : {"cluster.micro_batch_s=0.02", "'claim.0.within=[1,2]'"}) {
    const ProgramOutcome run = syncopate("run " + file + " " + other);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("not reproduced  A step takes a micro-batch")) << other;
    EXPECT_THAT(run.out, HasSubstr("These verdicts are not kept, since they are not those of the file as it is"));
    EXPECT_EQ(read("results/runs/time/claims.json"), judged) << other;
  }
  EXPECT_THAT(syncopate("claims").out, HasSubstr("\n1 reproduced, 0 not reproduced, 0 inconclusive."));
  EXPECT_EQ(syncopate("run " + file + " seeds=3 --results fresh").status, 0);
  EXPECT_THAT(syncopate("claims fresh").err, HasSubstr("holds no claims"));
  EXPECT_THAT(syncopate("run " + file + " description=other recording.trace=true --results fresh").out,
              Not(HasSubstr("not kept")));
  EXPECT_THAT(syncopate("claims fresh").out, HasSubstr("1 reproduced"));
}

// Nothing that is wrong with other runs in the same directory keeps the file's from being judged.
TEST_F(ClaimsProgram, JudgesByTheRunsOfTheFileAlone) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  ASSERT_EQ(syncopate("run " + file + " seeds=[7] cluster.micro_batch_s=0.02").status, 0);
  for (const auto& entry : std::filesystem::directory_iterator(directory / "results/runs/time/sync-sgd"))
    if (entry.path().filename().string().starts_with("seed=7-")) std::ofstream(entry.path() / "summary.json") << "{}";
  const ProgramOutcome again = syncopate("run " + file);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 reproduced, 0 not reproduced, 0 inconclusive."));
}

TEST_F(ClaimsProgram, TakesNoVerdictBesideCopiesOfRuns) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  std::filesystem::copy(directory / "results/runs/time/sync-sgd", directory / "results/runs/time/sync-sgd.bak",
                        std::filesystem::copy_options::recursive);
  const ProgramOutcome outcome = syncopate("claims");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("/sync-sgd/seed="), HasSubstr("/sync-sgd.bak/seed="),
                                 HasSubstr("are the same run, by its hash")));
}

TEST_F(ClaimsProgram, TakesNoVerdictWhoseRunsAreGone) {
  syncopate("run " + file);
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
