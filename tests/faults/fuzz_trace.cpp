#include <algorithm>
#include <cmath>
#include <string>

#include "tests/faults/fuzzing.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

void fuzz_trace(std::string_view input) {
  try {
    const Trace trace("run.csv", input);
    must(trace.workers() > 0 && trace.steps().value() > 0, "a trace has workers and steps");
    must(trace.minimum_s() >= 0, "durations are not negative");
    const int workers = std::min(trace.workers(), 4);
    const Step steps = std::min(trace.steps(), Step{4});
    for (int worker = 0; worker < workers; ++worker) {
      for (Step step = 0; step < steps; ++step)
        for (const double duration_s : trace.durations_s(worker, step, 0, 1000))
          must(duration_s >= trace.minimum_s(worker) && duration_s <= longest_delay, "durations are within limits");
      const StepLaw law = trace.step_law(worker, 1);
      must(std::isnan(law.mean_s) || (std::isfinite(law.mean_s) && law.variance_s2 >= 0), "moments are finite");
    }
  } catch (const FileFault& fault) {
    must(std::string_view(fault.what()).starts_with("run.csv"), "a fault begins with the file's name");
  }
}

}  // namespace syncopate
