#include "algorithms/quorum/trials.hpp"

#include <fmt/format.h>

#include <utility>

namespace syncopate {

bool make_trial(Worker& worker, const Deadline& deadline) {
  if (auto gradient = worker.compute_step_gradient(deadline, Samples::in_turn))
    worker.send_gradient(*std::move(gradient));
  else if (worker.now() >= deadline.at)
    worker.send(Rank{worker.size()}, Message::note(worker.step()));
  else
    return false;
  return true;
}

void FailedTrials::count(bool succeeded, Duration limit) {
  constexpr std::int64_t most_per_worker = 1000;
  in_a_row_ = succeeded ? 0 : in_a_row_ + 1;
  if (in_a_row_ > most_per_worker * server_.size())
    server_.fail(fmt::format("none of the last {} trials was done by limit_s ({:g} s)", in_a_row_, to_seconds(limit)));
}

}  // namespace syncopate
