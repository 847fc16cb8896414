// Micro-batches that outages never let end: the run fails and says why, instead of beginning them anew for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/idx_files.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Micro-batches of 1 s; outages of all workers, 10 ms after one another: e^100 restarts until one meets none.
std::string failure_of(const std::string& method) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{0.01, 0.001}, .loses_state = true}});
  const auto read = read_method(method);
  return message_of<RunFailure>([&] {
    SimulatedRun{.workers = 2, .micro_batches = 2, .budget = {.steps = 2}, .outages = plan}.run(*read.algorithm);
  });
}

TEST(EndlessRestarts, OfAMicroBatchAreAFailure) {
  for (const char* method :
       {"algorithm = \"sync-sgd\"\n", "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 2 }\n",
        "algorithm = \"dropcompute\"\nthreshold_s = 1e9\n", "algorithm = \"eager-sgd\"\n"})
    EXPECT_THAT(failure_of(method),
                AllOf(HasSubstr("worker 0 at "),
                      HasSubstr(" s: micro-batch 0 of step 0 has been begun anew 100000 times since 0.0"),
                      HasSubstr("mean_time_between_s"), HasSubstr("\"kept\"")))
        << method;
}

TEST(EndlessRestarts, OfAServersStepAreAFailure) {
  for (const char* method :
       {"algorithm = \"async-sgd\"\n", "algorithm = \"softsync\"\n", "algorithm = \"backup-workers\"\nbackups = 1\n"})
    EXPECT_THAT(failure_of(method),
                AllOf(HasSubstr("of 2 micro-batches, has been begun anew 100000 times"), HasSubstr("\"kept\"")))
        << method;
}

// Each micro-batch counts on its own, and so does each step: thousands of restarts in a run are no failure.
TEST(EndlessRestarts, AreThoseOfOneMicroBatchNotOfARun) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{0.125, 0.001}, .loses_state = true}});
  const auto outcome = SimulatedRun{.workers = 2, .micro_batches = 2, .budget = {.steps = 100}, .outages = plan}.run(
      *read_method("algorithm = \"sync-sgd\"\n").algorithm);
  EXPECT_EQ(outcome.published, Step{100});
  // Of micro-batches of 1 s, e^8 begin until one ends, each with 0.125 s on average: e^8 / 8 - 1 s are lost of each.
  double discarded_s = 0;
  for (const Account& account : outcome.totals.accounts) discarded_s += to_seconds(account[Activity::discarded]);
  const double expected_s = 400 * (std::exp(8) / 8 - 1);
  EXPECT_NEAR(discarded_s, expected_s, 4 * expected_s / std::sqrt(400));
}

}  // namespace
}  // namespace syncopate
