// `syncopate table` for runs of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "results/run_directory.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* experiment = R"(
name = "two"
seeds = 3
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "none"
parameters = 10
[budget]
steps = 20
[[methods]]
label = "A"
algorithm = "sync-sgd"
[[methods]]
label = "B, faster"
algorithm = "dropcompute"
threshold_s = 0.03
)";

using Outcome = ProgramOutcome;

class Table : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file_ = write("two.toml", experiment);
    const Outcome run = syncopate("run " + file_ + " --quiet");
    ASSERT_EQ(run.status, 0) << run.err;
  }
  const std::string results = "results/runs/two";
  std::string file_;
};

TEST_F(Table, SaysHowMethodsDifferFromOne) {
  const Outcome table = syncopate("table " + results + " --against A");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("\nA "), HasSubstr("speed-up of steps"), HasSubstr("S_eff")));
  EXPECT_THAT(table.out, HasSubstr("Against \"A\": "));
  EXPECT_EQ(syncopate("table " + results + " --against A").out, table.out);
}

TEST_F(Table, IsForProgramsAndPapersToo) {
  const Outcome csv = syncopate("table " + results + " --format csv --against A");
  EXPECT_THAT(csv.out, StartsWith("experiment,row,method,measure,n,mean,std,against,pairs,difference,low,high,t_p,"));
  EXPECT_THAT(csv.out, HasSubstr("\ntwo,\"B, faster\",\"B, faster\",step_time_s,3,"));
  EXPECT_THAT(csv.out, HasSubstr("\ntwo,A,A,steps,3,20,0,,,,,,,\n"));
  EXPECT_THAT(syncopate("table " + results + " --format markdown").out,
              AllOf(StartsWith("| method |"), HasSubstr("\\\n"), Not(EndsWith("\\\n"))));
  EXPECT_THAT(syncopate("table " + results + " --format latex").out, StartsWith("\\begin{tabular}{l"));
}

TEST_F(Table, SaysAsCsvWhoMissedTheTarget) {
  EXPECT_THAT(syncopate("table " + results + " --format csv").out, Not(HasSubstr("target_missed")));
  const std::string quadratic =
      " 'training={model=\"quadratic\",micro_batch_size=1,learning_rate={schedule=\"constant\",peak=0.01},"
      "optimizer={name=\"sgd\"}}'"
      " 'evaluation={every_steps=10,target_loss=1e-9}' name=missed";
  const Outcome run = syncopate("run " + file_ + " --quiet" + quadratic);
  ASSERT_EQ(run.status, 0) << run.err;
  const Outcome csv = syncopate("table results/runs/missed --format csv --against A");
  EXPECT_THAT(csv.out, HasSubstr("\nmissed,A,A,target_missed_until_s,3,0.")) << csv.err;
  EXPECT_THAT(csv.out, testing::ContainsRegex("\nmissed,A,A,target_missed_until_s,3,[0-9.]+,0,,,,,,,\n"));
}

TEST_F(Table, ComparesWhatIsAskedFor) {
  const Outcome table = syncopate("table " + results + " --against A --measure end_time_s");
  EXPECT_THAT(table.out, AllOf(HasSubstr("\nmethod     "), Not(HasSubstr("S_eff  n"))));
  const Outcome misspelt = syncopate("table " + results + " --measure end_tim_s");
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("did you mean \"end_time_s\"?"));
  const Outcome alone = syncopate("table " + results + " --measure end_time_s");
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("--measure: selects the measures for --against, and needs that option"));
  EXPECT_THAT(syncopate("table " + results + " --against A --measure final_validation_loss").out,
              HasSubstr("final_validation_loss: no two runs of the same seed have it"));
}

TEST_F(Table, SaysWhatIsWrong) {
  const auto fault = [&](const std::string& arguments) {
    const Outcome outcome = syncopate("table " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    return outcome.err;
  };
  EXPECT_THAT(fault("nowhere"), HasSubstr("nowhere: no such directory; expected a directory that contains runs"));
  EXPECT_THAT(fault(file_), HasSubstr("not a directory"));
  std::filesystem::create_directories(directory / "empty");
  EXPECT_THAT(fault("empty"), AllOf(HasSubstr("contains no runs"), Not(HasSubstr("kept summaries"))));
  std::ofstream(directory / "empty" / "claims.json") << "{}";
  EXPECT_THAT(fault("empty"), HasSubstr("these are kept summaries of finished runs, which ./dev report shows"));
  EXPECT_THAT(fault(results + " --against B"), HasSubstr("must be one of A, B, faster"));
  EXPECT_THAT(fault(results + " --format html"), HasSubstr("--format"));
}

// A damaged run is reported, because the table would otherwise have fewer seeds without notice.
TEST_F(Table, NamesWhatIsDamaged) {
  std::filesystem::path summary;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / results))
    if (entry.path().filename() == "summary.json") summary = entry.path();
  std::ofstream(summary, std::ios::app) << " ";
  const Outcome damaged = syncopate("table " + results);
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.err, AllOf(HasSubstr("summary.json"), HasSubstr("the experiment's next start repeats the run")));
  std::filesystem::remove(summary);
  EXPECT_EQ(syncopate("table " + results).status, 2);
}

// All runs of the experiment were made by another program, which is reported only once.
TEST_F(Table, SaysOnceThatAnotherProgramMadeTheRuns) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / results)) {
    if (entry.path().filename() != "summary.json") continue;
    auto json = nlohmann::json::parse(std::ifstream(entry.path()));
    json["schema_version"] = 9;
    std::ofstream(entry.path()) << json;
  }
  const Outcome others = syncopate("table " + results);
  EXPECT_EQ(others.status, 2);
  EXPECT_EQ(others.out, "");
  EXPECT_THAT(others.err,
              HasSubstr(results + ": 6 runs of \"two\" are of schema version 9, and this program knows 2; "));
  EXPECT_EQ(std::count(others.err.begin(), others.err.end(), '\n'), 1) << others.err;
}

TEST_F(Table, NamesCopiesOfRunsAndWhatTheyAreCopiesOf) {
  std::filesystem::copy(directory / results / "a", directory / results / "a.bak",
                        std::filesystem::copy_options::recursive);
  for (const std::string command : {"table ", "export "}) {
    const Outcome outcome = syncopate(command + results);
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(results + "/a/seed="), HasSubstr(" and " + results + "/a.bak/seed="),
                                   HasSubstr("contain the same run"), HasSubstr("(3 runs are in both")));
  }
  EXPECT_THAT(syncopate("status " + results).out, HasSubstr("contain the same run"));
}

TEST_F(Table, NamesARunInTheDirectoryOfAnother) {
  std::vector<std::filesystem::path> runs;
  for (const auto& entry : std::filesystem::directory_iterator(directory / results / "a")) runs.push_back(entry.path());
  std::ranges::sort(runs);
  std::filesystem::remove_all(runs.at(1));
  std::filesystem::copy(runs.at(0), runs.at(1));
  for (const std::string command : {"table ", "export "}) {
    const Outcome outcome = syncopate(command + results);
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("/" + runs[1].filename().string() + ": contains the run " +
                                       runs[0].filename().string() + "; must contain the run of its name"));
  }
  EXPECT_THAT(syncopate("status " + results).out, HasSubstr("contains the run " + runs[0].filename().string()));
}

// A run's directory may be a copy, or may be renamed.
TEST_F(Table, NamesDirectoriesThatHoldARunUnderAnotherName) {
  namespace fs = std::filesystem;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(directory / results / "a")) runs.push_back(entry.path());
  std::ranges::sort(runs);
  const std::string own = runs.at(1).filename().string();
  const auto expect_one_fault = [&](const fs::path& place, const std::string& says) {
    for (const std::string command : {"table ", "export "}) {
      const Outcome outcome = syncopate(command + results);
      EXPECT_EQ(outcome.status, 2) << command << place;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("/a/" + place.filename().string() + ": contains "), HasSubstr(says)));
    }
    EXPECT_THAT(syncopate("status --json " + results).out,
                AllOf(HasSubstr("/a/" + place.filename().string() + ": contains "), HasSubstr(says)));
  };
  for (const std::string& name : {own + ".bak", own + " (copy)", std::string("kept")}) {
    const fs::path copy = runs.at(1).parent_path() / name;
    fs::copy(runs.at(1), copy);
    expect_one_fault(copy, "/a/" + own + "; remove one of the two");
    fs::remove_all(copy);
  }
  for (const char* const name : {"seed=2-old", "old"}) {
    const fs::path renamed = runs.at(1).parent_path() / name;
    fs::rename(runs.at(1), renamed);
    expect_one_fault(renamed, own + "; must have the name of this run, or be removed");
    EXPECT_THAT(syncopate("table '" + renamed.string() + "'").err, HasSubstr("must have the name")) << "itself";
    fs::rename(renamed, runs.at(1));
  }
}

TEST_F(Table, LeavesOutWhatIsHiddenALinkOrOfNoRun) {
  namespace fs = std::filesystem;
  const std::string before = syncopate("table " + results).out;
  const fs::path run = fs::directory_iterator(directory / results / "a")->path(), folder = run.parent_path();
  fs::copy(run, folder / ".kept");
  fs::create_directories(folder / ".hidden");
  fs::copy(run, folder / ".hidden" / "kept");
  fs::copy(run, folder / ("." + run.filename().string() + ".partial.1.2"));
  fs::create_directory_symlink(run, folder / "newest");
  fs::create_directories(folder / "notes");
  std::ofstream(folder / "notes" / "config.toml") << "x = 1\n";
  const Outcome outcome = syncopate("table " + results);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, before);
}

// The same runs exist twice with different hashes, as after a new results version. The newest ones count.
TEST_F(Table, OfRunsThatDifferInTheirHashAloneTheNewestCounts) {
  const std::string before = syncopate("table " + results).out,
                    rows = syncopate("table " + results + " --format csv").out;
  const std::filesystem::path run = std::filesystem::directory_iterator(directory / results / "a")->path();
  FileContents files;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    files[entry.path().filename().string()] = read(entry.path());
  files.erase(list_of_files);
  auto summary = nlohmann::ordered_json::parse(files["summary.json"]);
  summary["hash"] = "0000000000000000";
  summary["end_time_s"] = 1000;
  files["summary.json"] = summary.dump(2) + "\n";
  auto metadata = nlohmann::ordered_json::parse(files["metadata.json"]);
  metadata["end"] = "2000-01-01T00:00:00Z";
  files["metadata.json"] = metadata.dump(2) + "\n";
  files[list_of_files] = listed(files);
  const std::string seed = run.filename().string().substr(0, run.filename().string().find('-'));
  std::filesystem::create_directory(run.parent_path() / (seed + "-00000000"));
  for (const auto& [name, contents] : files) write(run.parent_path() / (seed + "-00000000") / name, contents);
  EXPECT_EQ(syncopate("table " + results).out, before);
  EXPECT_EQ(syncopate("table " + results + " --format csv").out, rows);
}

TEST_F(Table, IsExportedWholeOrNotAtAll) {
  const Outcome exported = syncopate("export " + results);
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(exported.out, results + "/runs.csv\n" + results + "/evaluations.csv\n");
  const std::string runs = read(results + "/runs.csv");
  EXPECT_EQ(std::count(runs.begin(), runs.end(), '\n'), 7);  // a heading, and 2 methods x 3 seeds
  EXPECT_THAT(read(results + "/evaluations.csv"), HasSubstr("\ntwo,\"B, faster\",2,virtual,"));
  EXPECT_EQ(syncopate("export " + results).status, 0);  // replaces its own files
  EXPECT_EQ(syncopate("export " + results + " --to new/folder").status, 0);
  EXPECT_EQ(read("new/folder/runs.csv"), runs);
  const Outcome nowhere = syncopate("export " + results + " --to new/folder/runs.csv/below");
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("new/folder/runs.csv/below: cannot be created: "));
  EXPECT_EQ(syncopate("export nowhere").status, 2);
}

// Python reads the same table in two lines.
TEST_F(Table, IsAPandasFrame) {
  const Outcome python =
      shell("PYTHONPATH=" SYNCOPATE_SOURCE_DIR
            " /usr/bin/python3 -B -c 'from plots.frames import frames\n"
            "runs, evaluations = frames(\"" +
            results +
            "\", \"" SYNCOPATE_PROGRAM
            "\")\n"
            "print(len(runs), runs.groupby(\"method\").step_time_s.mean().idxmin(), len(evaluations))'");
  EXPECT_EQ(python.status, 0) << python.err;
  EXPECT_THAT(python.out, StartsWith("6 B, faster "));
}

class SweptTable : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file_ = write("two.toml", std::string(experiment) + "[sweep]\n\"cluster.workers\" = [2, 4, 8]\n");
    run("seeds=[1,2]");
    before_ = table();
  }
  void run(const std::string& overrides) const {
    const Outcome outcome = syncopate("run " + file_ + " --quiet " + overrides);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  std::string table(const std::string& options = "") const {
    const Outcome outcome = syncopate("table results/runs/two --format csv " + options);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
  // Compares the figures' data with the table's: the same number of runs, with the same means, at the same points.
  std::string figures_against_table() const {
    write("both.py",
          "import csv, io, pathlib, sys\n"
          "from plots.comparison import compare\n"
          "from plots.runs import runs_below\n"
          "def shown(values): return len(values), f'{sum(values) / len(values):.9g}'\n"
          "runs = runs_below(pathlib.Path('results/runs/two'))\n"
          "figures = sorted(shown([run.summary['end_time_s'] for run in method.runs])\n"
          "                 for one in compare(runs) for method in one.methods)\n"
          "rows = [line for line in csv.DictReader(open('table.csv')) if line['measure'] == 'end_time_s']\n"
          "table = sorted((int(line['n']), f\"{float(line['mean']):.9g}\") for line in rows)\n"
          "print('alike' if figures == table else (figures, table))\n");
    write("table.csv", table());
    const Outcome outcome = shell("PYTHONPATH='" SYNCOPATE_SOURCE_DIR "' '" SYNCOPATE_PYTHON "' -B both.py");
    return outcome.out + outcome.err;
  }
  std::string file_, before_;
};

TEST_F(SweptTable, ARunBesideTheSweepChangesNoRowOfIt) {
  run("'~sweep' cluster.workers=3 budget.steps=5 seeds=[1]");
  const std::string after = table();
  std::istringstream lines(before_);
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(after, HasSubstr(line + "\n"));
  EXPECT_THAT(after, HasSubstr("\ntwo,\"A, budget.steps = 5, cluster.workers = 3\",A,step_time_s,1,"));
  EXPECT_EQ(figures_against_table(), "alike\n");
  const std::string ranked = syncopate("table results/runs/two --rank step_time_s").out;
  for (const char* const point : {"workers = 2", "workers = 4", "workers = 8"})
    EXPECT_THAT(ranked, testing::ContainsRegex(std::string("\n") + point + " +B, faster +A +-|\n" + point +
                                               " +B, faster +- +A"));
  EXPECT_THAT(ranked, HasSubstr("\nsteps = 5, workers = 3"));
}

// A run with the hash of a sweep's run is in a second folder, because the program copied it there.
TEST_F(SweptTable, ARunOfOneOfItsPointsCountsOnce) {
  run("'~sweep' cluster.workers=4 seeds=[1]");
  EXPECT_EQ(table(), before_);
  EXPECT_EQ(figures_against_table(), "alike\n");
}

TEST_F(SweptTable, AnotherSeedAtOneOfItsPointsIsOneOfItsRow) {
  run("'~sweep' cluster.workers=4 seeds=[7]");
  EXPECT_THAT(table(),
              AllOf(HasSubstr("\ntwo,\"A, workers = 4\",A,step_time_s,3,"),
                    HasSubstr("\ntwo,\"A, workers = 8\",A,step_time_s,2,"), Not(HasSubstr("cluster.workers"))));
  EXPECT_EQ(figures_against_table(), "alike\n");
}

}  // namespace
}  // namespace syncopate
