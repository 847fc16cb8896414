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

#include "results/claims.hpp"
#include "results/run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

// A key that is tuned: the values that it is tried with, and those that lie beyond them.
struct TunedAxis {
  std::string key;                // as it is written
  std::vector<std::string> path;  // in a document; elements of lists by their numbers
  SourcePlace place{};
  TomlNode::Array values{};           // in the order of the file
  std::vector<std::string> labels{};  // as tables name them
  bool goes_by_steps = false;         // a range with a step: neighbours differ by as much
};

// The label of the value, one of the axis' own or another one.
std::string label_of(const TunedAxis& axis, const TomlNode& value);

// A number for each value; nothing where one is none.
std::optional<std::vector<double>> numbers_of(const TunedAxis& axis);

// The value beyond the largest, or below the smallest one: as far from it as its neighbour, by the ratio of the two, or
// by their difference where the axis goes by steps, or has values that are not above 0. Whole where all values are.
// Nothing where a value is no number, there is only one, or rounding leaves none beyond. `share`: of that way.
std::optional<TomlNode> next_beyond(const TunedAxis& axis, bool above, double share = 1);

// What is tried before an experiment's runs are made, and how these follow from what was found best.
using Setting = std::vector<TomlNode>;  // a value of each axis

// A method at a point of what varies: it has a best setting of its own.
struct TuningGroup {
  std::size_t method_index = 0;
  std::string method;
  std::vector<std::pair<std::string, std::string>> point{};  // what names it beside the method
  std::vector<TunedAxis> axes{};
};

struct TuningPlan {
  std::vector<std::uint64_t> seeds;
  std::string measure;
  int extensions = 0;
  std::vector<std::pair<std::string, std::string>> where{};  // at which values of what varies methods are tuned
  std::vector<TuningGroup> groups{};
  std::map<std::string, std::size_t> group_of_run{};  // of the experiment's runs, by their hashes

  // A trial. Throws ConfigurationFault where the file cannot be read with this setting.
  std::function<Run(std::size_t group, const Setting& setting, std::uint64_t seed)> trial{};
  // The experiment's runs with these settings of the groups. Runs of other groups are left out.
  std::function<std::vector<Run>(const std::map<std::size_t, Setting>& settings)> runs{};
};

struct Experiment {
  std::string name;
  std::string description;
  std::string file;                  // as given
  std::string resolved_toml;         // of the whole experiment, as `check` prints it
  std::vector<KnownKey> known_keys;  // that the file may have beside its tables
  std::vector<Run> runs;             // sweep point by sweep point, method by method, seed by seed
  std::vector<std::string> methods;  // labels in the order of the file
  std::vector<std::uint64_t> seeds;
  std::vector<Claim> claims{};
  std::vector<std::string> hashes{};  // of all runs, also those that --only leaves out
  std::string digest{};               // of what the file means: of its runs, and of what is tried for them
  // What is to be tuned first; null: nothing. Until then the runs are those of the file's own values.
  std::shared_ptr<const TuningPlan> tuning{};
  std::string notes{};                    // lines that stand below the table of results
  std::vector<std::string> file_notes{};  // what is worth knowing of the data's and the models' files, a line each
  // Why its runs or its claims are not those of the file as it is: "with seeds=2". Empty: they are.
  std::string differs{};
};

// A micro-batch whose time is to be measured.
struct MicroBatchWork {
  std::string experiment;
  std::string key;  // all that decides the time but the machine: model, batch size, data set
  std::function<std::shared_ptr<const Objective>()> load;
  std::uint64_t seed = 0;
  int workers = 1;                                // that compute at once, as far as the machine has cores
  int micro_batches = 1;                          // M: a step's gradients are in memory together
  std::shared_ptr<const BatchLengths> lengths{};  // where it holds sequences: the time is then a line over them
  bool pads = false;             // see ContentCost; what is loaded then takes what padded computing does
  bool asks_for_tokens = false;  // but of sequences' own tokens alone, which then have a cost though they are padded
};

// What it takes.
struct MeasuredMicroBatch {
  double micro_batch_s = 0;        // of any micro-batch, in whole nanoseconds; of sequences:
  std::optional<LengthFit> fit{};  // by their lengths
};

// Bad configuration: `what()` is the complete report, one fault per line. Exit status 2.
struct ConfigurationFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reads, overrides (key.sub=value), checks and expands an experiment. Throws ConfigurationFault with
// all faults at once, std::runtime_error where memory does not suffice. Reads the sizes of data sets (for epochs), and
// their contents where these are not known yet (for the hash).
// finite_means: delays without an expected value are faults, because predictions need one.
// measure: gives the time that cluster.micro_batch_s = "measured" stands for; without it such runs are left
// to_be_measured.
// most_runs: an experiment of more (or of more seeds) is refused before anything is expanded.
struct LoadOptions {
  bool finite_means = false;
  std::int64_t most_runs = 10'000;
  std::vector<std::string> profiles{};  // of [profiles.NAME], those that are asked for
  std::function<MeasuredMicroBatch(const MicroBatchWork&)> measure{};
};
Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const LoadOptions& options = {});

// What the experiment's `differs` is to say: empty where the file without the overrides, under the same profiles, has
// the same runs and the same claims. `experiment`: as it was loaded with them.
std::string difference_from_file(const Experiment& experiment, const std::vector<std::string>& overrides,
                                 LoadOptions options);

// Whether the file can be read under each of its profiles that the options do not apply. Throws ConfigurationFault,
// with the faults of the file without them first, if it has any, and of each profile those that it alone has.
void check_profiles(const std::string& file, const LoadOptions& options, const std::string& faults_without = {});

}  // namespace syncopate
