// What runs cost the machine that makes them: time of the host, and space on its disk. From what is known of some, what
// is to be expected of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "results/run.hpp"

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

// What a run costs this machine, by its first steps, which are made for the purpose and not kept.
// Takes a second or three, up to ten where two evaluations take seconds, and less than half of the run's own steps. The
// first step is made, then the first 4, the first 16 and so on, until what the steps take is clear beside what
// evaluations take. Nothing under MPI, where times are real anyway; for budgets that do not count steps; for runs that
// are too short to be worth it, or fail. Throws Interrupted.
std::optional<KnownCost> measured_cost(const Run& run, const Machinery& machinery);

// The plan, as it is printed before anything runs: how many runs, how long, how much space.
struct PlannedWork {
  std::size_t runs = 0;
  std::size_t finished = 0;
  std::size_t later = 0;          // runs that follow these
  std::optional<RunCost> cost{};  // of those that are to do; none where it is not known of one of them
  std::optional<double> bytes{};  // where there is no cost: on the disk, by the rows and files that there will be
  bool is_measured = false;       // by first steps, not by finished runs
  int side_by_side = 1;           // so many of them go at once
  std::string division{};         // and how
  // Of that the host's seconds, by the hashes of runs and common phases.
  std::map<std::string, double> host_s{};
};

using MeasureCost = std::function<std::optional<KnownCost>(const Run&)>;

// What these runs cost, some of whose kinds are known. `measure` is asked about runs that nothing is known of, three
// times at most, and may be empty; what it says counts for all of that kind.
PlannedWork planned_work(std::span<const Run* const> to_do, std::vector<KnownCost> known, const MeasureCost& measure);

// Of an experiment's runs, of which those that are not `to_do` (0) are finished; with the common phases that these need
// and that are not there. `later`: runs that will follow, if these are trials.
PlannedWork plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                    const std::filesystem::path& results, bool mpi, const MeasureCost& measure = {});

// Of the runs: 0 for those that are finished in the directory of results, else 1.
std::vector<int> runs_to_do(std::span<const Run> runs, const std::filesystem::path& results, bool mpi);

// "24 trials, then 12 runs; ...", or "12 runs, 3 finished; about 4 min on this machine, by finished runs; about 2.1
// MB". `noun`: "run" or "trial".
std::string plan_text(const PlannedWork& work, const std::string& noun = "run");

}  // namespace syncopate
