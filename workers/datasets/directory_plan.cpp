#include "workers/datasets/directory_plan.hpp"

#include <fmt/format.h>

#include <mutex>
#include <stdexcept>
#include <utility>

namespace syncopate {
namespace {

using std::filesystem::path;

// Runs of one experiment follow each other with the same files: the last data set read stays in memory. What is loaded
// is what `hash` was taken of.
std::shared_ptr<const Dataset> load_cached(const DirectoryFormat& format, const path& directory,
                                           const std::string& hash) {
  static std::mutex mutex;
  static std::string loaded_name;
  static std::shared_ptr<const Dataset> loaded;
  std::lock_guard lock(mutex);
  const std::string name = format.variant + hash;
  if (!loaded || loaded_name != name) {
    auto read = format.load(directory);
    if (format.hash(directory) != hash)
      throw DataFault(
          fmt::format("{}: its files have changed since the experiment was read; start it again", directory.string()));
    loaded = std::move(read);
    loaded_name = name;
  }
  return loaded;
}

struct Keys {
  explicit Keys(const DirectoryFormat& format)
      : place(format.named == DirectoryFormat::Named::file ? "file" : "directory"), hash(place + "_hash") {}
  std::string place, hash;
};

std::optional<DatasetPlan> plan_directory(Settings& table, const std::string& named, const DirectoryFormat& format) {
  const Keys keys(format);
  const bool is_file = format.named == DirectoryFormat::Named::file;
  try {
    if (named.empty() && !format.usual) {
      table.fault(keys.place, fmt::format("must be given: the {} of this data set {} the user's own",
                                          is_file ? "file" : "files", is_file ? "is" : "are"));
      return {};
    }
    const path directory = named.empty() ? format.usual() : is_file ? table.file("file") : table.directory("directory");
    if (directory.empty()) return {};
    const DatasetSize size = format.size(directory);
    const std::string hash = format.hash(directory);
    if (table.text(keys.hash, hash) != hash)
      table.fault(keys.hash,
                  fmt::format("the content of {} is another, {}; left out, any is right", directory.string(), hash));
    return DatasetPlan{.size = size, .load = [format, directory, hash, key = table.written(keys.place)] {
                         try {
                           return load_cached(format, directory, hash);
                         } catch (const DataFault& problem) {
                           throw DataFault(fmt::format("{}; {}", key, problem.what()));
                         }
                       }};
  } catch (const std::runtime_error& problem) {  // DataFault, or the file system's own
    table.fault(keys.place, problem.what());
    return {};
  }
}

}  // namespace

DatasetPlanner read_directory(Settings& table, std::string_view sentence, DirectoryFormat format) {
  const Keys keys(format);
  const auto directory = table.text({keys.place, sentence}, "");
  const Key hash{keys.hash, "Written by the program: the digest of the files, which must still be that.", "",
                 "any content"};
  static_cast<void>(table.has(hash));  // known, also where the files are not needed
  return [table, directory, format = std::move(format)](std::uint64_t) mutable {
    return plan_directory(table, directory, format);
  };
}

}  // namespace syncopate
