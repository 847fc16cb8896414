// Hidden names under which files and directories are written before they have their own, and under which former ones
// stand until the new ones have it. A name says which process made it, by the identity that leases use too: containers
// may share the name of a host and a file system, and each has a process 1.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "workers/process/process_identity.hpp"

namespace syncopate {

inline constexpr std::string_view partial_kind = "partial";  // being written
inline constexpr std::string_view replaced_kind =
    "replaced";  // the former contents, until the new ones have their name

// ".<name>.<kind>.<process number>.<its start>.<digest of its machine>", beside `path`.
std::filesystem::path hidden_sibling(const std::filesystem::path& path, std::string_view kind,
                                     const ProcessIdentity& process = this_process());

struct HiddenName {
  std::string name{};        // of what it stands for
  bool is_replaced = false;  // else it is being written
  // Of the process that made it. Unknown: of another machine or container, or a name that an earlier Syncopate gave,
  // which knew only the host's name.
  ProcessState state = ProcessState::unknown;
};
// Nothing for what is no such name.
std::optional<HiddenName> read_hidden_name(const std::string& file_name);

// How long what an unknown process has left may stay unchanged before it counts as a leftover. Whoever writes changes
// what it writes, or gives it its name, within seconds.
inline constexpr double lost_after_s = 24 * 3600;

}  // namespace syncopate
