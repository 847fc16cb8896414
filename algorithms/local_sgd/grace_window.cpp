#include "algorithms/local_sgd/grace_window.hpp"

#include <algorithm>

namespace syncopate {

double GraceWindow::length_s() const {
  if (!step_s_ || !quorum_s_ || !sync_s_) return std::min(options_.initial_s, options_.longest_s);
  if (options_.margin == 0) return 0;  // also of a time to spare without end
  const double spare_s = options_.overlap_steps * *step_s_ - *quorum_s_ - *sync_s_;
  return std::min(options_.margin * std::max(0.0, spare_s), options_.longest_s);
}

void GraceWindow::take_in(double seconds, std::optional<double>& average) const {
  average = average ? (1 - options_.averaging) * *average + options_.averaging * seconds : seconds;
}

GraceOptions read_grace(Settings settings) {
  GraceOptions options;
  options.margin =
      settings.number({"margin", "Part of the time to spare that is waited for others (gamma)."}, Range::between(0, 1));
  options.overlap_steps =
      settings.number({"overlap_steps", "Within how many local steps a round should be over (tau).", "steps"},
                      Range::at_least(0), options.overlap_steps);
  options.averaging = settings.number({"averaging", "Weight of the newest value in the averages of measured times."},
                                      Range{.low = 0, .high = 1, .low_open = true}, options.averaging);
  options.initial_s = settings.number({"initial_s", "The window while nothing has been measured.", "s"},
                                      Range::between(0, 1e9), options.initial_s);
  options.longest_s =
      settings.number({"longest_s", "The window is no longer than this.", "s"}, Range::at_least(0), options.longest_s);
  return options;
}

}  // namespace syncopate
