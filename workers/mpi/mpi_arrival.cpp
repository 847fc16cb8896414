#include "workers/mpi/mpi_arrival.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace syncopate {
namespace {

const char* name_of(Collective operation) {
  switch (operation) {
    case Collective::all_reduce_sum:
      return "all_reduce_sum";
    case Collective::average_model:
      return "average_model";
    case Collective::broadcast_model:
      return "broadcast_model";
    case Collective::barrier:
      return "barrier";
    case Collective::end:
      return "end";
  }
  return "unknown";
}

std::string describe(const Arrival& arrival) {
  if (arrival.operation == Collective::end) return "has ended";
  std::string text = fmt::format("waits in {}", name_of(arrival.operation));
  if (arrival.operation == Collective::broadcast_model) text += fmt::format(" from worker {}", arrival.detail);
  if (arrival.operation == Collective::average_model) text += fmt::format(" (policy {})", arrival.detail);
  return text + fmt::format(" at {}", arrival.place);
}

}  // namespace

void set_place(Arrival& arrival, const Place& place) {
  const std::string_view path = place.at.file_name();
  const auto slash = path.rfind('/');
  const std::string text =
      fmt::format("{}:{}", slash == std::string_view::npos ? path : path.substr(slash + 1), place.at.line());
  std::strncpy(arrival.place, text.c_str(), sizeof(arrival.place) - 1);
}

Time last_arrival(const std::vector<Arrival>& arrivals) {
  std::int64_t last = 0;
  for (const Arrival& arrival : arrivals) last = std::max(last, arrival.time_ns);
  return Time{Duration{last}};
}

std::string explain_mismatch(const std::vector<Arrival>& arrivals) {
  const Arrival& first = arrivals.front();
  const bool equal = std::all_of(arrivals.begin(), arrivals.end(), [&](const Arrival& other) {
    return other.operation == first.operation && other.detail == first.detail;
  });
  if (equal) return {};
  std::string text = "the workers wait for different things and none can go on:";
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    text += fmt::format("\n  worker {} {}", rank, describe(arrivals[rank]));
  return text;
}

}  // namespace syncopate
