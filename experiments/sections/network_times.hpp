// Whether what is sent arrives within the limit of all durations: each key may be right alone, and a model's size, a
// link's speed and the number of workers take for ever together.
#pragma once

#include "workers/network/network.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// A fault names the key of [network] that most of the time is due to.
void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload);

}  // namespace syncopate
