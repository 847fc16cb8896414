// The table at the end of an experiment, beside its runs.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "results/rows/summary.hpp"

namespace syncopate {

// Writes table.txt, which is what `run` prints, with `notes` below it, and table.md; table-mpi.txt and table-mpi.md of
// runs under MPI. Nothing where no run has finished, or where the files say that already. Returns why they cannot be
// written; empty if they are.
std::string save_tables(const std::filesystem::path& directory, std::span<const RunSummary> runs, bool under_mpi,
                        const std::string& notes = {});

}  // namespace syncopate
