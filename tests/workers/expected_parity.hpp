// The comparison of an algorithm's runs on both clusters, for algorithms whose control flow does not depend on time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "tests/workers/compressions.hpp"
#include "tests/workers/parity.hpp"

namespace syncopate {

// Checks that both clusters have equal parameters up to rounding and equal counts, and that the MPI run takes at least
// the time of its delays.
inline void expect_parity(const Algorithm& algorithm,
                          std::shared_ptr<const Optimizer> optimizer = make_sgd({.momentum = 0.9}),
                          double tolerance = 1e-5, double clip_norm = 0, Step unplanned_steps = {}) {
  ASSERT_EQ(session->size(), workers + 1) << "start this test with mpirun -n 5: one rank serves, or is idle";
  Parity parity(1e-6, 50e-6, std::move(optimizer), clip_norm);
  parity.unplanned_steps = unplanned_steps;
  const Outcome expected = parity.simulated(algorithm);
  const Outcome found = parity.mpi(algorithm);
  const int holder = algorithm.traits().servers > 0 ? workers : std::min(session->rank(), workers - 1);
  EXPECT_EQ(expected.parameters.empty(), session->rank() != holder);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(found.parameters[i]) - expected.parameters[i]));
    norm = std::max(norm, std::abs(static_cast<double>(expected.parameters[i])));
  }
  EXPECT_LE(difference, tolerance * norm);
  EXPECT_GE(to_seconds(found.totals.end), least_s(algorithm, unplanned_steps));
  EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
  EXPECT_EQ(found.totals.collectives, expected.totals.collectives);
  EXPECT_EQ(found.totals.messages, expected.totals.messages);
  EXPECT_EQ(found.totals.kept, expected.totals.kept);
  EXPECT_EQ(found.totals.dropped, expected.totals.dropped);
  if (session->rank() == 0)
    std::printf("largest difference %.1e of %.2g; simulated %.4f s, wall %.4f s\n", difference, norm,
                to_seconds(expected.totals.end), to_seconds(found.totals.end));
}

// The tolerance for a compression. With int8, rounding in the last bit may move a value into the next bin.
inline double tolerance_of(std::string_view kind) { return kind == "int8" || kind == "bins" ? 2e-4 : 1e-5; }
inline bool has_two_phases(std::string_view kind) {
  return kind == "sign" || kind == "one-bit" || kind == "qsgd" || kind == "int8" || kind == "fp4" || kind == "bins";
}

}  // namespace syncopate
