#include "experiments/sections/variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "experiments/sections/document_changes.hpp"
#include "workers/settings/key_path.hpp"
#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

// Of a set of keys that the file has for runs.
void check_keys(const TomlNode& table, const std::string& name, FaultList& faults) {
  for (const char* const key : {"name", "seeds", "sweep", "variants", "profiles", "claim", "tune"}) {
    const std::string_view of_file = key;
    const bool is_of_profile = name.starts_with("profiles") && (of_file == "seeds" || of_file == "tune");
    const TomlNode* found = table.find(key);
    if (found && !is_of_profile)
      faults.add(found->place, fmt::format("{}.{}; must be a key of a run: this one is the whole file's", name, key));
  }
}

std::string label_of(const TomlNode& variant, const std::string& name, FaultList& faults) {
  const TomlNode* node = variant.find("label");
  const auto* label = node ? std::get_if<std::string>(&node->value) : nullptr;
  if (label && !label->empty()) return *label;
  faults.add(node ? node->place : variant.place, fmt::format("{}.label; must be the variant's name", name));
  return "";
}

}  // namespace

std::optional<SweepAxis> read_variants(const TomlNode& root, FaultList& faults) {
  const TomlNode* variants = root.find("variants");
  if (!variants) return {};
  const std::size_t faults_before = faults.size();
  if (!variants->is_array_of_tables()) {
    faults.add(variants->place, "variants; must be tables, [[variants]], at least one");
    return {};
  }
  SweepAxis axis{.place = variants->place, .entries = {}};
  std::set<std::string> labels;
  std::vector<Change> all;
  for (std::size_t i = 0; i < variants->array().size(); ++i) {
    const TomlNode& variant = variants->array()[i];
    const std::string name = fmt::format("variants.{}", i), label = label_of(variant, name, faults);
    if (!label.empty() && !labels.insert(label).second)
      faults.add(variant.find("label")->place,
                 fmt::format("{}.label = \"{}\"; must be a name that no other variant has", name, label));
    check_keys(variant, name, faults);
    std::vector<Change> changes = changes_of(root, variant, name, faults);
    std::erase_if(changes, [&](const Change& change) { return is_set_by_command_line(root, change.path); });
    all.insert(all.end(), changes.begin(), changes.end());
    axis.entries.push_back({std::move(changes), {{{"variant", label}, {}}}});
  }
  for (SweepEntry& entry : axis.entries) entry.names.front().methods = methods_of(all);
  if (faults.size() > faults_before) return {};
  return axis;
}

void apply_profiles(TomlNode& root, std::span<const std::string> names, FaultList& faults) {
  const TomlNode* written = root.find("profiles");
  const TomlNode profiles = written ? *written : TomlNode{};
  root.erase("profiles");
  if (!profiles.is_table()) {
    faults.add(profiles.place, fmt::format("profiles = {}; must be tables, [profiles.NAME]", inline_toml(profiles)));
    return;
  }
  std::vector<std::string> known;
  for (const TomlNode::Member& member : profiles.table()) {
    known.push_back(member.key);
    const std::string name = fmt::format("profiles.{}", member.key);
    if (!member.value.is_table()) {
      faults.add(member.value.place, fmt::format("{} = {}; must be a table", name, inline_toml(member.value)));
      continue;
    }
    check_keys(member.value, name, faults);
    changes_of(root, member.value, name, faults);  // what is wrong with it is said also where it is not asked for
  }
  for (const std::string& name : names) {
    const TomlNode* profile = profiles.find(name);
    if (!profile) {
      const std::string list = known.empty() ? "the file has no [profiles]" : must_be_one_of(name, known);
      faults.add({std::string(command_line_source)}, fmt::format("--profile {}; {}", name, list));
      continue;
    }
    if (!profile->is_table()) continue;
    FaultList again;
    for (const Change& change : changes_of(root, *profile, fmt::format("profiles.{}", name), again))
      apply(root, change);
  }
}

}  // namespace syncopate
