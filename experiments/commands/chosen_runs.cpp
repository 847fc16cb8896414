#include "experiments/commands/chosen_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

std::string variant_of(const Run& run) {
  const auto found = std::ranges::find(run.sweep, std::string("variant"), &std::pair<std::string, std::string>::first);
  return found == run.sweep.end() ? "" : found->second;
}

}  // namespace

void choose_runs(Experiment& experiment, const std::vector<std::string>& names) {
  std::set<std::string> known_methods, known_variants, methods, variants, hashes;
  for (const Run& run : experiment.runs) {
    known_methods.insert(run.method);
    if (const std::string variant = variant_of(run); !variant.empty()) known_variants.insert(variant);
  }
  for (const std::string& name : names) {
    // Hashes of what is to be tuned are not known yet.
    const auto begins_hash = [&](const Run& run) {
      return !experiment.tuning && !name.empty() && run.hash.starts_with(name);
    };
    if (known_methods.contains(name)) {
      methods.insert(name);
    } else if (known_variants.contains(name)) {
      variants.insert(name);
    } else if (std::ranges::any_of(experiment.runs, begins_hash)) {
      hashes.insert(name);
    } else {
      std::vector<std::string> known(known_methods.begin(), known_methods.end());
      known.insert(known.end(), known_variants.begin(), known_variants.end());
      throw ConfigurationFault(
          fmt::format("--only {}: must be the label of a method or a variant, or how a run's hash begins, as `check` "
                      "shows it{}",
                      name, suggestion(name, known)));
    }
  }
  std::erase_if(experiment.runs, [&](const Run& run) {
    const bool has_hash = hashes.empty() || std::ranges::any_of(hashes, [&](const std::string& begin) {
                            return run.hash.starts_with(begin);
                          });
    // What a variant does not concern has none.
    const std::string variant = variant_of(run);
    const bool has_variant = variants.empty() || variant.empty() || variants.contains(variant);
    return !(has_hash && has_variant && (methods.empty() || methods.contains(run.method)));
  });
  std::erase_if(experiment.methods, [&](const std::string& method) {
    return std::ranges::none_of(experiment.runs, [&](const Run& run) { return run.method == method; });
  });
}

}  // namespace syncopate
