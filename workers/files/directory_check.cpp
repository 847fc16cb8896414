#include "workers/files/directory_check.hpp"

#include <fmt/format.h>

#include <system_error>

namespace syncopate {

namespace fs = std::filesystem;

std::string why_no_directory(const fs::path& path) {
  std::error_code error, no_link;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return {};
  if (fs::exists(status)) return "is a file";
  const fs::path target = fs::read_symlink(path, no_link);
  if (error == std::errc::too_many_symbolic_link_levels) return "is reached by links that lead back to themselves";
  if (!no_link) return fmt::format("is a link to {}, which is not there", target.string());
  if (status.type() == fs::file_type::not_found) return "no such directory";
  return fmt::format("cannot be reached: {}", error.message());
}

}  // namespace syncopate
