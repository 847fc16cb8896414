#include "experiments/settings_document.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "experiments/key_path.hpp"
#include "experiments/settings_node.hpp"

namespace syncopate {

TomlNode load_toml(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw TomlSyntaxFault(fmt::format("{}: is a directory; must be an experiment file", file));
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) throw TomlSyntaxFault(fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) throw TomlSyntaxFault(fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  return parse_toml(text.str(), file);
}

void apply_overrides(TomlNode& root, std::span<const std::string> overrides, FaultList& faults) {
  const SourcePlace command_line{std::string(command_line_source)};
  for (const std::string& text : overrides) {
    try {
      Override parsed = parse_override(text);
      parsed.value.place = command_line;
      assign(root, split_key(parsed.key), command_line, std::move(parsed.value));
    } catch (const KeyPathFault& fault) {
      faults.add(command_line, fmt::format("{}; {}", text, fault.what()));
    }
  }
}

SettingsDocument::SettingsDocument(TomlNode root) : written_(std::move(root)) {
  root_.node_ = std::make_shared<Settings::Node>();
  root_.node_->faults = &faults_;
  root_.node_->written = &written_;
  root_.node_->place = written_.place;
}

SettingsDocument::~SettingsDocument() = default;

Settings SettingsDocument::root() { return root_; }

void SettingsDocument::record_as_written(std::string_view key) {
  Settings::Node::Entry& entry = root_.node_->entry(key);
  if (const TomlNode* written = written_.find(key)) entry.value = *written;
}

const FaultList& SettingsDocument::check() {
  root_.node_->report_unread();
  return faults_;
}

TomlNode SettingsDocument::resolved() const { return root_.node_->resolved(); }

std::vector<KnownKey> SettingsDocument::known_keys() const {
  std::vector<KnownKey> keys;
  root_.node_->add_known_keys(keys);
  return keys;
}

}  // namespace syncopate
