// What a prediction lets averages carry: parameters, and the moments that the policy averages. On a ring of N an
// all-reduce of P bytes takes 2 (N - 1) (L + P / (N B)).
#include <gtest/gtest.h>

#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr double latency_s = 0.01, bytes_per_s = 8;

double ring_s(int members, double bytes) { return 2 * (members - 1) * (latency_s + bytes / members / bytes_per_s); }

struct Case {
  int moments;  // of the optimizer
  AveragePolicy policy;
  double vectors;  // in an average
};
constexpr auto keep = StatePolicy::keep, average = StatePolicy::average, reset = StatePolicy::reset;
const Case cases[] = {
    {0, {.moments = {average, average}}, 1}, {1, {.moments = {keep, keep}}, 1},
    {1, {.moments = {average, average}}, 2}, {2, {.moments = {average, average}}, 3},
    {2, {.moments = {reset, average}}, 2},   {2, {.moments = {average, keep}}, 2},
};

struct PredictedBytes : testing::TestWithParam<Case> {
  PredictedRun setting() const {
    return {
        .workers = 4, .steps = 80, .network = make_ring_network(latency_s, bytes_per_s), .moments = GetParam().moments};
  }
  double bytes() const { return 16 * GetParam().vectors; }  // 16 bytes of parameters
};

TEST_P(PredictedBytes, AnAverageCarriesTheMomentsThatAreAveraged) {
  const StatePolicies policies{.average = GetParam().policy};
  const std::shared_ptr<const SyncPeriod> period = make_constant_period(8);
  const LocalSgd local(period, policies);
  EXPECT_NEAR(setting().predict(local).at(0).communication_s, ring_s(4, bytes()) / 8, 1e-8);
  const DropLocalSgd drops(period, {.threshold = from_seconds(40), .state = policies});
  EXPECT_NEAR(setting().predict(drops).at(0).communication_s, ring_s(4, bytes()) / 8, 1e-8);
}

// Three averages of two workers each, and one of all, in eight steps.
TEST_P(PredictedBytes, SoDoGroups) {
  const HierarchicalSgd groups({.group_size = 2,
                                .group_period = 2,
                                .period = make_constant_period(8),
                                .policies = {.average = GetParam().policy}});
  const double expected = (3 * ring_s(2, bytes()) + ring_s(4, bytes())) / 8;
  EXPECT_NEAR(setting().predict(groups).at(0).communication_s, expected, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Moments, PredictedBytes, testing::ValuesIn(cases));

}  // namespace
}  // namespace syncopate
