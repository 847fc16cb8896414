#include "experiments/execution/saved_tables.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "results/directory/finished_run.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/tables/result_table.hpp"

namespace syncopate {

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
    for (const auto& [suffix, contents] : {std::pair(".txt", &text), std::pair(".md", &markdown)}) {
      const std::filesystem::path file = directory / (name + suffix);
      if (read_file(file) != *contents) replace_file(file, *contents);
    }
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return {};
}

}  // namespace syncopate
