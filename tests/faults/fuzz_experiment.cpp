#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "tests/faults/fuzzing.hpp"

namespace syncopate {

// The file, then lines of changes.
void fuzz_experiment(std::string_view input) {
  static const FuzzFolder folder;
  const std::vector<std::string_view> parts = files_in(input, 2);
  std::vector<std::string> changes;
  if (parts.size() > 1)
    for (std::string_view rest = parts[1]; !rest.empty();) {
      const auto end = rest.find('\n');
      changes.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
  const LoadOptions few{.most_runs = 8};
  std::string resolved;
  try {
    const Experiment experiment = load_experiment(folder.write("file.toml", parts[0]), changes, few);
    must(!experiment.runs.empty(), "an experiment has a run");
    resolved = experiment.resolved_toml;
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
