// What a method communicates, where that follows from its number of steps alone and no clock has a say in it.
// Units:   rounds are rows of steps.csv, synchronisations of all; bytes are those of all workers, by the one ruler that
//          counts them: 2 (n - 1) P for an all-reduce of P bytes among n (Cluster).
// Checks:  whole runs of the same methods (tests/experiments/predicted_communication_test.cpp), whose bytes have closed
//          forms of their own (tests/algorithms/communication_test.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "workers/compression/options.hpp"
#include "workers/network/network.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Communicated {
  std::int64_t rounds = 0;
  Bytes bytes{};
  bool operator==(const Communicated&) const = default;
};

// Of a run of so many steps, in which nobody leaves or loses anything. The rate outlives it.
struct CommunicationInput {
  int workers = 1;
  Bytes parameter_bytes{};
  int moments = 0;  // vectors of the optimizer's state
  Step steps{};
  const LearningRate& learning_rate;
  std::vector<Exchange> exchanges{};  // of a compressed sum of gradients; none: it is dense

  static Bytes all_reduce(int members, Bytes payload) { return Bytes{2 * (members - 1) * payload.value()}; }
  Bytes of_gradient() const {
    if (exchanges.empty()) return all_reduce(workers, parameter_bytes);
    Bytes sum{};
    for (const Exchange& exchange : exchanges)
      sum +=
          collective_bytes({.operation = exchange.operation, .members = workers, .payload = exchange.payload(workers)});
    return sum;
  }
  Bytes payload_of(const AveragePolicy& policy) const {
    return Bytes{policy.averaged_vectors(moments) * parameter_bytes.value()};
  }
  Bytes of_average(const AveragePolicy& policy) const { return all_reduce(workers, payload_of(policy)); }
  CommunicationInput at_rate(const LearningRate& rate) const {
    return {workers, parameter_bytes, moments, steps, rate, exchanges};
  }
};

}  // namespace syncopate
