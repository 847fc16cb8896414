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

using Setting = std::vector<TomlNode>;  // one value per axis

// A method at a sweep point, which is tuned separately.
struct TuningGroup {
  std::size_t method_index = 0;
  std::string method;
  std::vector<std::pair<std::string, std::string>> point{};  // the point's name beside the method
  std::vector<VariedKey> axes{};
};

struct TuningPlan {
  std::vector<std::uint64_t> seeds;
  std::string measure;
  int extensions = 0;
  std::vector<std::pair<std::string, std::string>> where{};  // the sweep values at which methods are tuned
  std::vector<TuningGroup> groups{};
  std::map<std::string, std::size_t> group_of_run{};  // group of each of the experiment's runs, by the run's hash

  // Makes the run of a trial. Throws ConfigurationFault if the file cannot be read with this setting.
  std::function<Run(std::size_t group, const Setting& setting, std::uint64_t seed)> trial{};
  // Makes the experiment's runs of these groups with these settings.
  std::function<std::vector<Run>(const std::map<std::size_t, Setting>& settings)> runs{};
};

struct Experiment {
  std::string name;
  std::string description;
  std::string file;                  // as the user named it
  std::string resolved_toml;         // the whole experiment, as printed by `check`
  std::vector<KnownKey> known_keys;  // keys that the file may have outside of its tables
  std::vector<Run> runs;             // ordered by sweep point, method and seed
  std::vector<std::string> methods;  // labels in the order of the file
  std::vector<std::uint64_t> seeds;
  std::vector<Claim> claims{};
  std::vector<std::string> hashes{};  // hashes of all runs, including those that --only leaves out
  std::string digest{};               // digest of the runs, and of the tuning that precedes them
  // Null: nothing is tuned. Before tuning, the runs have the file's own values.
  std::shared_ptr<const TuningPlan> tuning{};
  std::string notes{};                    // lines printed below the table of results
  std::vector<std::string> file_notes{};  // lines about files of data and models
  // Why its runs or claims differ from the file's, such as "with seeds=2". Empty if they do not.
  std::string differs{};
};

// A micro-batch whose time is to be measured.
struct MicroBatchWork {
  std::string experiment;
  std::string key;  // everything that determines the time except the machine: model, batch size, data set
  std::function<std::shared_ptr<const Objective>()> load;
  std::uint64_t seed = 0;
  int workers = 1;                                // workers that compute at once, at most the number of cores
  int micro_batches = 1;                          // M: a step's gradients are in memory together
  std::shared_ptr<const BatchLengths> lengths{};  // lengths of sequences, over which the time is fitted; otherwise null
  bool pads = false;                              // see ContentCost; `load` then computes padded
  bool asks_for_tokens = false;                   // whether unpadded tokens have a cost although sequences are padded
};

struct MeasuredMicroBatch {
  double micro_batch_s = 0;        // in whole nanoseconds; 0 if there is a fit
  std::optional<LengthFit> fit{};  // the fit by lengths, for sequences
};

// Bad configuration: `what()` is the complete report, one fault per line. Exit status 2.
struct ConfigurationFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reads an experiment file, applies overrides (key.sub=value), checks and expands it. Throws ConfigurationFault with
// all faults at once, std::runtime_error if memory does not suffice. Reads the sizes of data sets (for epochs), and
// also their contents if no digest of them is known yet (for the hash).
// finite_means: delays without an expected value are faults, because predictions need one.
// measure: returns the time for cluster.micro_batch_s = "measured"; without it such runs stay to_be_measured.
// most_runs: an experiment with more runs or seeds is refused before it is expanded.
struct LoadOptions {
  bool finite_means = false;
  std::int64_t most_runs = 10'000;
  std::vector<std::string> profiles{};  // the requested profiles of [profiles.NAME]
  std::function<MeasuredMicroBatch(const MicroBatchWork&)> measure{};
};
Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const LoadOptions& options = {});

// Experiment::differs for an experiment that was loaded with these overrides. Empty if the file without them, under the
// same profiles, has the same runs and claims.
std::string difference_from_file(const Experiment& experiment, const std::vector<std::string>& overrides,
                                 LoadOptions options);

// Also reads the file under each profile that the options do not apply. Throws ConfigurationFault with `faults_without`
// first, and then the faults that only one profile has.
void check_profiles(const std::string& file, const LoadOptions& options, const std::string& faults_without = {});

}  // namespace syncopate
