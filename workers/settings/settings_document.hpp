// One document while it is read through Settings: it owns what was written, the faults found, and the
// record of what was read. Settings taken from it are valid as long as it lives.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/settings/fault_list.hpp"
#include "workers/settings/key_description.hpp"
#include "workers/settings/known_key.hpp"
#include "workers/settings/settings.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Reads and parses a TOML file. Throws TomlSyntaxFault, also for a file that cannot be read:
// "file: what is wrong".
TomlNode load_toml(const std::string& file);

// Applies "key=value" overrides, and "~key", which removes a key, in their order; one that cannot be applied is a fault
// of the command line.
void apply_overrides(TomlNode& root, std::span<const std::string> overrides, FaultList& faults);

class Exploration;

class SettingsDocument {
 public:
  explicit SettingsDocument(TomlNode root);
  // One in which nothing is written, and whose reader is told what the exploration says.
  explicit SettingsDocument(Exploration& exploration);
  ~SettingsDocument();
  SettingsDocument(const SettingsDocument&) = delete;
  SettingsDocument& operator=(const SettingsDocument&) = delete;

  Settings root();

  const FaultList& faults() const { return faults_; }  // so far

  // All faults and the keys nobody asked for. Call it when everything has been read.
  const FaultList& check();

  // What was read, with defaults, as a document that reads back to itself.
  TomlNode resolved() const;

  // All keys that the document may have beside those that are tables here.
  std::vector<KnownKey> known_keys() const;

  // What was described while it was explored, in the order in which it was read.
  std::vector<KeyDescription> descriptions() const;

 private:
  TomlNode written_;
  FaultList faults_;
  Settings root_;
};

}  // namespace syncopate
