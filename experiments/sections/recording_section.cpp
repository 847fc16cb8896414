#include "experiments/sections/recording_section.hpp"

#include <limits>

namespace syncopate {

RecordingPlan read_recording(Settings& root) {
  RecordingPlan plan;
  if (!root.has("recording")) return plan;
  Settings recording = root.section("recording");
  plan.trace = recording.flag("trace", false);
  plan.trace_events = recording.integer("trace_events", 1, std::numeric_limits<std::int64_t>::max(), plan.trace_events);
  if (recording.has("trace_seconds"))
    plan.trace_seconds = recording.number("trace_seconds", {.low = 0, .low_open = true, .high_open = true});
  if (recording.has("durations")) plan.durations = recording.flag("durations");
  if (recording.has("parameters")) plan.parameters = recording.flag("parameters");
  return plan;
}

}  // namespace syncopate
