#include <string>
#include <vector>

#include "experiments/sections/variation.hpp"
#include "tests/faults/fuzzing.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

const TomlNode& document() {
  static const TomlNode parsed = parse_toml(R"toml(name = "fuzzed"
seeds = [1, 2]
[cluster]
workers = 4
micro_batch_s = 0.01
[training]
model = "none"
learning_rate = { schedule = "constant", peak = 0.1 }
[budget]
steps = 2
[[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "Local SGD (QSR)"
algorithm = "local-sgd"
period = { rule = "power", power = 2 }
)toml",
                                            "file.toml");
  return parsed;
}

}  // namespace

void fuzz_overrides(std::string_view input) {
  std::vector<std::string> changes;
  while (!input.empty()) {
    const auto end = input.find('\n');
    changes.emplace_back(input.substr(0, end));
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
  }
  TomlNode changed = document();
  FaultList faults;
  apply_command_line(changed, changes, faults);
  const std::string report = faults.report();
  must(faults.empty() == report.empty(), "each fault is reported");
  const std::string text = write_toml(changed);
  must(write_toml(parse_toml(text, "again.toml")) == text, "what is written reads back to the same document");
}

}  // namespace syncopate
