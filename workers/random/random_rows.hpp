// Several random streams side by side, which are drawn from at once: with a dozen numbers from each, that is a
// third cheaper than one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "workers/random/random.hpp"

namespace syncopate {

// The streams of consecutive workers at one step, or of one worker at consecutive steps.
struct RandomRows {
  enum class Along { workers, steps };

  RandomStream first{};
  Along along = Along::workers;
  std::size_t count = 1;

  RandomStream operator[](std::size_t row) const;
  // Rows [begin, begin + rows).
  RandomRows part(std::size_t begin, std::size_t rows) const { return {(*this)[begin], along, rows}; }

  // Row after row: out.size() / count numbers of each, from number `first_number` on, as its stream's own
  // fill_uniform would give them.
  void fill_uniform(std::uint32_t first_number, std::span<double> out) const;
};

}  // namespace syncopate
