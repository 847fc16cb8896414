// What a method communicates, where that follows from its number of steps alone and no clock has a say in it.
// Units:   rounds are rows of steps.csv, synchronisations of all; bytes are those of all workers, by the one ruler that
//          counts them: 2 (n - 1) P for an all-reduce of P bytes among n (Cluster).
// Checks:  whole runs of the same methods (tests/experiments/predicted_communication_test.cpp), whose bytes have closed
//          forms of their own (tests/algorithms/communication_test.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "workers/compression/compressor.hpp"
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
  std::vector<ExchangesFrom> exchanges{};     // of compressed sums of gradients; none: they are dense
  std::vector<Exchange> average_exchanges{};  // of a compressed average of models; likewise
  std::optional<Bytes> packet{};              // of a compressed message to a server; likewise

  static Bytes all_reduce(int members, Bytes payload) { return Bytes{2 * (members - 1) * payload.value()}; }
  // Of a dense sum.
  Bytes of_gradient() const { return all_reduce(workers, parameter_bytes); }
  // Of one sum in each of the steps, compressed or not.
  Bytes of_gradients() const {
    if (exchanges.empty()) return Bytes{steps.value() * of_gradient().value()};
    Bytes sum{};
    for (const auto& [count, exchanged] : shared_out(exchanges, steps))
      sum += Bytes{count * of_exchanges(*exchanged).value()};
    return sum;
  }
  Bytes of_exchanges(const std::vector<Exchange>& of_one) const {
    Bytes sum{};
    for (const Exchange& exchange : of_one)
      sum +=
          collective_bytes({.operation = exchange.operation, .members = workers, .payload = exchange.payload(workers)});
    return sum;
  }
  Bytes payload_of(const AveragePolicy& policy) const {
    return Bytes{policy.averaged_vectors(moments) * parameter_bytes.value()};
  }
  Bytes of_average(const AveragePolicy& policy) const {
    return average_exchanges.empty() ? all_reduce(workers, payload_of(policy)) : of_exchanges(average_exchanges);
  }
  CommunicationInput at_rate(const LearningRate& rate) const {
    return {workers, parameter_bytes, moments, steps, rate, exchanges, average_exchanges, packet};
  }
};

}  // namespace syncopate
