#include "results/directory/disk_fault.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace syncopate {
namespace fs = std::filesystem;
namespace {

const char* what_helps(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "make room there, or name another directory with --results";
    case EFBIG:
      return "allow larger files (ulimit -f), or name another directory with --results";
    case EISDIR:
      return "remove the directory that has its name";
    case EROFS:
    case EACCES:
    case EPERM:
      return "make it readable and writable, with the folders above, or name another directory with --results";
    default:
      return "see to the disk, or name another directory with --results";
  }
}

// Not where a folder above cannot be looked into.
bool is_gone(const fs::path& directory) {
  std::error_code unknown;
  return fs::status(directory, unknown).type() == fs::file_type::not_found;
}

}  // namespace

std::string disk_fault(const fs::path& directory, const fs::filesystem_error& problem) {
  if (problem.code() == std::errc::no_such_file_or_directory || is_gone(directory))
    return fmt::format(
        "{}: the results directory was removed while runs were made; the next start makes what is missing",
        directory.string());
  return fmt::format(
      "{}: results cannot be written there: {}; {}; what is finished stays, and the next start makes the "
      "rest",
      directory.string(), problem.code().message(), what_helps(problem.code().value()));
}

std::string disk_problem(const std::exception& problem) {
  const auto* const of_disk = dynamic_cast<const fs::filesystem_error*>(&problem);
  if (!of_disk) return problem.what();
  if (of_disk->code() == std::errc::no_such_file_or_directory) return "the results directory was removed";
  return fmt::format("{}; {}", of_disk->code().message(), what_helps(of_disk->code().value()));
}

void require_there(const fs::path& directory) {
  if (!fs::exists(directory)) throw fs::filesystem_error("is gone", directory, {ENOENT, std::generic_category()});
}

}  // namespace syncopate
