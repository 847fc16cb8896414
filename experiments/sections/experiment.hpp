// One experiment file as plain data, checked and with all defaults filled in.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/claims.hpp"
#include "results/run.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

// Returns a number of things for users: "1 run", "3 runs", "2 micro-batches".
template <std::integral Number>
std::string counted(Number number, std::string_view noun) {
  const std::string_view plural = noun.ends_with("ch") ? "es" : "s";
  return std::to_string(number).append(" ").append(noun).append(number == 1 ? "" : plural);
}

// A key with several values in [sweep] or [tune]: its values (a list or a range), and a label for each value.
struct VariedKey {
  std::string key{};  // as written
  Path path{};        // addresses elements of lists by index, since their names may vary as well
  SourcePlace place{};
  TomlNode::Array values{};           // in the order of the file
  std::vector<std::string> labels{};  // the values' names in tables and plots
  bool goes_by_steps = false;  // whether the values are a range with `step` (not a list or a range with `factor`)
};

using Setting = std::vector<TomlNode>;  // values to try for the tuned keys, one per key

// One method at one sweep point. Each group is tuned separately.
struct TuningGroup {
  std::size_t method_index = 0;
  std::string method;
  KeyValues point{};              // swept keys and their values, as shown to users
  std::vector<VariedKey> axes{};  // the tuned keys with the values to try
};

struct TuningPlan {
  std::vector<std::uint64_t> seeds;
  std::string measure;  // judges settings; see results/summary.hpp
  int extensions = 0;   // how often a grid may grow beyond its edge
  KeyValues where{};    // the sweep values at which methods are tuned
  std::vector<TuningGroup> groups{};
  std::map<std::string, std::size_t> group_of_run{};  // group of each of the experiment's runs, by the run's hash

  // Returns the run of a trial. Throws ConfigurationFault if the file cannot be read with this setting.
  std::function<Run(std::size_t group, const Setting& setting, std::uint64_t seed)> trial{};
  // Returns the experiment's runs for the groups in `settings`, with the setting of each.
  std::function<std::vector<Run>(const std::map<std::size_t, Setting>& settings)> runs{};
};

struct Experiment {
  std::string name;
  std::string description;
  std::string file;                  // as the user named it
  std::string resolved_toml;         // the whole experiment, as printed by `check`
  std::vector<KnownKey> known_keys;  // keys that are valid in the file, outside of its tables
  std::vector<Run> runs;             // ordered by sweep point, method and seed
  std::vector<std::string> methods;  // labels in the order of the file
  std::vector<std::uint64_t> seeds;
  std::vector<Claim> claims{};
  std::vector<std::string> hashes{};  // hashes of all runs, including those that --only leaves out
  std::string digest{};               // digest of all hashes and of [tune]
  // Null: nothing is tuned. Before tuning, `runs` have the file's own values.
  std::shared_ptr<const TuningPlan> tuning{};
  std::string notes{};                    // lines to print below the table of results
  std::vector<std::string> file_notes{};  // lines about the files of data sets, models and recordings
  // The command line's overrides, such as "with seeds=2", if they change runs or claims. Otherwise empty.
  std::string differs{};
};

// A micro-batch whose computation time is to be measured.
struct MicroBatchWork {
  std::string experiment;
  std::string key;  // everything that determines the time except the machine: model, batch size, data set
  std::function<std::shared_ptr<const Objective>()> load;
  std::uint64_t seed = 0;
  int workers = 1;                                // simultaneous measurements, but at most one per core
  int micro_batches = 1;                          // M per step: all their gradients are in memory at the same time
  std::shared_ptr<const BatchLengths> lengths{};  // the time is fitted to these sequence lengths; null: no sequences
  bool pads = false;                              // whether the objective of `load` pads sequences (see ContentCost)
  bool asks_for_tokens = false;                   // whether unpadded tokens have a cost although sequences are padded
};

struct MeasuredMicroBatch {
  double micro_batch_s = 0;        // rounded to whole nanoseconds; 0 if there is a fit
  std::optional<LengthFit> fit{};  // for sequences: the time as a function of their lengths
};

// An invalid experiment file. `what()` is the complete report with one fault per line. Exit status 2.
struct ConfigurationFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Options of load_experiment, which reads an experiment file, applies overrides (key.sub=value), checks the file and
// expands it into runs. It throws ConfigurationFault with all faults at once, and std::runtime_error if there is not
// enough memory. It reads the sizes of data sets for the lengths of epochs. If a data set's digest is not known yet, it
// also reads the contents, because hashes of runs need the digest.
// finite_means: reports delays without a finite mean, because predictions need the mean.
// measure: returns the time for cluster.micro_batch_s = "measured". Without it such runs remain to_be_measured.
// most_runs: an experiment with more runs or seeds than this is refused before it is expanded.
struct LoadOptions {
  bool finite_means = false;
  std::int64_t most_runs = 10'000;
  std::vector<std::string> profiles{};  // the requested profiles of [profiles.NAME]
  std::function<MeasuredMicroBatch(const MicroBatchWork&)> measure{};
};
Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const LoadOptions& options = {});

// Returns Experiment::differs for an experiment that was loaded with these overrides. The text is empty if the file has
// the same runs and claims without the overrides, under the same profiles.
std::string difference_from_file(const Experiment& experiment, const std::vector<std::string>& overrides,
                                 LoadOptions options);

// Reads the file once with each profile that `options` do not apply. If there are faults, throws ConfigurationFault
// with `faults_without` (the faults without that profile), followed by the faults that occur only with a profile.
void check_profiles(const std::string& file, const LoadOptions& options, const std::string& faults_without = {});

// --- run_hash.cpp: the hash of a run's resolved configuration, and the version of its results

// Returns the hash of a run: 16 hexadecimal digits that depend on the resolved configuration and on the version of the
// run's results. The hash depends on the contents of files, but not on their paths. It ignores the description,
// [recording], [checkpoint], and targets for which numbers were solved. It also ignores keys that were added to the
// program later, if their value means what the program did before.
std::string configuration_hash(TomlNode resolved);

// Returns 16 hexadecimal digits for a set of hashes, independent of their order.
std::string digest_of_hashes(std::vector<std::string> hashes);

// Returns the version of the newest program change that altered what a run with this resolved configuration computes.
// So a program change alters the hashes of affected runs only, and all other results remain valid. At least
// `first_selective_results_version`, at most `results_version`.
int results_version_of(const TomlNode& resolved);

}  // namespace syncopate
