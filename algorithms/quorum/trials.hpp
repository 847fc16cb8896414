// Trials: gradients that a worker gives up after a time limit. What methods that count them have in common.
// Units:   limits in seconds on the worker's clock.
// Cost:    a gradient of P floats to the server, or a note of latency alone.
#pragma once

#include <cstdint>

#include "workers/server.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Sends the worker's next gradient, or a note where the deadline's time has passed before. False where it came to
// neither: the next model is there, if the deadline asks for that, or the worker's data are used up.
bool make_trial(Worker& worker, const Deadline& deadline);

// Fails the run once very many trials in a row have been given up: without this a limit below every worker's time would
// let it go on for ever.
class FailedTrials {
 public:
  explicit FailedTrials(Server& server) : server_(server) {}

  void count(bool succeeded, Duration limit);

 private:
  Server& server_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace syncopate
