// One experiment file as plain data, checked and with all defaults filled in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/sections/tuning_plan.hpp"
#include "results/claims/claim.hpp"
#include "results/run/run.hpp"
#include "workers/settings/known_key.hpp"

namespace syncopate {

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
