#include "workers/delays/data_file.hpp"

#include <fmt/format.h>

#include <new>
#include <sstream>

#include "workers/files/content_hash.hpp"

namespace syncopate {

std::optional<DataFile> find_data_file(Settings& settings) {
  const auto path = settings.file({"file", "A file, beside the experiment file or in the working directory."});
  const Key hash{"file_hash", "Written by the program: the digest of the file's content, which must still be that.", "",
                 "any content"};
  static_cast<void>(settings.has(hash));  // known, also where there is no file
  if (path.empty()) return std::nullopt;
  try {
    DataFile file{.name = path.string(), .content = file_content(path), .hash = {}};
    file.hash = content_hash(file.content);
    if (settings.text("file_hash", file.hash) != file.hash)
      settings.fault("file_hash",
                     fmt::format("the content of {} is another, {}; left out, any is right", file.name, file.hash));
    return file;
  } catch (const FileFault& problem) {
    settings.fault("file", problem.what());
  } catch (const std::bad_alloc&) {
    report_lack_of_memory(path, settings);
  }
  return std::nullopt;
}

void report_lack_of_memory(const std::filesystem::path& file, Settings& settings) {
  std::error_code ignored;
  settings.fault("file", fmt::format("the memory does not suffice for what {} holds; it has {} bytes", file.string(),
                                     std::filesystem::file_size(file, ignored)));
}

void report(const FileFault& problem, Settings& settings) {
  std::istringstream lines(problem.what());
  for (std::string line; std::getline(lines, line);) settings.fault("file", line);
}

}  // namespace syncopate
