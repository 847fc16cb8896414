// Where and when a run takes place.
#pragma once

#include <chrono>
#include <string>

namespace syncopate {

std::string host_name();
std::string distribution_name();  // "Debian GNU/Linux 13 (trixie)"
std::string operating_system();   // "Linux 6.1.0 x86_64"
// As the system names it; "unknown" where it does not.
std::string processor_name();
// Mean number of processes that were ready to run, over the last minute; 0 where that is not known.
double load_average();

// ISO 8601 in UTC to the second: "2024-05-01T12:00:00Z".
std::string iso_time(std::chrono::system_clock::time_point time);

}  // namespace syncopate
