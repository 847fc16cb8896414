#include "experiments/sections/own_training.hpp"

#include <algorithm>
#include <utility>

#include "experiments/sections/table_forms.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

bool is_same(const TomlNode* a, const TomlNode* b) { return a && b && inline_toml(*a) == inline_toml(*b); }

void add_leaves(const TomlNode& table, const std::string& prefix,
                std::vector<std::pair<std::string, std::string>>& leaves) {
  for (const TomlNode::Member& member : table.table()) {
    const std::string key = prefix + toml_key(member.key);
    if (member.value.is_table())
      add_leaves(member.value, key + ".", leaves);
    else
      leaves.emplace_back(key, inline_toml(member.value));
  }
}

}  // namespace

TomlNode with_own_training(TomlNode training, const TomlNode& own) {
  for (const TomlNode::Member& member : own.table()) {
    const TomlNode* common = training.find(member.key);
    const bool joins = common && common->is_table() && member.value.is_table() && !names_another(*common, member.value);
    TomlNode value = joins ? with_own_training(*common, member.value) : member.value;
    for (const std::string& other : other_forms(training, member.key)) training.erase(other);
    training.set(member.key, member.place, std::move(value));
  }
  return training;
}

TomlNode training_difference(const TomlNode& common, const TomlNode& own) {
  TomlNode difference;
  for (const TomlNode::Member& member : own.table()) {
    const TomlNode* other = common.find(member.key);
    if (is_same(other, &member.value)) continue;
    const bool joins = other && other->is_table() && member.value.is_table() && !names_another(*other, member.value);
    difference.set(member.key, {}, joins ? training_difference(*other, member.value) : member.value);
  }
  return difference;
}

TomlNode without_defaults(TomlNode difference, const ObjectivePlan& objective) {
  TomlNode* optimizer = difference.find("optimizer");
  const TomlNode* name = optimizer ? optimizer->find("name") : nullptr;
  if (!name) return difference;
  TomlNode named, training;
  named.set("name", {}, *name);
  training.set("optimizer", {}, std::move(named));
  SettingsDocument document(std::move(training));
  Settings root = document.root();
  read_optimizer(root, objective);
  const TomlNode resolved = document.resolved();
  const TomlNode& usual = *resolved.find("optimizer");
  std::erase_if(optimizer->table(), [&](const TomlNode::Member& member) {
    return member.key != "name" && is_same(usual.find(member.key), &member.value);
  });
  return difference;
}

std::vector<std::pair<std::string, std::string>> listed_leaves(const TomlNode& table) {
  std::vector<std::pair<std::string, std::string>> leaves;
  add_leaves(table, "", leaves);
  return leaves;
}

}  // namespace syncopate
