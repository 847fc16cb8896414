// Whether messages arrive within the limit of all durations. Each key may be in its range, and a large model, a slow
// link and many workers together may still take for ever.
#pragma once

#include "workers/network/network.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// A fault names the key of [network] that most of the time comes from.
void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload);

}  // namespace syncopate
