#include "experiments/sections/own_training.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "experiments/sections/training_section.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

bool is_same(const TomlNode* a, const TomlNode* b) { return a && b && inline_toml(*a) == inline_toml(*b); }

// A table's other keys belong to what it names.
bool names_another(const TomlNode& common, const TomlNode& own) {
  const auto differs = [&](const char* key) { return own.find(key) && !is_same(common.find(key), own.find(key)); };
  constexpr std::array deciding = {"name", "schedule", "kind"};
  if (std::ranges::any_of(deciding, differs)) return true;
  // Of randaugment; an optimizer may have a form beside its name.
  return !common.find("name") && differs("form");
}

// "warmup" of warmup_steps, warmup_epochs, warmup_share: one length, said in different ways. Else empty.
std::string_view length_of(std::string_view key) {
  for (const std::string_view unit : {"_steps", "_epochs", "_share", "_step", "_epoch"})
    if (key.ends_with(unit)) return key.substr(0, key.size() - unit.size());
  return {};
}

void erase_other_forms(TomlNode& table, const std::string& key) {
  const std::string_view length = length_of(key);
  if (length.empty()) return;
  std::erase_if(table.table(),
                [&](const TomlNode::Member& other) { return other.key != key && length_of(other.key) == length; });
}

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
    erase_other_forms(training, member.key);
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
