#include "results/tables/sampled_note.hpp"

#include <fmt/format.h>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

std::string note_of_sampled() {
  return fmt::format(
      "\"sampled\": by the delays of up to {} of the run's own steps; where a run has no more steps than that, "
      "agreement\n"
      "with the formula shows nothing.\n",
      most_sampled_steps);
}

}  // namespace syncopate
