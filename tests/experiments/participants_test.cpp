#include <gtest/gtest.h>

#include "experiments/execution/execution.hpp"

namespace syncopate {
namespace {

struct WithServers : Algorithm {
  explicit WithServers(int count) : count(count) {}
  void run(Worker&) const override {}
  Traits traits() const override { return {.servers = count}; }
  int count;
};

TEST(Participants, AreTheMostWorkersAndTheMostServersOfAnyRun) {
  Experiment experiment;
  for (const auto& [workers, servers] : {std::pair(4, 0), std::pair(2, 3), std::pair(3, 1)}) {
    experiment.runs.emplace_back().cluster.workers = workers;
    experiment.runs.back().algorithm = std::make_shared<WithServers>(servers);
  }
  EXPECT_EQ(participants(experiment).workers, 4);
  EXPECT_EQ(participants(experiment).servers, 3);
}

}  // namespace
}  // namespace syncopate
