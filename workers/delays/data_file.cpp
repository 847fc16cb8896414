#include "workers/delays/data_file.hpp"

#include <fmt/format.h>

#include <sstream>

namespace syncopate {

std::optional<DataFile> find_data_file(Settings& settings) {
  const auto path = settings.file("file");
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
    return std::nullopt;
  }
}

void report(const FileFault& problem, Settings& settings) {
  std::istringstream lines(problem.what());
  for (std::string line; std::getline(lines, line);) settings.fault("file", line);
}

}  // namespace syncopate
