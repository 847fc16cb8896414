#include "workers/settings/settings_document.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "workers/files/whole_file.hpp"
#include "workers/process/printable.hpp"
#include "workers/process/utf8.hpp"
#include "workers/settings/key_path.hpp"
#include "workers/settings/settings_node.hpp"

namespace syncopate {
namespace {

constexpr std::uintmax_t most_bytes = 64'000'000;  // of an experiment file

// Before it is opened: a device never ends, a pipe may never begin.
void check_file(const std::string& file) {
  namespace fs = std::filesystem;
  if (file.empty()) throw TomlSyntaxFault("the name of the experiment file is empty");
  std::error_code problem;
  const fs::file_status status = fs::status(file, problem);
  if (!fs::exists(status)) return;  // opening it says why
  const char* const found = fs::is_directory(status) ? "a directory" : "a device or a pipe";
  if (!fs::is_regular_file(status))
    throw TomlSyntaxFault(fmt::format("{}: is {}; must be an experiment file", file, found));
  const std::uintmax_t bytes = fs::file_size(file, problem);
  if (!problem && bytes > most_bytes)
    throw TomlSyntaxFault(fmt::format("{}: has {} MB; an experiment file must have at most {}", file, bytes / 1'000'000,
                                      most_bytes / 1'000'000));
}

}  // namespace

TomlNode load_toml(const std::string& file) {
  check_file(file);
  try {
    const std::string text = whole_file(file, most_bytes);
    if (const std::string form = foreign_form(text); !form.empty())
      throw TomlSyntaxFault(fmt::format("{}: is {}; must be an experiment file in UTF-8", file, form));
    return parse_toml(text, file);
  } catch (const std::system_error& problem) {
    throw TomlSyntaxFault(fmt::format("{}: cannot be read: {}", file, problem.code().message()));
  }
}

void apply_overrides(TomlNode& root, std::span<const std::string> overrides, FaultList& faults) {
  const SourcePlace command_line{std::string(command_line_source)};
  for (const std::string& text : overrides) {
    try {
      if (text.starts_with('~')) {
        remove(root, split_key(std::string_view(text).substr(1)));
        continue;
      }
      Override parsed = parse_override(text);
      if (!parsed.why_no_toml.empty()) throw KeyPathFault(parsed.why_no_toml);
      parsed.value.place = command_line;
      assign(root, split_key(parsed.key), command_line, std::move(parsed.value));
    } catch (const KeyPathFault& fault) {
      faults.add(command_line, fmt::format("{}; {}", shortened(text), fault.what()));
    }
  }
}

SettingsDocument::SettingsDocument(TomlNode root) : written_(std::move(root)) {
  root_.node_ = std::make_shared<Settings::Node>();
  root_.node_->faults = &faults_;
  root_.node_->written = &written_;
  root_.node_->place = written_.place;
  root_.node_->source = written_.place.source;
}

SettingsDocument::SettingsDocument(Exploration& exploration) : SettingsDocument(TomlNode{}) {
  root_.node_->exploration = &exploration;
}

SettingsDocument::~SettingsDocument() = default;

Settings SettingsDocument::root() { return root_; }

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

std::vector<KeyDescription> SettingsDocument::descriptions() const {
  std::vector<KeyDescription> keys;
  root_.node_->add_descriptions(keys);
  return keys;
}

}  // namespace syncopate
