#include "workers/network/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "workers/delays/limits.hpp"
#include "workers/network/fixed.hpp"
#include "workers/network/jitter.hpp"
#include "workers/network/parameter_server.hpp"
#include "workers/network/ring.hpp"
#include "workers/network/serial_latency.hpp"
#include "workers/network/tree.hpp"
#include "workers/network/two_level.hpp"

namespace syncopate {
namespace {

constexpr double most_jitter = 1000;
constexpr int most_workers_per_server = 1 << 20;

// What has a meaning for other models alone; has() makes the key known, so that it is reported once.
void refuse(Settings& settings, std::string_view key, std::string_view reason) {
  if (settings.has(key)) settings.fault(key, fmt::format("must be left out: {}", reason));
}

std::unique_ptr<NetworkModel> vary(Settings& settings, const NetworkContext& context,
                                   std::unique_ptr<NetworkModel> network) {
  const double jitter =
      settings.number({"jitter", "Each cost is multiplied by 1 + jitter x E, E exponential with mean 1."},
                      Range::between(0, most_jitter), 0.0);
  return jitter > 0 ? with_jitter(std::move(network), jitter, context.seed) : std::move(network);
}

// Jitter, then the serial latency, which does not vary.
std::unique_ptr<NetworkModel> vary_and_delay(Settings& settings, const NetworkContext& context,
                                             std::unique_ptr<NetworkModel> network) {
  network = vary(settings, context, std::move(network));
  const double serial_s = settings.number({"serial_s", "What every collective takes besides (T^c).", "s"},
                                          Range::between(0, longest_delay), 0.0);
  return serial_s > 0 ? with_serial_latency(std::move(network), serial_s) : std::move(network);
}

std::unique_ptr<NetworkModel> read_free(Settings& settings, const NetworkContext&) {
  constexpr std::array keys = {"latency_s", "bandwidth_bytes_per_s", "jitter", "serial_s"};
  for (const char* key : keys) refuse(settings, key, "with kind = \"free\" communication takes no time");
  return make_fixed_network(0);
}

std::unique_ptr<NetworkModel> read_fixed(Settings& settings, const NetworkContext& context) {
  refuse(settings, "bandwidth_bytes_per_s", "with kind = \"fixed\" the cost does not depend on the size");
  refuse(settings, "serial_s", "with kind = \"fixed\" it is latency_s");
  return vary(settings, context, read_fixed_network(settings));
}

std::unique_ptr<NetworkModel> read_ring(Settings& settings, const NetworkContext& context) {
  const Link link = read_link(settings);
  return vary_and_delay(settings, context, make_ring_network(link.latency_s, link.bandwidth_bytes_per_s));
}

std::unique_ptr<NetworkModel> read_tree(Settings& settings, const NetworkContext& context) {
  const Link link = read_link(settings);
  return vary_and_delay(settings, context, make_tree_network(link.latency_s, link.bandwidth_bytes_per_s));
}

// latency_s and bandwidth_bytes_per_s are between the servers, as those of other models are between all workers.
std::unique_ptr<NetworkModel> read_two_level(Settings& settings, const NetworkContext& context) {
  const std::size_t faults = settings.faults_so_far();
  TwoLevelOptions options;
  options.group_size = static_cast<int>(
      settings.integer({"group_size", "How many workers each server has."}, 1, most_workers_per_server));
  if (settings.faults_so_far() == faults) {
    if (options.group_size == 1)
      settings.fault("group_size",
                     "must be at least 2: with 1 no two workers share a server, as under kind = \"ring\"");
    if (context.workers && options.group_size >= *context.workers)
      settings.fault("group_size",
                     fmt::format("must be below the number of workers, {}: one server would have them all, as under "
                                 "kind = \"tree\"",
                                 *context.workers));
  }
  options.between = read_link(settings);
  Settings inside = settings.section({"inside", "The links inside a server."});
  options.inside = read_link(inside);
  using Between = TwoLevelOptions::Between;
  options.leaders = settings.choice({"between", "What the servers' leaders form."},
                                    {{"ring", Between::ring}, {"tree", Between::tree}}, options.leaders);
  const int workers = context.workers.value_or(most_workers);
  return vary_and_delay(settings, context, make_two_level_network(workers, options));
}

std::unique_ptr<NetworkModel> read_parameter_server(Settings& settings, const NetworkContext& context) {
  const Link link = read_link(settings);
  const int workers = context.workers.value_or(most_workers);
  return vary_and_delay(settings, context, make_parameter_server_network(workers, link));
}

constexpr std::array network_rows = {
    NetworkRow{"fixed", "Every collective and message takes latency_s, whatever its size.", read_fixed},
    NetworkRow{"ring", "latency_s per hop and bandwidth_bytes_per_s: ring all-reduce, direct messages.", read_ring},
    NetworkRow{"tree", "The same links: binomial reduce and broadcast, direct messages.", read_tree},
    NetworkRow{"two-level",
               "group_size workers per server: inside it the links of inside = { latency_s, bandwidth_bytes_per_s }, "
               "between servers latency_s and bandwidth_bytes_per_s, as a ring or a tree (between).",
               read_two_level},
    NetworkRow{"parameter-server",
               "A star: all messages and collectives share the server's link of bandwidth_bytes_per_s each way, one "
               "after another; latency_s on top.",
               read_parameter_server},
    NetworkRow{"free", "Communication takes no time.", read_free},
};

}  // namespace

std::span<const NetworkRow> networks() { return network_rows; }

std::unique_ptr<NetworkModel> make_network(Settings& settings, const NetworkContext& context) {
  const auto* const row = settings.row({"kind", "The network model."}, network_rows);
  return row ? row->make(settings, context) : make_fixed_network(0);
}

}  // namespace syncopate
