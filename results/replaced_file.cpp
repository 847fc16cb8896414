#include "results/replaced_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "results/descriptor.hpp"
#include "workers/interrupt.hpp"

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

}  // namespace

void replace_file(const fs::path& named, std::string_view contents) {
  std::error_code none;
  const fs::path followed = fs::canonical(named, none);
  const fs::path file = none ? named : followed;
  if (fs::exists(file, none) && !fs::is_regular_file(file, none)) return Descriptor(file, O_WRONLY).write(contents);

  const fs::path aside = file.parent_path() / fmt::format(".{}.partial.{}", file.filename().string(), getpid());
  const auto remove_aside = [&aside] {
    std::error_code ignored;
    fs::remove(aside, ignored);
  };
  const LastAct leave_nothing_hidden(remove_aside);
  remove_aside();  // of a process that was killed and had this one's number
  try {
    write_and_sync(aside, contents);
    give_name(aside, file);
  } catch (...) {
    remove_aside();
    throw;
  }
}

}  // namespace syncopate
