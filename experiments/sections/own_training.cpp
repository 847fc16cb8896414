#include "experiments/sections/own_training.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "algorithms/registry.hpp"
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

// A table of [training] as it is with these of its keys alone.
template <typename Read>
TomlNode resolved_with(std::string_view table, TomlNode keys, const Read& read) {
  TomlNode training;
  training.set(std::string(table), {}, std::move(keys));
  SettingsDocument document(std::move(training));
  Settings root = document.root();
  read(root);
  return *document.resolved().find(table);
}

TomlNode only(std::initializer_list<const char*> names, const TomlNode& table) {
  TomlNode result;
  for (const char* const name : names)
    if (const TomlNode* value = table.find(name)) result.set(name, {}, *value);
  return result;
}

// What is as in `usual`, but for the key that says which it is.
void leave_out(TomlNode& table, std::string_view deciding, const TomlNode& usual) {
  std::erase_if(table.table(), [&](const TomlNode::Member& member) {
    return member.key != deciding && is_same(usual.find(member.key), &member.value);
  });
}

void leave_out_defaults(TomlNode& optimizer, const ObjectivePlan& objective) {
  if (!optimizer.find("name")) return;
  const TomlNode usual = resolved_with("optimizer", only({"name"}, optimizer),
                                       [&](Settings& training) { read_optimizer(training, objective); });
  leave_out(optimizer, "name", usual);
}

// Of a first phase.
void leave_out_defaults_of_method(TomlNode& method) {
  if (!method.find("algorithm")) return;
  const TomlNode usual = resolved_with("method", only({"algorithm"}, method), [](Settings& training) {
    Settings table = training.section("method");
    make_algorithm(table, {});
  });
  leave_out(method, "algorithm", usual);
}

// `common`: the file's, complete.
void leave_out_same(TomlNode& rate, const TomlNode& common) {
  const auto starts_at_its_end = [](const TomlNode& one) {
    return is_same(one.find("warmup_start"), one.find("final"));
  };
  if (starts_at_its_end(rate) && starts_at_its_end(common)) rate.erase("warmup_start");
  const TomlNode usual = resolved_with("learning_rate", only({"schedule", "peak"}, rate), [](Settings& training) {
    read_learning_rate(training, {.is_counted = true}, {}, /*time_only=*/true);
  });
  std::erase_if(rate.table(), [&](const TomlNode::Member& member) {
    const TomlNode* other = common.find(member.key);
    return is_same(other ? other : usual.find(member.key), &member.value);
  });
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

TomlNode shown_difference(TomlNode difference, const TomlNode& common, const ObjectivePlan& objective) {
  if (TomlNode* optimizer = difference.find("optimizer")) leave_out_defaults(*optimizer, objective);
  TomlNode* phase = difference.find("common");
  if (TomlNode* method = phase ? phase->find("method") : nullptr) leave_out_defaults_of_method(*method);
  TomlNode* rate = difference.find("learning_rate");
  const TomlNode* other = common.find("learning_rate");
  if (!rate || !other) return difference;
  leave_out_same(*rate, *other);
  if (rate->table().empty()) difference.erase("learning_rate");
  return difference;
}

std::vector<std::pair<std::string, std::string>> listed_leaves(const TomlNode& table) {
  std::vector<std::pair<std::string, std::string>> leaves;
  add_leaves(table, "", leaves);
  return leaves;
}

}  // namespace syncopate
