// Micro-batches that outages never let end: the run fails and says why, instead of beginning them anew for ever.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/time/distributions.hpp"

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
    EXPECT_THAT(failure_of(method), AllOf(HasSubstr("worker 0 at "),
                                          HasSubstr(" s: micro-batch 0 of step 0 has been begun anew 100000 times: "),
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

// A micro-batch begun anew takes as long as before, D, and outages 1 / rate apart take its state e^(rate D) - 1 times,
// and the part of D that was done each time: (e^(rate D) - 1) / rate - D in all. Of D = 1 s + Exp of mean m the mean of
// e^(rate D) is e^rate / (1 - rate m), and that of its square e^(2 rate) / (1 - 2 rate m).
TEST(EndlessRestarts, OfRandomMicroBatchesAreAsManyAsTheirLawSays) {
  constexpr double rate = 2, mean_s = 0.1;
  constexpr int steps = 2000, micro_batches = 2 * 2 * steps;
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{1 / rate, 0.001}, .loses_state = true}});
  const auto outcome = SimulatedRun{.workers = 2,
                                    .micro_batches = 2,
                                    .budget = {.steps = steps},
                                    .delays = {exponential_delay(mean_s)},
                                    .outages = plan,
                                    .objective = nullptr}
                           .run(*read_method("algorithm = \"sync-sgd\"\n").algorithm);
  EXPECT_EQ(outcome.published, Step{steps});
  double discarded_s = 0;
  for (const Account& account : outcome.totals.accounts) discarded_s += to_seconds(account[Activity::discarded]);
  const double lost_s = (std::exp(rate) / (1 - rate * mean_s) - 1) / rate - (1 + mean_s);
  // Its number of restarts has a variance below twice the mean of e^(2 rate D), and each loses at most 1 / rate or so.
  const double deviation_s = std::sqrt(2 * std::exp(2 * rate) / (1 - 2 * rate * mean_s)) / rate;
  EXPECT_NEAR(discarded_s / micro_batches, lost_s, 4 * deviation_s / std::sqrt(micro_batches));
}

// Of a Pareto law of shape 1.2 a micro-batch is drawn once in a while that the outages never let end: e^14 restarts and
// more, where the others before it need fewer than e^9. The drawn times say which.
TEST(EndlessRestarts, OfARandomMicroBatchNameTheFirstThatIsTooLong) {
  const std::vector<std::shared_ptr<const DelayProcess>> delays = {pareto_delay(1.2, 0.1)};
  constexpr double between_s = 0.3;
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{between_s, 0.001}, .loses_state = true}});
  const SimulatedRun setup{.workers = 1,
                           .micro_batches = 2,
                           .budget = {.steps = 10'000},
                           .delays = delays,
                           .outages = plan,
                           .objective = nullptr};
  const ComputeTime compute_time(setup.seed, setup.base_s, {}, delays);
  std::string too_long;
  for (Step step = 0; too_long.empty() && step < setup.budget.steps; ++step) {
    std::vector<Duration> drawn(2);
    compute_time.durations(Rank{0}, step, 0, drawn);
    for (std::size_t m = 0; m < drawn.size() && too_long.empty(); ++m) {
      const double outages = to_seconds(drawn[m]) / between_s;
      ASSERT_TRUE(outages < 9 || outages > 14) << "another seed is needed: this micro-batch may end or not";
      if (outages > 14) too_long = fmt::format(": micro-batch {} of step {} has been begun anew", m, step.value());
    }
  }
  ASSERT_FALSE(too_long.empty());
  const auto read = read_method("algorithm = \"sync-sgd\"\n");
  EXPECT_THAT(message_of<RunFailure>([&] { setup.run(*read.algorithm); }), HasSubstr(too_long));
}

}  // namespace
}  // namespace syncopate
