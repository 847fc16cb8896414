// Runs of other experiments in the same directory of results: what two experiments compute alike is computed once.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "results/directory/run_files.hpp"
#include "results/run/run.hpp"

namespace syncopate {

class RunsElsewhere {
 public:
  explicit RunsElsewhere(std::filesystem::path results) : results_(std::move(results)) {}

  // The files of a finished, simulated run of the same course (Run::course) with all that is to be recorded of `run`,
  // as they belong into the directory of `run`: under its names, with `copied_from` in metadata.json. Nothing where
  // there is none, and where a trace is asked for, which has the names of its own run. The directories are looked
  // through at the first call; what cannot be read there is passed over.
  std::optional<FileContents> files_for(const Run& run);

 private:
  void look_through();

  std::filesystem::path results_;
  std::optional<std::multimap<std::string, std::filesystem::path>> by_course_{};
};

}  // namespace syncopate
