#include "workers/mpi/mpi_arrival.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace syncopate {
namespace {

std::string describe(const Arrival& arrival) {
  if (!arrival.terms) return "has ended";
  return fmt::format("waits in {} at {}", describe(*arrival.terms), arrival.place);
}

// "worker 1 has left", "workers 1, 3 have left"; empty if none has.
std::string who_has_left(const std::vector<Arrival>& arrivals) {
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    if (!arrivals[rank].terms) ranks += fmt::format("{}{}", count++ > 0 ? ", " : "", rank);
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
  const bool equal =
      std::all_of(arrivals.begin(), arrivals.end(), [&](const Arrival& other) { return other.terms == front.terms; });
  if (equal) return {};
  const std::string left = who_has_left(arrivals);
  std::string text = left.empty() ? "the workers wait for different things and none can go on:"
                                  : left + ", and the others wait for what needs every worker:";
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    text += fmt::format("\n  worker {} {}", first + static_cast<int>(rank), describe(arrivals[rank]));
  return text;
}

std::string explain_absence(const Arrival& own, Rank absent, const char* why) {
  return fmt::format("worker {} {}, and {} at {} needs it", absent.value, why, properties_of(own.terms->kind).name,
                     own.place);
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

MomentAges age_of_mean(const Training& training, const std::vector<Arrival>& arrivals) {
  std::vector<MomentAges> ages;
  std::vector<double> weights;
  for (const Arrival& arrival : arrivals) {
    ages.push_back(arrival.ages);
    weights.push_back(arrival.weight);
  }
  const bool is_weighted = share_of(arrivals.front(), arrivals).has_value();
  return training.age_of_mean(ages, is_weighted ? std::span<const double>(weights) : std::span<const double>());
}

}  // namespace syncopate
