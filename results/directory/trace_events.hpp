// A timeline as Chrome trace events, which ui.perfetto.dev, speedscope and chrome://tracing open.
#pragma once

#include <cstdint>
#include <string>

#include "workers/cluster/span_recorder.hpp"

namespace syncopate {

struct TraceTitle {
  std::string experiment;
  std::string method;
  std::uint64_t seed = 0;
  std::string hash;
  std::string cluster;  // "simulated" or "mpi": whose clock it is
};

// A JSON object with a complete event per span, and names for the process and for a thread per participant. A server
// whose link is shared has two more threads, for what comes in over its link and what goes out. Times are in
// microseconds with their nanoseconds; no two events of a thread overlap, also after a viewer has rounded them.
// `otherData` says how far the timeline goes and whether a limit cut it.
std::string trace_events(const Timeline& timeline, const TraceTitle& title);

}  // namespace syncopate
