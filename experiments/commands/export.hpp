// `syncopate export`: runs that are there as two CSV files.
#pragma once

#include <string>

namespace syncopate {

struct ExportOptions {
  std::string directory;
  std::string to;            // where the files go; empty: into the directory itself
  bool with_trials = false;  // of tuning
};

// What will be written, read and checked. Throws ConfigurationFault: no runs, damaged ones, a folder that is not there.
struct Export {
  std::string runs_file, runs_csv;
  std::string evaluations_file, evaluations_csv;
};
Export prepare_export(const ExportOptions& options);

// Throws std::system_error.
void write_export(const Export& tables);

}  // namespace syncopate
