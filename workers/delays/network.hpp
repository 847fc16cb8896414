// What communication costs on the virtual clock, and how many bytes it moves.
#pragma once

#include <memory>

#include "workers/units.hpp"

namespace syncopate {

// Contract: pure functions; `payload` is the size of the vector that is reduced or sent.
class NetworkModel {
 public:
  virtual ~NetworkModel() = default;

  // From the last arrival to the result everywhere.
  virtual Duration all_reduce(int workers, Bytes payload) const = 0;

  // From the last arrival until everybody has everybody's values; `payload` is that of all together.
  virtual Duration all_gather(int workers, Bytes payload) const = 0;

  // One message between a worker and a server, or between two workers.
  virtual Duration message(Bytes payload) const = 0;
};

// Bytes that all workers together send in a ring all-reduce: 2 (N - 1) x payload. The same count is
// booked whatever the cost model, so that methods are compared by the same ruler.
constexpr Bytes all_reduce_bytes(int workers, Bytes payload) { return Bytes{2 * (workers - 1) * payload.value()}; }

// Bytes that all workers together send so that each has all of `payload`: N - 1 times that.
constexpr Bytes all_gather_bytes(int workers, Bytes payload) { return Bytes{(workers - 1) * payload.value()}; }

// Fixed serial latency per collective and per message (T^c of DropCompute).
std::unique_ptr<NetworkModel> make_fixed_network(double latency_s);

// Ring all-reduce: 2 (N - 1) latency + 2 (N - 1) / N x payload / bandwidth; all-gather:
// half of that; message: latency + payload / bandwidth.
std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s);

}  // namespace syncopate
