// Where a participant waits.
#pragma once

#include "workers/units/source_line.hpp"

namespace syncopate {

// Where in an algorithm a worker waits, for explanations of a deadlock.
struct Place {
  const char* operation = "";
  SourceLine at;
};

}  // namespace syncopate
