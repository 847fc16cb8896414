// What one transfer over one link takes: latency + payload / bandwidth.
// Source:  Hockney 1994, "The communication challenge for MPP" (t = t0 + m / r).
// Units:   latency in seconds, bandwidth in bytes/s, infinite too.
#pragma once

#include <bit>

#include "workers/settings/settings.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Link {
  double latency_s = 0;
  double bandwidth_bytes_per_s = 1;

  double transfer_s(Bytes payload) const { return static_cast<double>(payload.value()) / bandwidth_bytes_per_s; }
  double message_s(Bytes payload) const { return latency_s + transfer_s(payload); }
};

// The link itself. Throws std::invalid_argument where the latency is below 0 or the bandwidth not above it.
Link checked(const Link& link);

// The keys `latency_s` and `bandwidth_bytes_per_s`.
Link read_link(Settings& settings);

// Rounds in which the number of those who know something doubles up to `members`: ceil(log2 members).
constexpr int doubling_rounds(int members) { return std::bit_width(static_cast<unsigned>(members - 1)); }

}  // namespace syncopate
