// What is known of one table while it is read: what was written, what was asked for, what was found.
// Only the sources of Settings and SettingsDocument include this.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/settings/exploration.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/key_description.hpp"
#include "workers/settings/known_key.hpp"
#include "workers/settings/settings.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct Settings::Node {
  // A key that was asked for: a value (its default filled in), a sub-table, an array of tables, or only known.
  struct Entry {
    std::string key;
    std::optional<TomlNode> value;
    std::vector<std::shared_ptr<Node>> children;
    bool is_array = false;
    std::vector<std::string> choices{};           // the words that it takes, where it takes one of several
    std::optional<KeyDescription> description{};  // where the document is explored
  };

  FaultList* faults = nullptr;
  const TomlNode* written = nullptr;   // the table as it stands in the document; null if it is absent
  std::string source{};                // the experiment file, also where a table is the command line's
  SourcePlace place{};                 // of the table's header, or of the nearest table above that is there
  std::string path{};                  // "training.learning_rate", "methods.0"; empty for the root
  bool incomplete = false;             // a wrong choice left keys of this table unread
  bool silent = false;                 // the table is no table: report nothing that follows from it
  Exploration* exploration = nullptr;  // where nothing is written, and who reads is asked what it would read
  std::vector<Entry> entries{};

  const TomlNode* find(std::string_view key) const { return written ? written->find(key) : nullptr; }
  // Whether a table was written there and has been read as one. A value that is then read with a default is that
  // default: what came of the table, and what the resolved configuration has in its place.
  bool has_read_table(std::string_view key) const;
  std::string full_key(std::string_view key) const;

  Entry& entry(std::string_view key);  // known from now on
  template <typename Value>
  void record(std::string_view key, Value value) {
    entry(key).value = TomlNode{std::move(value), {}};
  }
  std::shared_ptr<Node> child(std::string_view key, const TomlNode* table, std::string path) const;

  // Where a file or directory is sought: beside the experiment file, then in the working directory.
  std::vector<std::filesystem::path> places_of(const std::filesystem::path& named) const;

  // "key = found; must be <what>", at the value; "key is missing; must be <what>", at the table.
  void report_wrong(std::string_view key, const std::string& what);
  void report_at(const TomlNode& found, std::string_view key, const std::string& what);
  void report_unread() const;  // unknown keys, here and below

  // Where the document is explored; the first description of a key counts.
  void describe(const Key& key, std::string takes, std::optional<std::string> fallback, bool required);
  void describe_table(const Key& key, KeyDescription::Kind kind);

  // Answers while it is explored.
  bool explored_presence(std::string_view key) const;
  std::optional<std::size_t> explored_word(const Key& key, std::span<const Alternative> words,
                                           std::optional<std::size_t> fallback, std::string_view fallback_words);

  TomlNode resolved() const;  // what was read, in the order in which it was read
  void add_known_keys(std::vector<KnownKey>& keys) const;
  void add_descriptions(std::vector<KeyDescription>& keys) const;
};

}  // namespace syncopate
