// One experiment file as plain data, checked and with all defaults filled in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/varied_keys.hpp"
#include "results/claims.hpp"
#include "results/run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

using Setting = std::vector<TomlNode>;  // a value of each axis

// A method at a point of what varies, which has a best setting of its own.
struct TuningGroup {
  std::size_t method_index = 0;
  std::string method;
  std::vector<std::pair<std::string, std::string>> point{};  // its name beside the method
  std::vector<VariedKey> axes{};
};

struct TuningPlan {
  std::vector<std::uint64_t> seeds;
  std::string measure;
  int extensions = 0;
  std::vector<std::pair<std::string, std::string>> where{};  // at which values of what varies methods are tuned
  std::vector<TuningGroup> groups{};
  std::map<std::string, std::size_t> group_of_run{};  // of the experiment's runs, by their hashes

  // A trial. Throws ConfigurationFault if the file cannot be read with this setting.
  std::function<Run(std::size_t group, const Setting& setting, std::uint64_t seed)> trial{};
  // The experiment's runs of these groups with these settings.
  std::function<std::vector<Run>(const std::map<std::size_t, Setting>& settings)> runs{};
};

struct Experiment {
  std::string name;
  std::string description;
  std::string file;                  // as given
  std::string resolved_toml;         // of the whole experiment, as printed by `check`
  std::vector<KnownKey> known_keys;  // that the file may have beside its tables
  std::vector<Run> runs;             // sweep point by sweep point, method by method, seed by seed
  std::vector<std::string> methods;  // labels in the order of the file
  std::vector<std::uint64_t> seeds;
  std::vector<Claim> claims{};
  std::vector<std::string> hashes{};  // of all runs, also those that --only leaves out
  std::string digest{};               // of the runs, and of what is tuned for them
  // null: nothing is tuned. Before tuning, the runs are those of the file's own values.
  std::shared_ptr<const TuningPlan> tuning{};
  std::string notes{};                    // lines below the table of results
  std::vector<std::string> file_notes{};  // lines on files of data and models
  // Why its runs or claims differ from the file's: "with seeds=2". Empty: they do not.
  std::string differs{};
};

// A micro-batch whose time is to be measured.
struct MicroBatchWork {
  std::string experiment;
  std::string key;  // all that decides the time except for the machine: model, batch size, data set
  std::function<std::shared_ptr<const Objective>()> load;
  std::uint64_t seed = 0;
  int workers = 1;                                // that compute at once, up to the number of cores
  int micro_batches = 1;                          // M: a step's gradients are in memory together
  std::shared_ptr<const BatchLengths> lengths{};  // of sequences, over which the time is fitted; else null
  bool pads = false;                              // see ContentCost; `load` then computes padded
  bool asks_for_tokens = false;                   // own tokens have a cost although sequences are padded
};

struct MeasuredMicroBatch {
  double micro_batch_s = 0;        // in whole nanoseconds; for sequences:
  std::optional<LengthFit> fit{};  // by their lengths
};

// Bad configuration: `what()` is the complete report, one fault per line. Exit status 2.
struct ConfigurationFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reads, overrides (key.sub=value), checks and expands an experiment. Throws ConfigurationFault with all faults at
// once, std::runtime_error if memory does not suffice. Reads the sizes of data sets (for epochs), and their contents if
// these are not known yet (for the hash).
// finite_means: delays without an expected value are faults, because predictions need one.
// measure: the time for cluster.micro_batch_s = "measured"; without it such runs stay to_be_measured.
// most_runs: refuses an experiment of more runs or seeds before it is expanded.
struct LoadOptions {
  bool finite_means = false;
  std::int64_t most_runs = 10'000;
  std::vector<std::string> profiles{};  // of [profiles.NAME], those that are asked for
  std::function<MeasuredMicroBatch(const MicroBatchWork&)> measure{};
};
Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const LoadOptions& options = {});

// Experiment::differs of an experiment that was loaded with these overrides: empty if the file without them, under the
// same profiles, has the same runs and claims.
std::string difference_from_file(const Experiment& experiment, const std::vector<std::string>& overrides,
                                 LoadOptions options);

// Reads the file under each profile that the options do not apply. Throws ConfigurationFault with `faults_without`
// first, and for each profile the faults that only it has.
void check_profiles(const std::string& file, const LoadOptions& options, const std::string& faults_without = {});

}  // namespace syncopate
