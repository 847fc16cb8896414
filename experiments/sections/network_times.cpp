#include "experiments/sections/network_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "workers/delays/limits.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {
namespace {

// Mean costs, as methods meet them. Workers' links may be unlike each other, and a server's unlike theirs.
Duration longest_time(const NetworkModel& network, int workers, Bytes payload) {
  const auto message = [&](Rank from, Rank to) {
    return network.message({.from = from, .to = to, .payload = payload});
  };
  Duration longest = std::max(network.all_reduce(workers, payload), message(Rank{0}, Rank{1}));
  for (const Rank worker : Ranks(workers)) longest = std::max(longest, message(worker, Rank{workers}));
  return longest;
}

// The tables of [network] that may say what a link is like.
std::vector<Settings> tables_of_links(Settings& network) {
  std::vector<Settings> tables = {network};
  for (const char* key : {"inside", "racks", "server"})
    if (network.has_table(key)) tables.push_back(network.section(key));
  if (network.has("links"))
    for (const Settings& link : network.sections("links")) tables.push_back(link);
  return tables;
}

// Of the parts of the time the largest; of the links the slowest.
void name_the_key(Settings table, const NetworkModel& network, int workers, Bytes payload, const std::string& message) {
  const double whole_s = to_seconds(longest_time(network, workers, payload));
  const double jitter = table.has("jitter") ? table.number("jitter", Range::at_least(0)) : 0;
  const double serial_s = table.has("serial_s") ? table.number("serial_s", Range::at_least(0)) : 0;
  if (whole_s / (1 + jitter) <= longest_delay) return table.fault("jitter", message);
  if (serial_s >= whole_s / 2) return table.fault("serial_s", message);
  const bool is_latency = to_seconds(longest_time(network, workers, Bytes{0})) >= whole_s / 2;
  const char* const key = is_latency ? "latency_s" : "bandwidth_bytes_per_s";
  Settings* slowest = nullptr;
  double slowest_speed = std::numeric_limits<double>::infinity();
  std::vector<Settings> tables = tables_of_links(table);
  for (Settings& link : tables) {
    if (!link.has(key)) continue;
    const double value = link.number(key, Range::at_least(0)), speed = is_latency ? -value : value;
    if (slowest && speed >= slowest_speed) continue;
    slowest = &link;
    slowest_speed = speed;
  }
  (slowest ? *slowest : table).fault(key, message);
}

}  // namespace

void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload) {
  const Duration longest = longest_time(network, workers, payload);
  if (longest <= from_seconds(longest_delay)) return;
  const std::string found =
      longest < longest_duration ? fmt::format("{:g} s", to_seconds(longest)) : "longer than the clock";
  name_the_key(
      root.section("network"), network, workers, payload,
      fmt::format("must let a model of {} bytes reach all {} workers, and a server, within {:g} s; it takes {}",
                  payload.value(), workers, longest_delay, found));
}

}  // namespace syncopate
