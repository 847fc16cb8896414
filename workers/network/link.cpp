#include "workers/network/link.hpp"

#include <algorithm>
#include <stdexcept>

#include "workers/delays/limits.hpp"

namespace syncopate {

Link checked(const Link& link) {
  if (!(link.latency_s >= 0)) throw std::invalid_argument("a latency must be at least 0 s");
  if (!(link.bandwidth_bytes_per_s > 0)) throw std::invalid_argument("a bandwidth must be greater than 0 bytes/s");
  return link;
}

Link read_link(Settings& settings) {
  constexpr double positive = 1e-300;  // instead of a faulty 0
  const double latency_s =
      settings.number({"latency_s", "What a message takes, however short.", "s"}, Range::between(0, longest_delay));
  const double bandwidth_bytes_per_s =
      settings.number({"bandwidth_bytes_per_s", "How much a link carries.", "bytes/s"}, Range::positive());
  return {.latency_s = latency_s, .bandwidth_bytes_per_s = std::max(bandwidth_bytes_per_s, positive)};
}

}  // namespace syncopate
