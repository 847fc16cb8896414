// What a simulated cluster is made of. The references outlive it.
#pragma once

#include <cstddef>

#include "workers/cluster/run_observer.hpp"
#include "workers/cluster/run_record.hpp"
#include "workers/cluster/servers.hpp"
#include "workers/delays/compute_time.hpp"
#include "workers/delays/outages.hpp"
#include "workers/delays/pauses.hpp"
#include "workers/network/network.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

struct SimulatedOptions {
  int workers = 1;
  Servers servers{};
  int micro_batches = 1;  // usual number per step: so many durations are drawn at once
  const ComputeTime& compute_time;
  const NetworkModel& network;
  Training& training;
  RunObserver* observer = nullptr;      // may be null
  RunRecord* record = nullptr;          // null: nothing is recorded
  const OutagePlan* outages = nullptr;  // null: there are none
  const Pauses* pauses = nullptr;       // null: there are none; not together with servers or outages
  // There are neither collectives nor messages between workers, which are refused then: what comes to a worker comes from
  // servers, and of one server in the order of sending, which saves an event for each message.
  bool only_servers_send_to_workers = false;
  // More participants than that run on one stack in turn (StackPool): to copy what a suspended one has there costs less
  // than the page tables of stacks that lie far apart. An event of asynchronous SGD among 16,384 takes 0.8 times as long.
  std::size_t most_own_stacks = 8192;
};

}  // namespace syncopate
