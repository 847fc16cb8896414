#include <array>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "results/found_runs.hpp"
#include "results/lease.hpp"
#include "results/paired_table.hpp"
#include "results/result_table.hpp"
#include "results/run_directory.hpp"
#include "tests/faults/fuzzing.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

constexpr std::array run_files = {"summary.json", "metrics.csv", "config.toml", "metadata.json", "steps.csv"};

// Writes a run's directory with these files; `list`, if there is one, replaces files.json.
void write_run(const FuzzFolder& folder, const std::string& name, const FileContents& files, std::string_view list) {
  fs::create_directories(folder.path() / name);
  for (const auto& [file, content] : files) folder.write(name + "/" + file, content);
  folder.write(name + "/" + list_of_files, list.empty() ? listed(files) : std::string(list));
}

// Makes the output of `table` and `export` from runs that were found.
void make_tables(const std::vector<FoundRun>& runs) {
  for (const auto& [experiment, members] :
       grouped_by([](const FoundRun& run) { return run.summary.experiment; }, runs)) {
    const std::vector<ResultRow> rows = result_rows(members);
    std::vector<RunSummary> summaries;
    for (const ResultRow& row : rows) summaries.insert(summaries.end(), row.runs.begin(), row.runs.end());
    result_table(summaries, "virtual", 80);
    failure_table(summaries);
    std::vector<const Measure*> all;
    for (const Measure& measure : measures()) all.push_back(&measure);
    try {
      paired_table(paired_rows(rows, members.front().summary.method, all)).markdown();
    } catch (const std::invalid_argument&) {  // nothing to compare with
    }
  }
  try {
    tidy_tables(runs);
  } catch (const std::runtime_error& fault) {
    must(std::string_view(fault.what()).find("metrics.csv") != std::string_view::npos, "a fault names its file");
  }
}

}  // namespace

// The input has these files in order: summary.json, metrics.csv, config.toml, metadata.json and steps.csv of a run; its
// files.json, which is generated if this part is empty; the summary of a second run, if any; a plan and a failure of
// processes that share runs.
void fuzz_results(std::string_view input) {
  static const FuzzFolder folder;
  const std::vector<std::string_view> parts = files_in(input, 9);
  const auto part = [&parts](std::size_t at) { return at < parts.size() ? parts[at] : std::string_view(); };
  FileContents files;
  for (std::size_t i = 0; i < run_files.size(); ++i) files[run_files[i]] = part(i);
  write_run(folder, "fuzzed/method/seed=1-01234567", files, part(5));
  files["summary.json"] = part(part(6).empty() ? 0 : 6);
  write_run(folder, "fuzzed/other/seed=1-01234568", files, {});
  try {
    make_tables(find_runs(folder.path()));
  } catch (const ResultsDirectoryFault& fault) {
    must(std::string_view(fault.what()).starts_with(folder.path().string()), "a fault begins with the file's name");
  }
  // Copies the files under other names for a run that computes the same.
  ReusableRuns elsewhere(folder.path());
  Run run;
  run.experiment = "other";
  run.method = "m";
  run.fingerprint = "0123456789abcdef";
  run.hash = "fedcba9876543210";
  if (const auto copied = elsewhere.files_for(run)) must(copied->contains(list_of_files), "a copy has its list");

  const fs::path shared = folder.path() / "fuzzed" / share_folder;
  fs::create_directories(shared / failed_folder);
  folder.write(std::string("fuzzed/") + share_folder + "/runs.json", part(7));
  if (const auto plan = saved_plan(folder.path() / "fuzzed"))
    for (const PlannedRun& planned : *plan)
      must(*planned.directory.lexically_relative(folder.path() / "fuzzed").begin() != "..", "a plan stays within");
  folder.write(std::string("fuzzed/") + share_folder + "/" + failed_folder + "/0123.json", part(8));
  const AttemptRecords attempts(shared / failed_folder, "call", 1);
  attempts.are_used_up(attempts.last("0123"));
}

}  // namespace syncopate
