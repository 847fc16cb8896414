// Data sets that are files in one directory, or one file: the key that names it, the digest of what they hold, and that
// they stay in memory from run to run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "workers/datasets/registry.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// What a format knows of such a directory. All throw DataFault.
struct DirectoryFormat {
  enum class Named { directory, file };

  std::string variant;                           // tells apart data sets that are read differently from the same files
  std::function<std::filesystem::path()> usual;  // where the files are if no directory is named; null: it must be
  std::function<DatasetSize(const std::filesystem::path&)> size;
  std::function<std::string(const std::filesystem::path&)> hash;
  std::function<std::shared_ptr<const Dataset>(const std::filesystem::path&)> load;
  Named named = Named::directory;
};

// Reads `directory` and `directory_hash`, or `file` and `file_hash`; `sentence` says what the directory is.
DatasetPlanner read_directory(Settings& table, std::string_view sentence, DirectoryFormat format);

}  // namespace syncopate
