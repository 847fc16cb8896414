// Three workers of unequal speed, for timelines of methods with a server.
#pragma once

#include <string>
#include <vector>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {

using Log = std::vector<std::string>;
using Counts = std::vector<std::int64_t>;

// A model takes 0.25 s to a worker, and a gradient 0.25 s back. The workers compute for 1, 1.1 and 2.6 s, so their
// gradients arrive 1.5, 1.6 and 3.1 s after their models were sent.
inline SimulatedRun three_workers(int steps) {
  return {.network_s = 0.25,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6})}};
}

inline void expect_accounts_sum_to_the_time(const RunTotals& totals) {
  for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
}

}  // namespace syncopate
