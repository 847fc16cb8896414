// The end of a run that cannot go on.
#pragma once

#include <stdexcept>

namespace syncopate {

// A run that cannot go on: what, which worker, when. Exit status 1.
struct RunFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace syncopate
