#include "results/directory/replaced_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "results/directory/descriptor.hpp"
#include "results/directory/hidden_names.hpp"
#include "workers/files/directory_check.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

// Names come and go one at a time, so that a last act finds all that is there, and nothing comes after it.
Descriptor create(const fs::path& aside) {
  const auto held = hold_off_end();
  return {aside, O_WRONLY | O_CREAT | O_EXCL};
}

void give_name(const fs::path& aside, const fs::path& file) {
  const auto held = hold_off_end();
  fs::rename(aside, file);
}

void write_and_sync(const fs::path& aside, std::string_view contents) {
  const Descriptor stream = create(aside);
  stream.write(contents);
  stream.sync();
}

// What a link leads to.
fs::path followed(const fs::path& named) {
  std::error_code none;
  const fs::path file = fs::canonical(named, none);
  return none ? named : file;
}

fs::path aside_of(const fs::path& file) { return hidden_sibling(file, partial_kind); }

void remove_hidden(const fs::path& aside) {
  std::error_code ignored;
  fs::remove(aside, ignored);
}

}  // namespace

std::string why_not_replaceable(const fs::path& named) {
  std::error_code none;
  const fs::path file = followed(named);
  if (fs::is_directory(file, none)) return "is a directory";
  if (fs::exists(file, none) && !fs::is_regular_file(file, none))  // a pipe would be waited for
    return access(file.c_str(), W_OK) == 0 ? "" : std::generic_category().message(errno);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (const std::string why = why_no_directory(folder); !why.empty())
    return fmt::format("{}: {}", folder.string(), why);
  const fs::path aside = aside_of(file);
  const LastAct leave_nothing_hidden([&aside] { remove_hidden(aside); });
  remove_hidden(aside);
  try {
    create(aside);
  } catch (const std::system_error& problem) {
    return problem.code().message();
  }
  remove_hidden(aside);
  return {};
}

void replace_file(const fs::path& file, std::string_view contents) {
  const fs::path aside = aside_of(file);
  const LastAct leave_nothing_hidden([&aside] { remove_hidden(aside); });
  remove_hidden(aside);  // where it could not be removed before
  try {
    write_and_sync(aside, contents);
    give_name(aside, file);
  } catch (...) {
    remove_hidden(aside);
    throw;
  }
}

void replace_named_file(const fs::path& named, std::string_view contents) {
  std::error_code none;
  const fs::path file = followed(named);
  if (fs::exists(file, none) && !fs::is_regular_file(file, none)) return Descriptor(file, O_WRONLY).write(contents);
  replace_file(file, contents);
}

}  // namespace syncopate
