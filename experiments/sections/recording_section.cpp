#include "experiments/sections/recording_section.hpp"

#include <limits>

namespace syncopate {

RecordingPlan read_recording(Settings& root) {
  RecordingPlan plan;
  if (!root.has("recording")) return plan;
  Settings recording = root.section({"recording", "More files of each run."});
  plan.trace = recording.flag({"trace", "Whether trace.json.gz is written: what every worker does when."}, false);
  plan.trace_events = recording.integer({"trace_events", "The trace ends after so many spans.", "spans"}, 1,
                                        std::numeric_limits<std::int64_t>::max(), plan.trace_events);
  plan.trace_seconds = recording.optional_number(
      {"trace_seconds", "The trace ends at this time on the cluster's clock.", "s", "no bound"},
      {.low = 0, .low_open = true, .high_open = true});
  plan.durations = recording.optional_flag(
      {"durations", "Whether durations.csv.gz is written, a row per micro-batch.", "", "under MPI alone"});
  plan.arrivals =
      recording
          .optional_flag(
              {"arrivals", "Whether arrivals.csv.gz is written: when each round's k-th gradient comes.", "", "false"})
          .value_or(false);
  plan.samples = recording
                     .optional_flag({"samples", "Whether summary.json has shares of kept samples, by class and length.",
                                     "", "false"})
                     .value_or(false);
  plan.parameters =
      recording.optional_flag({"parameters", "Whether parameters.npy is written, the last model.", "", "false"})
          .value_or(false);
  return plan;
}

}  // namespace syncopate
