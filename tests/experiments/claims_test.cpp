// Claims in the output of `run` and `claims`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/experiments/experiment_file.hpp"
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
  EXPECT_THAT(run.out, HasSubstr("\ntime\nreproduced      A step takes a micro-batch\n                class:  question "
                                 "(range)\n                wanted: step_time_s, sync-sgd: a "
                                 "value from 0.0099 to 0.0101 s\n                ours:   0.01000 s"));
  EXPECT_THAT(run.out, HasSubstr("1 reproduced, 0 not reproduced, 0 inconclusive."));
  const ProgramOutcome claims = syncopate("claims");
  EXPECT_EQ(claims.status, 0) << claims.err;
  EXPECT_THAT(run.out,
              EndsWith(claims.out.substr(0, claims.out.find("\n\n")) + claims.out.substr(claims.out.find("\n\n") + 1)));
  EXPECT_THAT(syncopate("claims --markdown").out,
              testing::StartsWith("| experiment | claim | class | wanted | paper | ours | verdict "
                                  "|\n|---|---|---|---|---|---|---|\n| time | A step"));
  EXPECT_EQ(syncopate("claims --format markdown").out, syncopate("claims --markdown").out);
  EXPECT_THAT(
      syncopate("claims --format csv").out,
      testing::StartsWith(
          "experiment,claim,class,wanted,paper,ours,verdict\ntime,A step takes a micro-batch,question (range),"));
  EXPECT_THAT(syncopate("claims --format latex").out,
              AllOf(HasSubstr("tabular"), HasSubstr("\n% 1 reproduced, 0 not reproduced, 0 inconclusive.")));
  EXPECT_EQ(syncopate("claims --format html").status, 2);
}

TEST_F(ClaimsProgram, RunsNothingWhereAClaimIsAtFault) {
  const std::string both = "'claim.0.over=cluster.workers' claim.0.everywhere=true cluster.workers=2,4";
  const ProgramOutcome run = syncopate("run " + file + " " + both);
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr("everywhere"), HasSubstr("cannot be combined with `over`")));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(ClaimsProgram, AcceptsWhatTheSameRunsHaveShown) {
  ASSERT_EQ(syncopate("run " + file + " --results kept").status, 0);
  const std::string accepting = "run " + file + " --results fresh --accept kept ";
  const ProgramOutcome same = syncopate(accepting);
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out,
              AllOf(HasSubstr("reproduced      A step takes a micro-batch"), HasSubstr("from the same runs")));
  EXPECT_FALSE(std::filesystem::exists(directory / "fresh"));
  for (const char* const other : {"seeds=3", "budget.steps=3", "'claim.0.within=[1,2]'"})
    EXPECT_THAT(syncopate(accepting + other).out, Not(HasSubstr("from the same runs"))) << other;
  EXPECT_TRUE(std::filesystem::exists(directory / "fresh"));
  EXPECT_EQ(syncopate(accepting + "--rerun").status, 2);
}

// The accepted results have only rows in runs.csv, no run directories. The claim is about one point of a sweep.
TEST_F(ClaimsProgram, JudgesOtherClaimsOfTheSameRunsByTheirRows) {
  const auto swept = [&](const std::string& within) {
    std::string text = time_only;
    text.insert(text.find("micro_batch_s"), "micro_batches = 4\n");
    return write("swept.toml", "seeds = 2\n" + text + R"([[methods]]
algorithm = "dropcompute"
threshold_s = 0.02
[sweep]
"methods.dropcompute.threshold_s" = [0.015, 0.025, 0.05]
[[claim]]
sentence = "A step is cut"
measure = "step_time_s"
method = "dropcompute"
where = { "methods.dropcompute.threshold_s" = 0.025 }
within = )" + within + "\n");
  };
  ASSERT_EQ(syncopate("run " + swept("[0.0249, 0.0251]") + " --results kept").status, 0);
  ASSERT_THAT(syncopate("claims kept").out, HasSubstr("1 reproduced, 0 not reproduced"));
  const std::string accepting = "run swept.toml --results fresh --accept kept";
  swept("[0.0149, 0.0151]");
  EXPECT_THAT(syncopate("export kept/time").err, "");
  for (const auto& entry : std::filesystem::directory_iterator(directory / "kept/time"))
    if (entry.is_directory()) std::filesystem::remove_all(entry.path());
  const ProgramOutcome again = syncopate(accepting);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("not reproduced  A step is cut"), HasSubstr("ours:   0.02500 s"),
                               HasSubstr("claims.json: judged again by the rows in kept/time/runs.csv")));
  EXPECT_FALSE(std::filesystem::exists(directory / "fresh"));
  EXPECT_THAT(syncopate("claims kept").out, HasSubstr("0 reproduced, 1 not reproduced"));
  EXPECT_THAT(syncopate(accepting).out, HasSubstr("from the same runs")) << "now they are the same claims";
  swept("[1, 2]");
  std::string rows = read("kept/time/runs.csv");
  write("kept/time/runs.csv", rows.substr(0, rows.rfind('\n', rows.size() - 2) + 1));
  EXPECT_THAT(syncopate(accepting).out, Not(HasSubstr("judged again"))) << "a row is missing";
  EXPECT_TRUE(std::filesystem::exists(directory / "fresh"));
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

// Claims are not part of a run's configuration, so changed claims need no new runs.
TEST_F(ClaimsProgram, JudgesAnewWhatIsClaimedAnew) {
  syncopate("run " + file);
  write("e.toml", with_claim("[1, 2]"));
  const ProgramOutcome again = syncopate("run " + file);
  EXPECT_THAT(again.err, HasSubstr("4 of 4 runs already exist"));
  EXPECT_THAT(again.out, HasSubstr("not reproduced  A step takes a micro-batch"));
  EXPECT_THAT(syncopate("claims results").out, HasSubstr("not reproduced  A step"));
}

// If an override changes runs or claims, verdicts are not saved. Other overrides do not prevent saving.
TEST_F(ClaimsProgram, AnOverrideReplacesNoVerdictOfTheFile) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  const std::string judged = read("results/runs/time/claims.json");
  for (const char* const other : {"cluster.micro_batch_s=0.02", "'claim.0.within=[1,2]'"}) {
    const ProgramOutcome run = syncopate("run " + file + " " + other);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("not reproduced  A step takes a micro-batch")) << other;
    EXPECT_THAT(run.out, HasSubstr("These verdicts are not saved, because the experiment was changed"));
    EXPECT_EQ(read("results/runs/time/claims.json"), judged) << other;
  }
  EXPECT_THAT(syncopate("claims").out, HasSubstr("\n1 reproduced, 0 not reproduced, 0 inconclusive."));
  EXPECT_EQ(syncopate("run " + file + " seeds=3 --results fresh").status, 0);
  EXPECT_THAT(syncopate("claims fresh").err, HasSubstr("contains no claims"));
  EXPECT_THAT(syncopate("run " + file + " description=other recording.trace=true --results fresh").out,
              Not(HasSubstr("not kept")));
  EXPECT_THAT(syncopate("claims fresh").out, HasSubstr("1 reproduced"));
}

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
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("/sync-sgd/seed="), HasSubstr("/sync-sgd.bak/seed="), HasSubstr("contain the same run")));
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
  EXPECT_THAT(outcome.err, HasSubstr("was judged by 4 runs, of which only 3 exist"));
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
  EXPECT_THAT(syncopate("claims .").err, HasSubstr("claims.json: is not a list of claims of schema version 3"));
}

// The keys of [[claim]], and faults in them.

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class ClaimSection : public ExperimentFile {
 protected:
  std::string faults_of(const std::string& claim, const std::string& rest = "") const {
    write(small + rest + "\n[[claim]]\n" + claim);
    return faults({});
  }
  const std::string right =
      "sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"drop\"\nagainst = \"sync-sgd\"\nbelow = 0\n";
  const std::string sweep = "[sweep]\n\"cluster.workers\" = [2, 4]\n";
};

TEST_F(ClaimSection, IsReadBesideTheRuns) {
  write(small + ("[[claim]]\n" + right) +
        "paper = { figure = \"18 %\", source = \"abstract\", certainty = \"stated\" }\n");
  const Experiment experiment = load();
  ASSERT_EQ(experiment.claims.size(), 1u);
  const Claim& claim = experiment.claims.front();
  EXPECT_EQ(claim.method, "drop");
  EXPECT_EQ(claim.effect, Effect::difference);  // the default if there is another method
  EXPECT_EQ(claim.criterion.below, 0.0);
  EXPECT_EQ(claim.published->figure, "18 %");
}

TEST_F(ClaimSection, MakesNoOtherRuns) {
  const Experiment plain = load();
  write(small + ("[[claim]]\n" + right));
  const Experiment claimed = load();
  for (std::size_t i = 0; i < plain.runs.size(); ++i) {
    EXPECT_EQ(claimed.runs[i].hash, plain.runs[i].hash);
    EXPECT_THAT(claimed.runs[i].resolved_toml, Not(HasSubstr("claim")));
  }
  write(claimed.resolved_toml);
  EXPECT_EQ(load().claims.size(), 1u);
}

// Entries about papers' figures, in a separate checkout.
class ReferenceSection : public ClaimSection {
 protected:
  void SetUp() override {
    ClaimSection::SetUp();
    root_ = file.parent_path() / (file.stem().string() + "_checkout");
    std::filesystem::create_directories(root_ / "results/reference");
    std::filesystem::create_directories(root_ / "experiments/paper");
    std::ofstream(root_ / "results/reference/dropcompute.toml")
        << "[abstract]\nfigure = \"18 %\"\nsource = \"abstract\"\ncertainty = \"stated\"\nvalue = 1.18\n"
           "unit = \"ratio of times\"\n[figure-5]\nfigure = \"13 %\"\nsource = \"Figure 5\"\n"
           "certainty = \"guessed\"\n[figure-6]\nfigur = \"13 %\"\n";
    std::ofstream(root_ / "results/reference/qsr.toml") << "";
    std::filesystem::remove(file);
    file = root_ / "experiments/paper/e.toml";
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(root_ / "experiments");  // has no folder results/reference
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(root_);
  }
  std::string faults_with(const std::string& reference) const {
    return faults_of(right + "reference = \"" + reference + "\"\n");
  }

  std::filesystem::path root_, before_;
};

TEST_F(ReferenceSection, ClaimsQuoteAFigureThatStandsThereOnce) {
  write(small + ("[[claim]]\n" + right) + "reference = \"dropcompute.abstract\"\n");
  const Experiment quoting = load();
  ASSERT_EQ(quoting.claims.size(), 1u);
  EXPECT_EQ(quoting.claims[0].published, (PublishedFigure{"18 %", "abstract", "stated", 1.18}));
  const std::string resolved = quoting.resolved_toml;
  EXPECT_THAT(resolved, Not(HasSubstr("reference =")));
  write(small + ("[[claim]]\n" + right) +
        "paper = { figure = \"18 %\", source = \"abstract\", certainty = \"stated\", value = 1.18 }\n");
  EXPECT_EQ(load().claims, quoting.claims);
  EXPECT_EQ(load().digest, quoting.digest) << "the runs are the same";
  std::filesystem::remove_all(root_ / "results");
  write(resolved);
  EXPECT_EQ(load().claims, quoting.claims) << "what check prints needs no folder";
}

TEST_F(ReferenceSection, WrongNamesAreFaultsWithTheNearest) {
  EXPECT_THAT(faults_with("dropcompute.abstrct"),
              AllOf(HasSubstr("claim.0.reference = \"dropcompute.abstrct\"; "),
                    HasSubstr("dropcompute.toml contains no such figure"), HasSubstr("did you mean \"abstract\"?")));
  EXPECT_THAT(faults_with("dropcompte.abstract"),
              AllOf(HasSubstr("must begin with one of dropcompute, qsr"), HasSubstr("did you mean \"dropcompute\"?")));
  EXPECT_THAT(faults_with("dropcompute"), HasSubstr("must name a paper and its figure"));
  EXPECT_THAT(faults_with("dropcompute.figure-5"), HasSubstr("claim.0.paper.certainty = \"guessed\"; must be one of"));
  EXPECT_THAT(faults_with("dropcompute.figure-6"),
              HasSubstr("claim.0.paper.figur = \"13 %\"; unknown key; did you mean \"figure\"?"));
  EXPECT_THAT(faults_of(right + "reference = \"dropcompute.abstract\"\npaper = { figure = \"1\", source = \"s\", "
                                "certainty = \"stated\" }\n"),
              HasSubstr("claim.0.reference; cannot be combined with `paper`"));
  std::filesystem::remove_all(root_ / "results");
  EXPECT_THAT(faults_with("dropcompute.abstract"),
              HasSubstr("found no folder results/reference above the experiment file"));
}

TEST_F(ClaimSection, NamesWhatIsThere) {
  EXPECT_EQ(faults_of(right), "");
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string changed = right;
    return faults_of(changed.replace(changed.find(what), what.size(), instead), sweep);
  };
  EXPECT_THAT(with("\"drop\"", "\"dorp\""),
              HasSubstr("must be a method of the file, one of sync-sgd, drop; did you mean"));
  EXPECT_THAT(with("\"sync-sgd\"", "\"sync\""), HasSubstr("claim.0.against = \"sync\"; \"sync\" must be a method"));
  EXPECT_THAT(with("\"sync-sgd\"", "\"drop\""), HasSubstr("claim.0.against = \"drop\"; must be a different method"));
  EXPECT_THAT(with("step_time_s", "step_time"), HasSubstr("did you mean \"step_time_s\"?"));
  EXPECT_THAT(with("below = 0", "below = 0\nwhere = { \"cluster.worker\" = 2 }"),
              HasSubstr("\"cluster.worker\" must be a swept key, one of cluster.workers; did you mean"));
  EXPECT_THAT(with("below = 0", "below = 0\nwhere = { \"cluster.workers\" = 3 }"),
              HasSubstr("\"cluster.workers\" = 3 must be a value of the sweep, one of 2, 4"));
  EXPECT_THAT(with("below = 0", "below = 0\nover = \"seed\""), HasSubstr("\"seed\" must be a swept key"));
  EXPECT_THAT(with("below = 0", "below = 0\nblow = 1"), HasSubstr("claim.0.blow = 1; unknown key"));
}

TEST_F(ClaimSection, SaysHowTheCommandLineLeavesClaimsOut) {
  write(std::string(small) + "[sweep]\n\"cluster.workers\" = [2, 4, 16]\n[[claim]]\n" + right +
        "where = { \"cluster.workers\" = 2 }\n");
  EXPECT_THAT(faults({"cluster.workers=32,8,16"}),
              HasSubstr("= 2 must be a value of the sweep, one of 8, 16, 32; add ~claim to the command"));
  EXPECT_THAT(
      faults({"cluster.workers=8"}),
      HasSubstr("must be a swept key, but the file sweeps nothing and has no variants; add ~claim to the command"));
  EXPECT_EQ(faults({"cluster.workers=8", "~claim"}), "");
  write(small + sweep + "[[claim]]\n" + right + "where = { \"cluster.workers\" = 3, \"a..b\" = 1 }\n");
  EXPECT_THAT(faults({"seeds=1,2"}), Not(HasSubstr("~claim"))) << "the file is wrong by itself";
}

TEST_F(ClaimSection, SaysWhatCountsAsReproduced) {
  const std::string open = right.substr(0, right.find("below"));
  EXPECT_THAT(faults_of(open), HasSubstr("must have exactly one criterion of above, below, within and margin"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"nobody\""),
              testing::AllOf(HasSubstr("must have exactly one criterion of above, below, within and margin"),
                             HasSubstr("\"nobody\" must be a method of the file")))
      << "all at once";
  EXPECT_THAT(faults_of(open), HasSubstr("claim.0; must have exactly one criterion of above, below, within and "
                                         "margin; found none"));
  const std::string three = faults_of(open + "above = 1\nbelow = 2\nmargin = 3\n");
  EXPECT_THAT(three, EndsWith("found above and below and margin"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"drop\"\nabove = 1\nmargin = 1\n"),
              AllOf(EndsWith("found above and margin"), Not(HasSubstr("\n"))))
      << "several criteria are one fault";
  EXPECT_THAT(faults_of(right + "above = 1"),
              HasSubstr("must have exactly one criterion of above, below, within and margin; found above and below"));
  EXPECT_THAT(faults_of(open + "within = [2, 1]"), HasSubstr("must be two numbers, the lower one first"));
  EXPECT_THAT(faults_of(open + "margin = 0"), HasSubstr("margin = 0; must be"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"drop\"\nmargin = 1"),
              HasSubstr("applies to a difference: name the other method with `against`"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"time_to_equal_loss_s\"\nmethod = \"drop\"\nbelow = 1"),
              HasSubstr("is the time or steps to another method's loss: name that method with `against`"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\norder = [\"drop\", \"sync-sgd\"]\nbelow = 1"),
              HasSubstr("cannot be combined with above"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\norder = [\"drop\"]"),
              HasSubstr("must list at least two methods"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\norder = [\"drop\", \"sync-sgd\", \"drop\"]"),
              HasSubstr("claim.0.order = [\"drop\", \"sync-sgd\", \"drop\"]; must not list a method twice"));
}

TEST_F(ClaimSection, NamesTheNearestMeasureAndNotAll) {
  std::string changed = right;
  const std::string found = faults_of(changed.replace(changed.find("step_time_s"), 11, "step_tim_s"));
  EXPECT_THAT(found, HasSubstr("claim.0.measure = \"step_tim_s\"; did you mean \"step_time_s\"? must be one of "
                               "step_time_s, "));
  EXPECT_LT(found.size(), 300u);
  std::string strange = right;
  EXPECT_THAT(faults_of(strange.replace(strange.find("step_time_s"), 11, "xqzwvjkxqzwvjk")),
              testing::AllOf(HasSubstr("must be one of final_test_accuracy, "), HasSubstr("steps_to_equal_loss")))
      << "nothing is near, so all are named";
}

// Without this check, users would learn only after the runs that the results lack the measure.
TEST_F(ClaimSection, IsAboutWhatTheRunsWillHave) {
  const auto about = [&](const std::string& measure, const std::string& rest = "") {
    return faults_of("sentence = \"s\"\nmethod = \"drop\"\nbelow = 1\nmeasure = \"" + measure + "\"\n", rest);
  };
  EXPECT_THAT(about("time_to_target_s"), HasSubstr("claim.0.measure = \"time_to_target_s\"; \"drop\" does not have "
                                                   "this measure: it needs evaluation.target_accuracy"));
  EXPECT_EQ(about("time_to_target_s", "[evaluation]\ntarget_accuracy = 0.5\n"), "");
  EXPECT_THAT(about("final_validation_accuracy"), HasSubstr("needs a validation split"));
  EXPECT_THAT(about("final_largest_eigenvalue"), HasSubstr("needs measurements.largest_eigenvalue"));
  EXPECT_THAT(about("final_hessian_trace"), HasSubstr("needs measurements.hessian_trace"));
  EXPECT_THAT(about("mean_squared_gradient_norm"), HasSubstr("needs measurements.gradient_norm at every step"));
  EXPECT_THAT(about("longest_kept_share"), HasSubstr("needs recording.samples"));
  EXPECT_THAT(about("gradient_bias_to_noise"), HasSubstr("needs recording.samples"));
  EXPECT_EQ(about("final_test_accuracy"), "");
}

TEST_F(ClaimSection, IsAboutTheBestValueOfAKey) {
  const std::string best = "sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"drop\"\nas = \"best\"\n";
  EXPECT_EQ(faults_of(best + "over = \"cluster.workers\"\nwithin = [1, 3]\n", sweep), "");
  EXPECT_THAT(faults_of(best + "above = 1\n"), HasSubstr("is a value of a swept key: name this key with `over`"));
  EXPECT_THAT(faults_of(best + "over = \"cluster.workers\"\nmargin = 1\n", sweep),
              HasSubstr("applies to a difference"));
  EXPECT_THAT(faults_of(best + "over = \"cluster.workers\"\nper_doubling = true\nabove = 1\n", sweep),
              HasSubstr("applies to slopes only"));
  EXPECT_THAT(faults_of(best + "over = \"cluster.workers\"\nover_sqrt_log = true\nabove = 1\n", sweep),
              AllOf(HasSubstr("over_sqrt_log"), HasSubstr("applies to slopes only")));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"steps\"\nmethod = \"drop\"\nover = \"cluster.workers\"\n"
                        "per_doubling = true\nover_sqrt_log = true\nabove = 1\n",
                        sweep),
              HasSubstr("cannot be combined with per_doubling"));
  EXPECT_THAT(faults_of("sentence = \"s\"\nmeasure = \"steps\"\nmethod = \"drop\"\nas = \"best\"\nover = "
                        "\"cluster.workers\"\nabove = 1\n",
                        sweep),
              HasSubstr("must be a measure with a better direction"));
}

TEST_F(ClaimSection, ComparesWithARowOfTheTable) {
  const std::string at_two =
      "sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"drop\"\nbelow = 0\nwhere = { "
      "\"cluster.workers\" = 4 }\nagainst = ";
  EXPECT_EQ(faults_of(at_two + "\"drop, workers = 2\"\n", sweep), "");
  EXPECT_THAT(faults_of(at_two + "\"drop, workers = 3\"\n", sweep), HasSubstr("must be a method of the file"));
}

// An unconfirmed figure must not be shown as the paper's, so `certainty` has no value for it.
TEST_F(ClaimSection, ShowsFiguresThatAreKnown) {
  const std::string paper = "paper = { figure = \"1\", source = \"x\", certainty = \"";
  EXPECT_THAT(faults_of(right + paper + "hearsay\" }"),
              HasSubstr("must be one of \"stated\", \"code\", \"review\", \"derived\""));
  EXPECT_THAT(faults_of(right + "paper = { figure = \"1\" }"),
              AllOf(HasSubstr("claim.0.paper.source is missing"), HasSubstr("claim.0.paper.certainty is missing")));
}

TEST_F(ClaimSection, MeansOnePointUnlessItSaysOtherwise) {
  EXPECT_THAT(faults_of(right, sweep), HasSubstr("claim.0; selects 2 points of \"drop\": select one with `where`"));
  EXPECT_EQ(faults_of(right + "everywhere = true", sweep), "");
  EXPECT_EQ(faults_of(right + "over = \"cluster.workers\"", sweep), "");
  EXPECT_EQ(faults_of(right + "where = { \"cluster.workers\" = 2 }", sweep), "");
  const std::string order = "sentence = \"s\"\nmeasure = \"step_time_s\"\norder = [\"drop\", \"sync-sgd\"]\n";
  EXPECT_THAT(faults_of(order, sweep), EndsWith("selects 2 points of \"sync-sgd\": select one with `where`"))
      << "an order knows no other way";
  EXPECT_THAT(faults_of(order + "everywhere = true", sweep), HasSubstr("claim.0.everywhere = true; unknown key"));
}

// With `over`, a claim is about one number for all points, such as a slope. So it cannot also hold at each point.
TEST_F(ClaimSection, IsEitherOverAKeyOrEverywhere) {
  const std::string both = "over = \"cluster.workers\"\neverywhere = true\n";
  const char* const fault =
      "claim.0.everywhere = true; cannot be combined with `over`, which turns all points into one number";
  EXPECT_THAT(faults_of(right + both, sweep), HasSubstr(fault));
  EXPECT_THAT(
      faults_of("sentence = \"s\"\nmeasure = \"step_time_s\"\nmethod = \"drop\"\nas = \"best\"\nabove = 1\n" + both,
                sweep),
      HasSubstr(fault));
  EXPECT_EQ(faults_of(right + "over = \"cluster.workers\"\neverywhere = false\n", sweep), "");
  write(load().resolved_toml);
  EXPECT_EQ(faults({}), "") << "what check prints says everywhere = false";
}

// Claims with the same sentence could not be distinguished in a table. A claim in two wordings would count twice.
TEST_F(ClaimSection, StandsThereOnce) {
  const auto two = [&](const std::string& first, const std::string& second) {
    return faults_of(first + "[[claim]]\n" + second, sweep);
  };
  const std::string at_2 = right + "where = { \"cluster.workers\" = 2 }\n";
  std::string at_4 = right + "where = { \"cluster.workers\" = 4 }\n";
  const std::string same = two(at_2, at_4);
  EXPECT_THAT(same, AllOf(HasSubstr("claim.1.sentence = \"s\"; must differ from the sentence of the claim at "),
                          Not(HasSubstr("\n"))));
  const auto line_of = [](const std::string& text) { return std::stoi(text.substr(text.find(".toml:") + 6)); };
  EXPECT_EQ(line_of(same), line_of(same.substr(same.rfind("the claim at "))) + 7) << same;
  at_4.replace(at_4.find("\"s\""), 3, "\"t\"");
  EXPECT_EQ(two(at_2, at_4), "");
  std::string in_other_words = at_2;
  in_other_words.replace(in_other_words.find("\"s\""), 3, "\"t\"");
  EXPECT_THAT(two(at_2, in_other_words),
              HasSubstr("claim.1.sentence = \"t\"; makes the same claim in other words as the claim at "));
}

TEST_F(ClaimSection, TellsItsFaultsBesideThoseOfTheFile) {
  EXPECT_THAT(
      faults_of("sentence = \"s\"\nmeasure = \"step_time\"\nmethod = \"drop\"\nbelow = 1\n", "[clusterr]\nx = 1\n"),
      AllOf(HasSubstr("clusterr"), HasSubstr("did you mean \"step_time_s\"?")));
}

}  // namespace
}  // namespace syncopate
