#include "results/tables/sampled_note.hpp"

#include <fmt/format.h>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

std::string note_of_sampled() {
  return fmt::format(
      "\"sampled\": by the delays of up to {} of the run's own steps. A run of no more steps has all its delays in\n"
      "common with the sample, so that there the formula cannot fail to agree.\n",
      most_sampled_steps);
}

}  // namespace syncopate
