// The tables [[outages]]: when workers make no progress, and whether they lose their state then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "workers/delays/outages.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Null where there are none; faults are collected by `root`. `workers_known`: whether the number of workers is known.
// `micro_batch_s`: the time of the slowest worker's micro-batch with its mean delays, which bounds how often there may
// be outages.
std::shared_ptr<const OutagePlan> read_outages(Settings& root, std::uint64_t seed, int workers, bool workers_known,
                                               double micro_batch_s);

// The same bound for a method with a server, where a worker that has lost its state begins its whole step anew. `plan`
// is what read_outages gave.
void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method);

}  // namespace syncopate
