#include "workers/mpi/mpi_arrival.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace syncopate {
namespace {

const char* name_of(ArrivalFor operation) {
  switch (operation) {
    case ArrivalFor::all_reduce_sum:
      return "all_reduce_sum";
    case ArrivalFor::average_model:
      return "average_model";
    case ArrivalFor::broadcast_model:
      return "broadcast_model";
    case ArrivalFor::barrier:
      return "barrier";
    case ArrivalFor::all_gather:
      return "all_gather";
    case ArrivalFor::end:
      return "end";
  }
  return "unknown";
}

std::string describe(const Arrival& arrival) {
  if (arrival.operation == ArrivalFor::end) return "has ended";
  std::string text = fmt::format("waits in {}", name_of(arrival.operation));
  if (arrival.operation == ArrivalFor::broadcast_model) text += fmt::format(" from worker {}", arrival.detail);
  if (arrival.operation == ArrivalFor::average_model) text += fmt::format(" (policy {})", arrival.detail);
  const bool has_numbers = arrival.operation == ArrivalFor::all_gather ||
                           (arrival.operation == ArrivalFor::all_reduce_sum && arrival.detail);
  if (has_numbers) text += fmt::format(" with {} numbers", arrival.detail);
  if (arrival.slice.count > 1) text += fmt::format(" of slice {} of {}", arrival.slice.index, arrival.slice.count);
  return text + fmt::format(" at {}", arrival.place);
}

// "worker 1 has left", "workers 1, 3 have left"; empty if none has.
std::string who_has_left(const std::vector<Arrival>& arrivals) {
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    if (arrivals[rank].operation == ArrivalFor::end) ranks += fmt::format("{}{}", count++ > 0 ? ", " : "", rank);
  if (count == 0) return {};
  return count == 1 ? fmt::format("worker {} has left", ranks) : fmt::format("workers {} have left", ranks);
}

}  // namespace

Contribution contribution_of(const Arrival& arrival) {
  return {.kept = arrival.kept, .planned = arrival.planned, .step = Step{arrival.step}, .period = Step{arrival.period}};
}

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

std::string explain_mismatch(const std::vector<Arrival>& arrivals, int first) {
  const Arrival& front = arrivals.front();
  const bool equal = std::all_of(arrivals.begin(), arrivals.end(), [&](const Arrival& other) {
    return other.operation == front.operation && other.detail == front.detail && other.slice == front.slice;
  });
  if (equal) return {};
  const std::string left = who_has_left(arrivals);
  std::string text = left.empty() ? "the workers wait for different things and none can go on:"
                                  : left + ", and the others wait for what needs every worker:";
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    text += fmt::format("\n  worker {} {}", first + static_cast<int>(rank), describe(arrivals[rank]));
  return text;
}

std::string explain_absence(const Arrival& own, Rank absent, const char* why) {
  return fmt::format("worker {} {}, and {} at {} needs it", absent.value, why, name_of(own.operation), own.place);
}

std::optional<double> share_of(const Arrival& own, const std::vector<Arrival>& arrivals) {
  double sum = 0;
  bool equal = true;
  for (const Arrival& arrival : arrivals) {
    sum += arrival.weight;
    equal = equal && arrival.weight == own.weight;
  }
  if (equal) return std::nullopt;
  return own.weight / sum;
}

}  // namespace syncopate
