#include "results/directory/hidden_names.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "workers/files/content_hash.hpp"

namespace syncopate {
namespace {

constexpr std::size_t digest_digits = 16;  // of content_hash

// The part up to the next dot, which is a number and goes; nothing where it is none.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data() + text.size() || *end != '.') return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return number;
}

// `text`: "<process number>.<its start>.<digest of its machine>".
ProcessState state_by_name(std::string_view text) {
  const auto number = take_number<pid_t>(text);
  const auto start = take_number<std::uint64_t>(text);
  const std::string here = this_process().machine;
  if (!number || !start || text.size() != digest_digits || text != content_hash(here)) return ProcessState::unknown;
  return state_of({.machine = here, .number = *number, .start = *start});
}

}  // namespace

std::filesystem::path hidden_sibling(const std::filesystem::path& path, std::string_view kind,
                                     const ProcessIdentity& process) {
  return path.parent_path() / fmt::format(".{}.{}.{}.{}.{}", path.filename().string(), kind, process.number,
                                          process.start, content_hash(process.machine));
}

std::optional<HiddenName> read_hidden_name(const std::string& file_name) {
  if (file_name.empty() || file_name.front() != '.') return {};
  for (const std::string_view kind : {partial_kind, replaced_kind}) {
    const std::string mark = fmt::format(".{}.", kind);
    const auto at = file_name.rfind(mark);
    if (at == std::string::npos || at == 0) continue;
    const std::string_view process = std::string_view(file_name).substr(at + mark.size());
    pid_t number = 0;
    const auto [end, error] = std::from_chars(process.data(), process.data() + process.size(), number);
    if (error != std::errc{} || number <= 0 || end == process.data() + process.size() || *end != '.') continue;
    return HiddenName{file_name.substr(1, at - 1), kind == replaced_kind, state_by_name(process)};
  }
  return {};
}

}  // namespace syncopate
