// The plan, as it is printed before anything runs: how many runs, how long, how much space.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/execution/run_cost.hpp"

namespace syncopate {

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
