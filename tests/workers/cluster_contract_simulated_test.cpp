// The cluster contract on the simulated cluster, with the numbers of participants that ctest also starts under mpirun,
// and with a larger number.
#include "tests/workers/cluster_contract.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

std::unique_ptr<Cluster> make_simulated(const ContractSetup& setup) {
  static const auto network = make_fixed_network(1e-6);
  return std::make_unique<SimulatedCluster>(SimulatedOptions{.workers = setup.workers,
                                                             .servers = setup.servers,
                                                             .compute_time = setup.compute_time,
                                                             .network = *network,
                                                             .training = setup.training,
                                                             .observer = setup.observer,
                                                             .record = setup.record,
                                                             .outages = setup.outages});
}

ClusterKind simulated(int participants) {
  // Events are exact; a message or a collective takes a microsecond.
  return {.name = "simulated, " + std::to_string(participants),
          .participants = participants,
          .make = make_simulated,
          .tolerance = std::chrono::microseconds(5),
          .agreed_after = std::chrono::microseconds(1)};
}

const auto numbers_of_participants = testing::Values(simulated(2), simulated(3), simulated(5), simulated(17));
const auto name_of = [](const auto& info) { return std::to_string(info.param.participants) + "Participants"; };
INSTANTIATE_TEST_SUITE_P(Simulated, ClusterContract, numbers_of_participants, name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, BookingContract, numbers_of_participants, name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, TwoServersContract, testing::Values(simulated(3), simulated(5), simulated(17)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, RegionsContract, testing::Values(simulated(3), simulated(5), simulated(17)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, PartialContract, numbers_of_participants, name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, RecordContract, numbers_of_participants, name_of);
INSTANTIATE_TEST_SUITE_P(Simulated, OutageContract, numbers_of_participants, name_of);

class SimulatedFailures : public ClusterContract {};
INSTANTIATE_TEST_SUITE_P(Simulated, SimulatedFailures, testing::Values(simulated(3)));

TEST_P(SimulatedFailures, AnExceptionOfOneWorkerEndsTheRunAndComesBack) {
  const auto program = [&](Cluster& cluster, Rank self) {
    if (self.value == 1) throw std::runtime_error("worker 1 fell over");
    cluster.barrier(self, here());
  };
  EXPECT_THROW(
      {
        try {
          run(3, program);
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "worker 1 fell over");
          throw;
        }
      },
      std::runtime_error);
}

TEST_P(SimulatedFailures, WorkersInDifferentCollectivesAreAFailureOfTheRun) {
  EXPECT_THROW(run(3,
                   [&](Cluster& cluster, Rank self) {
                     Gradient none;
                     if (self.value == 1)
                       cluster.barrier(self, here());
                     else
                       cluster.all_reduce_sum(self, none, {}, {}, here());
                   }),
               RunFailure);
}

TEST_P(SimulatedFailures, AWorkerThatEndsWhileOthersWaitForItIsAFailureOfTheRun) {
  EXPECT_THROW(run(3,
                   [&](Cluster& cluster, Rank self) {
                     if (self.value != 1) cluster.barrier(self, here());
                   }),
               RunFailure);
}

}  // namespace
}  // namespace syncopate
