#include "experiments/sections/network_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

// Mean costs, as methods meet them.
Duration longest_time(const NetworkModel& network, int workers, Bytes payload) {
  return std::max(network.all_reduce(workers, payload),
                  network.message({.from = Rank{0}, .to = Rank{1}, .payload = payload}));
}

// Of the parts of the time the largest.
void name_the_key(Settings table, const NetworkModel& network, int workers, Bytes payload, const std::string& message) {
  const double whole_s = to_seconds(longest_time(network, workers, payload));
  const double jitter = table.has("jitter") ? table.number("jitter", Range::at_least(0)) : 0;
  const double serial_s = table.has("serial_s") ? table.number("serial_s", Range::at_least(0)) : 0;
  if (whole_s / (1 + jitter) <= longest_delay) return table.fault("jitter", message);
  if (serial_s >= whole_s / 2) return table.fault("serial_s", message);
  if (table.has("inside")) {
    const auto group_size = static_cast<int>(table.integer("group_size", 1, workers));
    if (to_seconds(longest_time(network, group_size, payload)) - serial_s >= whole_s / 2)
      table = table.section("inside");
  }
  const double without_payload_s = to_seconds(longest_time(network, workers, Bytes{0}));
  table.fault(without_payload_s >= whole_s / 2 ? "latency_s" : "bandwidth_bytes_per_s", message);
}

}  // namespace

void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload) {
  const Duration longest = longest_time(network, workers, payload);
  if (longest <= from_seconds(longest_delay)) return;
  const std::string found =
      longest < longest_duration ? fmt::format("{:g} s", to_seconds(longest)) : "longer than the clock";
  name_the_key(root.section("network"), network, workers, payload,
               fmt::format("must let a model of {} bytes reach all {} workers within {:g} s; it takes {}",
                           payload.value(), workers, longest_delay, found));
}

}  // namespace syncopate
