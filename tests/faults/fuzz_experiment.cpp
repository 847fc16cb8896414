#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "tests/faults/fuzzing.hpp"

namespace syncopate {
namespace {

// Files that an experiment may name: run.csv, bins.csv, start.npy.
const FuzzFolder& files_to_name() {
  static const FuzzFolder folder;
  folder.write("run.csv", "worker,step,micro_batch,duration_s\n0,0,0,0.1\n0,0,1,0.2\n0,1,0,0.1\n0,1,1,0.1\n");
  folder.write("bins.csv", "bin_left_s,bin_right_s,density\n0,0.1,1\n0.1,0.2,3\n");
  folder.write(
      "start.npy",
      std::string("\x93NUMPY\x01\0\x42\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }        \n", 76) +
          std::string(8, '\0'));
  return folder;
}

}  // namespace

// The input is the file, followed by lines of overrides.
void fuzz_experiment(std::string_view input) {
  static const FuzzFolder& folder = files_to_name();
  const std::vector<std::string_view> parts = files_in(input, 2);
  std::vector<std::string> changes;
  if (parts.size() > 1)
    for (std::string_view rest = parts[1]; !rest.empty();) {
      const auto end = rest.find('\n');
      changes.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
  LoadOptions few{.most_runs = 8};
  few.measure = [](const MicroBatchWork&) { return MeasuredMicroBatch{.micro_batch_s = 0.01}; };
  std::string resolved;
  try {
    const Experiment experiment = load_experiment(folder.write("file.toml", parts[0]), changes, few);
    must(!experiment.runs.empty(), "an experiment has a run");
    resolved = experiment.resolved_toml;
    if (changes.empty()) check_profiles((folder.path() / "file.toml").string(), few);
  } catch (const ConfigurationFault& fault) {
    must(fault.what()[0] != '\0', "a fault says what is wrong");
    return;
  }
  try {
    const Experiment again = load_experiment(folder.write("again.toml", resolved), {}, few);
    must(again.resolved_toml == resolved, "what is resolved reads back to itself");
  } catch (const ConfigurationFault& fault) {
    throw BrokenPromise(std::string("what is resolved can be read: ") + fault.what());
  }
}

}  // namespace syncopate
