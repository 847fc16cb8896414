// What to say when nobody can go on: every participant, and where in which method it waits.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/cluster/place.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Deadlock {
  Time at{};
  bool after_loss = false;  // somebody is in a micro-batch that never ends: the method waits for those, as it should
  std::map<std::string, std::vector<int>> workers_by_state{};  // ranks in ascending order
  std::vector<std::pair<std::string, std::string>> servers{};  // name and state
};

// "waiting in receive for worker 3 (algorithms/quorum/backup_workers.cpp:20)", where
// `from` is the participant that it waits for, if that is known; "ended" where there is no place.
std::string what_it_waits_for(const Place* place, const std::string& from = "");

std::string explain(const Deadlock& deadlock);

// `who` cannot go on since its clock cannot.
std::string explain_end_of_clock(std::string_view who);

// A method's file as the project has it; of others the last two parts of the path.
std::string short_path(std::string_view path);

}  // namespace syncopate
