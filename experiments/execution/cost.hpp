// What runs cost the machine that makes them: time of the host, and space on its disk. From what is known of some, what
// is to be expected of others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/run/run.hpp"

namespace syncopate {

struct RunCost {
  double host_s = 0;
  double bytes = 0;
};

// What a run of this many steps took.
struct KnownCost {
  std::string kind;          // work_kind
  std::string method;        // its label
  std::int64_t steps = 0;    // optimizer steps
  double micro_batches = 0;  // steps x workers x micro-batches per step
  RunCost cost{};
  double fixed_bytes = 0;  // of these, what does not grow with the steps
};

// The finished runs below an experiment's directory, simulated ones or those under MPI, that a processor as this
// machine's made; of very many an even choice. What cannot be read is passed over.
std::vector<KnownCost> known_costs(const std::filesystem::path& experiment_directory, bool mpi);

// By the known runs of its kind, those of its method alone where there are any: time per micro-batch, space per step.
// Where the budget does not say how many steps there will be, their mean. Nothing where none is known.
std::optional<RunCost> expected_cost(const Run& run, std::span<const KnownCost> known);

// On the disk, by the rows and files that the runs will have, within a factor of two or so; none where a budget does
// not count steps.
std::optional<double> planned_bytes(std::span<const Run* const> runs, bool mpi);

// steps x workers x micro-batches per step, as the budget says it.
std::optional<double> planned_micro_batches(const Run& run);

}  // namespace syncopate
