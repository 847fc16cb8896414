// Outages without end in one micro-batch, or while a worker waits for one: the run fails within seconds and says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

struct Met {
  std::vector<Rank> workers{};  // by outages 1 s after one another; empty: all
  std::shared_ptr<const DelayProcess> delay{};
};

std::string failure_of(const std::string& method, const Met& met) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = met.workers, .when = RandomOutages{1, 0.1}, .loses_state = false}});
  const auto read = read_method(method);
  return message_of<RunFailure>([&] {
    SimulatedRun{.workers = 2, .budget = {.steps = 1000}, .delays = {met.delay}, .outages = plan}.run(*read.algorithm);
  });
}

// Of 1,000 draws from a Pareto law of shape 0.3 the longest is 1,000^(1 / 0.3) = 1e10 times the shortest or so.
TEST(EndlessOutages, OfADelayWithoutAMeanAreAFailure) {
  for (const char* method : {"algorithm = \"sync-sgd\"\n", "algorithm = \"async-sgd\"\n"})
    EXPECT_THAT(failure_of(method, {.delay = pareto_delay(0.3, 0.1)}),
                AllOf(MatchesRegex("worker [01] at .* s: it has met 1000000 outages in one micro-batch.*"),
                      HasSubstr("mean_time_between_s"), HasSubstr("Pareto")))
        << method;
}

// Worker 1, who meets none, takes 1e8 s; worker 0 waits for it.
TEST(EndlessOutages, WhileAWorkerWaitsAreAFailure) {
  EXPECT_THAT(failure_of("algorithm = \"sync-sgd\"\n",
                         {.workers = {Rank{0}}, .delay = scoped_delay(constant_delay(1e8), {.workers = {1}})}),
              AllOf(MatchesRegex("worker 0 at .* s: it has met 1000000 outages .* since its last one.*")));
}

// 1e5 s of work between outages, each 1.1 s after the one before: 1e5 of them are met.
TEST(EndlessOutages, AreMoreThanManyOfThem) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{1, 0.1}, .loses_state = false}});
  const auto outcome =
      SimulatedRun{.workers = 2, .budget = {.steps = 1}, .delays = {constant_delay(1e5)}, .outages = plan}.run(
          *read_method("algorithm = \"sync-sgd\"\n").algorithm);
  EXPECT_NEAR(to_seconds(outcome.totals.accounts[0][Activity::down]), 1e4, 4 * 0.1 * std::sqrt(2e5));
}

}  // namespace
}  // namespace syncopate
