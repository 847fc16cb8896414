#include "experiments/execution/saved_tables.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/tables/result_table.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {
namespace {

// Not what cannot be read, or a link: it is replaced.
bool holds(const std::filesystem::path& file, const std::string& contents) {
  try {
    return !std::filesystem::is_symlink(file) && read_file(file, contents.size()) == contents;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::string save_tables(const std::filesystem::path& directory, std::span<const RunSummary> runs, bool under_mpi,
                        const std::string& notes) {
  const std::string clock = under_mpi ? "wall" : "virtual";
  const std::string table_text = result_table(runs, clock);
  if (table_text.empty()) return {};
  const std::string text = table_text + notes;
  const ResultTable table = result_columns(runs, clock);
  const std::string markdown =
      fmt::format("{}{}{}", table.wide.markdown(), (table.notes + notes).empty() ? "" : "\n", table.notes + notes);
  const std::string name = under_mpi ? "table-mpi" : "table";
  try {
    require_no_link(directory);
    for (const auto& [suffix, contents] : {std::pair(".txt", &text), std::pair(".md", &markdown)}) {
      const std::filesystem::path file = directory / (name + suffix);
      if (!holds(file, *contents)) replace_file(file, *contents);
    }
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return {};
}

}  // namespace syncopate
