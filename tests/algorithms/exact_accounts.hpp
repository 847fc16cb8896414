// Checks a property of every run: each worker-second is booked exactly once.
#pragma once

#include <gtest/gtest.h>

#include <numeric>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {

inline void expect_exact_accounts(const SimulatedRun::Outcome& outcome) {
  for (std::size_t worker = 0; worker < outcome.totals.accounts.size(); ++worker) {
    const Account& account = outcome.totals.accounts[worker];
    EXPECT_EQ(account.total(), outcome.totals.end.time_since_epoch()) << "worker " << worker;
    for (const Duration time : account.time) EXPECT_GE(time, Duration{}) << "worker " << worker;
  }
}

inline std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace syncopate
