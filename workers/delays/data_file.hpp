// A file that an experiment names with the key `file`, parsed once however often the experiment is read.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "workers/delays/table_text.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct DataFile {
  std::string name;  // where it was found
  std::string content;
  std::string hash;
};

// Finds and reads the file; its hash becomes the key file_hash of the resolved configuration, and must be that if it
// is written. Nothing after a fault. (The path becomes absolute there, so that a recorded configuration finds the
// file.)
std::optional<DataFile> find_data_file(Settings& settings);

void report_lack_of_memory(const std::filesystem::path& file, Settings& settings);

// Each line of it becomes a fault of the settings.
void report(const FileFault& problem, Settings& settings);

// The file as a Parsed(name, content), whose FileFault becomes a fault of the settings; null after a fault.
template <typename Parsed>
std::shared_ptr<const Parsed> read_data_file(Settings& settings) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const Parsed>> parsed_before;
  const auto file = find_data_file(settings);
  if (!file) return nullptr;
  const std::lock_guard lock(mutex);
  auto& before = parsed_before[file->name + '\n' + file->hash];
  if (auto parsed = before.lock()) return parsed;
  try {
    auto parsed = std::make_shared<const Parsed>(file->name, file->content);
    before = parsed;
    return parsed;
  } catch (const FileFault& problem) {
    report(problem, settings);
  } catch (const std::bad_alloc&) {
    report_lack_of_memory(file->name, settings);
  }
  return nullptr;
}

}  // namespace syncopate
