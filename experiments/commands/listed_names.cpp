#include "experiments/commands/listed_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "experiments/sections/file_keys.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/datasets/registry.hpp"
#include "workers/delays/registry.hpp"
#include "workers/models/registry.hpp"
#include "workers/network/network.hpp"

namespace syncopate {
namespace {

template <typename Rows>
std::vector<ListedName> names_of(const Rows& registry) {
  std::vector<ListedName> names;
  for (const auto& row : registry) names.push_back({row.name, std::string(row.sentence)});
  return names;
}

// Family by family, each where its first row stands.
std::vector<ListedName> algorithm_names() {
  std::vector<std::string_view> families;
  for (const AlgorithmRow& row : algorithms()) {
    if (std::ranges::find(families, row.family) == families.end()) families.push_back(row.family);
  }
  std::vector<ListedName> names;
  for (const std::string_view family : families) {
    for (const AlgorithmRow& row : algorithms()) {
      if (row.family == family)
        names.push_back({row.name, std::string(row.sentence), family, row.source, row.evaluated});
    }
  }
  return names;
}

// The key as it is there with this word, and, if asked for, with it or some others alone; nothing if it is not.
std::optional<KeyDescription> key_with(KeyDescription key, const NameGroup& group, std::string_view name) {
  if (key.conditions.empty()) return group.own_keys_only ? std::nullopt : std::optional(std::move(key));
  std::erase_if(key.conditions, [&](const std::vector<Condition>& all) {
    const auto own = std::ranges::find(all, group.place, &Condition::key);
    if (own == all.end()) return group.own_keys_only;
    return std::ranges::find(own->words, name) == own->words.end();
  });
  return key.conditions.empty() ? std::nullopt : std::optional(std::move(key));
}

}  // namespace

std::vector<NameGroup> name_groups() {
  const std::map<std::string, std::string> in_dropcompute = {{"methods.algorithm", "dropcompute"}};
  const std::map<std::string, std::string> in_threshold = {{"methods.algorithm", "dropcompute"},
                                                           {"methods.threshold?", present}};
  const std::map<std::string, std::string> in_local = {{"methods.algorithm", "local-sgd"}};
  const std::map<std::string, std::string> in_outer = {{"methods.algorithm", "outer-local-sgd"}};
  return {
      {"algorithms", "algorithms: [[methods]] algorithm", "methods.algorithm", "methods.", algorithm_names()},
      {"delays", "delays: [[delays]] kind", "delays.kind", "delays.", names_of(delays())},
      {"networks", "network models: [network] kind", "network.kind", "network.", names_of(networks())},
      {"models", "models: training.model", "training.model", "models.{}.", names_of(models())},
      {"datasets", "data sets: training.dataset", "training.dataset", "datasets.{}.", names_of(datasets())},
      {"schedules", "synchronisation periods: [[methods]] period.rule", "methods.period.rule", "methods.period.",
       names_of(sync_periods()), in_local},
      {"schedules", "outer optimizers of outer-local-sgd: [[methods]] outer.name", "methods.outer.name",
       "methods.outer.", names_of(outer_optimizers()), in_outer},
      {"schedules", "thresholds of dropcompute: [[methods]] threshold.rule", "methods.threshold.rule",
       "methods.threshold.", names_of(drop_thresholds()), in_threshold},
      {"schedules", "compensations of dropcompute: [[methods]] compensation", "methods.compensation", "methods.",
       names_of(drop_compensations()), in_dropcompute, true},
      {"schedules", "learning-rate schedules: training.learning_rate.schedule", "training.learning_rate.schedule",
       "training.learning_rate.", names_of(learning_rate_schedules())},
      {"optimizers", "optimizers: training.optimizer.name", "training.optimizer.name", "training.optimizer.",
       names_of(optimizers())},
  };
}

std::string prefix_of(const NameGroup& group, std::string_view name) {
  return fmt::format(fmt::runtime(group.prefix), name);
}

std::vector<KeyDescription> keys_of(const NameGroup& group, std::string_view name) {
  return keys_of(keys_of_file(group.around), group, name);
}

std::vector<KeyDescription> keys_of(const std::vector<KeyDescription>& all, const NameGroup& group,
                                    std::string_view name) {
  const std::string prefix = prefix_of(group, name);
  std::vector<KeyDescription> keys;
  for (const KeyDescription& key : all)
    if (key.path.starts_with(prefix) && key.path != group.place)
      if (auto with_it = key_with(key, group, name)) keys.push_back(*std::move(with_it));
  return keys;
}

}  // namespace syncopate
