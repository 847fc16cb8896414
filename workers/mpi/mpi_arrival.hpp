// Before a collective moves data, every worker says that it has arrived, when, and with what: the
// wait for the last one is polite, all agree on totals, and a mismatch is explained, not hung on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workers/cluster/collective.hpp"
#include "workers/cluster/message.hpp"
#include "workers/cluster/place.hpp"

namespace syncopate {

struct Arrival {
  std::int64_t time_ns = 0;
  std::optional<Collective::Terms> terms{};  // none: the worker's program has ended
  std::int32_t wide = 0;                     // whether the gradient is
  std::int32_t blocks = 0;                   // whether the worker does nothing else until the collective has ended
  double weight = 0;                         // of the model in an average
  MomentAges ages{};                         // of its moments
  std::int64_t micro_batches = 0;            // in the gradient that is reduced
  std::int64_t kept = 0;                     // the worker's contribution, as in collective.hpp
  std::int64_t planned = 0;
  std::int64_t step = 0;
  std::int64_t period = 0;
  std::int64_t packet_bytes = 0;   // of the packet that is exchanged
  std::int64_t message_bytes = 0;  // sent by this worker so far
  std::int64_t partial_kept = 0;   // worker 0: micro-batches kept in partial all-reduces so far
  char place[64] = {};             // where in the algorithm, for the explanation
};

Contribution contribution_of(const Arrival& arrival);

void set_place(Arrival& arrival, const Place& place);

Time last_arrival(const std::vector<Arrival>& arrivals);

// Empty if all came for the same; else who stands where, one line each. The first arrival is that of
// worker `first`.
std::string explain_mismatch(const std::vector<Arrival>& arrivals, int first = 0);

// Why `own` cannot go on without a worker that will not come.
std::string explain_absence(const Arrival& own, Rank absent, const char* why);

// This worker's part of a weighted mean; nothing if all have the same part.
std::optional<double> share_of(const Arrival& own, const std::vector<Arrival>& arrivals);
// Of the mean of all workers' moments.
MomentAges age_of_mean(const Training& training, const std::vector<Arrival>& arrivals);

}  // namespace syncopate
